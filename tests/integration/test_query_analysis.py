"""The analysis without Spark, compared with Spark's own analyzer: both accept and refuse the same queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from rw_sql.plan.queries.analysis.analyze import analyze
from rw_sql.plan.queries.analysis.data_types import data_type
from rw_sql.plan.queries.analysis.functions import Builtin, builtins
from rw_sql.runtime.spark.builtin_functions import counts_of, function_names, range_of
from tests.support.view_queries import ANALYSIS, BREAKS_PER_QUERY, RECORDED, broken_queries, queries, tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def tabled(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with the tables of the queries, empty."""
    session = spark.newSession()
    for name, columns in tables().items():
        listed = [f"CAST(NULL AS {column.data_type}) AS `{column.name}`" for column in columns]
        session.range(0).selectExpr(*listed).createOrReplaceTempView(name)
    yield session
    for name in tables():
        session.catalog.dropTempView(name)


@pytest.mark.long
def test_spark_takes_the_queries_and_gives_the_columns_that_the_analysis_names(tabled: SparkSession) -> None:
    wrong = []
    for number, query in enumerate(queries(), start=1):
        try:
            fields = tabled.sql(query).schema.fields
        except PySparkException as error:
            wrong.append(f"{number} refused: {query}\n    {str(error)[:300]}")
            continue
        columns = analyze(query, tables()).columns
        assert columns is not None, query
        names = [(column.name, field.name) for column, field in zip(columns, fields, strict=False) if column.name]
        if len(columns) != len(fields) or any(ours != spark for ours, spark in names):
            wrong.append(f"{number} columns: {query}\n    {columns}\n    {fields}")
        for column, field in zip(columns, fields, strict=False):
            kind = data_type(column.data_type or "")
            if kind is not None and _plain(kind.sql("spark")) != _plain(field.dataType.simpleString()):
                wrong.append(f"{number} type of {column}: {field.dataType.simpleString()}: {query}")
    assert not wrong, "\n".join(wrong)
    assert len(queries()) >= 300


def _plain(kind: str) -> str:
    return kind.lower().replace(" ", "").replace("`", "")


@pytest.mark.long
def test_spark_refuses_the_broken_queries_as_recorded(
    tabled: SparkSession, request: pytest.FixtureRequest, recorded: Callable[[Path, str], None]
) -> None:
    if request.config.getoption("--record"):
        recorded(RECORDED, "".join(f"{b.label}: {_verdict(tabled, b.query)}\n" for b in broken_queries()))
    lines = RECORDED.read_text("utf-8").splitlines()
    assert len(lines) == len(broken_queries())
    # One of the breaks of each query: all of them take a quarter of a minute.
    for broken, line in list(zip(broken_queries(), lines, strict=True))[::BREAKS_PER_QUERY]:
        assert f"{broken.label}: {_verdict(tabled, broken.query)}" == line


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_spark_refuses_each_type_that_the_analysis_refuses(tabled: SparkSession, ansi: str) -> None:
    _, _, types = (ANALYSIS / "wrong.sql").read_text("utf-8").partition("-- Types\n")
    before = tabled.conf.get("spark.sql.ansi.enabled")
    tabled.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        accepted = [query for query in types.splitlines() if _verdict(tabled, query.removesuffix(";")) == "accepted"]
    finally:
        tabled.conf.set("spark.sql.ansi.enabled", before or "true")
    assert types
    assert not accepted


def _verdict(spark: SparkSession, query: str) -> str:
    try:
        spark.sql(query)
    except PySparkException as error:
        return error.getCondition() or type(error).__name__
    return "accepted"


@pytest.mark.long
def test_the_table_of_functions_is_of_this_spark(tabled: SparkSession) -> None:
    known = builtins()
    assert set(function_names(tabled)) <= known.keys()
    # Checking all functions takes minutes, so every 25th is checked.
    for name in sorted(known)[::25]:
        if name in function_names(tabled):
            taken = counts_of(tabled, name, (0, 1, 2, 3, 4))
            least, most, *steps = range_of(taken or [0, 20])
            step = [step for step in steps if step is not None]
            assert [c for c in taken if not Builtin(name, known[name].kind, least or 0, most, *step).takes(c)] == []
            assert [c for c in taken if not known[name].takes(c)] == [], name
