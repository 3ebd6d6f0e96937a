"""Loads all rows of an upstream for a refresh, and monitors Spark's progress."""

from __future__ import annotations

import json
import logging
import re
import threading
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from rw_sql.connectors.delta.arrow_rows import is_readable, rows_of_files
from rw_sql.connectors.snapshots import ArrowReader, ColumnReader, LineReader
from rw_sql.connectors.support.connections.interruption import interruptible
from rw_sql.connectors.support.csv_separator import separator_of
from rw_sql.connectors.support.private_files import share_with_executors
from rw_sql.model.definitions import field_of, option_text, table_definition
from rw_sql.runtime.decoding.change_formats.rows import ROW
from rw_sql.runtime.decoding.decoder import OFFSET, SPLIT, json_rules
from rw_sql.runtime.decoding.json_text import once
from rw_sql.runtime.decoding.plain_values import read_csv, read_json
from rw_sql.runtime.decoding.upstream_records import packages_on_executors
from rw_sql.runtime.refresh.arrow_changes import changed_rows_in_memory, is_inexact
from rw_sql.runtime.refresh.changes import changed_rows, had_each_key_once, quickly_changed_rows
from rw_sql.runtime.refresh.staging import IN_MEMORY_ROWS as CHANGES_IN_MEMORY
from rw_sql.runtime.spark.executors import require_executors
from rw_sql.runtime.spark.sessions import SHUFFLE_PARTITIONS, register_view
from rw_sql.runtime.spark.valid_texts import valid_texts
from rw_sql.runtime.support.background import run_in_background
from rw_sql.runtime.support.failures import cause_line
from rw_sql.syntax import canonical_type, spark_type
from rw_sql.syntax.lexing.identifiers import quoted, quoted_for_spark, sql_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession

    from rw_sql.connectors.snapshots import SnapshotReader
    from rw_sql.metastore.records import TableRecord
    from rw_sql.runtime.delta.job_output import JobOutput
    from rw_sql.runtime.refresh.staging import Staged, Staging
    from rw_sql.syntax.statements.common import ColumnDefinition, FormatEncode

logger = logging.getLogger(__name__)

_WATCH_SECONDS = 0.5

QUICK_ROWS = 10_000_000
"""If the table has at most this number of rows, :func:`quickly_changed_rows`, which does not sort all rows, compares it
with the upstream.

Up to this number of rows, the hashes of each partition fit into the memory of a Spark task.
"""

IN_MEMORY_ROWS, IN_MEMORY_BYTES = 2_000_000, 512 << 20
"""The limits for a comparison in this process's memory. Neither the table nor its upstream may exceed this number of
rows or this size in bytes."""

_IN_MEMORY = threading.Lock()
"""The lock that a refresh holds during a comparison in memory. The lock ensures that at most one comparison at a time
uses this memory."""

_NUMBERS = ("NUMERIC", "SMALLINT", "INT", "BIGINT")
_NO_NUMBER = "^(NaN|-?Infinity)$"
"""Matches the values of DOUBLE PRECISION that other numeric types cannot represent."""

_PLAIN_PATH = re.compile(r"/[A-Za-z0-9/._=-]+")
_PARTITION_ROWS = 250_000
_MOST_PARTITIONS = 64


def load(
    spark: SparkSession,
    reader: SnapshotReader,
    options: Mapping[str, str],
    table: TableRecord,
    output: JobOutput,
    staging: Staging,
) -> Staged:
    """Reads the upstream, compares it with the table, and stages the differences.

    Reads the upstream a second time if it contains a key of the table more than once. Raises StalledError if an
    executor does not share the warehouse's folder, or lacks a package that the reader needs.
    """
    statement = table_definition(table.definition)
    share_with_executors(options.values())  # The reader would announce the files of secrets only after the check.
    require_executors(staging.warehouse, spark, packages_on_executors(reader, statement))
    given = [column for column in statement.columns if column.generated is None]
    is_as_read = all(column.generated is None and column.default is None for column in statement.columns)
    if is_as_read and isinstance(reader, ArrowReader):
        loaded = _load_in_memory(reader, options, given, output, staging)
        if loaded is not None:
            return loaded
    columns = {field_of(c): spark_type(c.data_type) for c in given}
    encode = statement.format
    # ``upstream`` stays referenced until everything is read, because the reader's resources are released with this
    # frame.
    if isinstance(reader, ColumnReader):
        upstream = reader.read_columns(spark, options, columns, _misfit_of(table.name, given, staging.keys))
    elif encode is not None and encode.encode in ("CSV", "JSON") and isinstance(reader, LineReader):
        upstream = _decoded(spark, reader, options, given, encode)
    else:
        upstream = reader.read_snapshot(
            spark,
            options,
            columns,
            encode="NATIVE" if encode is None else encode.encode,
            encode_options={} if encode is None else {each.key: option_text(each.value) for each in encode.options},
        )
    snapshot = upstream.select(*(f.col(quoted_for_spark(field_of(c))).alias(c.name) for c in given))
    register_view(snapshot, table.name)
    fresh = _fitted(valid_texts(spark.sql(table.query), table.name, is_table=True), table.schema)
    output.table.update_incremental()
    rows = _rows_of(output.table)
    with _shuffling_into(spark, _partitions(spark, reader, options, rows)):
        known = stored_rows(spark, output, table.schema).select(*(quoted_for_spark(name) for name in fresh.columns))
        if 0 < rows <= QUICK_ROWS:
            with held(quickly_changed_rows(fresh, known, staging.keys)) as (changes, number):
                if had_each_key_once(changes, rows):
                    return staging.write(changes, number, rows)
        with held(changed_rows(fresh, known if rows else None, staging.keys)) as (changes, number):
            return staging.write(changes, number, rows)


