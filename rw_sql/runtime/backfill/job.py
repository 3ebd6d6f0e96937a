"""Backfills a view in three phases.

1. The job copies the records that are older than the view into a staging table for each input.
2. The view's query reads the staging tables as streams.
3. The query continues with the logs of the sources, which contain the live records.

After a crash, the phase that was interrupted continues. The commits of a staging table record the offsets whose records
the table contains. In phase 2, the view's query uses the view's own checkpoint and stops at the end of the staging
tables. Then the job rewrites the last entry of the checkpoint, so that the entry refers to the source's log,
immediately after the version at which the backfill was planned. In phase 3, the query continues at this position with
the state of phase 2. :mod:`.direct_table` describes the backfill without staging tables.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rw_sql.connectors.base import look_anew
from rw_sql.connectors.delta.versions import table_at
from rw_sql.connectors.fetching import UnreadableRecordError
from rw_sql.connectors.ranged import RangedConnector
from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError
from rw_sql.metastore.facts import BackfillProgress
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.backfill_ranges import History, next_chunk
from rw_sql.model.definitions import definition_of, has_changes
from rw_sql.model.offset_ranges import total
from rw_sql.model.rebuilds import backfill_rate_limit
from rw_sql.object_stores import delta_errors
from rw_sql.plan.statements.table.source_of_table import added_fields
from rw_sql.runtime.backfill.checks import filled_path, history_path, require_readable, require_same_log
from rw_sql.runtime.backfill.chunk_decoder import ChunkDecoder
from rw_sql.runtime.backfill.completion import LIVE, leave_histories
from rw_sql.runtime.backfill.direct_table import DirectTable
from rw_sql.runtime.backfill.log_rows import rows_of_chunk
from rw_sql.runtime.backfill.remaining import plan_remaining
from rw_sql.runtime.backfill.staging_table import BackfillStaging, is_whole
from rw_sql.runtime.decoding.decoder import ERROR, decode, log_schema
from rw_sql.runtime.decoding.upstream_records import (
    has_small_batches,
    offsets_per_record,
    packages_of,
    packages_on_executors,
    read_records,
)
from rw_sql.runtime.delta.delta_log import commits, has_new_data, table_id
from rw_sql.runtime.delta.job_output import FencedError
from rw_sql.runtime.delta.row_counts import Expected, at_most, expected_of
from rw_sql.runtime.jobs.rate_limit import Throttle
from rw_sql.runtime.positions.checkpoint_handover import is_moved_by_half, move
from rw_sql.runtime.positions.progress import committed_versions
from rw_sql.runtime.spark.executors import require_executors
from rw_sql.runtime.spark.work_progress import WorkerThread
from rw_sql.runtime.support.background import run_in_background
from rw_sql.runtime.support.event_log import log_event
from rw_sql.runtime.support.failures import Failure, StalledError, cause_line
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.support.processes import now_ms
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from rw_sql.connectors.base import Connector, UpstreamWatch
    from rw_sql.model.backfill_ranges import BackfillChunk, SplitHistory
    from rw_sql.model.job_specs import ViewSpec
    from rw_sql.model.view_inputs import ViewInput
    from rw_sql.runtime.delta.delta_log import SplitIdentity
    from rw_sql.runtime.delta.staged_files import SaveFiles
    from rw_sql.runtime.jobs.context import Context

logger = logging.getLogger(__name__)

CHUNK_RECORDS = 1_000_000
"""The maximum number of records in a chunk that a backfill reads from upstream. Each chunk is one commit, so the
backfill reads at most this number of records again after a crash."""

LOG_CHUNK_RECORDS = 8_000_000
"""The maximum number of records in a chunk that a backfill reads from the source's log."""

READING = "reading history"
CATCHING_UP = "catching up"

_MOST_FILES = 2_000
_LOOK_SECONDS = 0.2
_REPORT_MS = 1000


