"""Tables with a primary key: what the records of a source come to, key by key.

Records count in the order in which the source's log got them. Where a later one just takes the place of an earlier one
only the last of a batch matters; where it may not (DO NOTHING, DO UPDATE IF NOT NULL, WITH VERSION COLUMN) the records
of a key are gone through one after the other, beginning with the row that the table has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, cast

from rw_sql.metastore.records import IF_NOT_NULL, IGNORE, OVERWRITE
from rw_sql.plan.definitions import CHANGE_COLUMN
from rw_sql.runtime.decode import BATCH, OFFSET, RUN, SPLIT
from rw_sql.runtime.output import LARGE_ROWS
from rw_sql.runtime.row_counts import RowCount, exactly
from rw_sql.runtime.views.inputs import as_in_files
from rw_sql.runtime.views.recomputed import exact_text, write_changes
from rw_sql.runtime.views.streamed import Streamed
from rw_sql.syntax.maintained import KEEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import ArrayType, StructType

    from rw_sql.plan.desired import KeyedRows
    from rw_sql.runtime.views.strategy import ViewRun

OP = CHANGE_COLUMN[0]
DELETE = -1
ORDER = (RUN, BATCH, SPLIT, OFFSET)
"""By these the rows of a log are in the order in which they came: commit by commit, and within one by split and offset.

A log of before it told its batches has no second of these in its tables' queries.
"""

_EVENTS, _OLD, _NEW = "_rw_events", "_rw_old", "_rw_new"


@dataclass(frozen=True, slots=True)
class Keyed:
    """The strategy of a table with a primary key."""

    run: ViewRun
    rows: KeyedRows

    def stream(self, spark: SparkSession) -> tuple[DataFrame, str]:
        """The rows of the source's log, as the table's query gives them."""
        for given in self.run.spec.inputs:
            self.run.input(spark, given).createOrReplaceTempView(given.name)
        return as_in_files(spark.sql(self.run.spec.query), self.run.spec), "append"

    def write(self, frame: DataFrame, batch: int) -> None:
        """Brings the table to what its rows and the batch's records come to."""
        if self.rows.conflict == OVERWRITE and not self.rows.version_columns:
            last = last_of_each(frame, self.rows.primary_key)
            if Streamed(self.run).is_small(batch):
                rows = self.run.fitted(last.toArrow())
                if rows.num_rows:
                    with self.run.turn():
                        self.run.output.upsert_rows(rows, self.rows.primary_key, batch)
            else:
                write_changes(self.run, last, batch, self.rows.primary_key)
            return
        own = frame.sparkSession.read.format("delta").load(self.run.output.path)
        changes = settled(frame, own, self.rows)
        if self.rows.is_append_only:
            self._append(changes.drop(KEEP), batch)
        else:
            write_changes(self.run, changes, batch, self.rows.primary_key)

    def _append(self, rows: DataFrame, batch: int) -> None:
        held = rows.persist()
        try:
            count = held.count()
            if 0 < count <= LARGE_ROWS:
                small = self.run.fitted(held.toArrow())
                exactly(count).require(RowCount(written=small.num_rows))
                with self.run.turn():
                    self.run.output.append_rows(small, batch)
            elif count:
                with self.run.turn():
                    self.run.output.append_frame(held, batch, expected=exactly(count))
        finally:
            held.unpersist()


def last_of_each(frame: DataFrame, key: Sequence[str]) -> DataFrame:
    """The last record of each key, with KEEP: false where that deletes it."""
    from pyspark.sql import Window, functions

    keys = [functions.col(f"`{name}`") for name in key]
    newest = functions.row_number().over(
        Window.partitionBy(*keys).orderBy(*(functions.desc(name) for name in _order(frame)))
    )
    last = frame.withColumn("_rw_age", newest).where("_rw_age = 1")
    return last.withColumn(KEEP, _is_kept(frame)).select(*_visible(frame), KEEP)


def settled(frame: DataFrame, own: DataFrame, rows: KeyedRows) -> DataFrame:
    """The rows of a table that a batch of records changes, each with KEEP: false where its key goes.

    ``own`` are the rows that the table has.
    """
    from pyspark.sql import functions as f

    columns = _visible(frame)
    key = [f"`{name}`" for name in rows.primary_key]
    event = f.struct(
        f.struct(*_order(frame)).alias("at"), _is_kept(frame).alias("is_kept"), f.struct(*columns).alias("row")
    )
    events = frame.groupBy(*key).agg(f.collect_list(event).alias(_EVENTS))
    ordered = f.array_sort(f.col(_EVENTS), _later)
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
    row = kind["row"].dataType

    def step(known: Column, record: Column) -> Column:
        given = record.getField("row")
        then = _then(known, given, [name.strip("`") for name in columns], rows)
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


def _later(one: Column, other: Column) -> Column:
    from pyspark.sql import functions as f

    left, right = one.getField("at"), other.getField("at")
    return f.when(left < right, -1).when(left > right, 1).otherwise(0)


def _then(known: Column, given: Column, columns: Sequence[str], rows: KeyedRows) -> Column:
    """A row that is known and one with its key that comes: what the table has then."""
    from pyspark.sql import functions as f

    if rows.conflict == IGNORE:
        return known
    come = given
    if rows.conflict == IF_NOT_NULL:
        values = (f.coalesce(given.getField(name), known.getField(name)).alias(name) for name in columns)
        come = f.struct(*values)
    return f.when(is_as_new(known, given, rows.version_columns), come).otherwise(known)


def is_as_new(known: Column, given: Column, version_columns: Sequence[str]) -> Column:
    """Whether a row is as new as the one that is known: column by column, and NULL is older than all values."""
    from pyspark.sql import functions as f

    answer = f.lit(True)
    for name in reversed(version_columns):
        old, new = known.getField(name), given.getField(name)
        is_newer = f.coalesce(old.isNull() | (old < new), f.lit(False))
        answer = f.when(old.eqNullSafe(new), answer).otherwise(is_newer)
    return answer


def _is_kept(frame: DataFrame) -> Column:
    from pyspark.sql import functions as f

    return f.col(OP) != DELETE if OP in frame.columns else f.lit(True)


def _order(frame: DataFrame) -> list[str]:
    return [name for name in ORDER if name in frame.columns]


def _visible(frame: DataFrame) -> list[str]:
    return [f"`{name}`" for name in frame.columns if name not in (*ORDER, OP)]
