"""Decides whether this process may hold the rows of a batch in memory. Also collects rows that are too large for a
single result of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from rw_sql.runtime.delta.job_output import HELD_BYTES, LARGE_ROWS
from rw_sql.runtime.spark.jvm import planned_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TOO_LARGE = "spark.driver.maxResultSize"
"""The setting that limits the size of the result of a Spark job, by default to 1 GB. If a result is larger, Spark's
error message contains the name of the setting."""

_NUMBER = "_rw_number"
_PART_BYTES = 32 * 1024 * 1024
_MOST_PARTITIONS = 1_000_000
_OF_PARTITION = 33
"""Spark's ``monotonically_increasing_id`` stores the number of a row within its partition in this number of low bits.
The higher bits contain the number of the partition."""


def may_hold(held: DataFrame, count: int) -> bool:
    """True if ``held`` may be collected into this process, because ``held`` has at most LARGE_ROWS rows and at most
    HELD_BYTES bytes. The caller must have persisted and counted the rows. ``count`` is the number of rows.

    The number of bytes matters because a few thousand rows of long strings may exceed the memory, and also Spark's
    limit for results (``spark.driver.maxResultSize``).
    """
    return count <= LARGE_ROWS and planned_bytes(held) <= HELD_BYTES


def small_rows(rows: DataFrame) -> pa.Table | None:
    """Computes the rows once and collects them into this process. Returns None if this process may not hold the rows
    (:func:`may_hold`)."""
    held = rows.persist()
    try:
        return held.toArrow() if may_hold(held, held.count()) else None
    finally:
        held.unpersist()


def in_any_order(rows: DataFrame) -> DataFrame:
    """Returns the rows as a DataFrame that can be persisted.

    For some queries, such as ``max(text) GROUP BY k``, Spark's plan states that the rows are sorted by columns that the
    query does not return. In this case, Spark fails to read the rows after they were persisted. This function makes
    Spark forget the order of the rows. The function needs no shuffle, and changes nothing else.
    """
    return rows.coalesce(_MOST_PARTITIONS)


def all_rows(rows: DataFrame) -> pa.Table:
    """Collects the rows into this process, in the order of ``rows``, even if the rows are too large for a single result
    of Spark. The rows must fit into the process's memory."""
    try:
        return rows.toArrow()
    except (PySparkException, Py4JError) as error:
        if _TOO_LARGE not in str(error):
            raise
    held = in_any_order(rows).persist()
    try:
        count = held.count()
        most = max(1, count * _PART_BYTES // max(1, planned_bytes(held)))
        numbered = held.withColumn(_NUMBER, f.monotonically_increasing_id())
        counts = held.groupBy(f.spark_partition_id().alias("at")).count().orderBy("at").collect()
        parts = []
        for at, rows_of in counts:
            for first in range(0, rows_of, most):
                number = (at << _OF_PARTITION) + first
                part = numbered.where(f.col(_NUMBER).between(number, number + most - 1))
                parts.append(part.drop(_NUMBER).toArrow())
        return pa.concat_tables(parts)
    finally:
        held.unpersist()
