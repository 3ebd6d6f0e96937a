"""Defines Spark's settings in the sessions for jobs.

The rows of a view, table or sink depend only on the object's definition and input, never on the settings of the process
that runs the object's job. Another process, with other settings, may continue the job at any time. The settings that
change the meaning of a query are therefore fixed here. Settings that change only how Spark computes, such as memory,
joins, compression and state stores, are left to the user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark

from rw_sql.connectors.delta.versions import BY_AGE

if TYPE_CHECKING:
    from collections.abc import Iterable

QUERY_SETTINGS = {
    # This entry takes precedence over the environment variable SPARK_ANSI_SQL_MODE.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.storeAssignmentPolicy": "ANSI",
}
"""The most frequently used settings that change the meaning of a query, with the values for jobs."""

_QUERY_PREFIXES = (
    "spark.sql.ansi.",
    "spark.sql.avro.datetimeRebase",
    "spark.sql.caseSensitive",
    "spark.sql.charAsVarchar",
    "spark.sql.crossJoin.",
    "spark.sql.csv.",
    "spark.sql.decimalOperations.",
    "spark.sql.function.",
    "spark.sql.groupByAliases",
    "spark.sql.groupByOrdinal",
    "spark.sql.json.",
    "spark.sql.legacy.",
    "spark.sql.orderByOrdinal",
    "spark.sql.parquet.binaryAsString",
    "spark.sql.parquet.datetimeRebase",
    "spark.sql.parquet.fieldId.",
    "spark.sql.parquet.ignoreMissingFieldId",
    "spark.sql.parquet.inferTimestampNTZ",
    "spark.sql.parquet.int96",
    "spark.sql.parser.",
    "spark.sql.preserveCharVarcharTypeInfo",
    "spark.sql.readSideCharPadding",
    "spark.sql.sources.default",
    "spark.sql.sources.partitionOverwriteMode",
    "spark.sql.streaming.multipleWatermarkPolicy",
)
"""If a setting's name begins with one of these texts, the setting has Spark's default value in the sessions for jobs,
unless :data:`JOB_SETTINGS` contains the setting."""

JOB_SETTINGS = {
    **QUERY_SETTINGS,
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.streaming.noDataProgressEventInterval": "60s",
    "spark.sql.streaming.metricsEnabled": "false",
    # A batch without input writes the windows that have closed.
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
    "spark.databricks.delta.merge.materializeSource": "auto",
    # A batch may re-read old versions. Upkeep keeps these versions as long as they are needed.
    BY_AGE: "false",
    # delta-rs and other writers use this type too. For Spark's default type, INT96, Parquet stores no minimum and
    # maximum.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    # With this value, Delta does not sort a log's rows by bucket. Sorting is unnecessary, because a batch has one
    # bucket.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
    # With other values, which the user may have configured, Spark would silently skip rows in missing or truncated
    # files.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    # This value limits the size of a file, because a sink reads whole files into the driver's memory and a large batch
    # may have few partitions.
    "spark.sql.files.maxRecordsPerFile": "250000",
}
"""The settings of the sessions for jobs. The user's session keeps its own settings."""

_STREAMING = "org.apache.spark.sql.execution.streaming"
_CHECKPOINTING = _STREAMING if pyspark.__version__.startswith("4.0.") else f"{_STREAMING}.checkpointing"
"""The Java package of Spark's managers of checkpoint files. This package was renamed in Spark 4.1."""

LOCAL_CHECKPOINT_SETTINGS = {
    # Spark's preferred manager checks for links before a rename. Without Hadoop's native library, each of these checks
    # starts a process, so each batch starts sixteen processes. Both managers rename complete files and check whether
    # the target exists.
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
}
"""Additional settings of the sessions for jobs whose checkpoints are on a local path."""


def settings_to_reset(given: Iterable[str]) -> tuple[str, ...]:
    """The settings of a new session that must be reset to Spark's default in a session for jobs."""
    return tuple(key for key in sorted(given) if key.startswith(_QUERY_PREFIXES) and key not in JOB_SETTINGS)
