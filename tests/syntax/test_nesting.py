"""Queries with many levels: what Python's recursion limit permits, and one sentence for the rest."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.main import app
from rw_sql.plan.offline.script import ScriptChecker
from rw_sql.syntax import parse
from rw_sql.syntax.lexing.nesting import allow_nesting
from rw_sql.syntax.query.canonical_query import canonical_query
from rw_sql.syntax.query.tables_read import table_names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE = "CREATE SOURCE s (a VARCHAR, b INT) WITH (connector = 'datagen');\n"
WRONG = "CREATE MATERIALIZED VIEW w AS SELECT nope FROM s;\n"


@pytest.fixture(autouse=True)
def python_limit() -> Iterator[None]:
    """Python's recursion limit as in a new process."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    yield
    sys.setrecursionlimit(before)


def nested(levels: int) -> str:
    """A query whose one column has this many calls around it."""
    return "SELECT " + "replace(" * levels + "a" + ", 'x', 'y')" * levels + " AS b FROM s"


DEEPEST = {
    "calls": nested(95),
    "casts": f"SELECT {'CAST(' * 95}a{' AS string)' * 95} AS b FROM s",
    "brackets": f"SELECT {'(' * 95}a{')' * 95} AS b FROM s",
    "arrays": f"SELECT {'array(' * 95}a{')' * 95} AS b FROM s",
    "cases": f"SELECT {'CASE WHEN true THEN ' * 95}a{' END' * 95} AS b FROM s",
    "subqueries": f"SELECT {'(SELECT ' * 47}max(a){' FROM s)' * 47} AS b FROM s",
}


@pytest.mark.parametrize("query", DEEPEST.values(), ids=DEEPEST.keys())
def test_sqlglot_reads_and_writes_the_levels_that_the_grammar_permits(query: str) -> None:
    allow_nesting()
    parse(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert table_names(query) == ("s",)
    assert canonical_query(f"{query} -- a comment") == canonical_query(query) != query


def test_a_higher_limit_of_the_process_remains() -> None:
    sys.setrecursionlimit(20_000)
    allow_nesting()
    assert sys.getrecursionlimit() == 20_000


def test_a_query_too_deep_for_the_process_is_its_own_canonical_form() -> None:
    query = nested(96)
    assert canonical_query(f" {query}\n") == query


def test_a_query_too_deep_for_the_process_is_one_error_among_others() -> None:
    deep = f"CREATE MATERIALIZED VIEW v AS {nested(60)};\n"
    reads = "CREATE MATERIALIZED VIEW x AS SELECT b FROM v;\n"
    text = SOURCE + deep + reads + WRONG
    found = [error for checked in ScriptChecker().check(text, "x") for error in checked.errors]
    assert [error.code for error in found] == ["RW104", "RW205"]
    assert found[0].span is not None
    assert text[found[0].span.start :].startswith("SELECT replace(")


def test_check_reports_the_other_statements_of_a_file_with_a_deep_query(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.sql"
    file.write_text(f"{SOURCE}CREATE MATERIALIZED VIEW v AS {nested(95)};\n{WRONG}", encoding="utf-8")
    with pytest.raises(SystemExit) as caught:
        app(["check", str(file)])
    shown = capsys.readouterr()
    assert caught.value.code == 1
    assert "RW205" in shown.err + shown.out
    assert "RW104" not in shown.err + shown.out
