"""Reads the rows of a small Delta table directly from its Parquet files.

Delta's Spark reader reconstructs the table's state for each version by two or three Spark jobs, which take longer than
reading a small table's rows. delta-rs lists the files of a version in milliseconds.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql.types import StructType

from rw_sql.connectors.delta.versions import table_at
from rw_sql.connectors.support.local_frames import keeping_active_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_FILES = 32
"""The maximum number of files of a table that is read directly. To list more paths, Spark would start a job."""

_HARMLESS = frozenset({"timestampNtz"})
"""The reader features of tables whose files can nevertheless be read without Delta."""

AS_WRITTEN = {"__globPaths__": "false"}
"""The option with which Spark's readers take characters such as ``*`` and ``{`` in a path literally."""

_PATTERN = re.compile(r"[*?\[\]{}\\%]")


def rows_at(spark: SparkSession, path: str, version: int) -> DataFrame:
    """The rows of the table at a version.

    Files are opened lazily, when an action runs; they may have been deleted in the meantime.
    """
    frame = _plain(spark, path, version)
    return table_at(spark, path, version) if frame is None else frame


def rows_now(spark: SparkSession, path: str) -> DataFrame:
    """The rows of the table's newest version."""
    frame = _plain(spark, path, None)
    return spark.read.format("delta").load(path) if frame is None else frame


def _plain(spark: SparkSession, path: str, version: int | None) -> DataFrame | None:
    """The rows of a version (None: the newest), read directly from the table's Parquet files.

    None if the Parquet files alone do not determine the rows (deletion vectors, renamed columns, or partition
    columns stored only in paths), if there are too many files or files that are not local, or if delta-rs does not
    find the version.
    """
    try:
        table = DeltaTable(path, version=version)
    except DeltaError:
        return None
    protocol = table.protocol()
    needed = frozenset(protocol.reader_features or ()) - _HARMLESS
    if (protocol.min_reader_version > 1 and (needed or not protocol.reader_features)) or (
        table.metadata().partition_columns
    ):
        return None
    files = table.file_uris()
    if len(files) > MOST_FILES or not all(_is_plain(file) for file in files):
        return None
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    if files:
        return spark.read.schema(schema).parquet(*files)
    with keeping_active_session(spark):
        return spark.createDataFrame([], schema)


def _is_plain(file: str) -> bool:
    """True for a local file whose path Spark accepts unescaped."""
    return _PATTERN.search(file) is None and file.startswith("/") and Path(file).is_file()
