"""Maintains views whose rows are recomputed after their inputs have changed. Depending on the strategy, either only the
rows that the changes affect are recomputed, or all rows.

Each batch has an end version for each input. The checkpoint stores the end versions before the batch begins, and the
batch reads the inputs as of their end versions. Afterwards, the view equals the result of its query on these versions.
Therefore, a batch that is run again yields the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.connectors.delta.plain_files import rows_now
from rw_sql.metastore.records import CHANGES, KEYS
from rw_sql.runtime.delta.delta_log import table_id
from rw_sql.runtime.delta.held_rows import may_hold
from rw_sql.runtime.delta.row_counts import RowCount, exactly
from rw_sql.runtime.jobs.inputs import (
    CHANGE,
    VERSION,
    feed_columns,
    feed_frame,
    frame_at,
    path_of,
    touched_frame,
    valid_rows,
)
from rw_sql.runtime.positions.feed_keys import FeedByKey
from rw_sql.runtime.positions.planned_rows import Planned, planned_changes
from rw_sql.runtime.positions.progress import end_versions
from rw_sql.runtime.spark.sessions import register_view
from rw_sql.syntax.lexing.identifiers import quoted_for_spark
from rw_sql.syntax.query.maintained_form import KEEP, ROW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from rw_sql.runtime.views.strategy import ViewRun

EXACT_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS",
    "timestampNTZFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS",
}
"""The options of Spark's ``to_json`` with which different rows always have different texts. With the default options,
the text lacks microseconds."""


def same_values(one: str, other: str, names: Sequence[str]) -> Column:
    """Returns the join condition that the columns ``names`` have equal values in the frames with the aliases ``one``
    and ``other``. Two NULLs count as equal."""
    from pyspark.sql import functions

    condition = functions.lit(True)
    for name in names:
        condition = condition & functions.col(f"{one}.{quoted_for_spark(name)}").eqNullSafe(
            functions.col(f"{other}.{quoted_for_spark(name)}")
        )
    return condition


def write_changes(run: ViewRun, changes: DataFrame, batch: int, keys: Sequence[str]) -> None:
    """Writes changed rows: each row replaces the row with the same key or, if its column KEEP is false, deletes that
    row. Makes no commit if there are no changed rows."""
    held = changes.persist()
    try:
        write_held(run, held, batch, keys, held.count())
    finally:
        held.unpersist()


def write_held(run: ViewRun, held: DataFrame, batch: int, keys: Sequence[str], count: int) -> None:
    """Does the same as :func:`write_changes` for the frame ``held``, which the caller has persisted and which has
    ``count`` rows."""
    if count and may_hold(held, count):
        rows = run.fitted(held.toArrow())
        exactly(count).require(RowCount(written=rows.num_rows))
        with run.turn():
            run.output.upsert_rows(rows, keys, batch)
    elif count:
        with run.turn():
            run.output.upsert_frame(held, keys, batch, rows=count)


@dataclass(slots=True)
class Changed:
    """The strategy for a view that filters or projects the rows of an input whose rows may be updated and deleted. The
    query is applied again to each changed row."""

    run: ViewRun
    last: Planned = field(default_factory=Planned, init=False)
    """The number of rows that the latest batch reads."""

    def stream(self, spark: SparkSession) -> tuple[DataFrame, str]:
        """The stream of changes to the input's rows, including deletes, and Spark's output mode."""
        (given,) = self.run.spec.inputs
        return _without_old(feed_frame(self.run.context, spark, given)), "append"

    def write(self, frame: DataFrame, batch: int) -> None:
        """Applies the last change of each key of the input. If the query no longer returns a row for a key, the view's
        row for this key is deleted."""
        from pyspark.sql import Window, functions

        (given,) = self.run.spec.inputs
        table, checkpoint = self.run.table_of(given), self.run.checkpoint
        self.last = planned_changes(self.run.context.warehouse, table, checkpoint, batch)
        keys = list(given.keys)
        spark = frame.sparkSession
        frame = FeedByKey(
            warehouse=self.run.context.warehouse,
            path=table,
            checkpoint=checkpoint,
            keys=keys,
            select=lambda rows: _without_old(rows.selectExpr(*feed_columns(given), CHANGE, VERSION)),
        ).rows(frame, batch)
        order = [functions.col(VERSION).desc(), (functions.col(CHANGE) == "delete").asc()]
        newest = functions.row_number().over(Window.partitionBy(*(f"`{key}`" for key in keys)).orderBy(*order))
        last = frame.withColumn("_rw_age", newest).where("_rw_age = 1").drop("_rw_age").persist()
        try:
            register_view(last.where(f"{CHANGE} <> 'delete'").drop(CHANGE, VERSION), given.name)
            fresh = valid_rows(spark.sql(self.run.spec.query), self.run.spec).withColumn(KEEP, functions.lit(True))
            own = self.run.spec.keys
            changed = last.select(*(functions.col(f"`{key}`").alias(name) for key, name in zip(keys, own, strict=True)))
            gone = changed.alias("t").join(fresh.alias("f"), same_values("t", "f", own), "left_anti")
            gone = gone.withColumn(KEEP, functions.lit(False))
            write_changes(self.run, fresh.unionByName(gone, allowMissingColumns=True), batch, own)
        finally:
            last.unpersist()


def _without_old(changes: DataFrame) -> DataFrame:
    """Returns the changes without the rows that contain the old values of an update. (A change feed has two rows for
    each update.)"""
    return changes.where(f"{CHANGE} <> 'update_preimage'")


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The strategy for a query of which the affected rows, or all rows, are recomputed and compared with the view's
    table."""

    run: ViewRun

    def stream(self, spark: SparkSession) -> tuple[DataFrame, str]:
        """A stream that triggers a batch when an input changes, and Spark's output mode. If only affected rows of the
        view are recomputed, the stream's rows identify these rows. Otherwise, each row of the stream is the constant
        1."""
        spec = self.run.spec
        for given in spec.inputs:
            register_view(touched_frame(self.run.context, spark, given), given.name)
        if spec.maintenance.strategy == KEYS:
            return spark.sql(spec.maintenance.touched), "append"
        each = " UNION ALL ".join(f"SELECT 1 AS one FROM {quoted_for_spark(given.name)}" for given in spec.inputs)
        return spark.sql(each), "append"

    def write(self, frame: DataFrame, batch: int) -> None:
        """Recomputes the affected rows, or all rows, as of the batch's end versions, and writes the differences to the
        view."""
        from pyspark.sql import functions

        run, spec = self.run, self.run.spec
        if batch > 0 and frame.isEmpty():
            return
        spark = frame.sparkSession
        versions = end_versions(run.context.warehouse, run.checkpoint, batch)
        for given in spec.inputs:
            table = table_id(run.context.warehouse, path_of(run.context.warehouse, given))
            register_view(frame_at(run.context, spark, given, versions[table]), given.name)
        fresh = valid_rows(spark.sql(spec.query), spec)
        partition = spec.maintenance.partition
        touched = frame.toDF(*partition).distinct().persist() if partition and batch > 0 else None
        try:
            if touched is not None:
                fresh = fresh.alias("f").join(touched.alias("t"), same_values("f", "t", partition), "left_semi")
            if ROW in spec.keys:
                fresh = _numbered(fresh)
            own = rows_now(spark, run.output.path)
            if touched is not None:
                own = own.alias("f").join(touched.alias("t"), same_values("f", "t", partition), "left_semi")
            columns = own.columns
            new = fresh.select(functions.struct(*(f"`{name}`" for name in columns)).alias("new"))
            old = own.select(functions.struct(*(f"`{name}`" for name in columns)).alias("old"))
            condition = functions.lit(True)
            for key in spec.keys:
                condition = condition & functions.col(f"new.`{key}`").eqNullSafe(functions.col(f"old.`{key}`"))
            both = new.join(old, condition, "full_outer")
            is_changed = functions.col("new").isNull() | functions.col("old").isNull()
            if ROW not in spec.keys:
                is_changed = is_changed | (exact_text("new") != exact_text("old"))
            changes = both.where(is_changed).select(
                functions.coalesce("new", "old").alias("row"), functions.col("new").isNotNull().alias(KEEP)
            )
            write_changes(run, changes.select("row.*", KEEP), batch, spec.keys)
        finally:
            if touched is not None:
                touched.unpersist()


def exact_text(name: str) -> Column:
    """Returns the struct column ``name`` as text. Different values always have different texts."""
    from pyspark.sql import functions

    return functions.to_json(name, EXACT_JSON)


def _numbered(rows: DataFrame) -> DataFrame:
    """Adds a key column to rows without a key. The key consists of a digest of the row and the row's number among equal
    rows."""
    from pyspark.sql import Window, functions

    every = functions.struct(*(f"`{name}`" for name in rows.columns))
    digest = rows.withColumn(ROW, functions.sha2(functions.to_json(every, EXACT_JSON), 256))
    number = functions.row_number().over(Window.partitionBy(ROW).orderBy(ROW))
    return digest.withColumn(ROW, functions.concat_ws("-", ROW, number.cast("string")))


def strategy_of(run: ViewRun) -> Changed | Recomputed:
    """The strategy for a view whose affected rows, or all of whose rows, are recomputed."""
    return Changed(run) if run.spec.maintenance.strategy == CHANGES else Recomputed(run)
