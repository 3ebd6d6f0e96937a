"""The inputs of unit tests: the statement that creates each, and the columns that a test must give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from rw_sql.cli.testing.definitions import (
    Defined,
    Input,
    fed_from_delta,
    input_columns,
    read_definitions,
    takes_columns,
)
from rw_sql.cli.testing.outcome import WrongTestError
from rw_sql.cli.testing.unit_file import RowsGiven, UnitTest
from rw_sql.cli.testing.unit_run import UnitRun
from rw_sql.model.definitions import source_of_table
from rw_sql.plan.offline.script import ScriptChecker
from rw_sql.syntax import parse_statement
from rw_sql.syntax import statements as ast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

AVRO = """WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'b:9092')
    FORMAT {} ENCODE AVRO (schema.registry = 'http://r')"""
CHANGES = """CREATE SOURCE src WITH (connector = 'postgres-cdc', hostname = 'h', username = 'u', password = SECRET p,
    database.name = 'd')"""
JSON = """WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'b:9092')
    FORMAT PLAIN ENCODE JSON"""
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


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE TABLE t (id INT PRIMARY KEY, total INT FROM sum) {JSON}",
        f"CREATE TABLE t (id INT PRIMARY KEY, total INT FROM sum, twice INT AS total * 2) INCLUDE offset AS o {JSON}",
        "CREATE TABLE t (id INT PRIMARY KEY, total INT FROM sum) FROM src TABLE 'public.t'",
        "CREATE TABLE t (id INT PRIMARY KEY, total INT FROM \"Sum\") INCLUDE timestamp AS at FROM src TABLE 'public.t'",
    ],
)
def test_a_column_is_read_from_the_column_with_its_name_and_not_from_its_field(text: str) -> None:
    statement = definition(text)
    fed = parse_statement(fed_from_delta(statement, "/rows"))
    assert isinstance(fed, ast.CreateTable)
    read = [column.name for column in source_of_table(fed).columns if column.generated is None]
    assert read == [name for name, _ in input_columns(statement)]


@pytest.fixture
def whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark reads the types of columns, so without Spark all columns of inputs are whole numbers."""

    def schema(columns: Iterable[tuple[str, str]]) -> StructType:
        return StructType([StructField(name, IntegerType()) for name, _ in columns])

    monkeypatch.setattr("rw_sql.cli.testing.unit_run._schema", schema)


@pytest.mark.usefixtures("whole_numbers")
def test_records_of_a_topic_have_the_names_of_the_fields() -> None:
    text = f"CREATE TABLE t (id INT PRIMARY KEY, total INT FROM sum) INCLUDE timestamp {JSON}"
    given = RowsGiven(columns=("id", "total"), rows=({"id": 1, "total": 2},))
    (record,) = run_of(text)._records("t", definition(text), given)
    assert json.loads(record.value) == {"id": 1, "sum": 2}


FILES = {
    "input.sql": f"CREATE SOURCE s (id INT) {JSON};",
    "a.sql": "SET query_dialect TO 'RisingWave';\nSET statement_timeout = '1s';\n"
    "CREATE MATERIALIZED VIEW v1 AS SELECT id FROM s;\n"
    "SET query_dialect = DEFAULT;\nCREATE MATERIALIZED VIEW v2 AS SELECT id FROM v1;",
    "b.sql": "CREATE MATERIALIZED VIEW v3 AS SELECT id FROM v2;\n"
    "SET search_path = mart;\nCREATE MATERIALIZED VIEW v4 AS SELECT id FROM v3;",
}


def pipeline(folder: Path, files: Mapping[str, str]) -> dict[str, Defined]:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return read_definitions([str(folder / name) for name in files], {})[0]


@pytest.mark.usefixtures("whole_numbers")
def test_a_setting_of_a_file_applies_only_to_the_objects_after_it_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each object gets the parameters of its own place, in whatever order the objects are created."""
    parameters: dict[str, str | None] = {"query_dialect": None, "search_path": None, "statement_timeout": None}
    seen: dict[str, tuple[str | None, ...]] = {}

    def run_part(_attached: object, _part: object, text: str, *_: object) -> None:
        statement = parse_statement(text)
        if isinstance(statement, ast.SetParameter):
            parameters[statement.parameter] = statement.value.text if statement.value is not None else None
        elif isinstance(statement, ast.CreateMaterializedView | ast.CreateSource):
            seen[statement.name.key] = tuple(parameters.values())

    monkeypatch.setattr("rw_sql.cli.testing.unit_run.run_part", run_part)
    monkeypatch.setattr(UnitRun, "_query", lambda *_: ())
    monkeypatch.setattr(UnitRun, "_compare", lambda _: None)
    test = UnitTest(file="t.yaml", line=1, name="n", view="v4", given={"s": RowsGiven()}, expect=RowsGiven())
    definitions = pipeline(tmp_path, FILES)
    assert {name: defined.dialect for name, defined in definitions.items()} == {
        "s": "spark",
        "v1": "risingwave",
        "v2": "spark",
        "v3": "spark",
        "v4": "spark",
    }
    UnitRun(attached=cast("Any", None), folder=tmp_path, definitions=definitions, test=test, topic="t").run()
    assert seen == {
        "s": (None, None, "5min"),
        "v1": ("RisingWave", None, "1s"),
        "v2": (None, None, "1s"),
        "v3": (None, None, "5min"),
        "v4": (None, "mart", "5min"),
    }


@pytest.mark.parametrize("to", ["= 'risingwave'", "TO 'risingwave'", "to risingwave", "= 'RISINGWAVE'"])
def test_the_objects_that_a_view_reads_are_found_in_the_dialect_of_its_query(tmp_path: Path, to: str) -> None:
    query = "SELECT window_start, count(*) AS n FROM TUMBLE(orders, ts, INTERVAL '1 hour') GROUP BY window_start"
    files = {"a.sql": f"SET query_dialect {to};\nCREATE MATERIALIZED VIEW v AS {query};"}
    assert pipeline(tmp_path, files)["v"].reads == ("orders",)


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
