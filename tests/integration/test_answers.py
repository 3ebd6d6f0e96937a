"""The result of a statement without the JVM equals Spark's result for the same rows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from rw_sql.plan.result.plan import Table
from rw_sql.runtime.spark.frames import frame_of

pytestmark = pytest.mark.spark

COLUMNS = (
    ("text", "STRING"),
    ("big", "BIGINT"),
    ("small", "INT"),
    ("part", "DOUBLE"),
    ("is_so", "BOOLEAN"),
    ("at", "TIMESTAMP"),
)
ROWS = (
    ("a", 2**40, 1, 0.5, True, datetime(2024, 3, 31, 1, 30, 0, 123456, tzinfo=UTC)),
    ("", -1, -1, -0.0, False, datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    (None, None, None, None, None, None),
)


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], ()], ids=["three", "one", "none"])
def test_an_answer_is_a_frame_of_sparks(spark: SparkSession, rows: tuple[tuple[object, ...], ...]) -> None:
    answer = frame_of(spark, Table(columns=COLUMNS, rows=rows))
    same = spark.createDataFrame(answer._rows)
    assert (answer.schema, answer.columns, answer.dtypes) == (same.schema, same.columns, same.dtypes)
    assert (answer.collect(), answer.count()) == (same.collect(), same.count())
    assert (answer.take(2), answer.head(1), answer.first()) == (same.take(2), same.head(1), same.first())
    assert (answer.take(0), answer.isEmpty(), answer.tail(1)) == (same.take(0), same.isEmpty(), same.tail(1))
    assert "_jdf" in vars(answer)
    assert answer.collect() == answer.select("*").collect() == answer.union(same.limit(0)).collect()
    assert answer.toPandas().equals(same.toPandas())
    answer.createOrReplaceTempView("an_answer")
    try:
        assert spark.table("an_answer").collect() == same.collect()
    finally:
        spark.catalog.dropTempView("an_answer")
    assert (answer.sparkSession, str(answer)) == (spark, str(same))


def test_the_session_of_an_answer_is_the_active_one_as_that_of_any_frame(spark: SparkSession) -> None:
    other = spark.newSession()
    other.createDataFrame([(1,)], "n int")
    frame_of(spark, Table(columns=COLUMNS[:1], rows=()))
    active = SparkSession.getActiveSession()
    assert active is not None
    active.conf.set("rw_sql.test.active", "yes")
    assert spark.conf.get("rw_sql.test.active", "no") == "yes"
    assert other.conf.get("rw_sql.test.active", "no") == "no"
    spark.conf.unset("rw_sql.test.active")


def test_rows_are_named_and_the_jvm_is_not_asked(spark: SparkSession) -> None:
    answer = frame_of(spark, Table(columns=COLUMNS[:2], rows=(("a", 1),)))
    (row,) = answer.collect()
    assert (row.text, row["big"], row.asDict()) == ("a", 1, {"text": "a", "big": 1})
    assert (answer.columns, answer.first()) == (["text", "big"], row)
    assert "_jdf" not in vars(answer)
