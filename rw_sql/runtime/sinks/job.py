"""The query of a sink. The query writes the changes of its input tables to an external target, each batch at least
once.

If the target stores the number of a batch with its rows, each batch is written exactly once. For other targets, commits
without rows to the sink's own table in the warehouse record the completed batches. If the process is killed before it
has committed this record, the batch is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import sink_connector
from rw_sql.connectors.sink import (
    APPEND_ONLY,
    ON_ERROR,
    SKIP,
    MarkingSink,
    RefusedRowsError,
    SinkError,
    TakenOverError,
    TargetUnfitError,
)
from rw_sql.metastore.records import SinkRecord, SourceRecord
from rw_sql.model.job_specs import sink_spec
from rw_sql.model.object_lookup import REJECTED
from rw_sql.runtime.delta.change_feed import feed_begin
from rw_sql.runtime.delta.delta_log import last_commit
from rw_sql.runtime.delta.held_rows import all_rows
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.delta.rejected_rows import RejectedRows, discard_from, reason_of
from rw_sql.runtime.delta.row_counts import ANY, Expected, RowCount
from rw_sql.runtime.jobs.inputs import VERSION, input_frame, path_of, require_input
from rw_sql.runtime.jobs.startable import require_usable
from rw_sql.runtime.jobs.streaming_run import GRACE_SECONDS, StreamingRun
from rw_sql.runtime.jobs.table_paths import with_remedy
from rw_sql.runtime.positions.checkpoint_handover import begin_at
from rw_sql.runtime.positions.feed_keys import FeedByKey
from rw_sql.runtime.positions.leftovers import remove_leftovers
from rw_sql.runtime.positions.ordered_log import LOG_ORDER, OrderedLog
from rw_sql.runtime.positions.planned_rows import planned_rows
from rw_sql.runtime.positions.progress import newest_completed, newest_planned
from rw_sql.runtime.positions.table_consumers import require_versions
from rw_sql.runtime.positions.whole_outputs import require_whole
from rw_sql.runtime.sinks.batches import FEED_COLUMNS, arranged
from rw_sql.runtime.sinks.part_failures import is_last_attempt
from rw_sql.runtime.sinks.part_writer import PartWriter
from rw_sql.runtime.spark.constant_groups import constant_groups
from rw_sql.runtime.spark.executors import require_executors
from rw_sql.runtime.spark.sessions import register_view
from rw_sql.runtime.support.event_log import log_event
from rw_sql.runtime.support.failures import Failure, StalledError
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.upkeep.table_upkeep import Upkeep
from rw_sql.syntax.lexing.identifiers import quoted_for_spark, sql_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.sink import SinkLook, SinkWriter
    from rw_sql.model.job_specs import SinkSpec
    from rw_sql.runtime.jobs.context import Context

BATCH_BYTES = 64 * 2**20
"""The approximate maximum size of one batch in bytes.

