"""A source's shared reader: a stateless query that reads from upstream and appends to the log. The rows of a batch and
the position after it are in one commit."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from rw_sql.connectors.base import HoldingConnector, TermFetcher
from rw_sql.connectors.changes import CaptureError, ChangeConnector
from rw_sql.connectors.ranged import RangedConnector
from rw_sql.connectors.registry import captures_changes
from rw_sql.connectors.support.local_frames import is_large, local_frame
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.definitions import has_changes, source_definition
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.split_status import OK, split_status
from rw_sql.plan.statements.table.source_of_table import added_fields
from rw_sql.runtime.decoding.decoder import BUCKET, Decoder, log_schema, log_statistics
from rw_sql.runtime.decoding.registry.records import schema_records
from rw_sql.runtime.decoding.upstream_records import has_small_batches, read_records, record_count
from rw_sql.runtime.delta.job_output import SMALL_ROWS, FencedError, JobOutput
from rw_sql.runtime.delta.row_counts import RowCount, exactly, expected_of
from rw_sql.runtime.delta.stored_rows import as_stored
from rw_sql.runtime.ingest.capture import Capture, is_new_upstream, note_progress, rows_by_table, stalled
from rw_sql.runtime.ingest.spark_batch import SparkBatch
from rw_sql.runtime.ingest.warm_start import WarmStart
from rw_sql.runtime.jobs.arrow_batches import ArrowBatches
from rw_sql.runtime.jobs.log_terms import LogTerms
from rw_sql.runtime.jobs.made_upstream import note_made
from rw_sql.runtime.jobs.rate_limit import BatchLimits, Throttle
from rw_sql.runtime.jobs.startable import require_incarnations, require_readable, still_asked
from rw_sql.runtime.jobs.streaming_run import GRACE_SECONDS, StreamingRun
from rw_sql.runtime.positions.commit_history import note_stretches
from rw_sql.runtime.positions.log_size import current_bucket
from rw_sql.runtime.positions.logged_ranges import note_cleaned_ranges
from rw_sql.runtime.positions.notes import note_positions
from rw_sql.runtime.positions.shared import read_positions
from rw_sql.runtime.spark.shared_folder import require_shared
from rw_sql.runtime.support.failures import Failure
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.upkeep.table_upkeep import Upkeep, retention_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import Connector, RecordFetcher, SplitState, UpstreamWatch
    from rw_sql.connectors.support.records.range_stream import RangeFeed
    from rw_sql.model.job_specs import IngestSpec
    from rw_sql.runtime.decoding.registry.message_records import MessageRecords
    from rw_sql.runtime.decoding.registry.records import SchemaRecords
    from rw_sql.runtime.delta.delta_log import SplitIdentity
    from rw_sql.runtime.delta.staged_files import SaveFiles
    from rw_sql.runtime.jobs.context import Context

logger = logging.getLogger(__name__)

NOTE_EVERY = 100
"""The number of batches after which a run records its positions in the metastore again.

