"""Reads a Delta table as of any version, regardless of the version's age."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

BY_AGE = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
"""The name of a setting of Delta, which is on by default. If the setting is on, Delta refuses to read a version that is
older than the table's ``delta.deletedFileRetentionDuration``, even if the version's files exist. Delta always reads the
newest version.

A batch reads its inputs at the versions that were planned for the batch, and table upkeep keeps the files of these
versions. Therefore, rw_sql can read these versions regardless of their age (decision 32).
"""


def table_at(spark: SparkSession, path: str, version: int) -> DataFrame:
    """The rows of the table at ``version``.

    Files are opened lazily, when an action runs. The files may have been deleted in the meantime.
    """
    with _at_any_age(spark):
        return spark.read.format("delta").option("versionAsOf", str(version)).load(path)


def changes_at(spark: SparkSession, path: str, version: int) -> DataFrame:
    """The rows of the table's change feed that belong to the commit ``version``. Files are opened lazily, as for
    :func:`table_at`."""
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    with _at_any_age(spark):
        return reader.option("startingVersion", str(version)).option("endingVersion", str(version)).load(path)


@contextmanager
def _at_any_age(spark: SparkSession) -> Iterator[None]:
    """A context manager inside which Delta reads versions of any age. Delta reads the setting while a DataFrame is
    created."""
    before = spark.conf.get(BY_AGE, "true")
    try:
        if before == "true":
            # The session may be the user's own, so the setting is restored afterwards.
            spark.conf.set(BY_AGE, "false")
        yield
    finally:
        if before == "true":
            spark.conf.unset(BY_AGE)
