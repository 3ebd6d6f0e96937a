"""Maintains tables with a primary key. The records of each key are applied in the order of the source's log.

If a later record replaces the whole row, only the last record of each key in a batch is applied. With DO NOTHING, DO
UPDATE IF NOT NULL or WITH VERSION COLUMN, the records of a key are applied to the table's row one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, cast

from rw_sql.connectors.delta.plain_files import rows_now
from rw_sql.model.definitions import INDEX_COLUMN
from rw_sql.runtime.delta.held_rows import may_hold
from rw_sql.runtime.delta.row_counts import RowCount, exactly
from rw_sql.runtime.jobs.inputs import as_in_files, batch_bytes, selected_rows
from rw_sql.runtime.positions.ordered_log import OrderedLog
from rw_sql.runtime.positions.planned_rows import Planned
from rw_sql.runtime.spark.sessions import plain_sql, register_view
from rw_sql.runtime.views.emptied import emptied
from rw_sql.runtime.views.key_records import DELETE, OP, UNCHANGED, is_kept, later, nullable, order, then_of, visible
from rw_sql.runtime.views.last_records import is_exact, last_of_each, last_rows, rows_alone
from rw_sql.runtime.views.own_rows import await_own_rows
from rw_sql.runtime.views.recomputed import exact_text, write_changes, write_held
from rw_sql.runtime.views.streamed import Streamed
from rw_sql.runtime.views.unchanged import filled, recomputed, settled_moves, with_unknown
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import ArrayType, StructType

    from rw_sql.model.job_specs import KeyedRows
    from rw_sql.runtime.views.strategy import ViewRun

_EVENTS, _OLD, _NEW = "_rw_events", "_rw_old", "_rw_new"


@dataclass(frozen=True, slots=True)
class _Form:
    """The columns of a query's batches. ``is_exact`` is true if Arrow groups the batches' records by key as Spark does.
    The columns and ``is_exact`` do not change during a run, and are stored here because Spark takes several
    milliseconds to determine them."""

    columns: tuple[str, ...]
    is_exact: bool

    @property
    def is_captured(self) -> bool:
        """True if the records come from a change data capture source."""
        return INDEX_COLUMN[0] in self.columns and OP in self.columns


@dataclass(slots=True)
class Keyed:
    """The strategy of a table with a primary key."""

    run: ViewRun
    rows: KeyedRows
    last: Planned = field(default_factory=Planned, init=False)
    """The number of rows that the latest batch reads."""
    _form: _Form | None = field(default=None, init=False)
    _is_idle: bool = field(default=False, init=False)
    _log: OrderedLog | None = field(default=None, init=False)

    def stream(self, spark: SparkSession) -> tuple[DataFrame, str]:
        """The table's query over the stream of the source's log, and Spark's output mode for the query."""
        for given in self.run.spec.inputs:
            register_view(self.run.input(spark, given), given.name)
        return as_in_files(spark.sql(self.run.spec.query), self.run.spec), "append"

    def write(self, frame: DataFrame, batch: int) -> None:
        """Applies a batch's records to the table."""
        planned = self.last = Streamed(self.run).planned(batch)
        self._is_idle = planned.most == 0
        log = self._log = self._log or self._ordered_log(frame)
        if self._is_idle:
            if log is not None:
                log.skip(batch)  # The log has only records of other tables.
            return
        frame = self._in_order(frame, log, batch)
        form = self._form = self._form or _Form(tuple(frame.columns), is_exact(frame, self.rows.primary_key))
        has_last = form.is_captured or self.rows.is_overwritten
        if has_last and planned.is_small and self._has_written_few(frame, batch, form):
            return
        if UNCHANGED in form.columns:
            frame = with_unknown(frame)
        if has_last and not planned.is_small and self._has_written_last(frame, batch, is_captured=form.is_captured):
            return
        if form.is_captured:
            self._write_captured(frame, batch)
            return
        own = rows_now(frame.sparkSession, self.run.output.path)
        changes = self._settled(frame, own)
        if self.rows.is_append_only:
            self._append(changes.drop(KEEP), batch)
        else:
            write_changes(self.run, changes, batch, self.rows.primary_key)

    def _ordered_log(self, frame: DataFrame) -> OrderedLog | None:
        """The log that the table's query reads. None if the query reads an upstream directly, or has several inputs."""
        if self.run.readers is not None or len(self.run.spec.inputs) != 1:
            return None
        (given,) = self.run.spec.inputs
        return OrderedLog(
            warehouse=self.run.context.warehouse,
            path=self.run.table_of(given),
            checkpoint=self.run.checkpoint,
            most_bytes=int(batch_bytes(frame.sparkSession).removesuffix("b")),
            # The rows of a captured table are selected by their hour.
            least_bucket=None if given.live_from is None else given.live_from[2],
        )

    def _in_order(self, frame: DataFrame, log: OrderedLog | None, batch: int) -> DataFrame:
        """The records of a batch. The division into batches preserves the order of each split: if one record of a split
        precedes another, the first is in the same batch as the second or in an earlier batch."""
        spark = frame.sparkSession
        rows = None if log is None else log.rows(spark, batch)
        if rows is None:
            return frame
        (given,) = self.run.spec.inputs
        is_live = bool(given.history) and given.id not in self.run.tables
        register_view(selected_rows(spark, given, rows, is_live=is_live), given.name)
        return as_in_files(plain_sql(spark, self.run.spec.query), self.run.spec)

    def await_rows(self, batch: int, is_over: Callable[[], bool]) -> None:
        """Must be called after each batch. If the batch had no rows of this table, waits until such rows arrive or
        ``is_over`` returns true, but at most for a second. Without this wait, Spark would run a batch for each commit
        in the log, even if the commit only has rows of other tables."""
        if self._is_idle and not self.run.tables:
            await_own_rows(self.run, batch, is_over)

    def _write_captured(self, frame: DataFrame, batch: int) -> None:
        """Applies a batch of records from a change data capture source. One of these records may empty the table."""
        own = frame.sparkSession.read.format("delta").load(self.run.output.path)
        if frame.where(f"`{OP}` < {DELETE}").isEmpty():
            changes = self._settled(frame, own)
        else:
            changes = emptied(self.run, frame, own, self.rows.primary_key, self._settled)
        write_changes(self.run, changes, batch, self.rows.primary_key)

    def _has_written_few(self, frame: DataFrame, batch: int, form: _Form) -> bool:
        """Writes the last record of each key of a small batch through this process's memory, and returns True. If one
        of these records omits values or empties the table, writes nothing and returns False."""
        keys = self.rows.primary_key
        last = rows_alone(last_rows(frame, keys, (OP,) if form.is_captured else (), is_exact=form.is_exact))
        if last is None:
            return False
        rows = self.run.fitted(last)
        if rows.num_rows:
            with self.run.turn():
                self.run.output.upsert_rows(rows, keys, batch)
        return True

    def _has_written_last(self, frame: DataFrame, batch: int, *, is_captured: bool) -> bool:
        """Does the same as :meth:`_has_written_few`, but for a batch that is not small. Spark persists the last
        records. The batch is therefore decoded only once."""
        keys = self.rows.primary_key
        last = last_of_each(frame, keys, (OP,) if is_captured else ())
        conditions = [f"`{UNCHANGED}` IS NOT NULL"] if UNCHANGED in last.columns else []
        conditions += [f"`{OP}` < {DELETE}"] if OP in last.columns else []
        held = last.persist()
        try:
            count, others = held.selectExpr("count(*)", f"count_if({' OR '.join(conditions) or 'false'})").collect()[0]
            if others:
                return False
            write_held(self.run, held.drop(UNCHANGED, OP), batch, keys, count)
        finally:
            held.unpersist()
        return True

    def _settled(self, frame: DataFrame, own: DataFrame) -> DataFrame:
        """Does the same as :func:`settled`, and also handles records that omit values. Computed columns of a changed
        row are computed again from the row's final values."""
        if UNCHANGED not in frame.columns:
            return settled(frame, own, self.rows)
        moved = settled_moves(frame, own, self.rows)
        changes = settled(frame, own, self.rows) if moved is None else moved
        return recomputed(changes, self.run.spec) if self.rows.is_computed else changes

    def _append(self, rows: DataFrame, batch: int) -> None:
        held = rows.persist()
        try:
            count = held.count()
            if count and may_hold(held, count):
                small = self.run.fitted(held.toArrow())
                exactly(count).require(RowCount(written=small.num_rows))
                with self.run.turn():
                    self.run.output.append_rows(small, batch)
            elif count:
                with self.run.turn():
                    self.run.output.append_frame(held, batch, expected=exactly(count))
        finally:
            held.unpersist()


