"""Temporary views of jobs: replacing one leaves the persisted rows of other jobs alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.runtime.spark.jvm import planned_bytes
from rw_sql.runtime.spark.sessions import SparkSessions, register_view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", ["orders", "Orders of a day", "s.orders"])
def test_rows_persisted_by_one_job_outlive_the_next_batch_of_another(spark: SparkSession, name: str) -> None:
    sessions = SparkSessions(spark)
    one, other = sessions.new(), sessions.new()
    register_view(other.range(3), name)
    register_view(one.range(5), name)
    held = one.sql(f"SELECT a.id FROM `{name}` AS a JOIN `{name}` AS b ON a.id < b.id").persist()
    try:
        assert held.count() == 10
        register_view(other.range(7), name)
        # Spark estimates the size of rows that are not in its cache; for a join, the estimate is far above 1,000 bytes.
        assert planned_bytes(held) < 1000
        assert [row.id for row in other.sql(f"SELECT id FROM `{name}`").collect()] == list(range(7))
        assert [row.id for row in one.sql(f"SELECT id FROM `{name}`").collect()] == list(range(5))
    finally:
        held.unpersist()


def test_a_session_that_was_lent_has_no_views_when_it_is_lent_again(spark: SparkSession) -> None:
    sessions = SparkSessions(spark)
    with sessions.lent() as first:
        register_view(first.range(1), "orders")
        assert first.catalog.tableExists("orders")
    with sessions.lent() as second:
        assert second is first
        assert not second.catalog.tableExists("orders")
    with sessions.lent() as one, sessions.lent() as other:
        assert one is not other
