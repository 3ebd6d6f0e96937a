"""Which batches this process holds: few rows that are not large either."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.runtime.delta import job_output
from rw_sql.runtime.delta.held_rows import all_rows, may_hold
from rw_sql.runtime.delta.job_output import HELD_BYTES, LARGE_ROWS
from rw_sql.runtime.spark.jvm import java_context, planned_bytes
from rw_sql.runtime.spark.sessions import SparkSessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("count", "repeats", "is_small"), [(2_000, 1, True), (100, 60_000, False)])
def test_few_rows_are_held_unless_they_are_large(
    spark: SparkSession, *, count: int, repeats: int, is_small: bool
) -> None:
    session = SparkSessions(spark).new()
    made = session.range(count, numPartitions=2).selectExpr("id", f"repeat(uuid(), {repeats}) AS t", "id % 7 AS k")
    for frame in (made, made.where("k < 100").drop("k")):
        held = frame.persist()
        try:
            assert held.count() == count
            assert (planned_bytes(held) <= HELD_BYTES) == is_small
            assert may_hold(held, count) == is_small
            assert not may_hold(held, LARGE_ROWS + 1)
        finally:
            held.unpersist()
    assert job_output.SMALL_ROWS < LARGE_ROWS


def test_rows_are_complete_and_in_order_also_if_spark_does_not_return_them_at_once(spark: SparkSession) -> None:
    session = SparkSessions(spark).new()
    frames = (
        session.range(900, numPartitions=3).selectExpr("id", "repeat(uuid(), 3000) AS t"),
        session.range(900).selectExpr("id % 450 AS k", "repeat(uuid(), 3000) AS t").groupBy("k").agg({"t": "max"}),
    )
    conf = java_context(spark.sparkContext).conf()
    conf.set("spark.driver.maxResultSize", "40m")
    try:
        for frame in frames:
            with pytest.raises(Exception, match="maxResultSize"):
                frame.toArrow()
        first, second = map(all_rows, frames)
    finally:
        conf.remove("spark.driver.maxResultSize")
    assert first.column("id").to_pylist() == list(range(900))
    assert sorted(second.column("k").to_pylist()) == list(range(450))
    assert {len(text) for text in second.column(1).to_pylist()} == {108_000}
