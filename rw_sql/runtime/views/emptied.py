"""Handles batches with a TRUNCATE or the end of a repeated snapshot. Either of them can remove many rows at once from a
table that reads a change data capture source.

A repeated snapshot reads the upstream table again while the table keeps its existing rows. A row whose key has not
arrived by the end of the snapshot no longer exists upstream, and is deleted. A key counts as arrived even if a value of
the arrived row does not fit its column, because the row exists upstream. If a value does not fit, the table keeps the
values that it has for this key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from rw_sql.model.definitions import source_definition
from rw_sql.runtime.decoding.cdc_rows import BEGIN_OF_SNAPSHOT, SWEEP, TRUNCATE, cdc_frame
from rw_sql.runtime.decoding.change_formats.events import UPSERT
from rw_sql.runtime.decoding.decoder import BATCH, RUN, SINCE
from rw_sql.runtime.jobs.inputs import as_in_files, path_of
from rw_sql.runtime.spark.sessions import register_view
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.views.key_records import DELETE, OP, order, visible
from rw_sql.syntax.lexing.identifiers import quoted_for_spark, sql_name
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from rw_sql.runtime.views.strategy import ViewRun

_IS_SEEN = "_rw_seen"


def empties(rows: pa.Table) -> bool:
    """True if one of the records ``rows`` is a TRUNCATE or the end of a repeated snapshot, according to the column
    ``_rw_op``."""
    import pyarrow.compute as pc

    least = pc.min(rows[OP]).as_py()
    return least is not None and least <= TRUNCATE


def emptied(
    run: ViewRun, frame: DataFrame, own: DataFrame, keys: tuple[str, ...], settle: Callable[..., DataFrame]
) -> DataFrame:
    """Returns the rows of the table that a batch changes, with the column KEEP. Must be called if some of the batch's
    records empty the table (:func:`empties`).

    ``settle`` is a function that computes the changed rows of the keys in a batch from the batch's records and the
    table's rows.
    """
    key = [quoted_for_spark(name) for name in keys]
    at = f.struct(*(name for name in order(frame) if name != OP))
    rows = frame.where(f.col(OP) >= DELETE)
    base = own
    last = frame.where(f.col(OP) == TRUNCATE).agg(f.max(at).alias("at")).head()
    if last is not None and last["at"] is not None:
        rows = rows.where(at > _literal(last["at"], frame))
        base = own.where(f.lit(False))
    changes = settle(rows, base).select(*_columns(frame), KEEP)
    if base is not own:
        gone = own.join(changes.where(KEEP).select(*key), list(keys), "left_anti")
        changes = changes.where(KEEP).unionByName(_gone(gone, frame))
    swept = frame.where(f.col(OP) == SWEEP).agg(f.max(f.struct(RUN, BATCH)).alias("at")).head()
    if swept is None or swept["at"] is None:
        return changes
    seen = _seen(run, key, frame.sparkSession, swept["at"])
    kept = changes.join(seen, list(keys), "left").withColumn(KEEP, f.col(KEEP) & f.col(_IS_SEEN).isNotNull())
    others = own.join(changes.select(*key), list(keys), "left_anti").join(seen, list(keys), "left_anti")
    return kept.select(*_columns(frame), KEEP).unionByName(_gone(others, frame))


def _columns(frame: DataFrame) -> list[str]:
    return visible(frame)


def _gone(own: DataFrame, frame: DataFrame) -> DataFrame:
    return own.select(*_columns(frame)).withColumn(KEEP, f.lit(False))


def _literal(at: object, frame: DataFrame) -> Column:
    fields = {field.name: field.dataType for field in frame.schema.fields}
    values = at.asDict()  # type: ignore[attr-defined]  # pyspark's Row
    return f.struct(*(f.lit(value).cast(fields[name]).alias(name) for name, value in values.items()))


def _seen(run: ViewRun, key: list[str], spark: SparkSession, end: Row) -> DataFrame:
    """The keys that have arrived in the log since the start of a repeated snapshot. ``end`` identifies the batch of the
    source's ingest job, by run and number, in which this snapshot ends.

    ``spark`` is the batch's own session. The function creates a temporary view with the source's name in this session,
    where the view cannot hide a table of the user.
    """
    spec = run.spec
    (given,) = spec.inputs
    log = spark.read.format("delta").load(path_of(run.context.warehouse, given))
    statement = source_definition(given.decoded_by)
    if statement.cdc_table is None or given.live_from is None:
        raise TypeError("only a table of a change data capture source has repeated snapshots")
    marks = log.where((f.col("table_name") == statement.cdc_table.table) & (f.col("op") == BEGIN_OF_SNAPSHOT))
    began = marks.where(_at() <= _at(end)).agg(f.max(f.struct(RUN, BATCH, SINCE)).alias("at")).head()
    if began is None or began["at"] is None:
        raise StalledError(
            f"RETENTION the log of source {given.name} no longer has the start of the snapshot of "
            f"{statement.cdc_table.table}: rows that were deleted upstream cannot be found: "
            f"DROP TABLE {sql_name(spec.name)} and create it again, or raise log.retention and "
            f"RESET SOURCE SPLITS {sql_name(given.name)} WITH (FORGET_OFFSETS = true)",
            is_final=True,
        )
    # If a row was deleted while its changes were not read, the log contains the row's key only before the snapshot.
    since = (f.col(SINCE) >= began["at"][SINCE]) & (_at() >= _at(began["at"]))
    rows = cdc_frame(log.where(since), statement, given.live_from)
    # If a change is an error, its operation is NULL. The key of such a change counts as arrived.
    rows = rows.withColumn(OP, f.coalesce(f.col(OP), f.lit(UPSERT)))
    register_view(rows.selectExpr(*given.selected), given.name)
    found = as_in_files(spark.sql(spec.query), spec).where(f.col(OP) >= DELETE).select(*key)
    # If a key does not fit its columns, at least one key column is NULL. No row of the table has such a key.
    return found.dropna().distinct().withColumn(_IS_SEEN, f.lit(True))


def _at(batch: Row | None = None) -> Column:
    """Returns a column with the run and the batch number of ``batch`` or, if it is None, of each row of the log. Values
    of this column can be compared."""
    run, number = (f.col(RUN), f.col(BATCH)) if batch is None else (f.lit(batch[RUN]), f.lit(batch[BATCH]))
    return f.struct(run.cast("long").alias("run"), f.coalesce(number, f.lit(-1)).cast("long").alias("batch"))
