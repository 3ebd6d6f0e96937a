"""The job of a table or materialized view. The job runs the view's query over the tables of its inputs, and writes each
batch to the view's own table exactly once."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from pyspark.errors import StreamingQueryException

from rw_sql.metastore.records import CHANGES, COMBINED, DIFF, KEYS, MaterializedViewRecord, SourceRecord
from rw_sql.runtime.backfill.checks import require_history
from rw_sql.runtime.backfill.completion import is_live, leave_histories
from rw_sql.runtime.backfill.direct_table import HISTORY_GENERATION, DirectTable, is_direct
from rw_sql.runtime.backfill.job import Backfill
from rw_sql.runtime.delta.change_feed import begin_feed
from rw_sql.runtime.delta.job_output import FencedError, JobOutput
from rw_sql.runtime.direct.readers import DirectReaders
from rw_sql.runtime.jobs.inputs import require_columns, require_input
from rw_sql.runtime.jobs.streaming_run import StreamingRun
from rw_sql.runtime.jobs.table_paths import with_remedy
from rw_sql.runtime.positions.commit_history import note_stretches
from rw_sql.runtime.positions.leftovers import remove_leftovers
from rw_sql.runtime.positions.logged_ranges import note_cleaned_ranges, note_ranges
from rw_sql.runtime.positions.table_consumers import require_versions
from rw_sql.runtime.positions.whole_outputs import require_whole
from rw_sql.runtime.spark.constant_groups import constant_groups
from rw_sql.runtime.spark.executors import require_executors
from rw_sql.runtime.spark.work_progress import work_of
from rw_sql.runtime.support.event_log import log_event
from rw_sql.runtime.support.failures import Failure, StalledError, cause_line
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.support.stall_timeout import StallTimeout
from rw_sql.runtime.upkeep.table_upkeep import Upkeep
from rw_sql.runtime.views import recomputed
from rw_sql.runtime.views.combined import Combined, group_of_nothing
from rw_sql.runtime.views.keyed import Keyed
from rw_sql.runtime.views.row_mode import RowMode
from rw_sql.runtime.views.row_writers import writer_of
from rw_sql.runtime.views.strategy import ViewRun
from rw_sql.runtime.views.streamed import Streamed, rows_of_nothing
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from rw_sql.metastore.facts import Run
    from rw_sql.model.job_specs import ViewSpec
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.views.row_batches import RowBatches
    from rw_sql.runtime.views.strategy import Strategy

logger = logging.getLogger(__name__)

_FINISH_SECONDS = 600.0
"""After a crash, the rows of a batch may be in the view although the batch is not complete in the checkpoint. At its
next start, the job then completes this batch. The start fails if Spark makes no progress for this number of seconds.

The limit is long because the batch may be large, and must be run exactly as it was planned.
"""

_LOOK_SECONDS = 0.05
_OWN_GRACE_SECONDS = 10.0
"""The maximum time in seconds for which a stop waits for the end of a batch, if the view has direct readers."""


def _note_all(context: Context, view: MaterializedViewRecord, version: int) -> None:
    """Saves the metadata of a view's commits up to a version. Called only if the view has direct readers."""
    note_ranges(context.warehouse, view)
    note_cleaned_ranges(context.warehouse, view, version)
    note_stretches(context.warehouse, context.metastore.snapshot(), view, version)


def _open_output(context: Context, spec: ViewSpec, run: Run, generation: int) -> JobOutput:
    return JobOutput.open(
        context.warehouse,
        context.warehouse.data(spec.view_id, spec.generation),
        spec.schema,
        job=spec.writer,
        run=run.run,
        epoch=run.epoch,
        generation=generation,
        has_change_feed=spec.has_change_feed,
        first_rows=_first_rows(context, spec),
    )


def _first_rows(context: Context, spec: ViewSpec) -> pa.Table | None:
    if not spec.maintenance.is_one_row:
        return None
    return group_of_nothing(context, spec) if spec.maintenance.strategy == COMBINED else rows_of_nothing(context, spec)


def _strategy_of(run: ViewRun) -> Strategy:
    if run.spec.keyed is not None:
        return Keyed(run, run.spec.keyed)
    if run.spec.maintenance.strategy == COMBINED:
        return Combined.of(run)
    if run.spec.maintenance.strategy in (CHANGES, KEYS, DIFF):
        return recomputed.strategy_of(run)
    return Streamed(run)


