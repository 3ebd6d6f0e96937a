"""Provides the inputs of a view or sink as streams."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import functions as f

from rw_sql.connectors.delta.plain_files import rows_at
from rw_sql.connectors.support.local_frames import local_frame
from rw_sql.model.backfill_ranges import History
from rw_sql.model.definitions import source_definition
from rw_sql.runtime.decoding.cdc_rows import cdc_frame
from rw_sql.runtime.decoding.decoder import offset_bound, stored_offset
from rw_sql.runtime.delta.table_settings import CHANGE_FEED
from rw_sql.runtime.delta.young_table import YoungTable
from rw_sql.runtime.spark.valid_texts import valid_texts
from rw_sql.runtime.support.failures import StalledError
from rw_sql.syntax.lexing.identifiers import quoted_for_spark
from rw_sql.syntax.query.signed_aggregates import SIGN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.model.backfill_ranges import SplitHistory
    from rw_sql.model.job_specs import ViewSpec
    from rw_sql.model.view_inputs import ViewInput
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.support.warehouse import Warehouse

_BATCH_BYTES_PER_CORE = 128 * 2**20

UNLIMITED = f"{2**40}b"
"""The byte limit for a batch that must contain all available input."""

WAITING = "WAITING"
"""The first word of the stall reason of a job whose input does not exist yet, or lacks columns."""

_INPUT_SECONDS = 5.0
_LOOK_SECONDS = 0.05


def batch_bytes(spark: SparkSession) -> str:
    """The approximate number of bytes that one batch reads: 256 MiB with at most two cores, and proportionally more
    with more cores."""
    return f"{_BATCH_BYTES_PER_CORE * max(2, spark.sparkContext.defaultParallelism)}b"


def path_of(warehouse: Warehouse, given: ViewInput) -> str:
    """The path of an input's table. For an external table, also sets those environment variables with the settings of
    the table's store that delta-rs needs and that are missing."""
    if given.path:
        warehouse.files_at(given.path)
    return given.path or warehouse.data(given.id, given.generation)


def require_input(context: Context, given: ViewInput) -> DeltaTable:
    """Waits until the input's table exists and, if the view reads changes of this input, has a change data feed.
    Returns the table.

    Raises StalledError if the wait takes longer than _INPUT_SECONDS.
    """
    path = path_of(context.warehouse, given)
    deadline = time.monotonic() + _INPUT_SECONDS
    while True:
        try:
            table = DeltaTable(path)
        except TableNotFoundError:
            table = None
        if table is not None and (not given.is_changing or table.metadata().configuration.get(CHANGE_FEED) == "true"):
            return table
        if time.monotonic() > deadline:
            raise StalledError(f"{WAITING} until the job of {given.kind.replace('_', ' ')} {given.name} runs")
        time.sleep(_LOOK_SECONDS)


def require_columns(context: Context, given: ViewInput) -> None:
    """Raises StalledError if a log or table still lacks columns that its own job must add first."""
    known = {column.name for column in DeltaTable(path_of(context.warehouse, given)).schema().fields}
    if not known.issuperset(given.stored):
        raise StalledError(f"{WAITING} until the job of {given.kind.replace('_', ' ')} {given.name} has added columns")


def valid_rows(frame: DataFrame, spec: ViewSpec) -> DataFrame:
    """The rows of ``frame``, which is the result of the query of a table or view. If Spark computes a string that is
    not UTF-8, Spark raises an error, because such a string cannot be stored."""
    # Tables of users may contain such strings.
    is_any = any(given.path for given in spec.inputs)
    return valid_texts(frame, spec.name, is_table=spec.is_table, is_any=is_any)


def as_in_files(frame: DataFrame, spec: ViewSpec) -> DataFrame:
    """Does the same as :func:`valid_rows`, and also gives the columns the names that they have in the table's files."""
    frame = valid_rows(frame, spec)
    stored = dict(spec.stored_names)
    if not stored:
        return frame
    return frame.select(*(f.col(quoted_for_spark(name)).alias(stored.get(name, name)) for name in frame.columns))


_MOST_IN_FILTER = 40


def input_frame(
    context: Context,
    spark: SparkSession,
    given: ViewInput,
    most_bytes: str | None = None,
    *,
    table: str | None = None,
) -> DataFrame:
    """The stream of one input: the rows of a source's log without decode errors, or the rows appended to a view.

    A batch reads about ``most_bytes`` (default: :func:`batch_bytes`). If ``table`` is given, this table is read instead
    of the input's table.
    """
    reader = spark.readStream.format("delta").option("maxBytesPerTrigger", most_bytes or batch_bytes(spark))
    if not given.path:
        # In a log, only retention deletes rows.
        reader = reader.option("ignoreDeletes", "true")
    path = table or path_of(context.warehouse, given)
    if not given.path and YoungTable.of(context.warehouse, path) is not None:
        # With this option, the stream begins with the table's first commit instead of a snapshot of the table. The
        # stream returns the same rows, but Spark need not run jobs to compute the snapshot.
        reader = reader.option("startingVersion", "0")
    frame = reader.load(path)
    frame = selected_rows(spark, given, frame, is_live=bool(given.history) and table is None)
    return frame if given.watermark is None else frame.withWatermark(*given.watermark)


