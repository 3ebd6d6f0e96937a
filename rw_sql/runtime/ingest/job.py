"""A source's shared reader: a stateless query from upstream into the log, rows and position in one commit."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from rw_sql.connectors.ranged import RangedConnector
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.definitions import has_changes, source_definition
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.split_status import OK, split_status
from rw_sql.plan.statements.table.source_of_table import added_fields
from rw_sql.runtime.decoding.decoder import BUCKET, Decoder, log_schema, log_statistics
from rw_sql.runtime.decoding.upstream_records import has_small_batches, offsets_per_record, read_records
from rw_sql.runtime.delta.job_output import SMALL_ROWS, FencedError, JobOutput, as_stored
from rw_sql.runtime.delta.row_counts import RowCount, expected_of
from rw_sql.runtime.ingest.warm_start import WarmStart
from rw_sql.runtime.jobs.job import GRACE_SECONDS, BatchGate, failure_of
from rw_sql.runtime.jobs.rate_limit import BatchLimits, Throttle
from rw_sql.runtime.jobs.startable import require_readable, still_asked
from rw_sql.runtime.positions.commit_history import note_stretches
from rw_sql.runtime.positions.log_size import current_bucket
from rw_sql.runtime.positions.logged_ranges import note_cleaned_ranges
from rw_sql.runtime.positions.notes import note_positions
from rw_sql.runtime.positions.shared import read_positions
from rw_sql.runtime.spark.shared_folder import require_shared
from rw_sql.runtime.support.failures import Failure, StalledError
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.upkeep.table_upkeep import Upkeep, retention_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from rw_sql.connectors.base import Connector, RecordFetcher, SplitState, UpstreamWatch
    from rw_sql.model.job_specs import IngestSpec
    from rw_sql.runtime.jobs.context import Context

logger = logging.getLogger(__name__)

NOTE_EVERY = 100
"""Positions are noted in the metastore every so many batches, so that recovery need not read far back."""

MOST_NAMED_SPLITS = 1000
"""Up to so many splits every commit names all of them, above that only those it moves."""


def _note_all(context: Context, source: SourceRecord, version: int, *, run: int, epoch: int) -> None:
    """Writes down elsewhere all that the commits of a source's log up to a version tell."""
    note_positions(context, source, run=run, epoch=epoch)
    note_cleaned_ranges(context.warehouse, source, version)
    note_stretches(context.warehouse, source, version)