A start needs to read only the commits after the recorded positions.
"""

MOST_NAMED_SPLITS = 1000
"""Up to this number of splits, every commit contains the positions of all splits. With more splits, it contains only
the positions that it advances."""


def _note_all(context: Context, source: SourceRecord, version: int, *, run: int, epoch: int) -> None:
    """Saves the metadata of a source log's commits up to a version. Must be called before these commits are cleaned
    up."""
    note_positions(context, source, run=run, epoch=epoch)
    note_cleaned_ranges(context.warehouse, source, version)
    note_stretches(context.warehouse, source, version)
    if captures_changes(source.connector):
        note_progress(context.warehouse, source, version)


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
    feed: RangeFeed | None
    capture: Capture | None
    terms: LogTerms | None
    pace: BatchLimits
    throttle: Throttle
    upkeep: Upkeep
    decoder: Decoder
    arrow: ArrowBatches | None
    schemas: SchemaRecords | MessageRecords | None
    streaming: StreamingRun
    session: SparkSession | None = None
    unproved: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The ranges of the batch in progress, if its records do not contain the terms of their logs (Kafka: leader
    epochs), so that the run must request the terms before it commits the batch."""

    @staticmethod
    def start(
        context: Context, spec: IngestSpec, before: Ingest | None = None, prepared: WarmStart | None = None
    ) -> Ingest:
        """Claims a run, fences earlier ones, reads the position, and starts.

        ``before`` is this process's last run of the reader, if it ended cleanly; the new run reuses its resources.
        ``prepared`` is a warm start, if there is one. Raises StalledError; if the upstream does not respond, the error
        is raised before anything is written.
        """
        if prepared is not None and not prepared.is_current(spec):
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
        run = context.metastore.jobs.claim_run(spec.job, snapshot.epoch, context.owner)
        fault("ingest.after_claim")
        context.ensure_log(source)
        path, schema, statistics = context.log_path(source), log_schema(statement).json(), log_statistics(statement)
        output = before.output.followed_by(path, run=run.run, epoch=run.epoch) if before is not None else None
        if output is not None:
            output.fit(schema, statistics=statistics)
        else:
            # Runs before the fence, because the fence's commit may trigger Delta's clean-up of old commits and their
            # positions.
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
        states = known.states
        stored = snapshot.states(ingest_fragment(source.id))
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
            note_made(context.warehouse, source, slot=True)
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
            checkpoint=prepared.query(run.run).checkpoint,
            positions={split: states[split].offset for split in spec.splits},
            incarnations={kind.split_topic(split): states[split].incarnation for split in spec.splits},
            since={split: stored[split].epoch for split in spec.splits},
            schema=pa.schema(output.table.schema().to_arrow()),
            watch=kind.watch(options),
            fetcher=opening.fetcher,
            feed=None,
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
                note=lambda version: _note_all(context, source, version, run=run.run, epoch=run.epoch),
            ),
            decoder=Decoder(statement, run.run, added_fields(snapshot, source)),
            arrow=ArrowBatches.of(context.warehouse, statement, run.run),
            schemas=schema_records(statement, options),
            streaming=StreamingRun(spec.job, context.note_batch),
        )
        if job.watch is not None:
            output.before_commit = job._require_same_incarnation
        job._begin_query(prepared, {split: states[split] for split in spec.splits})
        opening.end()
        job.session = opening.session
        return job

    def _begin_query(self, prepared: WarmStart, states: dict[str, SplitState]) -> None:
        """Starts the query, or uses the speculative query if that begins at the positions ``states``."""
        of, early = prepared.query(self.run), prepared.early
        if self.capture is not None:
            on_changes = self.streaming.guarded(partial(self._on_changes, self.capture))
            self.streaming.thread = of.start_thread(self.capture.feed, on_changes)
            of.remove_others()
            return
        write = self.streaming.guarded(self._on_batch)
        if early is not None and early.fits(self.run, states):
            self.streaming.query = early.go_on(write)
        else:
            if early is not None:
                early.abandon()  # Two queries cannot have the same name.
            stream = prepared.opening.stream(states)
            self.feed = prepared.opening.feed  # The first batch may begin before the query is returned.
            self.streaming.query = of.start(stream, self.positions, write)
        of.remove_others()

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        ranges = self._ranges(self._ends(batch))
        moved = {split: (start, end) for split, (start, end) in ranges.items() if end > start}
        expected = record_count(self.kind, self.options, moved)
        # The wait is outside the batch, because a stop must not wait for a batch that is rate-limited.
        if not self.throttle.take(expected):
            raise FencedError(f"{self.spec.job} was stopped")
        with self.streaming.batch():
            since, bucket = {split: self.since[split] for split in moved}, current_bucket()
            statement = source_definition(self.spec.definition)
            fetched = self._fetched(ranges, expected)
            self.unproved = moved if fetched is None else {}
            small = spark = None
            if fetched is not None and self.arrow is not None:
                small = self.arrow.rows(fetched, self.schema, batch=batch, bucket=bucket, since=since)
            if small is None:
                records, heads = self._records(frame, fetched, moved, expected)
                spark = SparkBatch(
                    records=records,
                    heads=heads,
                    schemas=self.schemas,
                    decoder=self.decoder,
                    batch=batch,
                    bucket=bucket,
                    since=since,
                )
            fault("ingest.in_batch")
            # A batch that a fetcher leaves to Spark may be too large for this process.
            is_few = expected <= SMALL_ROWS and has_small_batches(self.kind)
            may_collect = is_few and (self.fetcher is None or fetched is not None)
            if spark is not None and may_collect and not is_large(spark.records):
                small = spark.collected(self.schema)
            due = expected_of(self.kind, moved, is_row_by_row=not has_changes(statement))
            if small is not None:
                due.require(RowCount(written=small.num_rows, read=None if fetched is None else fetched.num_rows))
            self._require_same_incarnation()
            with self.streaming.turn():
                if small is not None:
                    self.output.append_rows(small, batch, ranges)
                elif spark is not None:
                    spark.write(self.output, ranges, expected=due, save=self._arrow_save(spark, expected))
                self.positions.update((split, end) for split, (_, end) in ranges.items())
                if self.feed is not None:
                    self.feed.committed(ranges)
                self.upkeep.run_if_due()
            if batch % NOTE_EVERY == NOTE_EVERY - 1:
                note_positions(self.context, self.source, run=self.run, epoch=self.epoch)

    def _arrow_save(self, spark: SparkBatch, expected: int) -> SaveFiles | None:
        """Saves a large batch of about ``expected`` records with Arrow; None if Spark must decode it."""
        if self.arrow is None or not self.arrow.takes(spark.records, expected):
            return None
        return partial(
            self.arrow.save,
            self.context.warehouse,
            schema=self.schema,
            records=spark.records,
            rows_of=partial(self.decoder.rows, batch=spark.batch, bucket=spark.bucket, since=spark.since),
            batch=spark.batch,
            since=spark.since,
        )

    def _on_changes(self, capture: Capture, entry: str, batch: int) -> None:
        """Writes a batch of a change data capture source: rows, position and progress of snapshots in one commit."""
        try:
            taken = capture.feed.take(entry)
        except CaptureError as error:
            raise stalled(self.source, error) from error
        if not taken:
            return
        if not self.throttle.take(sum(each.records.num_rows for each in taken)):
            raise FencedError(f"{self.spec.job} was stopped")
        with self.streaming.batch():
            (split,) = self.positions
            capture.require_known(taken)
            rows = capture.rows(taken, run=self.run, batch=batch, since=self.since[split], bucket=current_bucket())
            fault("ingest.in_batch")
            small = as_stored(rows, self.schema)
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
                capture.committed(taken, progress)
                self.upkeep.run_if_due()
            if batch % NOTE_EVERY == NOTE_EVERY - 1:
                self.note()

    def _fetched(self, ranges: Mapping[str, tuple[int, int]], expected: int) -> pa.Table | None:
        """The records of a small batch, which this process fetches; None if Spark's reader must read the batch."""
        if self.fetcher is None or expected > SMALL_ROWS:
            return None
        records = self.fetcher.fetch(ranges)
        if records is not None and self.terms is not None and isinstance(self.fetcher, TermFetcher):
            self.terms.note_fetched(ranges, self.fetcher.terms)
        return records

    def _records(
        self,
        frame: DataFrame,
        fetched: pa.Table | None,
        moved: Mapping[str, tuple[int, int]],
        expected: int,
    ) -> tuple[DataFrame, frozenset[bytes]]:
        """The records of a batch as Spark decodes them, and their known heads (see :class:`SparkBatch`)."""
        spark = frame.sparkSession
        if fetched is not None:
            heads = frozenset[bytes]() if self.schemas is None else self.schemas.heads_in(fetched)
            return local_frame(spark, fetched if self.schemas is None else self.schemas.decoded(fetched, heads)), heads
        heads = frozenset()
        if self.schemas is not None:
            heads = self.schemas.heads_of(frame) if expected <= SMALL_ROWS else self.schemas.known_heads
        if not isinstance(self.kind, RangedConnector):
            return frame, heads
        lives = {split: self.output.lives[split][1] for split in moved}
        statement = source_definition(self.spec.definition)
        return read_records(self.kind, spark, self.options, moved, statement, lives), heads

    def _ranges(self, ends: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """The ranges that a batch has read.

        With few splits, includes the splits without new records, so that one commit contains every position.
        """
        named = self.positions if len(self.positions) <= MOST_NAMED_SPLITS else ends
        starts = {split: self.positions[split] for split in named}
        ranges = {split: (start, ends.get(split, start)) for split, start in starts.items()}
        if len(self.positions) <= MOST_NAMED_SPLITS:
            return ranges
        return {split: (start, end) for split, (start, end) in ranges.items() if end > start}

    def _ends(self, batch: int) -> dict[str, int]:
        """The end offsets of the batch, from the third line of the file ``offsets/N`` in the run's checkpoint."""
        offset = self._offset(batch)
        if self.feed is not None:
            return {split: end for split, (_, end) in self.feed.take(offset).items()}
        return self.kind.read_positions(offset)

    def _offset(self, batch: int) -> str:
        text = self.context.warehouse.read_text(f"{self.checkpoint}/offsets/{batch}")
        return text.split("\n")[2]

    def _require_same_incarnation(self) -> None:
        """Checks that the batch came from the expected incarnation, and from the log that was read before.

        A deleted topic's id is never used again.
        """
        if self.watch is None:
            return
        now = self.watch.incarnations(tuple(self.incarnations))
        require_incarnations(self.source.name, self.incarnations, now)
        if self.terms is not None and self.unproved:
            self.terms.require_read(self.unproved)

    @property
    def identities(self) -> Mapping[str, SplitIdentity]:
        """The cluster and the incarnation of each split."""
        return self.output.lives

    @property
    def is_unproven(self) -> bool:
        """True while a batch is in progress and none has succeeded yet."""
        return self.streaming.is_unproven

    def failure(self) -> Failure | None:
        """The reason why the run ended without being stopped; None while it runs."""
        return self.streaming.failure()

    def stop(self) -> None:
        """Stops the run.

        The batch in progress has one second to finish, then it is cancelled. Afterwards the run commits nothing.
        """
        end = self.stop_async()
        if end is not None:
            end()
            self.note()

    def stop_async(self) -> Callable[[], None] | None:
        """Like :meth:`stop`, but if no batch is in progress, leaves Spark's query running and returns a function
        that ends it.

        The remaining query does nothing, but ending it may take a tenth of a second, because Spark's thread may be
        sleeping. In this case the positions are not recorded here. The next run records them, unless it reuses this
        reader; :meth:`StoppedReader.close` records them too.
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
                    self.streaming.cancel()
        finally:
            # Needed even without a JVM, because a batch may still be committing through delta-rs in this process.
            self.streaming.forbid()
            if end is None:
                self._close_clients()
            elif self.capture is not None:
                # The next run needs the slot, which only one reader at a time can use.
                self.capture.feed.close()
            elif self.feed is not None:
                # The run reads nothing more from the upstream, and the next run can use the session at the broker.
                self.feed.close()
        fault("ingest.after_stop")
        if end is None:
            self.note()
        return end

    def note(self) -> None:
        """Records the reader's positions in the metastore, so that they need not be read from the log."""
        note_positions(self.context, self.source, run=self.run, epoch=self.epoch)
        fault("ingest.after_note")

    def _end_query(self) -> None:
        try:
            self.streaming.cancel()
        finally:
            self._close_clients()

    def _close_clients(self) -> None:
        if self.watch is not None:
            self.watch.close()
        if self.fetcher is not None:
            self.fetcher.close()
        if self.feed is not None:
            self.feed.close()
        if self.capture is not None:
            self.capture.feed.close()