@dataclass(slots=True)
class View:
    """One run of the job of a view or table."""

    context: Context
    spec: ViewSpec
    run: int
    output: JobOutput
    checkpoint: str
    done: int
    upkeep: Upkeep
    streaming: StreamingRun
    readers: DirectReaders | None = None
    strategy: Strategy = field(init=False)
    rows: RowMode = field(init=False)
    backfill: Backfill | None = None
    session: SparkSession | None = None

    def __post_init__(self) -> None:
        # A batch that an earlier run has planned is finished before a thread or a query starts.
        self.rows = self._row_mode()

    @staticmethod
    def start(context: Context, spec: ViewSpec) -> View:
        """Claims a run, fences earlier runs, finds the last batch that was written, and starts the query or the
        backfill. Raises StalledError if the job cannot run at present."""
        snapshot = context.metastore.snapshot()
        record = snapshot.get(spec.view_id)
        if not isinstance(record, MaterializedViewRecord):
            raise StalledError("the catalog has changed")
        for given in spec.inputs:
            source = snapshot.get(given.id)
            if isinstance(source, SourceRecord) and source.is_shared:
                context.ensure_log(source)
                require_columns(context, given)
            elif isinstance(source, MaterializedViewRecord):
                require_input(context, given)
                require_columns(context, given)
        checkpoint = context.warehouse.view_checkpoint(spec.view_id, spec.generation)
        require_whole(context, spec, checkpoint)
        require_versions(context, spec, checkpoint)
        # This check precedes all writes, because each retry would otherwise add a run and a fence while an upstream is
        # unavailable.
        readers = DirectReaders.look(context, spec, snapshot, checkpoint)
        require_executors(context.warehouse, context.sessions.spark, None if readers is None else readers.on_executors)
        was_live = is_live(context, spec, checkpoint)
        goes_direct = not was_live and is_direct(context, spec)
        if not was_live:
            require_history(context, spec, is_direct=goes_direct)
        fault("view.before_claim")
        run = context.metastore.jobs.claim_run(spec.writer, snapshot.epoch, context.owner)
        fault("view.after_claim")
        output = _open_output(context, spec, run, HISTORY_GENERATION if goes_direct else spec.generation)
        job = View(
            context=context,
            spec=spec,
            run=run.run,
            output=output,
            checkpoint=checkpoint,
            done=output.done,
            upkeep=Upkeep(
                context=context,
                object_id=spec.view_id,
                generation=spec.generation,
                output=output,
                note=None if readers is None else partial(_note_all, context, record),
            ),
            streaming=StreamingRun(spec.job, context.note_batch),
            readers=readers,
        )
        try:
            job._settle()
            if was_live:
                job._start_batches({})
                leave_histories(context, spec)
            else:
                job._begin_backfill(goes_direct=goes_direct)
        except BaseException:
            # No other code refers to this run, so it ends after any exception, including Ctrl-C.
            job._end_unstarted()
            raise
        return job

    def _begin_backfill(self, *, goes_direct: bool) -> None:
        self.backfill = Backfill(
            context=self.context,
            spec=self.spec,
            run=self.run,
            epoch=self.output.epoch,
            checkpoint=self.checkpoint,
            open_query=self._start_anew if goes_direct else self._start_batches,
            running_query=lambda: self.streaming.query,
        )
        if goes_direct:
            self.backfill.direct_table = DirectTable.of(
                self.context, self.spec, self.output, self.checkpoint, self._turn
            )
        self.backfill.begin()

    def _start_anew(self, tables: Mapping[int, str]) -> None:
        """Claims a new run, whose batches are numbered from 0, and starts its batches."""
        snapshot = self.context.metastore.snapshot()
        run = self.context.metastore.jobs.claim_run(self.spec.writer, snapshot.epoch, self.context.owner)
        with self._turn():
            self.output = self.upkeep.output = _open_output(self.context, self.spec, run, self.spec.generation)
            self.run, self.done = run.run, self.output.done
        self._start_batches(tables)

    def _settle(self) -> None:
        """Aligns the checkpoint with the catalog if the view has direct readers."""
        if self.readers is None:
            return
        unfinished = self.readers.align_checkpoint(self.done)
        if unfinished is not None:
            self._finish(unfinished)
            if self.readers.align_checkpoint(self.done) is not None:
                raise StalledError(f"UNFINISHED batch {unfinished} of {self.spec.name}: it was not completed")
        self.output.lives, self.output.terms = self.readers.lives, self.readers.terms
        self.output.before_commit = self.readers.require_same_log

    def _finish(self, batch: int) -> None:
        """Runs a batch again exactly as it was planned, to complete it in the checkpoint. The batch's rows are in the
        view already, but the query's state after the batch is not in the checkpoint."""
        fault("reader.before_finish")
        try:
            query = self.streaming.query = self._started(self._writer({}).trigger(once=True))
            limit = StallTimeout(_FINISH_SECONDS)
            # awaitTermination only accepts whole seconds.
            while not query.awaitTermination(1):
                limit.note({"Spark": work_of(str(query.runId))})
                if limit.is_over:
                    query.stop()
        except StreamingQueryException as error:
            raise StalledError(
                f"UNFINISHED batch {batch} of {self.spec.name}: its rows are in the view but its state is not, "
                f"and it cannot be read again: {cause_line(str(error))}"
            ) from error
        self.streaming.query = None

    def _view_run(self, tables: Mapping[int, str]) -> ViewRun:
        return ViewRun(
            context=self.context,
            spec=self.spec,
            output=self.output,
            checkpoint=self.checkpoint,
            turn=self._turn,
            readers=self.readers,
            tables=tables,
        )

    def _writer(self, tables: Mapping[int, str]) -> DataStreamWriter:
        self.strategy = _strategy_of(self._view_run(tables))
        packages = self.readers.packages if self.readers is not None else ()
        self._release_session()
        self.session = self.context.sessions.new(packages, self.spec.parallelism)
        frame, mode = self.strategy.stream(self.session)
        if self.readers is not None:
            self.readers.know_lines(frame)
        return (
            frame.writeStream.queryName(self.spec.job)
            .outputMode(mode)
            .option("checkpointLocation", self.checkpoint)
            .foreachBatch(self._then_waiting(self.streaming.guarded(self._on_batch)))
        )

    def _row_mode(self) -> RowMode:
        run = self._view_run({})
        return RowMode(run, self.streaming, self._start_query, self._end_query, self._on_rows, writer_of(run))

    def _start_batches(self, tables: Mapping[int, str]) -> None:
        """Starts to write batches, with a streaming query or with a thread for small batches.

        ``tables`` are the backfill's staging tables by input id. If ``tables`` is not empty, a query reads the staging
        tables instead of the inputs, and ends after it has read all of their rows.
        """
        if self.streaming.query is not None:
            self._end_query()  # The query has read the tables of the backfill to their end.
        self.rows = self._row_mode()
        if tables or not self.rows.begin():
            self._start_query(tables)

    def _start_query(self, tables: Mapping[int, str] = MappingProxyType({})) -> None:
        writer = self._writer(tables)
        if tables:
            writer = writer.trigger(availableNow=True)
        elif self.readers is not None and self.readers.interval_ms:
            writer = writer.trigger(processingTime=f"{self.readers.interval_ms} milliseconds")
        remove_leftovers(self.context.warehouse, self.checkpoint)
        fault("view.before_query")
        self.streaming.query = self._started(writer)
        fault("view.after_query")

    def _started(self, writer: DataStreamWriter) -> StreamingQuery:
        if self.session is None or not isinstance(self.strategy, Streamed):
            # The other strategies run queries in their batches. The GROUP BY of such a query may contain positions.
            return writer.start()
        with constant_groups(self.session):
            return writer.start()

    def _end_query(self) -> None:
        """Ends the query. The run continues."""
        query = self.streaming.query
        if query is not None:
            query.stop()
        self.streaming.query = None
        self._release_session()

    def _release_session(self) -> None:
        """Releases the session of a query that has ended. Another query can then use the session."""
        session, self.session = self.session, None
        self.context.sessions.release_if_alive(session)

    def _tell_errors(self) -> None:
        """Adds the number of undecodable records in the latest batch to the metrics. Also logs a warning, because with
        direct readers no table stores these records."""
        query = self.streaming.query
        if self.readers is None or query is None:
            return
        for source, errors in self.readers.count_errors(query.lastProgress).items():
            self.context.decode_errors.add(source, errors)
            log_event("decode_errors", job=self.spec.job, source=source, records=errors)
            logger.warning("%s: %d records of source %s could not be decoded", self.spec.job, errors, source)

    def _then_waiting(self, write: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
        """Returns a function for a streaming query that calls ``write`` for each batch. If the view is a table with a
        primary key, the function waits after a batch without rows until rows of this table arrive, but at most a
        second. After several small batches in a row, the function also lets a thread write the following batches.

        While the function waits, the run does not count as being in a batch. A stop of the run therefore need not wait
        for rows.
        """

        def write_and_wait(frame: DataFrame, batch: int) -> None:
            self.rows.mode.require_query()
            write(frame, batch)
            if isinstance(self.strategy, Keyed):
                self.strategy.await_rows(batch, lambda: self.streaming.is_stopping)
            by_row = Streamed | Combined | Keyed | recomputed.Changed
            if isinstance(self.strategy, by_row) and not self.strategy.run.tables:
                self.rows.after_batch(batch, self.strategy.last)

        return write_and_wait

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        self._tell_errors()
        ranges = self.readers.ranges(batch) if self.readers is not None else {}
        if batch <= self.done:
            # The batch's rows are in the table, but Spark must still compute the batch to update the query's state.
            frame.write.format("noop").mode("overwrite").save()
            if self.readers is not None:
                self.readers.read_to(ranges)
        elif self.readers is None or self.readers.take_turn(ranges):
            with self.streaming.batch():
                fault("view.in_batch")
                self.output.ranges = ranges
                if self.readers is not None:
                    self.readers.begin(ranges, frame.sparkSession)
                self.strategy.write(frame, batch)
                if self.readers is not None:
                    if not self.output.is_written(batch):
                        # A batch without changes must record its progress too.
                        with self._turn():
                            self.output.mark(batch)
                    self.readers.read_to(ranges)
                with self._turn():
                    self.upkeep.run_if_due()
                fault("view.after_batch")
        else:
            raise FencedError(f"{self.spec.job} was stopped")

    def _on_rows(self, rows: RowBatches, computed: pa.Table) -> None:
        """Writes the rows ``computed`` of a batch that the thread has computed. Raises LeftToSparkError if only a query
        can plan or write the batch."""
        number = rows.number
        with self.streaming.batch():
            fault("view.in_batch")
            with self._turn():
                self.output.require_turn(number)
                is_new = number > self.done and computed.num_rows > 0
                commit = self.rows.take(computed) if is_new else None
                rows.plan()
                if commit is not None:
                    commit(number)
                rows.complete()
                self.upkeep.run_if_due()
            fault("view.after_batch")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """A context manager inside which the run may write to its table. A stop of the run waits for the end of the
        ``with`` block. After a stop, the context manager raises FencedError."""
        if self.readers is not None:
            self.readers.require_same_log()
        with self.streaming.turn():
            yield

    @property
    def is_unproven(self) -> bool:
        """True while a batch is in progress and no batch of the run has succeeded yet."""
        return self.streaming.is_unproven

    def failure(self) -> Failure | None:
        """The reason why the run ended although it was not stopped; None while it runs."""
        if self.backfill is not None:
            failure = self.backfill.failure()
            if failure is not None and self.streaming.stall is not None:
                return self.streaming.stall.failure  # the reason with which the batch ended, not Spark's text for it
            if failure is not None or self.backfill.is_running:
                return failure
        failure = self.streaming.failure()
        kind, name = "table" if self.spec.is_table else "materialized view", sql_name(self.spec.name)
        again = f"DROP {kind.upper()} {name} and create it again"
        rebuild = "" if self.spec.is_table else f"REBUILD MATERIALIZED VIEW {name}"
        return with_remedy(self.context, self.spec.inputs, failure, again, name=f"{kind} {name}", rebuild=rebuild)

    def begin_feed(self, spec: ViewSpec) -> bool:
        """Adopts the new specification ``spec`` without a restart, if it differs from the current specification only in
        that the table has a change feed. Turns on the table's change feed.

        Returns False if the job must be restarted.
        """
        if self.spec.has_change_feed or replace(self.spec, has_change_feed=True) != spec:
            return False
        is_filled = self.backfill is None or not self.backfill.is_running
        if not is_filled or self.failure() is not None:
            return False
        try:
            with self._turn():
                begin_feed(self.output)
        except (DeltaError, FencedError, OSError):
            return False
        self.spec = spec
        return True

    def _close_readers(self) -> None:
        if self.readers is not None:
            self.readers.close()

    def stop(self) -> None:
        """Stops the run. Afterwards, the run makes no commits. The checkpoint with the query's state is kept.

        If the view has direct readers, the batch in progress gets additional time to finish, because a batch that is
        cancelled must be read from the upstream again.
        """
        try:
            if self.backfill is not None:
                self._stop_backfill(self.backfill)
            if self.streaming.is_begun:
                fault("view.before_stop")
                if self.readers is not None:
                    self.readers.end()
                    self.streaming.wait_idle(_OWN_GRACE_SECONDS)
                    self._tell_errors()
            self.rows.stop()
        finally:
            # This call is needed even if the JVM has ended, because a batch may still be committing through delta-rs in
            # this process.
            self.streaming.forbid()
            self._close_readers()
        self._release_session()
        record = self.context.metastore.snapshot().get(self.spec.view_id)
        if self.readers is not None and isinstance(record, MaterializedViewRecord):
            note_ranges(self.context.warehouse, record)
        fault("view.after_stop")

    def _end_unstarted(self) -> None:
        """Ends the thread, the query and the readers that a failed :meth:`start` has started. Afterwards, the run makes
        no commits."""
        try:
            self.rows.stop()
        finally:
            self.streaming.forbid()
            self._close_readers()
            self._release_session()

    def _stop_backfill(self, backfill: Backfill) -> None:
        while backfill.is_running:
            # Repeats the stop, because the backfill may be about to read a chunk or to start a query.
            backfill.stop()
            query = self.streaming.query
            if query is not None and query.isActive:
                self.streaming.stop()
            backfill.wait(_LOOK_SECONDS)
