"""The job of a refreshable table: carries out refreshes, and is the only writer of the table's rows.

The table's state in the catalog determines the job's work. While the table is REFRESHING, the job loads the upstream
into a staging table. While the table is FINISHING, the job merges the staging table chunk by chunk. Each chunk is a
commit with its own number. After a restart, the catalog and the table show where to continue.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rw_sql.connectors.registry import connector, snapshot_reader
from rw_sql.connectors.support.messages import without_secrets
from rw_sql.errors import SqlError
from rw_sql.metastore import ConcurrentCommit
from rw_sql.metastore.facts import BackfillProgress
from rw_sql.metastore.records import TableRecord
from rw_sql.metastore.refresh_records import FINISHING, IDLE, REFRESHING, RefreshChunk
from rw_sql.model.pauses import pauses_of
from rw_sql.model.refresh_states import (
    KILLED,
    finished,
    given_up_operation,
    is_due,
    left_chunks,
    refresh_of,
    source_of,
    staged,
    triggered,
)
from rw_sql.object_stores import delta_errors
from rw_sql.runtime.delta.job_output import FencedError, JobOutput
from rw_sql.runtime.refresh.loading import load, watched
from rw_sql.runtime.refresh.lost_tables import find_lost_table
from rw_sql.runtime.refresh.merging import merge_chunk, position_of
from rw_sql.runtime.refresh.staging import Staging
from rw_sql.runtime.spark.work_progress import WorkerThread
from rw_sql.runtime.support.background import run_in_background
from rw_sql.runtime.support.event_log import log_event
from rw_sql.runtime.support.failures import Failure, StalledError, cause_line
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.upkeep.table_upkeep import Upkeep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Operation
    from rw_sql.metastore.refresh_records import RefreshRecord
    from rw_sql.model.job_specs import RefreshSpec
    from rw_sql.runtime.jobs.context import Context

logger = logging.getLogger(__name__)

LOADING, MERGING, DONE = "loading", "merging", "refreshed"
"""The phases of a refresh, as shown by SHOW JOBS and progress bars."""

_LOOK_SECONDS = 0.2
HELD_BACK = "held_back"
"""The key of a function in ``Context.made``. While this function returns True, no refresh begins automatically."""

_LOADED = -1
"""The chunk number under which the loading phase is recorded."""


def _require_tables(context: Context, record: RefreshRecord | None, spec: RefreshSpec) -> None:
    """Raises StalledError if the table of a refreshable table is lost, or the staging table that its merge needs. A new
    table would be empty until the next refresh, or would contain only the remaining chunks of a merge."""
    lost = find_lost_table(context.warehouse, record, spec.generation) if record is not None else None
    if lost is not None:
        raise StalledError(f"{lost.word} lost: {spec.name} {lost.problem}: {lost.remedy}", is_lasting=True)


@dataclass(slots=True)
class RefreshJob:
    """One run of a refreshable table's job, on its own thread."""

    context: Context
    spec: RefreshSpec
    run: int
    output: JobOutput
    staging: Staging
    upkeep: Upkeep
    stopping: threading.Event = field(default_factory=threading.Event)
    news: threading.Event = field(default_factory=threading.Event)
    work: Future[None] | None = None
    worker: WorkerThread | None = None
    """The thread that loads or merges a refresh now; None if no refresh is being loaded or merged."""
    group: str | None = None
    """The group of Spark's jobs that load a refresh now; None if no refresh is being loaded."""
    problem: Failure | None = None
    cancel: Callable[[], None] | None = None

    @staticmethod
    def start(context: Context, spec: RefreshSpec) -> RefreshJob:
        """Claims a run, fences earlier runs, creates the table if needed, and starts the run. Raises StalledError if
        the catalog has changed or the table is lost."""
        snapshot = context.metastore.snapshot()
        if not isinstance(snapshot.get(spec.table_id), TableRecord):
            raise StalledError("the catalog has changed")
        path = context.warehouse.data(spec.table_id, spec.generation)
        _require_tables(context, refresh_of(snapshot, spec.table_id), spec)
        fault("refresh.before_claim")
        run = context.metastore.jobs.claim_run(spec.job, snapshot.epoch, context.owner)
        output = JobOutput.open(
            context.warehouse,
            path,
            spec.schema,
            job=spec.job,
            run=run.run,
            epoch=run.epoch,
            generation=spec.generation,
            has_change_feed=True,
        )
        job = RefreshJob(
            context=context,
            spec=spec,
            run=run.run,
            output=output,
            staging=Staging(
                warehouse=context.warehouse,
                path=context.warehouse.staging(spec.table_id, spec.generation),
                schema=pa.schema(output.table.schema().to_arrow()),
                keys=spec.keys,
            ),
            upkeep=Upkeep(context=context, object_id=spec.table_id, generation=spec.generation, output=output),
        )
        job._give_up_what_was_killed()
        job.work = run_in_background(job._work, spec.job)
        return job

    @property
    def is_unproven(self) -> bool:
        """Always False, because a refresh has no batches that could fail or succeed."""
        return False

    def failure(self) -> Failure | None:
        """The reason why the run ended without being stopped; None while the run continues, and after a stop."""
        if self.problem is not None or self.work is None or not self.work.done():
            return self.problem
        error = self.work.exception()
        return None if error is None else Failure(reason=f"{type(error).__name__}: {cause_line(str(error))}")

    def stop(self) -> None:
        """Stops the job. If a chunk is being merged, this merge is completed first. If the upstream is being loaded,
        the load is cancelled."""
        self.stopping.set()
        self.news.set()
        while self.work is not None and not self.work.done():
            cancel = self.cancel
            if cancel is not None:
                with suppress(Py4JError):  # If the JVM has ended, its work has ended too.
                    cancel()
            wait([self.work], _LOOK_SECONDS)

    def _record(self, snapshot: Snapshot) -> RefreshRecord | None:
        return refresh_of(snapshot, self.spec.table_id)

    def _give_up_what_was_killed(self) -> None:
        """If an earlier run had begun to load the refresh that is in the catalog, ends this refresh, and sets the state
        of the table to IDLE.

        A refresh that no run has begun to load stays in the catalog. :meth:`_drop_left` deletes the rows that the
        earlier run has staged.
        """

        def give_up(snapshot: Snapshot) -> Operation | None:
            record = self._record(snapshot)
            if record is None or record.status != REFRESHING or not self._was_begun(record):
                return None
            return given_up_operation(record, KILLED)

        fault("refresh.before_recovery")
        if self._commit(give_up):
            logger.warning("%s: a refresh was aborted: %s", self.spec.name, KILLED)
            self._report(DONE, 0, 0)
        fault("refresh.after_recovery")

    def _drop_left(self) -> None:
        """Deletes the rows that earlier runs have staged for refreshes that are over. Such rows remain if a run was
        killed, or lost the lease while it was suspended."""
        record = self._record(self.context.metastore.snapshot())
        if record is not None:
            self.staging.remove_left(record.refresh, is_over=record.status == IDLE)

    def _was_begun(self, record: RefreshRecord) -> bool:
        known = self.context.metastore.jobs.chunks_of(self.spec.table_id)
        return any(chunk.refresh == record.refresh for chunk in known)

    def _work(self) -> None:
        try:
            with delta_errors(), self.context.metastore.telling(self.news):
                self._drop_left()
                while not self.stopping.is_set():
                    if not self._step():
                        self.news.wait(_LOOK_SECONDS)
                    # The event is cleared before the next step reads the catalog, so that a later commit ends the next
                    # wait.
                    self.news.clear()
        except FencedError as error:
            self.problem = Failure(reason=str(error))
        except StalledError as error:
            self.problem = Failure(reason=error.reason, is_final=error.is_final)
        except (PySparkException, Py4JError, DeltaError, OSError, SqlError) as error:
            if not self.stopping.is_set():
                reason = cause_line(str(error)) or type(error).__name__
                if not self.context.explains(error):
                    logger.warning("%s: %s", self.spec.name, reason)
                self.problem = Failure(reason=reason)

    def _step(self) -> bool:
        """Does the next step that the catalog requires. Returns False if there is nothing to do at present."""
        snapshot = self.context.metastore.snapshot()
        record = self._record(snapshot)
        if record is None:
            return False
        if record.status == REFRESHING:
            source = source_of(snapshot, record)
            if source is not None and pauses_of(snapshot, source.id):
                return False  # The refresh was triggered before the pause, and starts after the pause.
            with self._at_work():
                self._load(snapshot, record)
        elif record.status == FINISHING:
            with self._at_work():
                self._finish(record)
        else:
            self.upkeep.run_if_due()
            held_back = self.context.made.get(HELD_BACK)
            return (held_back is None or not held_back()) and self._commit(self._begin_in_time)
        return True

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self.worker = WorkerThread.current()
        try:
            yield
        finally:
            self.worker = None

    def _begin_in_time(self, snapshot: Snapshot) -> Operation | None:
        record, table = self._record(snapshot), snapshot.get(self.spec.table_id)
        if record is None or not isinstance(table, TableRecord):
            return None
        now = now_ms()
        return triggered(record, now) if is_due(snapshot, record, table.created_at_ms, now) else None

    def _load(self, snapshot: Snapshot, record: RefreshRecord) -> None:
        """Loads the upstream into the staging table.

        If loading fails, the table stays unchanged, and the reason is recorded. Raises FencedError if another run has
        taken over.
        """
        self.output.require_own_run()
        self._note(record, _LOADED, None, 0, is_done=False)
        self._report(LOADING, 0, 0)
        staged_in = self.staging.of(record.refresh)
        fault("refresh.before_load")
        options: dict[str, str] = {}
        sessions, spark = self.context.sessions, None
        try:
            table, source = snapshot.get(self.spec.table_id), source_of(snapshot, record)
            if not isinstance(table, TableRecord) or source is None:
                raise StalledError("the catalog has changed")
            options |= self.context.options_of(source, snapshot)
            reader = snapshot_reader(source.connector)
            if reader is None:
                raise StalledError(f'connector "{source.connector}" cannot be read as a whole')
            spark = sessions.new(connector(source.connector).spark_packages())
            self.group = f"{self.spec.job} refresh {record.refresh}, run {self.run}"
            with watched(spark, self.group, self._told_of(record)) as self.cancel:
                loaded = load(spark, reader, options, table, self.output, staged_in)
            fault("refresh.loaded")
        except Exception as error:  # noqa: BLE001 - a connector's edge
            # The client, Arrow or Spark may raise any exception here. The table stays unchanged, and the reason is
            # recorded.
            self._fail(record, _reason(error, options))
            return
        finally:
            self.cancel = self.group = None
            sessions.release_if_alive(spark)
        self._note(record, _LOADED, None, loaded.rows, is_done=True)
        first = self.output.done + 1

        def finish_loading(now: Snapshot) -> Operation | None:
            latest = self._still(now, record)
            if latest is None:
                return None
            return staged(latest, first_batch=first, chunks=loaded.chunks, rows=loaded.rows)

        self.output.require_own_run()
        if not self._commit(finish_loading):
            self._drop_loaded(record)
        fault("refresh.staged")

    def _told_of(self, record: RefreshRecord) -> Callable[[int, int], bool]:
        """Returns a callback that reports the progress of loading. The callback returns False if the refresh must not
        continue."""

        def tell(done: int, total: int) -> bool:
            if self.stopping.is_set() or self._still(self.context.metastore.snapshot(), record) is None:
                return False  # The result is False even if the progress cannot be stored.
            self._report(LOADING, done, total)
            return True

        return tell

    def _still(self, snapshot: Snapshot, record: RefreshRecord) -> RefreshRecord | None:
        """The latest record of the refresh ``record``. A statement may have renamed the table in the meantime. The
        result is None if the refresh is not being loaded any more, for example because CANCEL JOBS has ended it."""
        now = self._record(snapshot)
        is_same = now is not None and (now.status, now.refresh) == (REFRESHING, record.refresh)
        return now if is_same else None

    def _fail(self, record: RefreshRecord, why: str) -> None:
        if self.stopping.is_set():
            return

        def give_up(snapshot: Snapshot) -> Operation | None:
            latest = self._still(snapshot, record)
            return None if latest is None else given_up_operation(latest, why)

        self.output.require_own_run()
        if self._commit(give_up):
            logger.warning("REFRESH TABLE %s: %s", self.spec.name, why)
        self._drop_loaded(record)

    def _drop_loaded(self, record: RefreshRecord) -> None:
        self.output.require_own_run()  # The next owner may be merging these rows.
        self.staging.of(record.refresh).remove()
        self._report(DONE, 0, 0)

    def _finish(self, record: RefreshRecord) -> None:
        """Merges the remaining chunks, deletes the staging table, and records the end of the refresh, in this order.

        Raises FencedError if another run has taken over. In an object store, the next owner may have ended this refresh
        and begun another refresh while this process was suspended. Therefore, the end is recorded only if the catalog
        still contains this refresh.
        """
        _require_tables(self.context, record, self.spec)
        before = sum(chunk.rows for chunk in self._merged(record))
        for number in left_chunks(record, self.output.done):
            if self.stopping.is_set():
                return
            self._report(MERGING, before, record.rows)
            rows = self.staging.of(record.refresh).chunk(number)
            fault("refresh.before_chunk")
            batch = record.first_batch + number
            merge_chunk(self.output, rows, self.spec.keys, batch)
            self.output.done = batch
            fault("refresh.after_chunk")
            before += rows.num_rows
            self._note(record, number, position_of(rows, self.spec.keys), rows.num_rows, is_done=True)
        fault("refresh.merged")
        self.output.require_own_run()
        self.staging.of(record.refresh).remove()
        fault("refresh.cleaned")

        def finish(snapshot: Snapshot) -> Operation | None:
            now = self._record(snapshot)
            is_same = now is not None and (now.status, now.refresh) == (FINISHING, record.refresh)
            return finished(now, now_ms()) if now is not None and is_same else None

        self.output.require_own_run()
        if self._commit(finish):
            self._report(DONE, record.rows, record.rows)
        fault("refresh.idle")

    def _merged(self, record: RefreshRecord) -> list[RefreshChunk]:
        known = self.context.metastore.jobs.chunks_of(self.spec.table_id)
        return [chunk for chunk in known if chunk.refresh == record.refresh and chunk.chunk != _LOADED]

    def _commit(self, plan: Callable[[Snapshot], Operation | None]) -> bool:
        """Commits an operation planned on the latest catalog; returns False if there is nothing to commit."""
        while True:
            snapshot = self.context.metastore.snapshot()
            operation = plan(snapshot)
            if operation is None:
                return False
            try:
                self.context.metastore.commit(operation, based_on=snapshot)
            except ConcurrentCommit:
                continue
            return True

    def _note(self, record: RefreshRecord, chunk: int, position: str | None, rows: int, *, is_done: bool) -> None:
        self.context.metastore.jobs.note_chunks(
            [
                RefreshChunk(
                    table_id=self.spec.table_id,
                    refresh=record.refresh,
                    chunk=chunk,
                    position=position,
                    rows=rows,
                    epoch=self.context.metastore.snapshot().epoch,
                    run=self.run,
                    is_done=is_done,
                    updated_ms=now_ms(),
                )
            ]
        )

    def _report(self, phase: str, done: int, of_all: int) -> None:
        """Records the progress of the refresh, unless another owner has replaced this process."""
        if self.context.is_replaced():
            return  # The next owner reports its own progress.
        facts = self.context.metastore.jobs
        known = facts.backfills().get(self.spec.job)
        now = now_ms()
        goes_on = known is not None and not known.is_over
        if known is None or (known.phase, known.done, known.total) != (phase, done, of_all):
            log_event("refresh", job=self.spec.job, phase=phase, done=done, of=of_all)
            facts.write_backfill(
                BackfillProgress(
                    job=self.spec.job,
                    object_id=self.spec.table_id,
                    generation=self.spec.generation,
                    phase=phase,
                    done=done,
                    total=of_all,
                    started_ms=known.started_ms if known is not None and goes_on else now,
                    updated_ms=now,
                    is_over=phase == DONE,
                )
            )


_TELLING = (PySparkException, Py4JError, DeltaError, OSError, SqlError, StalledError)
"""If a refresh fails with one of these exceptions, the reason of the failure is only the exception's message. For all
other exceptions, the reason also contains the exception's type."""


def _reason(error: Exception, options: Mapping[str, str]) -> str:
    """An exception's message in one line, without the secrets in ``options``."""
    said = cause_line(str(error))
    said = said.removeprefix("[USER_RAISED_EXCEPTION] ").removesuffix(" SQLSTATE: P0001")
    reason = said if said and isinstance(error, _TELLING) else f"{type(error).__name__}: {said}".rstrip(": ")
    return without_secrets(reason, options)
