"""Strings that are not UTF-8 in the rows of a view's query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.runtime.spark.row_by_row import chosen_columns
from rw_sql.runtime.spark.sessions import register_view
from rw_sql.runtime.spark.valid_texts import valid_texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CASTS = (
    "SELECT CAST(raw AS STRING) AS k FROM s",
    "SELECT CAST(raw AS STRING) AS k, count(*) AS n FROM s GROUP BY 1",
    "SELECT k FROM (SELECT CASE WHEN id > 0 THEN CAST(raw AS STRING) END AS k FROM s) WHERE k IS NULL OR k <> 'x'",
    "SELECT concat_ws('-', raw, CAST(id AS STRING)) AS k FROM s",
    "SELECT array('a', CAST(raw AS STRING)) AS k FROM s",
    "SELECT CAST(array(raw) AS ARRAY<STRING>) AS k FROM s",
    "SELECT named_struct('a', named_struct('b', CAST(raw AS STRING))) AS k FROM s",
    "SELECT map(CAST(raw AS STRING), 1) AS k FROM s",
    "SELECT map('a', CAST(raw AS STRING), 'b', NULL) AS k FROM s",
    "SELECT (SELECT max(CAST(raw AS STRING)) FROM s) AS k",
    "WITH c AS (SELECT CAST(raw AS STRING) AS k FROM s) SELECT concat(k, 'x') AS k FROM c",
    "SELECT CAST(unhex('FF') AS STRING) AS k FROM s",
)


def rows_of(spark: SparkSession, *raw: bytes | None) -> DataFrame:
    frame = spark.createDataFrame([(at, value) for at, value in enumerate(raw, 1)], "id INT, raw BINARY")
    register_view(frame, "s")
    return frame


@pytest.mark.parametrize("query", CASTS)
def test_a_cast_of_bytes_that_are_not_utf_8_is_an_error_that_names_view_and_column(
    spark: SparkSession, query: str
) -> None:
    rows_of(spark, b"\xff")
    with pytest.raises(Exception, match="is not UTF-8") as raised:
        valid_texts(spark.sql(query), "totals").collect()
    assert (
        'column "k" of materialized view "totals": a string is not UTF-8, and cannot be stored: '
        "ALTER MATERIALIZED VIEW totals AS SELECT … make_valid_utf8(…) AS k …"
    ) in str(raised.value)


@pytest.mark.parametrize("query", CASTS[:-1])
def test_valid_strings_and_nulls_are_unchanged(spark: SparkSession, query: str) -> None:
    if "map(CAST" in query:
        rows_of(spark, "\u00e4".encode())
    else:
        rows_of(spark, "\u00e4".encode(), None, b"a")
    given = spark.sql(query)
    made = valid_texts(given, "totals")
    assert made is not given
    assert made.schema.simpleString() == given.schema.simpleString()
    assert sorted(map(str, made.collect())) == sorted(map(str, given.collect()))


def test_the_recommended_function_makes_the_string_valid(spark: SparkSession) -> None:
    rows_of(spark, b"Z\xfcrich")
    made = valid_texts(spark.sql("SELECT make_valid_utf8(CAST(raw AS STRING)) AS k FROM s"), "totals")
    assert [row["k"] for row in made.collect()] == ["Z\ufffdrich"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, raw FROM s",
        "SELECT CAST(id AS STRING) AS k, hex(raw) AS h, base64(raw) AS b, CAST(id AS BIGINT) AS n FROM s",
        "SELECT encode(CAST(id AS STRING), 'UTF-8') AS k FROM s",
        "SELECT sum(length(raw)) + CAST(1 AS DOUBLE) AS n FROM s",
    ],
)
def test_a_query_without_a_cast_of_bytes_to_strings_is_unchanged(spark: SparkSession, query: str) -> None:
    rows_of(spark, b"\xff")
    given = spark.sql(query)
    assert valid_texts(given, "totals") is given


def test_a_table_of_a_user_may_contain_any_strings(spark: SparkSession) -> None:
    rows_of(spark, b"\xff")
    register_view(spark.sql("SELECT CAST(raw AS STRING) AS k, id FROM s"), "own")
    given = spark.sql("SELECT k, id FROM own")
    assert valid_texts(given, "totals") is given
    with pytest.raises(Exception, match='column "k" of materialized view "totals": a string is not UTF-8'):
        valid_texts(given, "totals", is_any=True).collect()


def test_the_remedy_of_a_table_is_another_expression(spark: SparkSession) -> None:
    rows_of(spark, b"\xff")
    with pytest.raises(Exception, match="is not UTF-8") as raised:
        valid_texts(spark.sql("SELECT CAST(raw AS STRING) AS `a b` FROM s"), "T", is_table=True).collect()
    assert (
        'column "a b" of table "T": a string is not UTF-8, and cannot be stored: ALTER TABLE "T" DROP COLUMN "a b", '
        'then ALTER TABLE "T" ADD COLUMN "a b" VARCHAR AS make_valid_utf8(…)'
    ) in str(raised.value)


def test_columns_that_are_only_chosen_remain_so(spark: SparkSession) -> None:
    rows_of(spark)
    assert chosen_columns(valid_texts(spark.sql("SELECT raw AS k, id FROM s"), "v")) == (("k", "raw"), ("id", "id"))
