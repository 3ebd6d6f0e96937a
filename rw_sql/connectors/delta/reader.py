"""Reads rows of a Delta table with Spark's own readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from rw_sql.connectors.delta.paths import comparable_path, full_path
from rw_sql.connectors.delta.plain_files import AS_WRITTEN, rows_at
from rw_sql.connectors.delta.versions import table_at
from rw_sql.connectors.support.typed_records import cast_columns, quoted, typed_records
from rw_sql.errors import UPSTREAM_MISSING, SqlError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from rw_sql.connectors.delta.commits import TableCommit


def read(
    spark: SparkSession,
    path: str,
    split: str,
    row: str,
    *,
    commits: tuple[TableCommit, ...],
    upto: int | None,
) -> DataFrame:
    """If ``upto`` is None, returns the rows that the commits appended, each with the version of its commit as its
    offset. Otherwise, returns all rows of the table as of version ``upto``, with the offset 0."""
    if upto is not None:
        frame = rows_at(spark, path, upto)
        return typed_records(frame, split, row, f.lit(0))
    made: DataFrame | None = None
    newest = max((commit.version for commit in commits), default=0)
    table = table_at(spark, path, newest)
    for commit in commits:
        if not commit.appended:
            continue
        part = typed_records(_appended(spark, path, table.schema, commit), split, row, f.lit(commit.version))
        made = part if made is None else made.unionByName(part)
    return made if made is not None else typed_records(table.where("false"), split, row, f.lit(0))


def snapshot(spark: SparkSession, path: str, columns: Mapping[str, str], version: int) -> DataFrame:
    """The rows of the table as of ``version``, with these columns cast to these types. Reading a value that does not
    fit its type raises an error."""
    frame = table_at(spark, path, version)
    return cast_columns(frame, columns)


def _appended(spark: SparkSession, path: str, schema: StructType, commit: TableCommit) -> DataFrame:
    """The rows of a commit's files. Uses Delta's reader if the table has column mapping, because the columns then have
    other names in the files."""
    if _is_mapped(spark, path):
        table = table_at(spark, path, commit.version)
        names = [comparable_path(full_path(path, file.path)) for file in commit.appended]
        found = f.regexp_replace(f.col("_metadata.file_path"), "^file:/+", "/")
        # Spark encodes paths as in a URI, where + does not mean a space.
        decoded = f.try_url_decode(f.replace(found, f.lit("+"), f.lit("%2B")))
        return table.where(found.isin(names) | f.coalesce(decoded.isin(names), f.lit(False)))
    by_partition: dict[tuple[tuple[str, str | None], ...], list[str]] = {}
    for file in commit.appended:
        by_partition.setdefault(file.partition, []).append(full_path(path, file.path))
    parts: list[DataFrame] = []
    for partition, files in by_partition.items():
        values = dict(partition)
        stored = StructType([field for field in schema.fields if field.name not in values])
        frame = _files(spark, path, stored, files, commit.version)
        parts.append(frame.select(*[_value(field, values) for field in schema.fields]))
    made = parts[0]
    for part in parts[1:]:
        made = made.unionByName(part)
    return made


def _files(spark: SparkSession, path: str, stored: StructType, files: list[str], version: int) -> DataFrame:
    from pyspark.errors import AnalysisException

    try:
        return spark.read.options(**AS_WRITTEN).schema(stored).parquet(*files)
    except AnalysisException as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        split = path.rpartition("/")[2]
        raise SqlError(
            UPSTREAM_MISSING,
            f"EXPIRED {split}: VACUUM removed rows of version {version} that were not read yet: to read the current "
            f"rows, INJECT SOURCE OFFSETS … VALUES ('{split}' = 0)",
            hint="raise the table's property delta.deletedFileRetentionDuration, so that files stay until they "
            "are read",
        ) from error


def _value(field: StructField, partition: Mapping[str, str | None]) -> Column:
    if field.name not in partition:
        return f.col(quoted(field.name))
    return f.lit(partition[field.name] or None).cast(field.dataType).alias(field.name)


def _is_mapped(spark: SparkSession, path: str) -> bool:
    properties: Any = spark.sql(f"DESCRIBE DETAIL delta.{quoted(path)}").select("properties").collect()[0][0]
    return bool((properties or {}).get("delta.columnMapping.mode", "none") != "none")