@dataclass(slots=True)
class Backfill:
    """Backfills a view during one run of its job, on a separate thread, until the view is live.

    ``open_query`` takes a map from inputs to staging tables, and starts the view's query on these tables. The query
    stops at the ends of the tables. With an empty map, ``open_query`` starts the query on the inputs' logs. If
    ``direct_table`` is set, the backfill writes the chunks to this table, and no query reads staging tables.
    """

    context: Context
    spec: ViewSpec
    run: int
    epoch: int
    checkpoint: str
    open_query: Callable[[Mapping[int, str]], None]
    running_query: Callable[[], StreamingQuery | None]
    direct_table: DirectTable | None = None
    stopping: threading.Event = field(default_factory=threading.Event)
    work: Future[None] | None = None
    worker: WorkerThread | None = None
    problem: Failure | None = None
    spark: SparkSession | None = None
    throttle: Throttle | None = None
    told_phase: str = ""
    told_done: int = -1
    told_ms: int = 0

    def report(self, phase: str, done: int, of_all: int) -> None:
        """Stores the progress of the backfill when a phase begins, and otherwise at most once a second. ``done`` is the
        number of offsets that have been read, and ``of_all`` is the total number."""
        now = now_ms()
        if phase == self.told_phase and now - self.told_ms < _REPORT_MS:
            return
        if phase != self.told_phase:
            log_event("history", job=self.spec.job, phase=phase, done=done, of=of_all)
        if (phase, done) == (self.told_phase, self.told_done):
            return
        self.told_phase, self.told_done, self.told_ms = phase, done, now
        if self.context.is_replaced():
            return  # The next owner reports its own progress.
        facts = self.context.metastore.jobs
        known = facts.backfills().get(self.spec.job)
        is_same = known is not None and known.generation == self.spec.generation
        facts.write_backfill(
            BackfillProgress(
                job=self.spec.job,
                object_id=self.spec.view_id,
                generation=self.spec.generation,
                phase=phase,
                done=done,
                total=of_all,
                started_ms=known.started_ms if known is not None and is_same else now,
                updated_ms=now,
                is_over=phase == LIVE,
            )
        )

    def begin(self) -> None:
        """Starts the thread."""
        self.work = run_in_background(self._work, self.spec.job)

    @property
    def is_running(self) -> bool:
        """True while the backfill's thread runs."""
        return self.work is not None and not self.work.done()

    def failure(self) -> Failure | None:
        """The reason why the backfill failed; None if it still runs, was stopped, or has made the view live."""
        if self.problem is not None:
            return self.problem
        if self.work is None or not self.work.done():
            return None
        error = self.work.exception()
        return None if error is None else Failure(reason=f"{type(error).__name__}: {cause_line(str(error))}")

    def stop(self) -> None:
        """Cancels the backfill. An uncommitted chunk is discarded. This method does not stop the view's query; the
        caller must stop it."""
        self.stopping.set()
        if self.throttle is not None:
            self.throttle.end()
        if self.spark is not None and self.is_running:
            self.spark.sparkContext.cancelJobGroup(self.group)

    def wait(self, seconds: float) -> None:
        """Waits at most ``seconds`` until the thread has ended."""
        if self.work is not None:
            wait([self.work], seconds)

    @property
    def group(self) -> str:
        """The Spark job group of the backfill."""
        return f"{self.spec.job} history, run {self.run}"

    def _work(self) -> None:
        self.worker = WorkerThread.current()
        try:
            with delta_errors():
                self._run()
        except StalledError as error:
            self.problem = Failure(reason=error.reason, is_final=error.is_final)
        except SqlError as error:
            self.problem = Failure(reason=error.message)
        except (PySparkException, Py4JError, FencedError, DeltaError, OSError) as error:
            if not self.stopping.is_set():
                self.problem = Failure(reason=cause_line(str(error)) or type(error).__name__)
                if not self.context.explains(error):
                    logger.warning("%s: %s", self.spec.job, self.problem.reason)

    def _run(self) -> None:
        given = [one for one in self.spec.inputs if one.history]
        done, of_all = 0, sum(History.from_text(one.history).offsets for one in given)
        for one in given:
            done = BackfillReader.of(self, one, done, of_all).fill()
            if self.stopping.is_set():
                return
        if self.spark is not None:
            self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]  # removes it
        if self.direct_table is None:
            self.report(CATCHING_UP, of_all, of_all)
            self._pass_through(given)
        if self.stopping.is_set():
            return
        fault("history.before_live")
        self.open_query({})
        self.report(LIVE, of_all, of_all)
        fault("history.after_live")
        leave_histories(self.context, self.spec)

    def _pass_through(self, given: list[ViewInput]) -> None:
        """Runs the view's query until it has read the staging tables. Then rewrites the checkpoint so that it refers to
        the logs."""
        tables = {one.id: history_path(self.context, self.spec, one) for one in given}
        warehouse = self.context.warehouse
        logs = {one.id: table_id(warehouse, warehouse.data(one.id, one.generation)) for one in given}
        moves = {
            table_id(warehouse, tables[one.id]): (logs[one.id], History.from_text(one.history).live_version)
            for one in given
        }
        if not is_moved_by_half(self.checkpoint, moves):
            fault("history.before_query")
            self.open_query(tables)
            query = self.running_query()
            if query is not None:
                query.awaitTermination()
            fault("history.after_query")
            if self.stopping.is_set():
                return
            self._require_end(tables)
        move(self.checkpoint, moves)

    def _require_end(self, tables: Mapping[int, str]) -> None:
        """Raises StalledError if the query was stopped before it had read all rows of the staging tables."""
        reached = committed_versions(self.context.warehouse, self.checkpoint)
        for path in tables.values():
            last = _last_version_with_rows(self.context, path)
            if reached.get(table_id(self.context.warehouse, path), -1) <= last:
                raise StalledError("the query was stopped before it had read all records of the backfill")