Each batch passes through the memory of the process that runs the jobs.
"""

_PROGRESS = '{"type":"struct","fields":[{"name":"batch","type":"long","nullable":true,"metadata":{}}]}'


def _require_target(look: SinkLook) -> None:
    """Raises StalledError if the target cannot accept rows now."""
    require_usable(look)
    if look.missing is not None:
        raise StalledError(f"MISSING {look.missing}")
    if look.misfit is not None:
        raise StalledError(f"UNFIT {look.misfit}" + (f": {look.hint}" if look.hint else ""))


def _fenced(context: Context, spec: SinkSpec, writer: SinkWriter, run: int, checkpoint: str) -> int | None:
    """Fences earlier runs at the target. Returns the last batch in the target, as ``SinkWriter.fence`` does.

    Raises StalledError if the target has a run or a batch that is missing in this warehouse. The warehouse was then
    restored from a backup that is older than the target. Without the error, the next batches would get the numbers of
    batches in the target. The sink would then skip the next batches as complete, although they contain other rows.
    """
    try:
        held = writer.fence(run, spec.generation)
    except TakenOverError as error:
        newest = context.metastore.jobs.last_runs().get(spec.job)
        if newest is not None and newest.run > run:
            raise
        raise _restored(spec, str(error)) from error
    planned = newest_planned(context.warehouse, checkpoint)
    if held is not None and held > planned:
        known = f"only batches up to {planned}" if planned >= 0 else "no batch"
        raise _restored(spec, f"the target has batch {held}, but the warehouse has {known}")
    return held


def _require_marks(context: Context, spec: SinkSpec, options: Mapping[str, str]) -> None:
    """Raises StalledError if the target lacks the marks of batches that the sink has written. The target is then
    another table with the same name, or an older copy of the original target. If the sink continued with its next
    batch, earlier rows would be missing in the target."""
    kind = sink_connector(spec.connector)
    known = last_commit(context.warehouse, context.warehouse.data(spec.sink_id, spec.generation), spec.generation)
    if known is None or known.newest_batch < 0 or not isinstance(kind, MarkingSink):
        return
    try:
        marked = kind.marked_batch(options, spec.identity, spec.generation)
    except SinkError as error:
        raise StalledError(f"UNREACHABLE {error}") from error
    if marked is None:
        raise StalledError(
            f"REPLACED the target does not have the batches up to {known.newest_batch} that this sink wrote: the "
            f"target was deleted or created again: {_again(spec)}",
            is_final=True,
        )
    if known.sent is not None and marked < known.sent:
        has = f"only batches up to {marked}" if marked >= 0 else "no batch"
        raise StalledError(
            f"REPLACED the target has {has}, but this sink wrote batch {known.sent}: the target was replaced by an "
            f"older copy of it: {_again(spec)}",
            is_final=True,
        )


def _again(spec: SinkSpec) -> str:
    return (
        f"DROP SINK {sql_name(spec.name)} and create it again, which writes all rows of its input; to write only the "
        "new rows, create it WITH (snapshot = 'false')"
    )


def _restored(spec: SinkSpec, fact: str) -> StalledError:
    return StalledError(
        f"RESTORED {fact}: the warehouse is older than the target, as after the restore of a backup: {_again(spec)}",
        is_final=True,
    )


@dataclass(slots=True)
class Sink:
    """One run of a sink's query."""

    context: Context
    spec: SinkSpec
    run: int
    progress: JobOutput
    writer: SinkWriter
    checkpoint: str
    done: int
    upkeep: Upkeep
    streaming: StreamingRun
    rejected: RejectedRows | None = None
    session: SparkSession | None = None
    log: OrderedLog | None = None
    """The log of the source whose rows the sink writes; None if the sink has a query or does not read a source."""

    feed: FeedByKey | None = None
    """The change feed of the table whose rows the sink replaces and deletes in the target; None if the sink reads no
    table, or only appends rows."""

    has_written_part: bool = False
    """True if at least one part of the batch in progress has been written."""

    @staticmethod
    def start(context: Context, spec: SinkSpec) -> Sink:
        """Checks the target, claims a run, fences earlier runs, finds the last completed batch, and starts.

        Raises StalledError if the sink cannot start. If the reason is that the target cannot accept rows, the error is
        raised before anything is written.
        """
        snapshot = context.metastore.snapshot()
        record = snapshot.get(spec.sink_id)
        if not isinstance(record, SinkRecord) or sink_spec(snapshot, record) != spec:
            raise StalledError("the catalog has changed")
        kind = sink_connector(spec.connector)
        options = context.resolve(spec.options, snapshot)
        # This check precedes all writes, because each retry would otherwise add a run and a fence while the target is
        # unavailable.
        _require_target(kind.look(options, spec.shape))
        _require_marks(context, spec, options)
        tables: dict[int, DeltaTable] = {}
        for given in spec.inputs:
            source = snapshot.get(given.id)
            if isinstance(source, SourceRecord):
                context.ensure_log(source)
            tables[given.id] = require_input(context, given)
        require_executors(context.warehouse, context.sessions.spark)
        checkpoint = context.warehouse.sink_checkpoint(spec.sink_id, spec.generation)
        require_whole(context, spec, checkpoint)
        require_versions(context, spec, checkpoint)
        fault("sink.before_claim")
        run = context.metastore.jobs.claim_run(spec.job, snapshot.epoch, context.owner)
        fault("sink.after_claim")
        progress = JobOutput.open(
            context.warehouse,
            context.warehouse.data(spec.sink_id, spec.generation),
            _PROGRESS,
            job=spec.job,
            run=run.run,
            epoch=run.epoch,
            generation=spec.generation,
        )
        try:
            writer = kind.open(options, spec.shape, spec.identity)
        except SinkError as error:
            raise StalledError(f"UNREACHABLE {error}") from error
        try:
            held = _fenced(context, spec, writer, run.run, checkpoint)
            job = Sink(
                context=context,
                spec=spec,
                run=run.run,
                progress=progress,
                writer=writer,
                checkpoint=checkpoint,
                done=progress.done if held is None else max(held, progress.done),
                upkeep=Upkeep(context=context, object_id=spec.sink_id, generation=spec.generation, output=progress),
                streaming=StreamingRun(spec.job, context.note_batch),
            )
            rejected = context.warehouse.rejected(spec.sink_id, spec.generation)
            job._discard_unfinished(rejected)
            if options.get(ON_ERROR) == SKIP:
                job.rejected = RejectedRows.open(rejected, spec.shape)
            for input_id, version in spec.starts:
                if version >= 0:
                    job._begin_after(tables[input_id], version)
            try:
                job._start_query()
            except BaseException:
                if job.streaming.query is None:
                    job._release_session()
                raise
        except SinkError as error:
            writer.close()
            is_unfit = isinstance(error, TargetUnfitError)
            raise StalledError(f"{'UNFIT' if is_unfit else 'UNREACHABLE'} {error}", is_lasting=is_unfit) from error
        except BaseException:
            # The writer is closed after any exception, including Ctrl-C, because no other code refers to this writer.
            writer.close()
            raise
        return job

    def _discard_unfinished(self, rejected: str) -> None:
        """If this run repeats a batch, removes the rows of this batch from the table of rejected rows. Raises
        FencedError if another run has taken over."""
        warehouse = self.context.warehouse
        repeated = newest_planned(warehouse, self.checkpoint)
        if repeated > max(self.done, newest_completed(warehouse, self.checkpoint)):
            self.progress.require_turn(repeated)
            discard_from(warehouse, rejected, repeated)

    def _start_query(self) -> None:
        spark = self.session = self.context.sessions.new(parallelism=self.spec.parallelism)
        fault("sink.before_query")
        frame, mode = self._frame(spark)
        remove_leftovers(self.context.warehouse, self.checkpoint)
        if self.log is not None:
            self.log.forget_read()
        writer = (
            frame.writeStream.queryName(self.spec.job)
            .outputMode(mode)
            .option("checkpointLocation", self.checkpoint)
            .foreachBatch(self.streaming.guarded(self._on_batch))
        )
        with constant_groups(spark):
            self.streaming.query = writer.start()
        fault("sink.after_query")

    def _frame(self, spark: SparkSession) -> tuple[DataFrame, str]:
        """The streaming DataFrame with the rows for the target, and the output mode of its query."""
        if self.spec.query:
            for given in self.spec.inputs:
                register_view(input_frame(self.context, spark, given, f"{BATCH_BYTES}b"), given.name)
            frame = spark.sql(self.spec.query)
            return frame, "update" if self.spec.replaces else "append"
        (given,) = self.spec.inputs
        columns = given.selection(self.spec.shape.columns)
        path = path_of(self.context.warehouse, given)
        reader = spark.readStream.format("delta").option("maxBytesPerTrigger", f"{BATCH_BYTES}b")
        if given.is_changing:
            reader = reader.option("readChangeFeed", "true")
            after = max((version for _, version in self.spec.starts), default=-1)
            # After its first batch, a query continues at its checkpoint, and upkeep may remove the version ``after``.
            if after >= 0 and newest_planned(self.context.warehouse, self.checkpoint) <= 0:
                reader = reader.option("startingVersion", str(feed_begin(self.context.warehouse, path, after)))

            def select(rows: DataFrame) -> DataFrame:
                return rows.where(f"{VERSION} > {after}").selectExpr(*columns, *FEED_COLUMNS)

            if self.spec.shape.type != APPEND_ONLY:
                self.feed = FeedByKey(
                    warehouse=self.context.warehouse,
                    path=path,
                    checkpoint=self.checkpoint,
                    keys=self.spec.shape.keys,
                    select=select,
                    begins_with_snapshot=after < 0,
                )
            return select(reader.load(path)), "append"
        # In a log, only retention deletes rows.
        frame = (reader if given.path else reader.option("ignoreDeletes", "true")).load(path)
        if given.kind == "source":
            self.log = OrderedLog(
                warehouse=self.context.warehouse, path=path, checkpoint=self.checkpoint, most_bytes=BATCH_BYTES
            )
            return self._rows_of_log(frame), "append"
        return frame.selectExpr(*columns), "append"

    def _rows_of_log(self, log: DataFrame) -> DataFrame:
        """The rows of the source's log that the sink writes, with the columns that sort them."""
        order = [name for name in LOG_ORDER if name in log.columns]
        columns = self.spec.inputs[0].selection(self.spec.shape.columns)
        return log.where("_rw_error IS NULL").selectExpr(*columns, *order)

    def _in_order(self, frame: DataFrame, batch: int) -> DataFrame:
        """The rows of a batch. If the sink reads a source, the batches preserve the order of each split's rows: no row
        comes in a later batch than the rows after it in the split. If the sink reads a change feed, all changes of a
        key in a commit come in one batch."""
        if self.feed is not None:
            return self.feed.rows(frame, batch)
        log = None if self.log is None else self.log.rows(frame.sparkSession, batch)
        return frame if log is None else self._rows_of_log(log)

    def _begin_after(self, table: DeltaTable, version: int) -> None:
        """Makes a new query begin after ``version`` of an append-only input. Does nothing if the query has planned a
        batch, or if rows of the input may change."""
        warehouse, folder = self.context.warehouse, self.checkpoint
        if self.spec.inputs[0].is_changing or newest_planned(warehouse, folder) >= 0:
            return
        begin_at(warehouse, folder, str(table.metadata().id), version + 1, self.spec.parallelism)

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        if batch <= self.done:
            # The batch is complete, but Spark must still compute it to update the query's state.
            frame.write.format("noop").mode("overwrite").save()
            return
        with self.streaming.batch():
            fault("sink.in_batch")
            self.has_written_part = False
            if self.rejected is not None:
                self.rejected.begin()
            *parts, frame = self._parts(self._in_order(frame, batch), batch)
            for part in parts:
                self._write_part(self._arranged(all_rows(part)), batch)
            found = all_rows(frame)
            self._expected(batch).require(RowCount(written=found.num_rows))
            rows = self._arranged(found)
            with self.streaming.turn():
                self.progress.require_turn(batch)
                if rows.num_rows and self._has_written(rows, batch, self.writer.write):
                    self.progress.sent = batch
                fault("sink.after_write")
                self.progress.mark(batch)
                self.upkeep.run_if_due()
            fault("sink.after_batch")

    def _arranged(self, rows: pa.Table) -> pa.Table:
        return arranged(rows, self.spec.shape, keys_move=any(given.has_feed for given in self.spec.inputs))

    def _parts(self, frame: DataFrame, batch: int) -> list[DataFrame]:
        """The parts of a batch. Only one part at a time is held in memory. A batch has several parts only if it
        contains a commit of a change feed that exceeds the intended size of a batch, and the writer accepts parts."""
        if self.feed is None or not isinstance(self.writer, PartWriter):
            return [frame]
        parts = self.feed.parts(frame, batch, BATCH_BYTES)
        return parts if len(parts) == 1 or self.writer.accepts_parts() else [frame]

    def _write_part(self, rows: pa.Table, batch: int) -> None:
        """Writes a part of a batch that is not the batch's last part."""
        if rows.num_rows and isinstance(self.writer, PartWriter):
            with self.streaming.turn():
                self.progress.require_turn(batch)
                self._has_written(rows, batch, self.writer.write_part)
            self.has_written_part = True

    def _has_written(self, rows: pa.Table, batch: int, write: Callable[[pa.Table, int], None]) -> bool:
        """Writes a batch, or a part of it, with ``write``. With ``on_error = 'skip'``, leaves out the rows that the
        target refuses. Returns True if a call of ``write`` succeeded."""
        left = rows
        try:
            while left.num_rows:
                try:
                    write(left, batch)
                except RefusedRowsError as error:
                    if self.rejected is None:
                        reason = reason_of(left, error.refusals, self.spec.shape)
                        is_final = error.is_rest_written or self._is_last_attempt(batch, reason)
                        self.streaming.stall = StalledError(
                            f"{reason}; or correct the target, then {self._retry}" if is_final else reason,
                            is_final=is_final,
                            is_lasting=True,
                        )
                        raise
                    self.progress.require_turn(batch)
                    left = self._skip(left, error, batch)
                else:
                    return True
        except TargetUnfitError as error:
            self.streaming.stall = self._misfit(str(error), batch)
            raise
        except SinkError as error:
            self.streaming.stall = self.streaming.stall or StalledError(f"UNREACHABLE {error}")
            raise
        return False

    def _skip(self, rows: pa.Table, error: RefusedRowsError, batch: int) -> pa.Table:
        """Stores refused rows in the sink's table of rejected rows. Returns the rows that must still be written."""
        if self.rejected is None:
            raise TypeError("nothing is skipped here")
        left = self.rejected.put(rows, error.refusals, batch)
        log_event("rejected", job=self.spec.job, batch=batch, rows=len(error.refusals), reason=error.refusals[0].reason)
        return left.slice(0, 0) if error.is_rest_written else left

    def _misfit(self, said: str, batch: int) -> StalledError:
        """The error for a target that does not accept rows any more. The error states that the target was replaced, or
        states the problem that another check of the target finds. If neither applies, the error contains the target's
        message ``said``."""
        options = self.context.resolve(self.spec.options, self.context.metastore.snapshot())
        try:
            _require_marks(self.context, self.spec, options)
            _require_target(sink_connector(self.spec.connector).look(options, self.spec.shape))
        except StalledError as stalled:
            return stalled
        reason = f"UNFIT {said}: VALIDATE SINK {sql_name(self.spec.name)}"
        is_final = self._is_last_attempt(batch, reason)
        return StalledError(f"{reason}; then {self._retry}" if is_final else reason, is_final=is_final, is_lasting=True)

    def _is_last_attempt(self, batch: int, reason: str) -> bool:
        return self.has_written_part and is_last_attempt(self.context, self.spec, batch, reason)

    @property
    def _retry(self) -> str:
        """The statements with which a user makes the sink retry a batch that it does not retry automatically."""
        name = sql_name(self.spec.name)
        return f"PAUSE SINK {name}; RESUME SINK {name}"

    @property
    def notice(self) -> str | None:
        """The text with the number of rejected rows, for SHOW JOBS; None if no rows were rejected."""
        if self.rejected is None or not self.rejected.total:
            return None
        return f"{self.rejected.total} rows rejected: SELECT * FROM {quoted_for_spark(self.spec.name + REJECTED)}"

    def _expected(self, batch: int) -> Expected:
        """The expected number of rows of a batch, for a sink that passes on all rows of its only input. The result is
        ANY for any other sink, or if the number is unknown."""
        (given,) = self.spec.inputs if len(self.spec.inputs) == 1 else (None,)
        if given is None or self.spec.query or given.is_changing:
            return ANY
        path, is_log = path_of(self.context.warehouse, given), given.kind == "source"
        exact = planned_rows(self.context.warehouse, path, self.checkpoint, batch, is_log=is_log).exact
        return ANY if exact is None else Expected(least=exact, most=exact, limits_of="the commit of its input")

    @property
    def is_unproven(self) -> bool:
        """True while a batch is in progress and no batch of the run has succeeded yet."""
        return self.streaming.is_unproven

    def failure(self) -> Failure | None:
        """The reason why the run ended without being stopped; None while it runs."""
        failure = self.streaming.failure()
        name = sql_name(self.spec.name)
        again = f"DROP SINK {name} and create it again"
        return with_remedy(self.context, self.spec.inputs, failure, again, name=f"sink {name}")

    def stop(self) -> None:
        """Stops the run.

        The batch in progress has one second to finish; then it is cancelled. After this method, the run writes nothing.
        The query's checkpoint and state are kept.
        """
        fault("sink.before_stop")
        self.streaming.wait_idle(GRACE_SECONDS)
        try:
            # The write is cancelled first, because stopping the query waits for its batch, and the target may not
            # respond.
            self.writer.cancel()
            self.streaming.cancel()
        finally:
            self.streaming.forbid()
            self.writer.close()
        self._release_session()
        fault("sink.after_stop")

    def _release_session(self) -> None:
        """Makes the session of the ended query available to another query."""
        session, self.session = self.session, None
        self.context.sessions.release_if_alive(session)
