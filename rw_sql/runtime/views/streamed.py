"""Maintains views whose query Spark Structured Streaming computes incrementally. The rows of a batch are appended to
the view's table, or replace its rows with the same keys."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import Schema

from rw_sql.model.definitions import source_definition
from rw_sql.model.relations import relation_of
from rw_sql.runtime.delta.held_rows import in_any_order, may_hold
from rw_sql.runtime.delta.row_counts import ANY, Expected, RowCount, exactly
from rw_sql.runtime.jobs.inputs import as_in_files, signed_frame
from rw_sql.runtime.positions.planned_rows import Planned, planned_changes, planned_rows
from rw_sql.runtime.spark.row_by_row import steps_by_row
from rw_sql.runtime.spark.sessions import register_view
from rw_sql.runtime.support.failures import StalledError
from rw_sql.syntax.query.maintained_form import KEEP
from rw_sql.syntax.query.signed_aggregates import SIGN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.model.job_specs import ViewSpec
    from rw_sql.model.view_inputs import ViewInput
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.views.strategy import ViewRun


@dataclass(slots=True)
class Streamed:
    """The strategy for a query over appended rows, or over the changes to its input's rows. Each change has a sign: 1
    for an added row, -1 for a removed row."""

    run: ViewRun
    steps: tuple[str, ...] | None = None
    """Spark's names for the steps of the query's plan if the query is row-by-row; None for other queries."""
    last: Planned = field(default_factory=Planned, init=False)
    """The number of rows that the latest batch reads."""

    def stream(self, spark: SparkSession) -> tuple[DataFrame, str]:
        """The view's query, with each input read as a stream, and Spark's output mode for the query."""
        is_signed = self.run.spec.is_signed
        for given in self.run.spec.inputs:
            frame = signed_frame(self.run.context, spark, given) if is_signed else self.run.input(spark, given)
            register_view(frame, given.name)
        found = spark.sql(self.run.spec.query)
        self.steps = steps_by_row(found)
        frame = as_in_files(found, self.run.spec)
        has_state = bool(self.run.spec.keys) and not self.run.spec.maintenance.combine
        return frame, "update" if has_state else "append"

    def write(self, frame: DataFrame, batch: int) -> None:
        """Writes a batch through the driver's memory if the batch certainly fits into this memory. Otherwise, either
        Spark writes the batch, or the batch is measured first (:meth:`_write_measured`)."""
        planned = self.last = self.planned(batch)
        expected = expected_rows(self.run, planned, self.steps)
        if planned.most == 0 and self.steps is not None:
            return
        # A query that appends the rows of closed windows may return many rows for few or no rows of its input.
        is_bounded = self.steps is not None or bool(self.run.spec.keys)
        if planned.is_small and is_bounded:
            self._write_rows(frame, batch, expected)
        elif self.run.spec.keys or planned.is_small or (self.run.readers is not None and planned.most is not None):
            self._write_measured(frame, batch)
        else:
            with self.run.turn():
                self.run.output.append_frame(frame, batch, expected=expected)

    def _write_rows(self, frame: DataFrame, batch: int, expected: Expected = ANY) -> None:
        """Collects the rows of a batch in the driver's memory and writes them with delta-rs."""
        rows = self.run.fitted(frame.toArrow())
        expected.require(RowCount(written=rows.num_rows))
        with self.run.turn():
            if rows.num_rows and self.run.spec.keys:
                self.run.output.upsert_rows(rows, self.run.spec.keys, batch)
            elif rows.num_rows:
                self.run.output.append_rows(rows, batch)

    def _write_measured(self, frame: DataFrame, batch: int) -> None:
        """Computes and measures a batch of unknown size. Then writes the batch through the driver's memory or, if the
        batch is too large, with Spark."""
        output, keys = self.run.output, self.run.spec.keys
        with _measured(frame) as (held, count):
            if may_hold(held, count):
                self._write_rows(held, batch, exactly(count))
                return
            with self.run.turn():
                if keys:
                    output.upsert_frame(held, keys, batch, rows=count)
                else:
                    output.append_frame(held, batch, expected=exactly(count))

    def planned(self, batch: int) -> Planned:
        """The number of rows that the batch ``batch`` reads, as far as it is known."""
        if self.run.readers is not None:
            return self.run.readers.planned(self.run.output.ranges)
        if len(self.run.spec.inputs) != 1:
            return Planned()
        given = self.run.spec.inputs[0]
        if given.is_changing:
            warehouse, table = self.run.context.warehouse, self.run.table_of(given)
            return planned_changes(warehouse, table, self.run.checkpoint, batch)
        return planned_rows(
            self.run.context.warehouse,
            self.run.table_of(given),
            self.run.checkpoint,
            batch,
            is_log=given.kind == "source",
            # A condition that selects rows of the log does not apply to the rows that come from the backfill.
            is_all_read=not given.history,
            upstream=upstream_table(given) if not given.history else None,
        )