@dataclass(slots=True)
class Ingest:
    """One run of a source's shared reader."""

    context: Context
    spec: IngestSpec
    run: int
    epoch: int
    source: SourceRecord
    kind: Connector
    options: dict[str, str]
    output: JobOutput
    checkpoint: str
    positions: dict[str, int]
    incarnations: dict[str, str | None]
    since: dict[str, int]
    schema: pa.Schema
    watch: UpstreamWatch | None
    fetcher: RecordFetcher | None
    pace: BatchLimits
    throttle: Throttle
    upkeep: Upkeep
    decoder: Decoder
    session: SparkSession | None = None
    gate: BatchGate = field(default_factory=BatchGate)
    lock: threading.Lock = field(default_factory=threading.Lock)
    query: StreamingQuery | None = None
    is_stopped: bool = False
    stall: StalledError | None = None

    @staticmethod
    def start(
        context: Context, spec: IngestSpec, before: Ingest | None = None, prepared: WarmStart | None = None
    ) -> Ingest:
        """Claims a run, fences earlier ones out of the log, reads the position, and starts.

        ``before`` is this process's last run of the reader, where that ended in order: the next goes on with what that
        left. ``prepared`` is its beginning, where that was prepared already. Raises StalledError, and has written
        nothing where the upstream does not answer.
        """
        if prepared is not None and not prepared.holds(spec):
            prepared.abandon()
            prepared = None
        prepared = prepared or WarmStart.of(context, spec, before.session if before is not None else None)
        try:
            return Ingest._start(context, spec, prepared, before)
        except BaseException:
            prepared.abandon()
            raise

    @staticmethod
    def _start(context: Context, spec: IngestSpec, prepared: WarmStart, before: Ingest | None) -> Ingest:
        snapshot, source, upstream = prepared.snapshot, prepared.source, prepared.upstream
        opening, pace = prepared.opening, prepared.pace
        statement, kind, options = opening.statement, opening.kind, dict(opening.options)
        require_shared(context.warehouse, context.sessions.spark)
        fault("ingest.before_claim")
        run = context.metastore.runtime.claim_run(spec.job, snapshot.epoch, context.owner)
        fault("ingest.after_claim")
        context.ensure_log(source)
        path, schema, statistics = context.log_path(source), log_schema(statement).json(), log_statistics(statement)
        output = before.output.followed_by(path, run=run.run, epoch=run.epoch) if before is not None else None
        if output is not None:
            output.fit(schema, statistics=statistics)
        else:
            # Before the fence: its commit may be the one at which Delta cleans away old commits, and where they ended.
            note_positions(context, source, run=run.run, epoch=run.epoch)
            fault("ingest.after_first_note")
            output = JobOutput.open(
                context.warehouse,
                path,
                schema,
                job=spec.job,
                run=run.run,
                epoch=run.epoch,
                partition_by=(BUCKET,),
                statistics=statistics,
            )
        states = read_positions(context.warehouse, context.metastore, snapshot, source).states
        stored = snapshot.states(ingest_fragment(source.id))
        asked = still_asked(kind, spec.splits, states, upstream)
        if any(split_status(states.get(split), upstream.splits.get(split)) != OK for split in asked):
            # The look is older than the positions: an earlier run may have read on until the fence.
            require_readable(source.name, asked, states, kind.look(options))
        output.lives = {split: (states[split].cluster, states[split].incarnation) for split in spec.splits}
        fault("ingest.after_position")
        job = Ingest(
            context=context,
            spec=spec,
            run=run.run,
            epoch=run.epoch,
            source=source,
            kind=kind,
            options=options,
            output=output,
            checkpoint=prepared.query(run.run).checkpoint,
            positions={split: states[split].offset for split in spec.splits},
            incarnations={kind.split_topic(split): states[split].incarnation for split in spec.splits},
            since={split: stored[split].epoch for split in spec.splits},
            schema=pa.schema(output.table.schema().to_arrow()),
            watch=kind.watch(options),
            fetcher=opening.fetcher,
            pace=pace,
            throttle=Throttle(pace.per_second),
            upkeep=Upkeep(
                context=context,
                object_id=source.id,
                generation=source.generation,
                output=output,
                retention=retention_of(options),
                is_log=True,
                note=lambda version: _note_all(context, source, version, run=run.run, epoch=run.epoch),
            ),
            decoder=Decoder(statement, run.run, added_fields(snapshot, source)),
        )
        if job.watch is not None:
            output.before_commit = job._require_same_incarnation
        job._begin_query(prepared, {split: states[split] for split in spec.splits})
        opening.end()
        job.session = opening.session
        return job

    def _begin_query(self, prepared: WarmStart, states: dict[str, SplitState]) -> None:
        """Starts the query, or goes on with the one that was started early, where that begins at these positions."""
        write = self.gate.guarded(self._on_batch, partial(self.context.figures.note_batch, self.spec.job))
        of, early = prepared.query(self.run), prepared.early
        if early is not None and early.fits(self.run, states):
            self.query = early.go_on(write)
        else:
            if early is not None:
                early.abandon()  # two queries of one name cannot be
            self.query = of.start(prepared.opening.stream(states), self.positions, write)
        of.remove_others()

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        ranges = self._ranges(self._ends(batch))
        moved = {split: (start, end) for split, (start, end) in ranges.items() if end > start}
        unit = offsets_per_record(self.kind)
        expected = -(-sum(end - start for start, end in moved.values()) // unit)
        # Not in the gate: a stop need not wait for a batch that waits for its time.
        if not self.throttle.take(expected):
            raise FencedError(f"{self.spec.job} was stopped")
        with self.gate:
            statement = source_definition(self.spec.definition)
            records, read = self._fetched(frame, ranges, expected)
            if isinstance(self.kind, RangedConnector):
                lives = {split: self.output.lives[split][1] for split in moved}
                records = read_records(self.kind, frame.sparkSession, self.options, moved, statement, lives)
            since = {split: self.since[split] for split in moved}
            bucket = current_bucket()
            rows = self.decoder.rows(records, batch=batch, bucket=bucket, since=since)
            fault("ingest.in_batch")
            is_small = expected <= SMALL_ROWS and has_small_batches(self.kind)
            small = as_stored(rows.toArrow(), self.schema) if is_small else None
            due = expected_of(self.kind, moved, is_row_by_row=not has_changes(statement))
            if small is not None:
                due.require(RowCount(written=small.num_rows, read=read))
            self._require_same_incarnation()
            with self.lock:
                if self.is_stopped:
                    raise FencedError(f"{self.spec.job} was stopped")
                if small is not None:
                    self.output.append_rows(small, batch, ranges)
                else:
                    self.output.append_frame(rows, batch, ranges, partition={BUCKET: bucket}, expected=due)
                self.positions.update((split, end) for split, (_, end) in ranges.items())
                self.upkeep.run_if_due()
            if batch % NOTE_EVERY == NOTE_EVERY - 1:
                note_positions(self.context, self.source, run=self.run, epoch=self.epoch)

    def _fetched(
        self, frame: DataFrame, ranges: Mapping[str, tuple[int, int]], expected: int
    ) -> tuple[DataFrame, int | None]:
        """A small batch's records as they were fetched here, and how many they are, else ``frame`` and None.

        That Spark's reader has yet to read.
        """
        if self.fetcher is None or expected > SMALL_ROWS:
            return frame, None
        records = self.fetcher.fetch(ranges)
        return (frame, None) if records is None else (frame.sparkSession.createDataFrame(records), records.num_rows)

    def _ranges(self, ends: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """What a batch read of each split: of all while they are few, so that one commit tells where the log stands."""
        named = self.positions if len(self.positions) <= MOST_NAMED_SPLITS else ends
        starts = {split: self.positions[split] for split in named}
        ranges = {split: (start, ends.get(split, start)) for split, start in starts.items()}
        if len(self.positions) <= MOST_NAMED_SPLITS:
            return ranges
        return {split: (start, end) for split, (start, end) in ranges.items() if end > start}

    def _ends(self, batch: int) -> dict[str, int]:
        """Where the batch ends, from the run's own offset entry: the third line of ``offsets/N``."""
        text = self.context.warehouse.read_text(f"{self.checkpoint}/offsets/{batch}")
        return self.kind.read_positions(text.splitlines()[2])

    def _require_same_incarnation(self) -> None:
        """What was fetched came from the same life of the topic: an id never comes back once it is gone."""
        if self.watch is None:
            return
        now = self.watch.incarnations(tuple(self.incarnations))
        for topic, known in self.incarnations.items():
            if known is not None and now.get(topic) != known:
                self.stall = StalledError(f"RECREATED {topic}: RESET SOURCE SPLITS {self.source.name}", is_final=True)
                raise self.stall

    @property
    def is_unproven(self) -> bool:
        """Whether its first batch is under way: none has ended well yet."""
        return self.gate.is_in_first

    def failure(self) -> Failure | None:
        """Why it ended by itself; None while it runs."""
        return failure_of(self.query, self.stall or self.gate.stall)

    def stop(self) -> None:
        """Ends it: the running batch has a second, then it is cancelled. Afterwards nothing of it commits."""
        end = self.stop_async()
        if end is not None:
            end()
            self.note()

    def stop_async(self) -> Callable[[], None] | None:
        """As :meth:`stop`, but where no batch is under way Spark's query may still be there: gives what ends that.

        It does nothing any more by then, and may take a tenth of a second: Spark's thread sleeps for so long where it
        meets its interruption half-way. Where the reader stood is not noted then: the next run does that, where it does
        not go on with what this one leaves, or who knows that none will come soon.
        """
        query, end = self.query, None
        try:
            self.throttle.end()
            if query is not None:
                fault("ingest.before_stop")
                is_idle = self.gate.wait_idle(GRACE_SECONDS)
                self.gate.close()
                if is_idle and self._forbid(GRACE_SECONDS):
                    end = self._end_query
                else:
                    query.stop()
        finally:
            # Also where the JVM is gone: a batch may still be on its way through delta-rs in this process.
            self._forbid()
            if end is None:
                self._close_clients()
        fault("ingest.after_stop")
        if end is None:
            self.note()
        return end

    def note(self) -> None:
        """Writes down where it stood, so that nobody need read its log for that."""
        note_positions(self.context, self.source, run=self.run, epoch=self.epoch)
        fault("ingest.after_note")

    def _forbid(self, seconds: float = -1) -> bool:
        """Lets nothing commit any more, once what is being committed is; False where that takes longer."""
        if not self.lock.acquire(timeout=seconds):
            return False
        self.is_stopped = True
        self.lock.release()
        return True

    def _end_query(self) -> None:
        try:
            if self.query is not None:
                self.query.stop()
        finally:
            self._close_clients()

    def _close_clients(self) -> None:
        if self.watch is not None:
            self.watch.close()
        if self.fetcher is not None:
            self.fetcher.close()
