"""A materialized view's query: from its inputs' tables to its own, every batch once."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from rw_sql.metastore.records import MaterializedViewRecord, SourceRecord
from rw_sql.runtime.delta_log import added_rows, last_batch, read_actions
from rw_sql.runtime.faults import fault
from rw_sql.runtime.job import BatchGate, Failure, StalledError, failure_of, stop_query
from rw_sql.runtime.output import SMALL_ROWS, FencedError, JobOutput
from rw_sql.runtime.progress import newest_planned, planned_versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from rw_sql.plan.desired import ViewInput, ViewSpec
    from rw_sql.runtime.context import Context

BATCH_BYTES = "256m"
"""About how much of its inputs one batch reads."""

LARGE_ROWS = 200_000
"""Keyed batches above this are merged by Spark, smaller ones by delta-rs."""


def input_frame(context: Context, spark: SparkSession, given: ViewInput, batch_bytes: str = BATCH_BYTES) -> DataFrame:
    """The stream of one input: a source's good rows, or a view's."""
    reader = spark.readStream.format("delta").option("maxBytesPerTrigger", batch_bytes).option("ignoreDeletes", "true")
    frame = reader.load(context.warehouse.data(given.id, given.generation))
    if given.kind == "source":
        frame = frame.where("_rw_error IS NULL").select(*(f"`{name}`" for name in given.columns))
    return frame if given.watermark is None else frame.withWatermark(*given.watermark)


def _require_checkpoint(context: Context, spec: ViewSpec, checkpoint: str) -> None:
    """Raises StalledError where the view holds batches that its checkpoint knows nothing of.

    Spark would number its batches from 0 again, and those that the view holds already would be passed over in silence.
    """
    table = context.warehouse.data(spec.view_id, spec.generation)
    done = last_batch(context.warehouse, table, spec.generation)
    planned = newest_planned(context.warehouse, checkpoint)
    if done > planned:
        raise StalledError(
            f"CHECKPOINT lost: {spec.name} holds batch {done}, its checkpoint "
            f"{'ends at ' + str(planned) if planned >= 0 else 'is empty'}: "
            f"put the checkpoint back, or DROP MATERIALIZED VIEW {spec.name} and create it again"
        )


@dataclass(slots=True)
class View:
    """One run of a view's query."""

    context: Context
    spec: ViewSpec
    run: int
    output: JobOutput
    checkpoint: str
    done: int
    schema: pa.Schema
    gate: BatchGate = field(default_factory=BatchGate)
    lock: threading.Lock = field(default_factory=threading.Lock)
    query: StreamingQuery | None = None
    is_stopped: bool = False
    stall: StalledError | None = None

    @staticmethod
    def start(context: Context, spec: ViewSpec) -> View:
        """Claims a run, fences earlier ones, finds the last batch that was written, and starts. Raises StalledError."""
        snapshot = context.metastore.snapshot()
        record = snapshot.get(spec.view_id)
        if not isinstance(record, MaterializedViewRecord):
            raise StalledError("the catalog has moved on")
        for given in spec.inputs:
            source = snapshot.get(given.id)
            if isinstance(source, SourceRecord):
                context.ensure_log(source)
        checkpoint = context.warehouse.view_checkpoint(spec.view_id, spec.generation)
        _require_checkpoint(context, spec, checkpoint)
        fault("view.before_claim")
        run = context.metastore.runtime.claim_run(spec.job, snapshot.epoch, context.owner)
        fault("view.after_claim")
        output = JobOutput.open(
            context.warehouse,
            context.warehouse.data(spec.view_id, spec.generation),
            spec.schema,
            job=spec.job,
            run=run.run,
            epoch=run.epoch,
            generation=spec.generation,
            has_change_feed=spec.has_change_feed,
        )
        job = View(
            context=context,
            spec=spec,
            run=run.run,
            output=output,
            checkpoint=checkpoint,
            done=output.done,
            schema=pa.schema(output.table.schema().to_arrow()),
        )
        job._start_query()
        return job

    def _start_query(self) -> None:
        spark = self.context.sessions.new()
        for given in self.spec.inputs:
            input_frame(self.context, spark, given).createOrReplaceTempView(given.name)
        frame = spark.sql(self.spec.query)
        fault("view.before_query")
        self.query = (
            frame.writeStream.queryName(self.spec.job)
            .outputMode("update" if self.spec.keys else "append")
            .option("checkpointLocation", self.checkpoint)
            .foreachBatch(self._on_batch)
            .start()
        )
        fault("view.after_query")

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        if batch <= self.done:
            # Its rows are in the table; but the batch must leave the query's state as it does the first time.
            frame.write.format("noop").mode("overwrite").save()
            return
        with self.gate:
            fault("view.in_batch")
            if self._is_small(batch):
                self._write_rows(frame, batch)
            elif self.spec.keys:
                self._upsert_measured(frame, batch)
            else:
                with self._turn():
                    self.output.append_frame(frame, batch)
            fault("view.after_batch")

    def _write_rows(self, frame: DataFrame, batch: int) -> None:
        """Through the driver's memory and delta-rs."""
        rows = frame.toArrow().cast(self.schema)
        with self._turn():
            if rows.num_rows and self.spec.keys:
                self.output.upsert_rows(rows, self.spec.keys, batch)
            elif rows.num_rows:
                self.output.append_rows(rows, batch)

    def _upsert_measured(self, frame: DataFrame, batch: int) -> None:
        """A batch of unknown size is kept by Spark and counted before it is decided who merges it.

        Kept also because a stateful batch must be computed once.
        """
        held = frame.persist()
        try:
            if held.count() <= LARGE_ROWS:
                self._write_rows(held, batch)
            else:
                with self._turn():
                    self.output.upsert_frame(held, self.spec.keys, batch)
        finally:
            held.unpersist()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Held while a batch is written: a stop waits for it, and after a stop nothing is."""
        with self.lock:
            if self.is_stopped:
                raise FencedError(f"{self.spec.job} was stopped")
            yield

    def _is_small(self, batch: int) -> bool:
        """Whether the inputs of this batch are known to be few rows, so that the driver may hold what comes of them."""
        if len(self.spec.inputs) != 1:
            return False
        given = self.spec.inputs[0]
        table = self.context.warehouse.data(given.id, given.generation)
        rows = 0
        versions = planned_versions(self.context.warehouse, self.checkpoint, batch)
        if versions is None:
            return False
        for version in versions:
            added = added_rows(read_actions(self.context.warehouse, table, version))
            if added is None:
                return False
            rows += added
        return rows <= SMALL_ROWS

    def failure(self) -> Failure | None:
        """Why it ended by itself; None while it runs."""
        return failure_of(self.query, self.stall)

    def stop(self) -> None:
        """Ends it; afterwards nothing of it commits. Its checkpoint and state stay."""
        try:
            if self.query is not None:
                fault("view.before_stop")
                stop_query(self.query, self.gate)
        finally:
            # Also where the JVM is gone: a batch may still be on its way through delta-rs in this process.
            with self.lock:
                self.is_stopped = True
        fault("view.after_stop")
