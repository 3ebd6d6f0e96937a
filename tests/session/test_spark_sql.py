"""The wrapped ``spark.sql``, on a session without Spark."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.errors import WRONG_KIND, SqlError
from rw_sql.session.spark_sql import wrap_class
from rw_sql.syntax.dialect.bound_statement import bound_statement
from rw_sql.syntax.lexing.tokens import span_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.statements import Statement


class Noted:
    """Notes what an attached session receives."""

    def __init__(self) -> None:
        self.has_failed = False
        self.guarded: list[str] = []
        self.prepared: list[str] = []
        self.read_texts: list[str] = []

    def route(self, _text: str) -> Statement | None:
        return None

    def run(self, _text: str, _statement: Statement) -> Any:
        raise AssertionError

    def refuse_changes(self, text: str) -> None:
        self.guarded.append(text)
        if text.startswith("DELETE"):
            raise SqlError(WRONG_KIND, "it is a view", span=span_of(text, 12, 18)).located(text)

    def before_spark(self, text: str) -> None:
        self.prepared.append(text)

    def read(self, text: str, read: Callable[[], Any], args: Any = None, fields: Any = None) -> Any:
        self.read_texts.append(bound_statement(text, args, fields).complete)
        return read()

    def abort_block(self) -> None:
        self.has_failed = True


@pytest.fixture
def noted() -> tuple[Noted, Any]:
    """What the attached session receives, and a session whose ``sql`` returns its arguments."""

    class Session:
        def sql(self, text: str, args: Any = None, **fields: Any) -> Any:
            return text, args, fields

    made = Noted()
    wrap_class(
        Session,
        lambda _: made,
        lambda _, text: text.replace("public.", "default."),
        lambda _: nullcontext(),
    )
    return made, Session()


def test_the_guard_and_the_views_receive_the_names_in_the_arguments(noted: tuple[Noted, Any]) -> None:
    made, spark = noted
    text, args = "DROP VIEW IDENTIFIER(:v)", {"v": "totals"}
    assert spark.sql(text, args) == (text, args, {})
    assert spark.sql("SELECT * FROM IDENTIFIER(?)", ["rw_catalog.rw_jobs"])[1] == ["rw_catalog.rw_jobs"]
    assert spark.sql("FROM IDENTIFIER({t})", t="totals")[2] == {"t": "totals"}
    wanted = ["DROP VIEW totals", "SELECT * FROM rw_catalog.rw_jobs", "FROM totals"]
    assert (made.guarded, made.prepared) == (wanted, wanted)
    assert made.read_texts == wanted


def test_an_error_points_at_the_statement_as_it_was_written(noted: tuple[Noted, Any]) -> None:
    made, spark = noted
    with pytest.raises(SqlError) as caught:
        spark.sql("DELETE FROM\nIDENTIFIER(:v) WHERE word = :w", {"v": "totals", "w": "hidden"})
    assert made.has_failed
    assert caught.value.span is not None
    assert (caught.value.span.line, caught.value.span.column) == (2, 1)
    assert "IDENTIFIER(:v)" in caught.value.render()
    assert "hidden" not in caught.value.render()


def test_a_name_in_an_argument_is_rewritten_for_spark(noted: tuple[Noted, Any]) -> None:
    made, spark = noted
    text = "SELECT ? FROM IDENTIFIER(?) WHERE x > ?"
    assert spark.sql(text, [1, "public.t", 3]) == ("SELECT ? FROM default.t WHERE x > ?", [1, 3], {})
    found = spark.sql("SELECT {c} FROM IDENTIFIER(:t) JOIN {df}", {"t": "public.t"}, c=1, df=2)
    assert found == ("SELECT {c} FROM default.t JOIN {df}", {}, {"c": 1, "df": 2})
    assert spark.sql("FROM IDENTIFIER('public.t')") == ("FROM default.t", None, {})
    assert made.read_texts == [
        "SELECT NULL FROM default.t WHERE x > NULL",
        "SELECT ___ FROM default.t JOIN ____",
        "FROM default.t",
    ]
