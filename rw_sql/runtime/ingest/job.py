"""A source's shared reader, which reads from upstream and appends to the log. A thread may read small batches; a
stateless query reads all other batches. One commit contains the rows of a batch and the positions after the batch."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from rw_sql.connectors.base import HoldingConnector, PooledConnector
from rw_sql.connectors.changes import CaptureError, ChangeConnector
from rw_sql.connectors.fetching import FollowingFetcher
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.definitions import has_changes
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.split_status import OK, split_status, still_asked
from rw_sql.plan.statements.table.source_of_table import added_fields
from rw_sql.runtime.decoding.decoder import BUCKET, Decoder, log_schema, log_statistics
from rw_sql.runtime.decoding.registry.records import schema_records
from rw_sql.runtime.decoding.upstream_records import packages_on_executors, record_count
from rw_sql.runtime.delta.job_output import FencedError, JobOutput
from rw_sql.runtime.delta.row_counts import RowCount, exactly, expected_of
from rw_sql.runtime.delta.stored_rows import as_stored
from rw_sql.runtime.ingest.batch_reader import BatchPlan, BatchReader
from rw_sql.runtime.ingest.capture import Capture, is_new_upstream, rows_by_table, stalled
from rw_sql.runtime.ingest.commit_notes import note_commits
from rw_sql.runtime.ingest.followed import FollowedSource
from rw_sql.runtime.ingest.warm_start import WarmStart
from rw_sql.runtime.jobs.arrow_batches import ArrowBatches
from rw_sql.runtime.jobs.batch_mode import BatchMode
from rw_sql.runtime.jobs.batch_thread import INTERVAL_FACTOR
from rw_sql.runtime.jobs.log_terms import LogTerms
from rw_sql.runtime.jobs.made_upstream import note_made
from rw_sql.runtime.jobs.rate_limit import BatchLimits, Throttle
from rw_sql.runtime.jobs.startable import expired_splits, require_incarnations, require_readable
from rw_sql.runtime.jobs.streaming_run import GRACE_SECONDS, StreamingRun
from rw_sql.runtime.positions.log_size import current_bucket
from rw_sql.runtime.positions.notes import note_positions
from rw_sql.runtime.positions.shared import read_positions, states_at
from rw_sql.runtime.spark.executors import require_executors
from rw_sql.runtime.support.failures import Failure
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.upkeep.table_upkeep import Upkeep, retention_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import Connector, SplitState, UpstreamWatch
    from rw_sql.model.job_specs import IngestSpec
    from rw_sql.runtime.delta.delta_log import SplitIdentity
    from rw_sql.runtime.ingest.query import ReaderQuery
    from rw_sql.runtime.ingest.source_stream import SourceStream
    from rw_sql.runtime.jobs.context import Context

logger = logging.getLogger(__name__)

NOTE_EVERY = 100
"""The number of batches after which a run records its positions in the metastore again. At its start, the next run then
needs to read only the commits after this record."""

MOST_NAMED_SPLITS = 1000
"""If a source has at most this number of splits, every commit contains the positions of all splits. Otherwise, a commit
contains only the positions that it advances."""


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
    query: ReaderQuery
    opening: SourceStream
    positions: dict[str, int]
    incarnations: dict[str, str | None]
    since: dict[str, int]
    reader: BatchReader
    watch: UpstreamWatch | None
    capture: Capture | None
    terms: LogTerms | None
    pace: BatchLimits
    throttle: Throttle
    upkeep: Upkeep
    streaming: StreamingRun
    followed: FollowedSource | None = field(default=None, init=False)
    mode: BatchMode = field(init=False)
    batches: int = field(default=0, init=False)
    """The number of batches that this run has written, which is also the number of the next batch."""
    _first_of_query: int = field(default=0, init=False)
    """The number that the current query's first batch has in the run. The query itself numbers its batches from 0."""
    _was_fetched: bool = field(default=False, init=False)
    """True if this process fetched the records of the last batch."""
    unproved: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The ranges of the batch in progress for which the run must request the logs' terms from the upstream before it
    commits the batch (see :class:`ReadBatch`)."""

    @staticmethod
    def start(
        context: Context, spec: IngestSpec, before: Ingest | None = None, prepared: WarmStart | None = None
    ) -> Ingest:
        """Claims a run, fences earlier runs, determines the positions, and starts to read.

        If this process's last run of the reader ended cleanly, ``before`` is that run, and the new run reuses its
        resources. ``prepared`` is a warm start; None if there is none. Raises StalledError if the run cannot begin. If
        the upstream does not respond, this error is raised before anything is written.
        """
        try:
            if prepared is not None and not prepared.is_current(spec):
                prepared.abandon()
                prepared = None
            prepared = prepared or WarmStart.of(
                context, spec, before.session if before is not None else None, is_warm=before is not None
            )
            return Ingest._start(context, spec, prepared, before)
        except BaseException:
            try:
                if prepared is not None:
                    prepared.abandon()
            finally:
                # The session of ``before``, if it has one, is also the session of ``prepared``.
                last = prepared if prepared is not None else before
                if last is not None:
                    last.opening.release_session()
            raise

    @staticmethod
    def _start(context: Context, spec: IngestSpec, prepared: WarmStart, before: Ingest | None) -> Ingest:
        snapshot, source, upstream = prepared.snapshot, prepared.source, prepared.upstream
        opening, pace = prepared.opening, prepared.pace
        statement, kind, options = opening.statement, opening.kind, dict(opening.options)
        require_executors(context.warehouse, context.sessions.spark, packages_on_executors(kind, statement))
        context.ensure_log(source)
        fault("ingest.before_claim")
        run = context.metastore.jobs.claim_run(spec.job, snapshot.epoch, context.owner)
        fault("ingest.after_claim")
        path, schema, statistics = context.log_path(source), log_schema(statement).json(), log_statistics(statement)
        output = before.output.followed_by(path, run=run.run, epoch=run.epoch) if before is not None else None
        if output is not None:
            output.fit(schema, statistics=statistics)
        else:
            # The positions are recorded before the fence, because the fence's commit may trigger Delta's clean-up of
            # old commits and their positions.
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
        known = read_positions(context.warehouse, context.metastore, snapshot, source)
        states, stored = known.states, snapshot.states(ingest_fragment(source.id))
        asked = still_asked(kind, spec.splits, states, upstream)
        # A new slot that was created for this source may begin after the position. The reader of the slot then
        # determines the position.
        is_unread = isinstance(kind, ChangeConnector) and is_new_upstream(context, snapshot, source, known)
        if not is_unread and any(split_status(states.get(split), upstream.splits.get(split)) != OK for split in asked):
            # The upstream's state may have been requested before the positions were committed, because an earlier run
            # may have continued to read until the fence.
            upstream = kind.look(options)
            require_readable(source.name, asked, states, upstream, kind)
        terms = LogTerms.open(source.name, kind, options, {split: states[split] for split in asked}, upstream.splits)
        capture = None
        if isinstance(kind, ChangeConnector):
            capture = Capture.open(context, snapshot, kind, source, spec, options, known, pace.batch_records)
        elif isinstance(kind, HoldingConnector):
            note_made(context.warehouse, source, spec.options, slot=True)
        output.lives = {split: (states[split].cluster, states[split].incarnation) for split in spec.splits}
        output.terms = terms.known if terms is not None else {}
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
            query=prepared.query(run.run),
            opening=opening,
            positions={split: states[split].offset for split in spec.splits},
            incarnations={kind.split_topic(split): states[split].incarnation for split in spec.splits},
            since={split: stored[split].epoch for split in spec.splits},
            reader=BatchReader(
                warehouse=context.warehouse,
                opening=opening,
                lives=output.lives,
                schema=pa.schema(output.table.schema().to_arrow()),
                terms=terms,
                decoder=Decoder(statement, run.run, added_fields(snapshot, source)),
                arrow=ArrowBatches.of(context.warehouse, statement, run.run),
                schemas=schema_records(statement, options),
            ),
            watch=kind.watch(options),
            capture=capture,
            terms=terms,
            pace=pace,
            throttle=Throttle(pace.per_second),
            upkeep=Upkeep(
                context=context,
                object_id=source.id,
                generation=source.generation,
                output=output,
                retention=retention_of(options),
                is_log=True,
                note=lambda version: note_commits(context, source, version, run=run.run, epoch=run.epoch),
            ),
            streaming=StreamingRun(spec.job, context.note_batch),
        )
        if job.watch is not None:
            output.before_commit = job._require_same_incarnation
        try:
            with expired_splits(source.name, spec.splits, states, upstream, kind):
                job._begin_batches(prepared, {split: states[split] for split in spec.splits})
            opening.end()
        except BaseException:
            # The next run has a query of the same name, and its session may be the session of this run.
            job._end_query()
            raise
        return job

    def __post_init__(self) -> None:
        fetcher, followed = self.opening.fetcher, None
        if isinstance(self.kind, PooledConnector) and isinstance(fetcher, FollowingFetcher):
            followed = self.followed = FollowedSource(
                kind=self.kind,
                options=self.options,
                fetcher=fetcher,
                positions=self.positions,
                most=self.pace.batch_records,
                require_same=self._require_same_incarnation,
            )
        self.mode = BatchMode(
            job=self.spec.job,
            streaming=self.streaming,
            start_query=self._start_query,
            end_query=self.streaming.end_query,
            has_completed=self.query.has_completed,
            open=self._follow,
            has_next=lambda: followed is not None and followed.has_next(),
            write_next=self._write_followed,
            look_seconds=0.0,
            interval_seconds=self.pace.interval_ms / 1000,
            interval_factor=INTERVAL_FACTOR,
            is_possible=self.opening.may_follow,
        )

    def _begin_batches(self, prepared: WarmStart, states: dict[str, SplitState]) -> None:
        """Starts a thread or a query that writes the batches. Uses the speculative query if it begins at the positions
        ``states``."""
        early = prepared.early
        if self.capture is not None:
            on_changes = self.streaming.guarded(partial(self._on_changes, self.capture))
            self.streaming.thread = self.query.start_thread(self.capture.feed, on_changes)
        elif early is not None and early.fits(self.run, states):
            self.streaming.query = early.go_on(self._query_write)
        else:
            if early is not None:
                early.abandon()  # Two queries cannot have the same name.
            if prepared.may_begin_small(states) and self._follow():
                fault("ingest.before_query")
                self.mode.start_thread()
                fault("ingest.after_query")
            else:
                self._start_query()
        self.query.remove_others()

    def _follow(self) -> bool:
        """Begins to receive records for the thread. Returns False if a query must read the records."""
        return self.followed is not None and self.followed.begin()

    def _start_query(self) -> None:
        """Starts a query at the positions."""
        if self.followed is not None:
            self.followed.fetcher.unfollow()
        self._first_of_query = self.batches
        stream = self.opening.stream(states_at(self.positions, self.output.lives))
        self.streaming.query = self.query.start(stream, self.positions, self._query_write)

    def _query_write(self, frame: DataFrame, batch: int) -> None:
        self.mode.require_query()
        self.streaming.guarded(self._on_batch)(frame, batch)
        self.mode.after_batch(batch, is_small=self._was_fetched)

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        self._write(self._ranges(self._ends(batch)), self._first_of_query + batch, frame)

    def _write_followed(self) -> None:
        if self.followed is not None:
            self._write(self._ranges(self.followed.ends), self.batches)

    def _write(self, ranges: dict[str, tuple[int, int]], batch: int, frame: DataFrame | None = None) -> None:
        """Writes a batch. ``frame`` contains the records of the batch if a query reads them; otherwise, it is None.

        Raises LeftToSparkError if only a query can read the batch.
        """
        moved = {split: (start, end) for split, (start, end) in ranges.items() if end > start}
        expected = record_count(self.kind, self.options, moved)
        # The wait is outside the batch, because a stop must not wait for a batch that is rate-limited.
        if not self.throttle.take(expected):
            raise FencedError(f"{self.spec.job} was stopped")
        with self.streaming.batch():
            plan = BatchPlan(
                batch=batch,
                moved=moved,
                expected=expected,
                bucket=current_bucket(),
                since={split: self.since[split] for split in moved},
            )
            read = self.reader.read(plan, frame)
            self._was_fetched = read.fetched is not None
            self.unproved = read.unproved
            is_row_by_row = not has_changes(self.opening.statement)
            due = expected_of(self.kind, moved, self.options, is_row_by_row=is_row_by_row)
            if read.small is not None:
                due.require(RowCount(written=read.small.num_rows, read=read.fetched))
            self._require_same_incarnation()
            with self.streaming.turn():
                if read.small is not None:
                    self.output.append_rows(read.small, batch, ranges)
                elif read.spark is not None:
                    save = self.reader.arrow_save(plan, read.spark)
                    read.spark.write(self.output, ranges, expected=due, save=save)
                self.positions.update((split, end) for split, (_, end) in ranges.items())
                self.batches = batch + 1
                if self.opening.feed is not None:
                    self.opening.feed.committed(ranges)
                self.upkeep.run_if_due()
            if batch % NOTE_EVERY == NOTE_EVERY - 1:
                note_positions(self.context, self.source, run=self.run, epoch=self.epoch)

    def _on_changes(self, capture: Capture, entry: str, batch: int) -> None:
        """Writes a batch of captured changes: the rows, the position and the snapshots' progress, all in one commit."""
        try:
            taken = capture.feed.take(entry)
        except CaptureError as error:
            raise stalled(self.source, error) from error
        if not taken:
            return
        if not self.throttle.take(sum(each.records.num_rows for each in taken)):
            raise FencedError(f"{self.spec.job} was stopped")
        began = time.monotonic()
        with self.streaming.batch():
            (split,) = self.positions
            capture.require_known(taken)
            rows = capture.rows(taken, run=self.run, batch=batch, since=self.since[split], bucket=current_bucket())
            fault("ingest.in_batch")
            small = as_stored(rows, self.reader.schema)
            exactly(sum(each.records.num_rows for each in taken)).require(
                RowCount(written=small.num_rows - capture.marks(taken))
            )
            progress = capture.progress_after(taken)
            ranges = {split: (self.positions[split], taken[-1].position)}
            with self.streaming.turn():
                self.output.tables = capture.stored_with(progress, is_due=batch % NOTE_EVERY == 0)
                self.output.rows = rows_by_table(small)
                self.output.append_rows(small, batch, ranges)
                self.positions[split] = taken[-1].position
                capture.feed.batch_seconds = time.monotonic() - began
                capture.committed(taken, progress)
                self.upkeep.run_if_due()
            if batch % NOTE_EVERY == NOTE_EVERY - 1:
                self.note()

    def _ranges(self, ends: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """The ranges that a batch has read.

        With at most :data:`MOST_NAMED_SPLITS` splits, includes all splits; every commit then has all positions.
        """
        has_few = len(self.positions) <= MOST_NAMED_SPLITS
        starts = {split: self.positions[split] for split in (self.positions if has_few else ends)}
        ranges = {split: (start, ends.get(split, start)) for split, start in starts.items()}
        return {split: (start, end) for split, (start, end) in ranges.items() if has_few or end > start}

    def _ends(self, batch: int) -> dict[str, int]:
        """The end offsets of a batch of the query."""
        offset = self.query.end_of(batch)
        if self.opening.feed is not None:
            return {split: end for split, (_, end) in self.opening.feed.take(offset).items()}
        return self.kind.read_positions(offset)

    def _require_same_incarnation(self) -> None:
        """Raises StalledError if a topic was replaced or deleted, or if a log may have lost records that were read.

        Comparing the ids of the topics is sufficient, because a deleted topic's id is never used again.
        """
        if self.watch is None:
            return
        require_incarnations(self.source.name, self.incarnations, self.watch.incarnations(tuple(self.incarnations)))
        if self.terms is not None and self.unproved:
            self.terms.require_read(self.unproved)

    @property
    def identities(self) -> Mapping[str, SplitIdentity]:
        """The cluster and the incarnation of each split."""
        return self.output.lives

    @property
    def session(self) -> SparkSession | None:
        """The run's Spark session; None if the run has not needed a session."""
        return self.opening.session

    @property
    def notice(self) -> str | None:
        """The notice about the running source, for SHOW JOBS."""
        return None if self.capture is None else self.capture.notice

    @property
    def is_unproven(self) -> bool:
        """True while a batch is in progress and no batch of the run has succeeded yet."""
        return self.streaming.is_unproven

    def failure(self) -> Failure | None:
        """The reason why the run ended without being stopped; None while it runs."""
        return self.streaming.failure()

    def stop(self) -> None:
        """Stops the run.

        The batch in progress has one second to finish, and is then cancelled. After this call, the run commits nothing.
        """
        end = self.stop_async()
        if end is not None:
            end()
            self.opening.release_session()
            self.note()

    def stop_async(self) -> Callable[[], None] | None:
        """Stops the run without waiting for the end of an idle query. If no batch is in progress, returns a function
        that ends the query. Otherwise, does the same as :meth:`stop` and returns None.

        A query that continues to run after this call does nothing. Ending it at once could take a tenth of a second,
        because Spark's thread may be sleeping. If the query continues to run, this method does not record the
        positions, but :meth:`StoppedReader.close` or the next run does, unless the next run reuses this reader.
        """
        end = None
        try:
            self.throttle.end()
            if self.streaming.is_begun:
                fault("ingest.before_stop")
                is_idle = self.streaming.wait_idle(GRACE_SECONDS)
                self.streaming.expect_stop()
                if is_idle and self.streaming.forbid(GRACE_SECONDS):
                    end = self._end_query
                else:
                    self.mode.cancel()
        finally:
            # This call is needed even if the JVM has ended, because a batch may still be committing through delta-rs in
            # this process.
            self.streaming.forbid()
            if end is None:
                self._close_clients()
            elif self.capture is not None:
                # The next run needs the slot, which only one reader at a time can use.
                self.capture.feed.close()
            elif self.opening.feed is not None:
                # The run reads nothing more from the upstream, and the next run can use the session at the broker.
                self.opening.feed.close()
        fault("ingest.after_stop")
        if end is None:
            self.opening.release_session()
            self.note()
        return end

    def note(self) -> None:
        """Records the reader's positions in the metastore. The next run then need not read them from the log."""
        note_positions(self.context, self.source, run=self.run, epoch=self.epoch)
        fault("ingest.after_note")

    def _end_query(self) -> None:
        """Ends the query or the thread. After this call, the run commits nothing."""
        try:
            self.mode.cancel()
        finally:
            self.streaming.forbid()
            self._close_clients()

    def _close_clients(self) -> None:
        if self.watch is not None:
            self.watch.close()
        self.opening.close()
        if self.capture is not None:
            self.capture.feed.close()
