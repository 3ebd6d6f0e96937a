"""Whether this process may hold the rows of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.runtime.delta.job_output import HELD_BYTES, LARGE_ROWS
from rw_sql.runtime.spark.jvm import planned_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def may_hold(held: DataFrame, count: int) -> bool:
    """True if ``count`` rows, which the caller has persisted and counted, fit into this process's memory.

    A few thousand rows of long texts would exceed it, and also the results that Spark returns to its driver.
    """
    return count <= LARGE_ROWS and planned_bytes(held) <= HELD_BYTES


def small_rows(rows: DataFrame) -> pa.Table | None:
    """The rows in this process, computed once; None if they are too large for it."""
    held = rows.persist()
    try:
        return held.toArrow() if may_hold(held, held.count()) else None
    finally:
        held.unpersist()
