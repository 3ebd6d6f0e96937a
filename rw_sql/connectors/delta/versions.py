"""A Delta table as of a version, however old that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BY_AGE = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
"""Delta's setting, on by default: a version that is not the newest is refused once it is older than the table's
``delta.deletedFileRetentionDuration``, whether or not its files are there.

A batch reads its inputs at the versions that were planned, and who keeps a table keeps what is planned: how old that is
says nothing (decision 32).
"""


def table_at(spark: SparkSession, path: str, version: int) -> DataFrame:
    """The rows of the table at a version. Its files are asked for when the rows are, and may be gone by then."""
    before = spark.conf.get(BY_AGE, "true")
    if before == "true":
        # The session may be the user's own, whose time travel stays as it is. Delta looks while the frame is made.
        spark.conf.set(BY_AGE, "false")
    try:
        return spark.read.format("delta").option("versionAsOf", str(version)).load(path)
    finally:
        if before == "true":
            spark.conf.unset(BY_AGE)
