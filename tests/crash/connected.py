"""The Spark session of a process that a test kills."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession


@contextmanager
def connected(warehouse: str, config: Mapping[str, str], *, point: str | None = None) -> Iterator[SparkSession]:
    """A context manager with a session whose process runs the jobs of a warehouse. Unless an error occurs, the session
    is detached and stopped at the end, as by a user.

    The fault at ``point`` is armed before the jobs continue, because the jobs may reach the point before the first
    statement runs.
    """
    import rw_sql
    from rw_sql.runtime.support import faults

    if point is not None:
        faults.arm(point, "both")
    spark = rw_sql.connect(warehouse, config=dict(config))
    yield spark
    rw_sql.detach(spark)
    spark.stop()
