"""Reads the rows of a small Delta table directly from its Parquet files.

Delta's Spark reader reconstructs the table's state for each version with two or three Spark jobs. These jobs take
longer than reading the rows of a small table. delta-rs lists the files of a version in milliseconds.
"""

from __future__ import annotations

import json
import re
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, LongType, StructType

from rw_sql.connectors.delta.versions import table_at
from rw_sql.connectors.support.local_frames import empty_frame

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

MOST_FILES = 32
"""The maximum number of files of a table that is read directly. For more files, Spark would start a job that lists
them."""

_MOST_PARTS = 4
"""The maximum number of partitions of a table that is read directly. Each partition is a branch of the query's plan."""

_HARMLESS = frozenset({"timestampNtz"})
"""The reader features with which rw_sql can still read a table's Parquet files without Delta."""

AS_WRITTEN = {"__globPaths__": "false"}
"""With this option, Spark's readers do not treat characters such as ``*`` and ``{`` in a path as wildcards."""

_PATTERN = re.compile(r"[*?\[\]{}\\%]")


def is_plain(reader_version: int, features: Iterable[str]) -> bool:
    """True if the Parquet files and the partition values of a table determine its rows. ``reader_version`` and
    ``features`` are the reader version and the reader features in the table's protocol."""
    needed = frozenset(features)
    return reader_version <= 1 or (bool(needed) and needed <= _HARMLESS)


def rows_at(spark: SparkSession, path: str, version: int) -> DataFrame:
    """The rows of the table at ``version``.

    Files are opened lazily, when an action runs. The files may have been deleted in the meantime.
    """
    frame = _plain(spark, path, version)
    return table_at(spark, path, version) if frame is None else frame


def rows_now(spark: SparkSession, path: str) -> DataFrame:
    """The rows of the table's newest version."""
    frame = _plain(spark, path, None)
    return spark.read.format("delta").load(path) if frame is None else frame


def _plain(spark: SparkSession, path: str, version: int | None) -> DataFrame | None:
    """The rows of a version (None: the newest), read directly from the table's Parquet files.

    Returns None if there are too many files or partitions, if a file is not local, or if delta-rs does not find the
    version. Also returns None if the Parquet files and integer partition values alone do not determine the rows,
    because the table has deletion vectors, renamed columns, or partition columns of other types.
    """
    try:
        table = DeltaTable(path, version=version)
    except DeltaError:
        return None
    protocol = table.protocol()
    if not is_plain(protocol.min_reader_version, protocol.reader_features or ()):
        return None
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    parts = _parts(table, schema)
    files = [file for _, found in parts or () for file in found]
    if parts is None or len(files) > MOST_FILES or not all(_is_plain(file) for file in files):
        return None
    if files:
        return reduce(DataFrame.union, (_part(spark, schema, values, found) for values, found in parts))
    return empty_frame(spark, schema)


def _parts(table: DeltaTable, schema: StructType) -> list[tuple[dict[str, int | None], list[str]]] | None:
    """The files of a table, grouped by the values of its partition columns.

    Returns None if there are too many combinations of values, or if the type of a partition column is not INT or
    BIGINT.
    """
    columns = table.metadata().partition_columns
    files = table.file_uris()
    if not columns:
        return [({}, files)]
    if not all(isinstance(schema[column].dataType, IntegerType | LongType) for column in columns):
        return None
    actions = pa.table(table.get_add_actions(flatten=True))
    values = zip(*(actions.column(f"partition.{column}").to_pylist() for column in columns), strict=True)
    of_file = dict(zip(map(unquote, actions.column("path").to_pylist()), values, strict=True))
    root = table.table_uri.removeprefix("file://").rstrip("/") + "/"
    parts: dict[tuple[int | None, ...], list[str]] = {}
    for file in files:
        part = of_file.get(file.removeprefix(root))
        if part is None:
            return None
        parts.setdefault(part, []).append(file)
    if len(parts) > _MOST_PARTS:
        return None
    return [(dict(zip(columns, part, strict=True)), found) for part, found in parts.items()]


def _part(spark: SparkSession, schema: StructType, values: dict[str, int | None], files: list[str]) -> DataFrame:
    """The rows of one partition, with the columns of its files and the columns of the partition's values."""
    stored = StructType([field for field in schema.fields if field.name not in values])
    rows = spark.read.schema(stored).parquet(*files)
    for name, value in values.items():
        rows = rows.withColumn(name, f.lit(value).cast(schema[name].dataType))
    return rows.select(*schema.names) if values else rows


def _is_plain(file: str) -> bool:
    """True for an existing local file whose path contains no character that Spark interprets."""
    return _PATTERN.search(file) is None and file.startswith("/") and Path(file).is_file()
