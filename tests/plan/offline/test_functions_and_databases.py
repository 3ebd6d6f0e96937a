"""Functions and databases that only Spark has are no errors, and typing mistakes are still found."""

from __future__ import annotations

import pytest

from rw_sql.errors import SqlError
from rw_sql.plan.offline import inspector
from rw_sql.plan.offline.script import ScriptChecker
from rw_sql.plan.ports.queries import AnalyzedQuery, QueryAnalysis

SOURCE = "CREATE SOURCE o (k INT, v INT) WITH (connector = 'datagen');\n"
FUNCTION = "CREATE OR REPLACE TEMPORARY FUNCTION sumx(x INT) RETURNS INT RETURN x + 1;\n"


def errors(text: str, checker: ScriptChecker | None = None) -> list[SqlError]:
    found = (checker or ScriptChecker()).check(text, "x")
    return [error for checked in found for error in checked.errors]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT mask_card(v) AS x FROM o",
        "SELECT k, my_average(v) AS x FROM o GROUP BY k",
        "SELECT k, my_upper(v) AS x, add_tax(v) AS y FROM o",
        "SELECT x FROM o LATERAL VIEW my_split(v) AS x",
        "SELECT * FROM my_rows(1) JOIN o ON k = 1",
    ],
)
def test_a_function_may_be_defined_by_a_user(query: str) -> None:
    view = f"CREATE MATERIALIZED VIEW m AS {query};\n"
    assert errors(SOURCE + view) == []
    *_, checked = ScriptChecker().check(SOURCE + view, "x")
    assert inspector.FUNCTION in checked.unchecked


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("SELECT k, smu(v) AS x FROM o GROUP BY k", 'did you mean "sum"?'),
        ("SELECT cuont(*) AS n FROM o", 'did you mean "count"?'),
        ("SELECT uper(v) AS x FROM o", 'did you mean "upper"?'),
        ("SELECT dat_trunc('DAY', v) AS x FROM o", 'did you mean "date_trunc"?'),
        ("SELECT regexp_replce(v, 'a', 'b') AS x FROM o", 'did you mean "regexp_replace"?'),
        ("SELECT array_to_string(v, ',') AS x FROM o", "write array_join(x, ',')"),
        ("SELECT x FROM o, unnest(v) AS x", "write FROM a_relation LATERAL VIEW explode(an_array) exploded AS a_value"),
    ],
)
def test_a_mistaken_function_is_found(query: str, hint: str) -> None:
    (error,) = errors(f"{SOURCE}CREATE MATERIALIZED VIEW m AS {query};\n")
    assert (error.code, error.hint) == ("RW203", hint)


def test_a_function_of_the_script_is_known_from_its_creation_on() -> None:
    """Its name differs from ``sum`` by one letter."""
    view = "CREATE MATERIALIZED VIEW m AS SELECT sumx(v) AS x FROM o;\n"
    assert [error.code for error in errors(SOURCE + view + FUNCTION)] == ["RW203"]
    assert errors(SOURCE + FUNCTION + view) == []
    reader = "CREATE MATERIALIZED VIEW r AS SELECT sumx(x) AS y FROM m;\n"
    other = "ALTER MATERIALIZED VIEW m AS SELECT sumx(k) AS x FROM o;\n"
    assert errors(SOURCE + FUNCTION + view + reader + other) == []
    for made in ("CREATE FUNCTION IF NOT EXISTS lake.sumx AS 'a.B'", "CREATE FUNCTION `sumx` AS 'a.B' USING JAR 'x'"):
        assert errors(f"{SOURCE}{made};\n{view}") == []
    assert errors(f"{SOURCE}{FUNCTION}SELECT sumx(v) FROM o;") == []


def test_other_errors_of_the_query_are_found_too() -> None:
    text = "CREATE MATERIALIZED VIEW m AS SELECT mask_card(nothing) AS x, v + 1 AS y FROM o;\n"
    assert [error.message for error in errors(SOURCE + text)] == ['column "nothing" does not exist']


def test_spark_is_not_asked_about_functions_that_it_does_not_have() -> None:
    def refuse(_: AnalyzedQuery) -> QueryAnalysis:
        return QueryAnalysis(refusal="[UNRESOLVED_ROUTINE] mask_card", hint="look again")

    text = "CREATE MATERIALIZED VIEW m AS SELECT {0}(v) AS x FROM o;\n"
    assert errors(SOURCE + text.format("mask_card"), ScriptChecker(ask_spark=refuse)) == []
    assert len(errors(SOURCE + text.format("upper"), ScriptChecker(ask_spark=refuse))) == 1


@pytest.mark.parametrize("kind", ["DATABASE", "DATABASE IF NOT EXISTS", "SCHEMA"])
def test_a_database_of_the_script_is_dropped(kind: str) -> None:
    """It is Spark's, because rw_sql's CREATE SCHEMA has no COMMENT."""
    made = f"CREATE {kind} d2 COMMENT 'mine';\n"
    catalog = ScriptChecker().snapshot
    for drop in ("DROP SCHEMA d2", "DROP SCHEMA IF EXISTS d2 CASCADE", "DROP DATABASE d2"):
        assert errors(made + drop, ScriptChecker(catalog)) == []


def test_a_schema_that_may_be_a_database_of_spark_is_no_error_without_a_catalog() -> None:
    assert errors("DROP SCHEMA nosuch;") == []
    (checked,) = ScriptChecker().check("DROP SCHEMA nosuch;", "x")
    assert checked.unchecked == ("Spark's own statements",)
    catalog = ScriptChecker().snapshot
    assert [error.code for error in errors("DROP SCHEMA nosuch;", ScriptChecker(catalog))] == ["RW216"]
    (error,) = errors("CREATE SCHEMA staging;\nDROP SCHEMA stagin;")
    assert (error.code, error.hint) == ("RW216", 'did you mean "staging"? SHOW SCHEMAS lists all schemas')
    # A table of Spark is no database.
    text = "CREATE TABLE stagin (a INT) USING delta;\nCREATE SCHEMA staging;\nDROP SCHEMA stagin;"
    assert [error.code for error in errors(text)] == ["RW216"]
