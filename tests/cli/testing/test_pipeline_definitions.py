"""The inputs of unit tests: the statement that creates each, and the columns that a test must give."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from rw_sql.cli.testing.definitions import Defined, Input, fed_from_delta, input_columns, takes_columns
from rw_sql.cli.testing.outcome import WrongTestError
from rw_sql.cli.testing.unit_file import RowsGiven, UnitTest
from rw_sql.cli.testing.unit_run import UnitRun
from rw_sql.plan.offline.script import ScriptChecker
from rw_sql.syntax import parse_statement
from rw_sql.syntax import statements as ast

AVRO = """WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'b:9092')
    FORMAT {} ENCODE AVRO (schema.registry = 'http://r')"""
CHANGES = """CREATE SOURCE src WITH (connector = 'postgres-cdc', hostname = 'h', username = 'u', password = SECRET p,
    database.name = 'd')"""
TAKEN = (("id", "INT"), ("a", "VARCHAR"))


def definition(text: str) -> Input:
    statement = parse_statement(text)
    assert isinstance(statement, ast.CreateSource | ast.CreateTable)
    return statement


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR) FROM src TABLE 'public.t'", ()),
        ("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR) INCLUDE timestamp AS at FROM src TABLE 'public.t'", ()),
        ("CREATE TABLE t (*) FROM src TABLE 'public.t'", TAKEN),
        ("CREATE TABLE t (*) INCLUDE database_name AS d FROM src TABLE 'public.t'", TAKEN),
        (f"CREATE SOURCE t (*) {AVRO.format('PLAIN')}", TAKEN),
        (f"CREATE SOURCE t {AVRO.format('PLAIN')}", TAKEN),
        (f"CREATE TABLE t (*, b INT AS id + 1) {AVRO.format('PLAIN')}", TAKEN),
        (f"CREATE TABLE t (*, PRIMARY KEY (id)) {AVRO.format('UPSERT')}", TAKEN),
        (f"CREATE TABLE t (PRIMARY KEY (k)) INCLUDE KEY AS k {AVRO.format('UPSERT')}", TAKEN),
    ],
)
def test_an_input_has_the_columns_of_its_upstream(text: str, taken: tuple[tuple[str, str], ...]) -> None:
    statement = definition(text)
    assert takes_columns(statement) == bool(taken)
    fed = fed_from_delta(statement, "/rows", taken)
    script = f"{fed};\nCREATE MATERIALIZED VIEW v AS SELECT id + 1 AS n, upper(a) AS a FROM t;"
    made, view = ScriptChecker().check(script, "x")
    assert [error.render() for error in (*made.errors, *view.errors)] == []


def test_the_columns_of_a_captured_table_contain_the_included_columns() -> None:
    text = "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR) INCLUDE timestamp AS at FROM src TABLE 'public.t'"
    assert input_columns(definition(text)) == (("id", "INT"), ("a", "STRING"), ("at", "TIMESTAMP"))


def test_a_source_of_changes_has_the_columns_of_changes() -> None:
    statement = definition(CHANGES)
    assert [name for name, _ in input_columns(statement)] == ["table_name", "op", "key", "row", "timestamp"]
    assert not takes_columns(statement)
    view = "CREATE MATERIALIZED VIEW v AS SELECT op, `row`, `timestamp` FROM src WHERE table_name = 'public.t'"
    checked = ScriptChecker().check(f"{fed_from_delta(statement, '/rows')};\n{view};", "x")
    assert [error.render() for each in checked for error in each.errors] == []


def run_of(text: str) -> UnitRun:
    test = UnitTest(file="t.yaml", line=1, name="n", view="v", given={}, expect=RowsGiven())
    defined = Defined(statement=definition(text), settings=(), dialect="spark", file="a.sql")
    return UnitRun(attached=cast("Any", None), folder=Path(), definitions={"t": defined}, test=test, topic="t")


@pytest.mark.parametrize(
    ("given", "demanded"),
    [
        (RowsGiven(), "id: BIGINT"),
        (RowsGiven(columns=("a", "at"), rows=({"a": 1},)), "a: BIGINT"),
        (RowsGiven(columns=("id", "b"), rows=({"id": 1, "b": 2},), types={"id": "INT"}), "b: BIGINT"),
    ],
)
def test_a_test_must_give_the_columns_that_come_from_the_upstream(given: RowsGiven, demanded: str) -> None:
    text = "CREATE TABLE t (*) INCLUDE timestamp AS at FROM src TABLE 'public.t'"
    with pytest.raises(WrongTestError) as caught:
        run_of(text)._feed("t", given)
    told = 'the columns of "t" come from its upstream: give columns with type names of Spark'
    assert caught.value.message == f"{told}, {demanded}"


def test_columns_of_a_captured_table_without_a_name_cannot_be_given() -> None:
    run = run_of("CREATE TABLE t (*) INCLUDE timestamp FROM src TABLE 'public.t'")
    with pytest.raises(WrongTestError, match="INCLUDE names columns without AS"):
        run._feed("t", RowsGiven())
