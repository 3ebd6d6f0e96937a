"""Which batches this process holds: few rows that are not large either."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.runtime.delta import job_output
from rw_sql.runtime.delta.held_rows import may_hold
from rw_sql.runtime.delta.job_output import HELD_BYTES, LARGE_ROWS
from rw_sql.runtime.spark.jvm import planned_bytes
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