def _last_version_with_rows(context: Context, path: str) -> int:
    return next((version for version, actions in commits(context.warehouse, path) if has_new_data(actions)), -1)


@dataclass(slots=True)
class BackfillReader:
    """Reads the records of one input's backfill, and writes them to the input's staging table or to the view's
    table."""

    backfill: Backfill
    given: ViewInput
    history: History
    source: SourceRecord
    kind: Connector
    path: str
    before: int
    of_all: int
    watch: UpstreamWatch | None = None
    decoder: ChunkDecoder | None = None
    splits: dict[str, SplitHistory] = field(default_factory=dict)

    @staticmethod
    def of(backfill: Backfill, given: ViewInput, before: int, of_all: int) -> BackfillReader:
        source = backfill.context.metastore.snapshot().get(given.id)
        if not isinstance(source, SourceRecord):
            raise StalledError("the catalog has changed")
        history = History.from_text(given.history)
        return BackfillReader(
            backfill=backfill,
            given=given,
            history=history,
            source=source,
            kind=connector(source.connector),
            path=filled_path(backfill.context, backfill.spec, given, backfill.direct_table is not None),
            before=before,
            of_all=of_all,
            splits={split.split: split for split in history.splits},
        )

    def fill(self) -> int:
        """Reads the records that the table does not contain yet. If the log contains an offset, the record at this
        offset is read from the log; otherwise, it is read from upstream. Returns the number of offsets in the histories
        of this input and of the inputs before it."""
        own = self.backfill
        warehouse = own.context.warehouse
        if own.direct_table is None and is_whole(warehouse, self.path):
            return self.before + self.history.offsets
        table = own.direct_table or BackfillStaging.open(
            warehouse,
            self.path,
            log_schema(definition_of(self.source)).json(),
            job=own.spec.writer,
            run=own.run,
            epoch=own.epoch,
            generation=own.spec.generation,
        )
        with own.context.sessions.lent(packages_of(self.kind, definition_of(self.source))) as spark:
            own.spark = spark
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", "history")
            spark.sparkContext.setJobGroup(own.group, f"history of {own.spec.name}", interruptOnCancel=True)
            try:
                while not own.stopping.is_set():
                    self._report(table)
                    if not self._fill_chunk(spark, table):
                        table.finish(self.history.live_version)
                        break
            finally:
                if self.watch is not None:
                    self.watch.close()
        return self.before + self.history.offsets

    def _report(self, table: BackfillStaging | DirectTable) -> None:
        done = sum(total(spans) for spans in table.held.values())
        self.backfill.report(READING, self.before + done, self.of_all)

    def _fill_chunk(self, spark: SparkSession, table: BackfillStaging | DirectTable) -> bool:
        """Writes one chunk; returns False if no chunk is left. If the rate limit is 0, waits a moment instead of
        writing."""
        limit = self._limit()
        if limit == 0:
            self.backfill.stopping.wait(_LOOK_SECONDS)
            return True
        version, planned = plan_remaining(self.backfill.context, self.source, self.history, table.held, self._options)
        if planned.from_log:
            chunk = next_chunk(planned.from_log, (LOG_CHUNK_RECORDS if limit is None else limit) * self._unit)
            rows = self._from_log(spark, chunk, version)
            # Undecodable records are left out.
            self._append(table, rows, chunk, {}, limit, at_most(self._expected(chunk)))
            return True
        portions = planned.from_upstream
        if isinstance(self.kind, RangedConnector):
            # Limits the files per chunk, because the commit of a chunk of 100,000 small files would have to name all of
            # them.
            few = frozenset(sorted({portion.split for portion in portions})[:_MOST_FILES])
            portions = tuple(portion for portion in portions if portion.split in few)
        chunk = next_chunk(portions, (CHUNK_RECORDS if limit is None else limit) * self._unit)
        if not chunk:
            return False
        options = self._options()
        upstream = look_anew(self.kind, options)
        require_readable(self.backfill.spec.name, self.splits, upstream, chunk)
        seen = {split: at.term for split, at in upstream.splits.items() if at.term is not None}
        known = {portion.split: portion.term for portion in chunk if portion.term is not None}
        require_same_log(self.backfill.spec.name, self.kind, options, chunk, known, seen)
        if self.watch is None:
            self.watch = self.kind.watch(options)
        if self.decoder is None:
            self.decoder = ChunkDecoder.of(
                self.backfill.context.warehouse, definition_of(self.source), table, self.backfill.run
            )
        before, decoder = table.output.before_commit, self.decoder
        table.output.before_commit = partial(self._require_unchanged, options, chunk, {**seen, **known})
        try:
            rows, save = self._from_upstream(spark, options, chunk, decoder if limit is None else None)
            lives = {portion.split: self._life(portion.split) for portion in chunk}
            self._append(table, rows, chunk, lives, limit, self._expected(chunk, options), save)
        except (PySparkException, Py4JError):
            # The client's error is unspecific. The present state of the upstream shows whether the records still exist.
            if not self.backfill.stopping.is_set():
                require_readable(self.backfill.spec.name, self.splits, look_anew(self.kind, options), chunk)
            raise
        finally:
            table.output.before_commit = before
            decoder.discard()
        return True

    def _append(
        self,
        table: BackfillStaging | DirectTable,
        rows: DataFrame,
        chunk: tuple[BackfillChunk, ...],
        lives: Mapping[str, SplitIdentity],
        limit: int | None,
        expected: Expected,
        save: SaveFiles | None = None,
    ) -> None:
        if limit is not None:
            if self.backfill.throttle is None or self.backfill.throttle.per_second != limit:
                self.backfill.throttle = Throttle(per_second=limit)
            offsets = sum(portion.end - portion.start for portion in chunk)
            if not self.backfill.throttle.take(-(-offsets // self._unit)):
                return
        if not self.backfill.stopping.is_set():
            # A few bytes of a compressed file may contain any number of records.
            is_small = has_small_batches(self.kind) and self._unit == 1
            table.append(rows, chunk, lives, is_small=is_small, expected=expected, save=save)

    def _expected(self, chunk: tuple[BackfillChunk, ...], options: Mapping[str, str] | None = None) -> Expected:
        """The number of rows to expect from a chunk. If the source's ``options`` are given, and the upstream's log
        states the number of records between two offsets, the result is exact."""
        ranges = {portion.split: (portion.start, portion.end) for portion in chunk}
        return expected_of(self.kind, ranges, options, is_row_by_row=not has_changes(definition_of(self.source)))

    @property
    def _unit(self) -> int:
        return offsets_per_record(self.kind)

    def _limit(self) -> int | None:
        """The view's rate limit in the current catalog, in records per second; None if there is no limit."""
        spec = self.backfill.spec
        return backfill_rate_limit(self.backfill.context.metastore.snapshot(), spec.view_id, spec.generation)

    def _options(self) -> dict[str, str]:
        """The source's options in the current catalog. If the source has been moved to another upstream, the backfill
        therefore continues with this upstream."""
        snapshot = self.backfill.context.metastore.snapshot()
        source = snapshot.get(self.source.id)
        if not isinstance(source, SourceRecord):
            raise StalledError("the catalog has changed")
        return self.backfill.context.options_of(source, snapshot)

    def _life(self, split: str) -> SplitIdentity:
        return self.splits[split].cluster, self.splits[split].incarnation

    def _from_log(self, spark: SparkSession, chunk: tuple[BackfillChunk, ...], version: int) -> DataFrame:
        """The rows of a chunk, read from version ``version`` of the log. Rows that were deleted in a later version are
        read too."""
        rows = table_at(spark, self.backfill.context.log_path(self.source), version).where(f"{ERROR} IS NULL")
        return rows_of_chunk(spark, rows, chunk)

    def _from_upstream(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        chunk: tuple[BackfillChunk, ...],
        decoder: ChunkDecoder | None,
    ) -> tuple[DataFrame, SaveFiles | None]:
        """Reads a chunk from upstream. The result is that of :meth:`ChunkDecoder.rows`. If ``decoder`` is None, Spark
        decodes the records."""
        statement = definition_of(self.source)
        ranges = {portion.split: (portion.start, portion.end) for portion in chunk}
        lives = {portion.split: self._life(portion.split)[1] for portion in chunk}
        try:
            records = read_records(self.kind, spark, options, ranges, statement, lives)
        except UnreadableRecordError as error:
            name = sql_name(self.backfill.spec.name)
            raise StalledError(
                f"{error}: {name} cannot contain this record; a view over a source without INCLUDE header can"
            ) from error
        # The check follows ``read_records``, because the connector makes the files of secrets that executors need.
        warehouse = self.backfill.context.warehouse
        require_executors(warehouse, spark, packages_on_executors(self.kind, statement))
        added = added_fields(self.backfill.context.metastore.snapshot(), self.source)
        run = self.backfill.run
        rows_of = partial(decode, statement=statement, options=options, run=run, batch=0, bucket=0, added=added)
        count = sum(end - start for start, end in ranges.values()) // self._unit
        if decoder is None:
            return rows_of(records), None
        return decoder.rows(records, count, rows_of, self._expected(chunk))

    def _require_unchanged(
        self, options: Mapping[str, str], chunk: tuple[BackfillChunk, ...], known: Mapping[str, int]
    ) -> None:
        """Raises StalledError if the records of a chunk may have come from another incarnation of a topic, or from
        another log of a split, than the history.

        This check is made after the chunk has been read and before its commit. It must precede the commit, because
        queries may already read the table. One check after the reading is sufficient, because the id of a deleted topic
        is never used again.
        """
        require_same_log(self.backfill.spec.name, self.kind, options, chunk, known)
        if self.watch is None:
            return
        topics = {self.kind.split_topic(portion.split): self._life(portion.split)[1] for portion in chunk}
        now = self.watch.incarnations(tuple(topics))
        for topic, life in topics.items():
            if life is not None and now.get(topic, "") not in (None, life):
                raise StalledError(f"RECREATED {topic} while the backfill was reading it")