@contextmanager
def _shuffling_into(spark: SparkSession, partitions: int) -> Iterator[None]:
    """A context manager that sets the session's number of shuffle partitions for the duration of the block."""
    usual = spark.conf.get(SHUFFLE_PARTITIONS)
    spark.conf.set(SHUFFLE_PARTITIONS, str(partitions))
    try:
        yield
    finally:
        with suppress(Py4JError):  # If the JVM has ended, so has the session.
            spark.conf.set(SHUFFLE_PARTITIONS, str(usual))


def _load_in_memory(
    reader: ArrowReader,
    options: Mapping[str, str],
    columns: Sequence[ColumnDefinition],
    output: JobOutput,
    staging: Staging,
) -> Staged | None:
    """Compares upstream and table in this process's memory, and stages the differences. For a small table, the
    comparison takes less time than starting a Spark job.

    Returns None if the table is empty, if the table or the upstream exceeds IN_MEMORY_ROWS or IN_MEMORY_BYTES, or if
    too many rows differ. Also returns None if Arrow might read or compare a value differently from Spark.
    """
    output.table.update_incremental()
    rows = _rows_of(output.table)
    kinds = {field.name: field.type for field in staging.schema}
    if not 0 < rows <= IN_MEMORY_ROWS or list(kinds) != [column.name for column in columns]:
        return None
    if not all(is_readable(kind) for kind in kinds.values()) or any(is_inexact(kinds[key]) for key in staging.keys):
        return None
    fields = {field_of(column): kinds[column.name] for column in columns}
    with _IN_MEMORY:
        fresh = reader.read_arrow(options, fields, most_rows=IN_MEMORY_ROWS, most_bytes=IN_MEMORY_BYTES)
        known = None if fresh is None else _stored_in_memory(output, kinds)
        if fresh is None or known is None or known.num_rows != rows:
            return None
        changes = changed_rows_in_memory(fresh.rename_columns(list(kinds)), known, staging.keys)
        if changes is None or changes.num_rows > CHANGES_IN_MEMORY:
            return None
        return staging.write_table(changes, rows)


def _stored_in_memory(output: JobOutput, columns: Mapping[str, pa.DataType]) -> pa.Table | None:
    """The table's rows if the table's files alone determine the rows (see :func:`stored_rows`); otherwise None."""
    table = output.table
    if table.protocol().reader_features or table.metadata().partition_columns:
        return None
    return rows_of_files(table.file_uris(), columns, most_rows=IN_MEMORY_ROWS, most_bytes=IN_MEMORY_BYTES)