def selected_rows(
    spark: SparkSession, given: ViewInput, rows: DataFrame, *, is_live: bool, is_numbered: bool = False
) -> DataFrame:
    """Returns the rows of an input's files in the form that queries see: without undecodable records, and with the
    input's columns.

    If ``is_live`` is true, the rows that the view reads in its backfill are left out. ``is_numbered`` applies to a
    change data capture source; see :func:`cdc_frame`.
    """
    if given.live_from is not None:
        rows = cdc_frame(rows, source_definition(given.decoded_by), given.live_from, is_numbered=is_numbered)
    if given.kind == "source":
        rows = rows.where("_rw_error IS NULL")
        if is_live:
            rows = _live_rows(spark, rows, History.from_text(given.history).guarded)
    return rows.selectExpr(*given.selected) if given.kind in ("source", "table") else rows


def _live_rows(spark: SparkSession, frame: DataFrame, guarded: tuple[SplitHistory, ...]) -> DataFrame:
    """The rows of a log that the view reads from the log, not from its backfill (see
    :class:`rw_sql.model.backfill_ranges.SplitHistory`)."""
    if not guarded:
        return frame
    if len(guarded) <= _MOST_IN_FILTER:
        for split in guarded:
            frame = frame.where(
                (f.col("_rw_split") != split.split)
                | (f.col("_rw_since") > split.since)
                | ((f.col("_rw_since") == split.since) & (f.col("_rw_offset") >= offset_bound(frame, split.start)))
            )
        return frame
    of_offset = frame.schema["_rw_offset"].dataType
    starts = [
        {"g_split": split.split, "g_since": split.since, "g_start": stored_offset(of_offset, split.start)}
        for split in guarded
    ]
    listed = local_frame(spark, pa.Table.from_pylist(starts)).withColumn("g_start", f.col("g_start").cast(of_offset))
    joined = frame.join(f.broadcast(listed), f.col("_rw_split") == f.col("g_split"), "left")
    return joined.where(
        f.col("g_split").isNull()
        | (f.col("_rw_since") > f.col("g_since"))
        | ((f.col("_rw_since") == f.col("g_since")) & (f.col("_rw_offset") >= f.col("g_start")))
    ).drop("g_split", "g_since", "g_start")


def feed_frame(context: Context, spark: SparkSession, given: ViewInput) -> DataFrame:
    """Returns the stream of a view's changes. The stream contains the old and the new rows, with the columns CHANGE and
    VERSION."""
    most = batch_bytes(spark)
    reader = spark.readStream.format("delta").option("maxBytesPerTrigger", most).option("readChangeFeed", "true")
    path = path_of(context.warehouse, given)
    young = None if given.path else YoungTable.of(context.warehouse, path)
    if young is not None and young.feed_begin is not None:
        reader = reader.option("startingVersion", str(young.feed_begin))
    frame = reader.load(path)
    return frame.selectExpr(*feed_columns(given), CHANGE, VERSION)


def feed_columns(given: ViewInput) -> tuple[str, ...]:
    """Returns the columns of an input whose rows change, including its hidden key columns, as expressions over the
    columns of the input's files."""
    return given.selection((*given.columns, *(key for key in given.keys if key not in given.columns)))


def signed_frame(context: Context, spark: SparkSession, given: ViewInput) -> DataFrame:
    """Returns the stream of a view's changes in the form that :func:`signed_rows` returns."""
    return signed_rows(given, feed_frame(context, spark, given))


def signed_rows(given: ViewInput, changes: DataFrame) -> DataFrame:
    """Converts rows with the column CHANGE to rows with the columns visible to queries and the column SIGN. SIGN is 1
    for an added row and -1 for a removed row."""
    comes = f"CAST(CASE WHEN {CHANGE} IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS BIGINT) AS {SIGN}"
    return changes.selectExpr(*_quoted(given.columns), comes)


def touched_frame(context: Context, spark: SparkSession, given: ViewInput) -> DataFrame:
    """The stream of rows that were added to an input or removed from it, with the columns visible to queries."""
    if not given.is_changing:
        return input_frame(context, spark, given)
    return feed_frame(context, spark, given).select(*_quoted(given.columns))


def frame_at(context: Context, spark: SparkSession, given: ViewInput, version: int) -> DataFrame:
    """The rows of an input at ``version``, with the columns visible to queries.

    If the input is a source, these are the rows of its log without the undecodable records. A view reads the log in
    this way if the view is recomputed because another of its inputs replaces rows.
    """
    rows = rows_at(spark, path_of(context.warehouse, given), version)
    if given.kind == "source":
        rows = rows.where("_rw_error IS NULL")
    return rows.selectExpr(*given.selected)


def _quoted(names: Iterable[str]) -> list[str]:
    return [quoted_for_spark(name) for name in names]


CHANGE = "_change_type"
VERSION = "_commit_version"