def expected_rows(run: ViewRun, planned: Planned, steps: tuple[str, ...] | None) -> Expected:
    """The expected number of rows in the result of a batch that reads ``planned`` rows. ``steps`` are the plan's steps
    of a row-by-row query; None for other queries.

    If the batch's groups are combined with the view's groups, the result is the number of rows before the combination.
    """
    has_state = bool(run.spec.keys) and not run.spec.maintenance.combine
    if steps is None or "Generate" in steps or has_state or planned.most is None or run.readers:
        return ANY
    (given, *_) = run.spec.inputs
    if given.is_changing:
        return ANY
    limits_of = "the commit of its input"
    filters_of_input = 1 if given.kind == "source" else 0  # excludes undecodable records
    if planned.exact is None or steps.count("Filter") > filters_of_input:
        return Expected(most=planned.most if planned.exact is None else planned.exact, limits_of=limits_of)
    return Expected(least=planned.exact, most=planned.exact, limits_of=limits_of)


@contextmanager
def _measured(frame: DataFrame) -> Iterator[tuple[DataFrame, int]]:
    """A context manager that provides a persisted frame of a batch, and its number of rows.

    Because the frame is persisted, a batch of a stateful query is computed only once.
    """
    held = in_any_order(frame).persist()
    try:
        yield held, held.count()
    finally:
        held.unpersist()


def upstream_table(given: ViewInput) -> str | None:
    """The name of the upstream table if ``given`` is the change data capture source of a table; None for any other
    input."""
    if given.live_from is None:
        return None
    captured = source_definition(given.decoded_by).cdc_table
    return None if captured is None else captured.table


def rows_of_nothing(context: Context, spec: ViewSpec) -> pa.Table:
    """The single row of an aggregation without GROUP BY before there is any input. Empty if HAVING excludes this
    row."""
    with context.sessions.lent() as spark:
        rows = _rows_of_nothing(context, spec, spark)
    names = [column["name"] for column in json.loads(spec.schema)["fields"]]
    return rows.select(names).cast(pa.schema(Schema.from_json(spec.schema).to_arrow()))


def _rows_of_nothing(context: Context, spec: ViewSpec, spark: SparkSession) -> pa.Table:
    snapshot = context.metastore.snapshot()
    signs = ((SIGN, "BIGINT"),) if spec.is_signed else ()
    for given in spec.inputs:
        record = snapshot.get(given.id)
        if record is None:
            raise StalledError("the catalog has changed")
        seen = ((name, kind) for name, kind in relation_of(record).columns if name in given.columns)
        columns = (f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in (*seen, *signs))
        register_view(spark.range(0).selectExpr(*columns), given.name)
    frame = spark.sql(spec.query)
    if KEEP in frame.columns:
        frame = frame.where(KEEP).drop(KEEP)
    return frame.toArrow()