def settled(frame: DataFrame, own: DataFrame, rows: KeyedRows) -> DataFrame:
    """The rows of a table that a batch of records changes. In the result, the column KEEP is false for a row that must
    be deleted.

    ``frame`` contains the batch's records, and ``own`` contains the table's existing rows.
    """
    from pyspark.sql import functions as f

    columns = visible(frame)
    key = [f"`{name}`" for name in rows.primary_key]
    event = f.struct(
        f.struct(*order(frame)).alias("at"),
        is_kept(frame).alias("is_kept"),
        (f.col(UNCHANGED) if UNCHANGED in frame.columns else f.lit(None).cast("array<string>")).alias("unchanged"),
        f.struct(*columns).alias("row"),
    )
    events = frame.groupBy(*key).agg(f.collect_list(event).alias(_EVENTS))
    ordered = f.array_sort(f.col(_EVENTS), later)
    there = own.select(f.struct(*columns).alias(_OLD))
    same = reduce(
        lambda one, other: one & other,
        (
            f.col(name).eqNullSafe(f.col(_OLD).getField(plain))
            for name, plain in zip(key, rows.primary_key, strict=True)
        ),
    )
    met = events.join(there, same, "left")
    kind = cast("StructType", cast("ArrayType", events.schema[_EVENTS].dataType).elementType)
    row = cast("StructType", nullable(kind["row"].dataType))

    def step(known: Column, record: Column) -> Column:
        given = filled(record.getField("row"), known, record.getField("unchanged"), row, rows)
        then = then_of(known, given, [name.strip("`") for name in columns], rows)
        return (
            f.when(~record.getField("is_kept"), f.lit(None).cast(row))
            .when(known.isNull(), given)
            .otherwise(then)
            .cast(row)
        )

    come = met.select(_OLD, f.aggregate(ordered, f.col(_OLD).cast(row), step).alias(_NEW))
    is_changed = exact_text(_OLD) != exact_text(_NEW)
    changed = come.where(
        (f.col(_OLD).isNull() & f.col(_NEW).isNotNull()) | (f.col(_OLD).isNotNull() & f.col(_NEW).isNull()) | is_changed
    )
    return changed.select(f.coalesce(_NEW, _OLD).alias("row"), f.col(_NEW).isNotNull().alias(KEEP)).select(
        "row.*", KEEP
    )
