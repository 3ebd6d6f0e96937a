"""A query that Spark keeps up to date by itself: its rows are appended, or replace those of their keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.runtime.delta_log import added_rows, read_actions
from rw_sql.runtime.output import SMALL_ROWS
from rw_sql.runtime.progress import planned_versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.runtime.views.strategy import ViewRun

LARGE_ROWS = 200_000
"""Keyed batches above this are merged by Spark, smaller ones by delta-rs."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """The strategy of a query over inputs to which rows are only appended."""

    run: ViewRun

    def stream(self, spark: SparkSession) -> tuple[DataFrame, str]:
        """The query over its inputs' streams."""
        for given in self.run.spec.inputs:
            self.run.input(spark, given).createOrReplaceTempView(given.name)
        return spark.sql(self.run.spec.query), "update" if self.run.spec.keys else "append"

    def write(self, frame: DataFrame, batch: int) -> None:
        """Through the driver's memory where that is known to hold it, else through Spark."""
        if self._is_small(batch):
            self._write_rows(frame, batch)
        elif self.run.spec.keys:
            self._upsert_measured(frame, batch)
        else:
            with self.run.turn():
                self.run.output.append_frame(frame, batch)

    def _write_rows(self, frame: DataFrame, batch: int) -> None:
        """Through the driver's memory and delta-rs."""
        rows = frame.toArrow().cast(self.run.schema)
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

    def _is_small(self, batch: int) -> bool:
        """Whether the inputs of this batch are known to be few rows, so that the driver may hold what comes of them."""
        if self.run.readers is not None:
            return self.run.readers.is_small(self.run.output.ranges)
        if len(self.run.spec.inputs) != 1:
            return False
        given = self.run.spec.inputs[0]
        warehouse = self.run.context.warehouse
        table = self.run.table_of(given)
        rows = 0
        versions = planned_versions(warehouse, self.run.checkpoint, batch)
        if versions is None:
            return False
        for version in versions:
            added = added_rows(read_actions(warehouse, table, version))
            if added is None:
                return False
            rows += added
        return rows <= SMALL_ROWS
