"""A query that Spark keeps up to date by itself: its rows are appended, or replace those of their keys."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import Schema

from rw_sql.metastore.records import SIGNED
from rw_sql.plan.relations import seen_columns
from rw_sql.runtime.delta_log import added_rows, read_actions
from rw_sql.runtime.job import StalledError
from rw_sql.runtime.output import LARGE_ROWS, SMALL_ROWS
from rw_sql.runtime.progress import planned_versions
from rw_sql.runtime.straight import is_by_row
from rw_sql.runtime.views.inputs import as_in_files, signed_frame
from rw_sql.syntax.maintained import KEEP
from rw_sql.syntax.signed import SIGN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.plan.desired import ViewSpec
    from rw_sql.runtime.context import Context
    from rw_sql.runtime.views.strategy import ViewRun


@dataclass(slots=True)
class Streamed:
    """The strategy of a query over rows that come, or over changes, each with its sign."""

    run: ViewRun
    _is_by_row: bool = False

    def stream(self, spark: SparkSession) -> tuple[DataFrame, str]:
        """The query over its inputs' streams."""
        is_signed = self.run.spec.maintenance.strategy == SIGNED
        for given in self.run.spec.inputs:
            frame = signed_frame(self.run.context, spark, given) if is_signed else self.run.input(spark, given)
            frame.createOrReplaceTempView(given.name)
        found = spark.sql(self.run.spec.query)
        self._is_by_row = is_by_row(found)
        frame = as_in_files(found, self.run.spec)
        return frame, "update" if self.run.spec.keys else "append"

    def write(self, frame: DataFrame, batch: int) -> None:
        """Through the driver's memory where that is known to hold it, else through Spark."""
        rows = self._rows_of(batch)
        if rows == 0 and self._is_by_row:
            return
        if rows is not None and rows <= SMALL_ROWS:
            self._write_rows(frame, batch)
        elif self.run.spec.keys:
            self._upsert_measured(frame, batch)
        else:
            with self.run.turn():
                self.run.output.append_frame(frame, batch)

    def _write_rows(self, frame: DataFrame, batch: int) -> None:
        """Through the driver's memory and delta-rs."""
        rows = self.run.fitted(frame.toArrow())
        with self.run.turn():
            if rows.num_rows and self.run.spec.keys:
                self.run.output.upsert_rows(rows, self.run.spec.keys, batch)
            elif rows.num_rows:
                self.run.output.append_rows(rows, batch)

    def _upsert_measured(self, frame: DataFrame, batch: int) -> None:
        """A batch of unknown size is kept by Spark and counted before it is decided who merges it.

        Kept also because a stateful batch must be computed once.
        """
        held = frame.persist()
        try:
            if held.count() <= LARGE_ROWS:
                self._write_rows(held, batch)
            else:
                with self.run.turn():
                    self.run.output.upsert_frame(held, self.run.spec.keys, batch)
        finally:
            held.unpersist()

    def is_small(self, batch: int) -> bool:
        """Whether the inputs of this batch are known to be few rows, so that the driver may hold what comes of them."""
        rows = self._rows_of(batch)
        return rows is not None and rows <= SMALL_ROWS

    def _rows_of(self, batch: int) -> int | None:
        """How many rows a batch reads, at most; None where that is not known."""
        if self.run.readers is not None:
            return SMALL_ROWS if self.run.readers.is_small(self.run.output.ranges) else None
        if len(self.run.spec.inputs) != 1 or self.run.spec.inputs[0].is_changing:
            return None
        given = self.run.spec.inputs[0]
        warehouse = self.run.context.warehouse
        table = self.run.table_of(given)
        rows = 0
        versions = planned_versions(warehouse, self.run.checkpoint, batch)
        if versions is None:
            return None
        for version in versions:
            added = added_rows(read_actions(warehouse, table, version))
            if added is None:
                return None
            rows += added
        return rows


def rows_of_nothing(context: Context, spec: ViewSpec) -> pa.Table:
    """What an aggregation without groups gives before any row came: no row, where HAVING leaves that one out."""
    spark, snapshot = context.sessions.new(), context.metastore.snapshot()
    signs = ((SIGN, "BIGINT"),) if spec.maintenance.strategy == SIGNED else ()
    for given in spec.inputs:
        record = snapshot.get(given.id)
        if record is None:
            raise StalledError("the catalog has moved on")
        columns = (f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in (*seen_columns(record, spec.view_id), *signs))
        spark.range(0).selectExpr(*columns).createOrReplaceTempView(given.name)
    frame = spark.sql(spec.query)
    if KEEP in frame.columns:
        frame = frame.where(KEEP).drop(KEEP)
    names = [column["name"] for column in json.loads(spec.schema)["fields"]]
    schema = pa.schema(Schema.from_json(spec.schema).to_arrow())
    return frame.toArrow().select(names).cast(schema)
