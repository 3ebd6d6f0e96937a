"""RisingWave's queries become Spark's with the same meaning, or are refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import INVALID_EXPRESSION, NOT_SUPPORTED, SqlError
from rw_sql.syntax import parse_statement
from rw_sql.syntax import statements as ast
from rw_sql.syntax.dialect.to_spark import to_spark, watermark_delay
from tests.conftest import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = FIXTURES / "dialect"


def blocks(name: str) -> list[str]:
    return [block.strip() for block in (FOLDER / name).read_text(encoding="utf-8").split("\n\n") if block.strip()]


def view(query: str) -> ast.CreateMaterializedView:
    statement = parse_statement(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert isinstance(statement, ast.CreateMaterializedView)
    return statement


def test_queries(recorded: Callable[..., None]) -> None:
    shown = []
    for query in blocks("queries.sql"):
        spark = to_spark(view(query).query)
        window = f"\nwindow over {spark.time_column}" if spark.time_column else ""
        shown.append(f"{query}\n{spark.text}{window}\n")
    recorded(FOLDER / "queries.txt", "\n".join(shown))


def test_refusals(recorded: Callable[..., None]) -> None:
    shown = []
    for query in blocks("refused.sql"):
        statement = view(query)
        with pytest.raises(SqlError) as caught:
            to_spark(statement.query)
        assert caught.value.kind is NOT_SUPPORTED, query
        shown.append(caught.value.located(f"CREATE MATERIALIZED VIEW v AS {query}").render() + "\n")
    recorded(FOLDER / "refused.txt", "\n".join(shown))


def test_emit_on_window_close_needs_a_window() -> None:
    windowed = view("SELECT window_start, count(*) FROM tumble(t, ts, INTERVAL '1' MINUTE) GROUP BY window_start")
    assert to_spark(windowed.query, is_emit_on_window_close=True).time_column == "ts"
    with pytest.raises(SqlError, match="EMIT ON WINDOW CLOSE"):
        to_spark(view("SELECT a, count(*) FROM t GROUP BY a").query, is_emit_on_window_close=True)


def test_what_is_sparks_only_is_no_sql_of_risingwaves() -> None:
    with pytest.raises(SqlError) as caught:
        to_spark(view("SELECT * FROM t LATERAL VIEW explode(a) e AS b").query)
    assert caught.value.kind in (INVALID_EXPRESSION, NOT_SUPPORTED)


@pytest.mark.parametrize(
    ("expression", "delay"),
    [
        ("at - INTERVAL '5 minutes'", "5 minutes"),
        ("at - INTERVAL '60' SECOND", "60 seconds"),
        ("at - INTERVAL '1' DAY", "1 days"),
        ("at", "0 seconds"),
        ("`at` - INTERVAL '5 minutes'", "5 minutes"),
        ('"at"', "0 seconds"),
    ],
)
def test_watermark_delay(expression: str, delay: str) -> None:
    assert watermark_delay(watermark(expression)) == delay


@pytest.mark.parametrize("expression", ["at + INTERVAL '1' DAY", "at - INTERVAL '1' MONTH", "coalesce(at, at)"])
def test_other_watermarks_are_refused(expression: str) -> None:
    with pytest.raises(SqlError) as caught:
        watermark_delay(watermark(expression))
    assert caught.value.kind is NOT_SUPPORTED


def watermark(expression: str) -> ast.Watermark:
    statement = parse_statement(f"CREATE TABLE t (at TIMESTAMP, WATERMARK FOR at AS {expression})")
    assert isinstance(statement, ast.CreateTable)
    return statement.watermarks[0]
