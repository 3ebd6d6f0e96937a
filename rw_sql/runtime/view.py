"""A materialized view's query: from its inputs' tables to its own, every batch once."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.metastore.records import MaterializedViewRecord, SourceRecord
from rw_sql.runtime.delta_log import last_batch
from rw_sql.runtime.faults import fault
from rw_sql.runtime.job import BatchGate, Failure, StalledError, failure_of, stop_query
from rw_sql.runtime.output import FencedError, JobOutput
from rw_sql.runtime.progress import newest_planned
from rw_sql.runtime.views.strategy import ViewRun
from rw_sql.runtime.views.streamed import Streamed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from rw_sql.plan.desired import ViewSpec
    from rw_sql.runtime.context import Context
    from rw_sql.runtime.views.strategy import Strategy


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
            f"put the checkpoint back, or REBUILD MATERIALIZED VIEW {spec.name}"
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
    strategy: Strategy = field(init=False)
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
        run = context.metastore.runtime.claim_run(spec.writer, snapshot.epoch, context.owner)
        fault("view.after_claim")
        output = JobOutput.open(
            context.warehouse,
            context.warehouse.data(spec.view_id, spec.generation),
            spec.schema,
            job=spec.writer,
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
        )
        job._start_query()
        return job

    def _start_query(self) -> None:
        run = ViewRun(
            context=self.context, spec=self.spec, output=self.output, checkpoint=self.checkpoint, turn=self._turn
        )
        self.strategy = Streamed(run)
        frame, mode = self.strategy.stream(self.context.sessions.new())
        fault("view.before_query")
        self.query = (
            frame.writeStream.queryName(self.spec.job)
            .outputMode(mode)
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
            self.strategy.write(frame, batch)
            fault("view.after_batch")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Held while a batch is written: a stop waits for it, and after a stop nothing is."""
        with self.lock:
            if self.is_stopped:
                raise FencedError(f"{self.spec.job} was stopped")
            yield

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