def _partitions(spark: SparkSession, reader: SnapshotReader, options: Mapping[str, str], rows: int) -> int:
    """The number of shuffle partitions for the comparison of the upstream with the table. ``rows`` is the table's
    number of rows; it is 0 before the first load."""
    there = reader.row_estimate(options) if isinstance(reader, ColumnReader) else None
    if there is None and not rows:
        return min(_MOST_PARTITIONS, max(2, spark.sparkContext.defaultParallelism))
    return min(_MOST_PARTITIONS, 2 + max(rows, there or 0) // _PARTITION_ROWS)


def _misfit_of(
    table: str, columns: Sequence[ColumnDefinition], keys: Sequence[str]
) -> Callable[[str, Column, Mapping[str, Column]], Column]:
    """Returns a function that makes the error message for an upstream value that does not fit its column. The message
    names the column, the key of the row, and the remedy."""
    by_field = {field_of(column): column for column in columns}
    shown_keys = [column for column in columns if column.name in keys] or list(columns[:1])

    def misfit(field: str, text: Column, texts: Mapping[str, Column]) -> Column:
        column = by_field[field]
        is_number = column.data_type.name in _NUMBERS
        key = [
            part
            for at, each in enumerate(shown_keys)
            for part in (
                f.lit(f"{', ' if at else ''}{each.name} = "),
                f.substring(f.coalesce(texts[field_of(each)], f.lit("NULL")), 1, 60),
            )
        ]
        wider = f.when(text.rlike(_NO_NUMBER) & f.lit(is_number), "DOUBLE PRECISION").otherwise("CHARACTER VARYING")
        return f.concat(
            f.lit(f'column "{column.name}" of row ('),
            *key,
            f.lit("): "),
            f.substring(text, 1, 60),
            f.lit(f" is not of type {canonical_type(column.data_type)}: DROP TABLE {sql_name(table)}, and create it "),
            f.lit(f"again as SHOW CREATE TABLE {sql_name(table)} shows it now, but with {quoted(column.name)} "),
            wider,
            f.lit("; or correct the row upstream"),
        )

    return misfit


def _decoded(
    spark: SparkSession,
    reader: LineReader,
    options: Mapping[str, str],
    columns: Sequence[ColumnDefinition],
    clause: FormatEncode,
) -> DataFrame:
    """Decodes text lines to rows, in the same way as the records of a source. A line that cannot be decoded raises an
    error."""
    given = {each.key: option_text(each.value) for each in clause.options}
    fields = [replace(column, name=field_of(column), field=None) for column in columns]
    names, shown = [field.name for field in fields], {field_of(column): column.name for column in columns}
    lines = reader.read_lines(spark, options, names, encode=clause.encode, encode_options=given)
    if clause.encode == "JSON":
        read, error = read_json(lines, fields, json_rules(given), shown)
    else:
        read, error = read_csv(lines, fields, separator_of(given), shown=shown)
    says = f.concat_ws("", f.col(SPLIT), f.lit(", byte "), f.col(OFFSET), f.lit(": "), error)
    row = f.when(error.isNull(), f.col(ROW)).otherwise(f.raise_error(says))
    return read.select(once(row).alias(ROW)).select(*(f.col(ROW)[name].alias(name) for name in names))


@contextmanager
def held(rows: DataFrame) -> Iterator[tuple[DataFrame, int]]:
    """A context manager that computes and persists the rows for the duration of the block. Yields the rows and their
    number."""
    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept, kept.count()
    finally:
        kept.unpersist()


def _fitted(rows: DataFrame, schema: str) -> DataFrame:
    """The rows with a table's columns and types."""
    fields = StructType.fromJson(json.loads(schema)).fields
    return rows.select(
        *(f.col(quoted_for_spark(field.name)).cast(field.dataType).alias(field.name) for field in fields)
    )


def stored_rows(spark: SparkSession, output: JobOutput, schema: str) -> DataFrame:
    """The table's rows, read directly from its files.

    The job can list the files, because the job is the table's only writer.

    Delta's reader is used instead if the files alone do not determine the rows (because of a Delta feature that readers
    must support, or because of partition columns), or if Spark would misread the files' names. delta-rs returns file
    names as URLs, with %20 for a space and %C3%A9 for é, and Spark treats characters such as * as patterns.
    """
    table, paths = output.table, output.table.file_uris()
    is_told_by_files = not (table.protocol().reader_features or table.metadata().partition_columns)
    if paths and is_told_by_files and all(_PLAIN_PATH.fullmatch(path) for path in paths):
        return spark.read.schema(StructType.fromJson(json.loads(schema))).parquet(*paths)
    return spark.read.format("delta").load(output.path)


def _rows_of(table: DeltaTable) -> int:
    """The number of rows in a table, according to the statistics of the table's files. A file without statistics counts
    as one row."""
    counts = pa.table(table.get_add_actions(flatten=True)).column("num_records")
    return int(pc.sum(pc.fill_null(counts, 1)).as_py() or 0)


@contextmanager
def watched(spark: SparkSession, group: str, tell: Callable[[int, int], bool]) -> Iterator[Callable[[], None]]:
    """A context manager that runs this thread's Spark jobs in a separate job group and scheduler pool. As a result,
    these Spark jobs do not delay the Spark jobs of other jobs. Yields a function that cancels the thread's jobs and
    ends the thread's waits for the upstream.

    ``tell`` is a callback that is called regularly with the number of finished tasks and the number of all tasks. Each
    time ``tell`` returns False, the Spark jobs are cancelled and the waits are ended. If ``tell`` raises an error, the
    error is only logged.
    """
    context = spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", "history")
    context.setJobGroup(group, group, interruptOnCancel=True)
    is_over = threading.Event()

    def cancel() -> None:
        interrupt()
        context.cancelJobGroup(group)

    def watch() -> None:
        has_failed = False
        while not is_over.wait(_WATCH_SECONDS):
            try:
                if not tell(*_tasks(spark, group)):
                    cancel()
            except Exception as error:  # noqa: BLE001 - a store or Spark may fail once, and the next look may succeed
                if not has_failed:
                    logger.warning("%s is not monitored now: %s", group, cause_line(str(error)) or type(error).__name__)
                has_failed = True
            else:
                has_failed = False

    with interruptible() as interrupt:
        watching = run_in_background(watch, f"watch of {group}")
        try:
            yield cancel
        finally:
            is_over.set()
            wait([watching])
            context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]


def _tasks(spark: SparkSession, group: str) -> tuple[int, int]:
    """Returns the number of finished tasks of a job group, and the number of all tasks that Spark knows of the
    group."""
    tracker = spark.sparkContext.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        told = tracker.getJobInfo(job)
        for stage in told.stageIds if told is not None else ():
            known = tracker.getStageInfo(stage)
            if known is not None:
                done, total = done + known.numCompletedTasks, total + known.numTasks
    return done, total
