"""Makes the running jobs match the catalog: stops, starts and restarts jobs. Also reports the statuses of the jobs.

Each job has a :class:`JobSlot` in this process. At most one action (such as a start or a stop) on a job runs at a time.
The actions of different jobs do not wait for each other: an upstream that does not respond delays only its own job.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, assert_never

from rw_sql.errors import SqlError
from rw_sql.metastore.facts import JobStatus, QuiesceLock
from rw_sql.model.job_specs import IngestSpec, JobSpec, RefreshSpec, SinkSpec, ViewSpec
from rw_sql.runtime.control.arrivals import MOVING, Arrivals
from rw_sql.runtime.control.heartbeats import Beats
from rw_sql.runtime.control.job_slot import JobSlot, StatusReports, doubled, due_slots
from rw_sql.runtime.control.quiesce import QUIESCED, quiesced_jobs
from rw_sql.runtime.control.rest_scheduler import Rests
from rw_sql.runtime.control.retries import FIRST_RETRY_SECONDS, Trouble
from rw_sql.runtime.delta.job_output import FencedError
from rw_sql.runtime.ingest.job import Ingest
from rw_sql.runtime.ingest.restart_reasons import goes_on_with_more, was_discovered
from rw_sql.runtime.ingest.stopped_reader import StoppedReader, end_for_good
from rw_sql.runtime.jobs.changed_jobs import desired_jobs_of_group
from rw_sql.runtime.jobs.statuses import STARTING
from rw_sql.runtime.refresh.job import RefreshJob
from rw_sql.runtime.rewind.scheduler import Rewinding
from rw_sql.runtime.sinks.job import Sink
from rw_sql.runtime.spark.work_progress import WorkerThread
from rw_sql.runtime.support.background import run_in_background
from rw_sql.runtime.support.failures import Failure, StalledError, cause_line, log_error
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.views.job import View

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.ingest.warm_start import WarmStart
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.jobs.job import Job

logger = logging.getLogger(__name__)

WITHHELD = "waits for a rewind point or a REWIND"
"""The reason that SHOW JOBS shows for a job that must not run until a rewind point is taken or a REWIND is done."""

_LOOK_SECONDS = 0.2

STOPPED_READER_SECONDS = 60.0
"""The number of seconds for which the resources of a stopped reader are kept. If the reader starts again within this
time, it uses these resources (a warm start). A move of a source usually takes less time than this limit, so its reader
starts warm, and the move is faster."""

MOST_STARTS = 16
"""The maximum number of queued jobs that are started at the same time. Jobs are queued after the process has become the
owner, and when many sources at rest receive records at once. Retries, and jobs that a statement starts, are not queued.
The limit also applies to the jobs that are stopped at the same time when the owner ends.
"""


class Reconciler:
    """The jobs of one resource group of a warehouse, in the process that owns the group."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._slots: dict[str, JobSlot] = {}
        self._wanted_epoch = -1
        self._quiesced: dict[str, QuiesceLock] = {}
        self._arrivals = Arrivals(context)
        self._kept: frozenset[str] = frozenset()
        self._desired: dict[str, JobSpec] = {}
        self._desired_at: Snapshot | None = None
        self._reports = StatusReports(context)
        self._changed = threading.Event()
        self._rewinding = Rewinding(context, self.wake)
        self._rests = Rests(context, self.wake)
        # Stopped readers kept for a warm start, by job.
        self._stopped_readers: dict[str, StoppedReader] = {}
        self._beats = Beats()
        self._turn = threading.Lock()
        # The lock that a thread holds while it changes the desired spec of a job, and while it schedules a retry.
        self._deciding = threading.Lock()
        self._is_closed = False
        # The lock that a thread holds while it stops all jobs.
        self._ending = threading.Lock()
        # Desired jobs that wait until a rewind point is made or a REWIND is carried out.
        self._owed: frozenset[str] = frozenset()
        self.applied_epoch = -1
        """The last epoch at which every job matched the catalog; -1 if there is none."""
        self.let_go_epoch = -1
        """The last epoch at which this process had stopped all jobs that the catalog does not require in its resource
        group. None of these jobs can commit any more."""
        self.acted_epoch = -1
        """The last epoch for which this process has begun to change the jobs."""
        self.pending: frozenset[str] = frozenset()
        """The jobs that do not match ``acted_epoch`` yet. The statuses of all other jobs have been reported."""

    def reconcile(self) -> None:
        """Makes one pass over all jobs, which starts the due actions without waiting for their end. If every job
        matches the catalog, updates ``applied_epoch``.

        Does nothing after :meth:`stop_all`.
        """
        with self._turn:
            if not self._is_closed:
                self._pass()

    def _pass(self) -> None:
        snapshot = self._context.metastore.snapshot()
        group = self._context.group
        quiesced = quiesced_jobs(self._context, snapshot, group)
        self._desired = desired_jobs_of_group(self._desired_at, self._desired, snapshot, group)
        self._desired_at = snapshot
        wanted = self._desired
        busy = self._busy()
        coming = self._arrivals.look(snapshot)
        withheld = self._rewinding.withheld(snapshot, dict.fromkeys(coming) | busy)
        stopped_by_statements = (withheld | quiesced.keys()) & wanted.keys() - coming
        withheld |= doubled(wanted, busy) | (coming & wanted.keys())
        kept = withheld | quiesced.keys()
        if snapshot.epoch != self._wanted_epoch or kept != self._kept:
            self._want({job: spec for job, spec in wanted.items() if job not in kept})
            for job in stopped_by_statements:
                # The slot has no running job. The slot serves to report the current reason, because a killed owner may
                # have stored another reason.
                self._slots.setdefault(job, JobSlot(job_id=job, object_id=wanted[job].object_id))
            self._wanted_epoch, self._kept = snapshot.epoch, frozenset(kept)
            self._owed = withheld & wanted.keys()
            self._prepare(self._owed - self._rewinding.owed - coming, wanted)
        self._quiesced = {job: locks[0] for job, locks in quiesced.items()}
        now = time.monotonic()
        for slot in self._rests.look(self._slots, now, self._arrivals.elsewhere):
            slot.going_to_rest = slot.wanted
            slot.work = run_in_background(partial(self._rest, slot), slot.job_id)
        self._drop_stopped_readers(now)
        self._reports.forget_replaced(self._slots)
        # A job at rest with a reported status needs no work, so that even a thousand such jobs cost no time here.
        moving = [slot for slot in self._slots.values() if not slot.is_settled]
        for slot in due_slots(moving, now, MOST_STARTS):
            slot.work_since = now
            slot.work = run_in_background(partial(self._advance, slot), slot.job_id)
        # The pending jobs are computed before the statuses, so that the statuses include every job that counts as
        # applied.
        pending = frozenset(slot.job_id for slot in moving if not slot.matches_catalog)
        pending |= self._owed | self._rewinding.owed | coming
        has_let_go = not (self._rewinding.is_working or any(map(self._lingers, moving)))
        # Waiting statements of this process continue while the statuses are written. Readers of the statuses wait.
        with self._context.metastore.jobs.saying:
            fresh = self._reports.fresh(moving, self._slots, self._why_stopped)
            fresh += self._renewed(now, {status.job for status in fresh})
            self.acted_epoch, self.pending = self._wanted_epoch, pending
            if not pending:
                self.applied_epoch = self._wanted_epoch
            self._context.applied.tell(self.acted_epoch, self.pending)
            self._reports.write(fresh, self._slots)
        # This step follows the write, because STOPPED must not replace the status that a moved job's new owner reports.
        if has_let_go:
            self.let_go_epoch = self._wanted_epoch
        for job_id in [slot.job_id for slot in moving if slot.is_over]:
            told = self._reports.known.get(job_id)
            if told is not None and told.state == "STOPPED":
                # The job's next status must always count as new, even if it equals an earlier status.
                del self._slots[job_id], self._reports.known[job_id]
        waiting = {lock for job, locks in quiesced.items() if job in self._slots or job in coming for lock in locks}
        all_locks = dict.fromkeys(lock for locks in quiesced.values() for lock in locks)
        stopped = [lock for lock in all_locks if lock not in waiting and not lock.is_taken]
        # After a takeover, a reader of the next owner may run.
        if stopped and not self._context.is_replaced():
            self._context.metastore.jobs.acknowledge_locks(stopped)

    def _prepare(self, jobs: Collection[str], wanted: Mapping[str, JobSpec]) -> None:
        """Prepares warm starts of the readers in ``jobs``, which wait for a rewind point or a REWIND. Discards prepared
        warm starts of jobs that the catalog no longer requires."""
        for job, stopped in list(self._stopped_readers.items()):
            spec = wanted.get(job)
            if spec is None and stopped.prepared is not None:
                run_in_background(stopped.abandon, f"{job}-abandon")
            elif job in jobs and isinstance(spec, IngestSpec):
                stopped.prepare(self._context, spec)

    def _busy(self) -> dict[str, JobSpec | None]:
        """The jobs that run, or are being started or stopped. Maps each job to the spec with which it runs; None while
        it is being started or stopped."""
        return {
            job_id: slot.running.spec if slot.running is not None and not slot.is_working else None
            for job_id, slot in self._slots.items()
            if slot.running is not None or slot.is_working
        }

    def _want(self, wanted: dict[str, JobSpec]) -> None:
        is_first = self._wanted_epoch < 0
        for job_id, spec in wanted.items():
            slot = self._slots.get(job_id)
            slot = slot or self._slots.setdefault(job_id, JobSlot(job_id=job_id, object_id=spec.object_id))
            with self._deciding:
                if slot.wanted != spec:
                    slot.is_settled, slot.is_queued = False, is_first
                    if slot.wanted is None or not goes_on_with_more(slot.wanted, spec):
                        slot.trouble = Trouble()
                    slot.wanted = spec
                    slot.retry_at, slot.delay, slot.is_final = 0.0, FIRST_RETRY_SECONDS, False
        for job_id, slot in self._slots.items():
            if job_id not in wanted:
                with self._deciding:
                    slot.wanted, slot.is_settled, slot.is_queued = None, False, False
        if is_first:
            self._rests.recall(self._slots)

    def _drop_stopped_readers(self, now: float) -> None:
        """Discards the stopped readers that have been kept for a warm start for more than
        ``STOPPED_READER_SECONDS``."""
        for job_id, stopped in list(self._stopped_readers.items()):
            if stopped.query.done() and now - stopped.since > STOPPED_READER_SECONDS:
                with self._deciding:
                    if self._stopped_readers.get(job_id) is stopped:
                        del self._stopped_readers[job_id]
                        run_in_background(stopped.close, f"{job_id}-close")

    def _rest(self, slot: JobSlot) -> None:
        """Stops a job if it has read all its input. The stopped job is at rest, and still counts as running."""
        try:
            idle, running = self._rests.state_of(slot), slot.running
            if idle is not None and running is not None:
                fault("rest.before_stop")
                self._try(slot, running.stop)
                fault("rest.after_stop")
                self._rests.begin(slot, self._rests.after_stop(slot, idle))
                slot.running = None
        finally:
            slot.going_to_rest = None
            self._changed.set()

    def _lingers(self, slot: JobSlot) -> bool:
        """True if a job may still commit although the catalog no longer requires it."""
        stopped = self._stopped_readers.get(slot.job_id)
        is_busy = slot.running is not None or slot.is_working or (stopped is not None and not stopped.query.done())
        return is_busy and slot.job_id not in self._desired

    def wait_changed(self, seconds: float) -> bool:
        """Waits at most ``seconds`` for the end of an action on a job; returns True if an action has ended."""
        has_changed = self._changed.wait(seconds)
        if has_changed:
            self._changed.clear()
        return has_changed

    def wake(self) -> None:
        """Makes the call of :meth:`wait_changed` in progress, or otherwise the next call, return True."""
        self._changed.set()

    def _advance(self, slot: JobSlot) -> None:
        slot.worker = WorkerThread.current()
        try:
            self._rests.end(slot)
            self._replace(slot)
        finally:
            slot.worker = None
            slot.leave_rest()
            slot.is_queued = False
            self._changed.set()

    def _replace(self, slot: JobSlot) -> None:
        running, wanted = slot.running, slot.wanted
        if running is not None:
            if isinstance(running, Ingest):
                self._await_batch(slot, running)
                wanted = slot.wanted
            elif isinstance(running, View) and isinstance(wanted, ViewSpec) and running.begin_feed(wanted):
                return
            failures: list[Failure | None] = []
            self._try(slot, lambda: failures.append(running.failure()))
            self._try(slot, partial(self._stop, slot, running, is_sound=failures == [None]))
            slot.running = None
            if failures and (failure := failures[0]) is not None and running.spec == wanted:
                slot.note_failed_run(failure.reason)
                if self._hold_back(slot, running.spec, failure):
                    return
                wanted = slot.wanted
        if wanted is None:
            slot.reason = None
            return
        fault("reconciler.before_start")
        spec = wanted

        def start() -> None:
            if self._context.is_replaced():
                # The claim of a run would fence the run of the next owner.
                raise FencedError("another process has taken over the jobs of this warehouse")
            before = prepared = None
            with self._deciding:
                stopped = self._stopped_readers.pop(slot.job_id, None)
            if stopped is not None:
                wait([stopped.query])  # Two queries cannot have the same name.
                if stopped.query.exception() is None:
                    before, prepared = stopped.reader, stopped.take_prepared()
                else:
                    stopped.discard()
            slot.started_at = time.monotonic()
            slot.running = _start(self._context, spec, before, prepared)
            slot.reason = None

        problem = self._try(slot, start)
        if problem is None:
            fault("reconciler.after_start")
        elif not self._hold_back(slot, spec, problem):
            slot.reason = None

    def _stop(self, slot: JobSlot, running: Job, *, is_sound: bool) -> None:
        """Stops a job. If the job is a source's reader and the source still exists, its query may end in the
        background. If ``is_sound`` is True, the run has not failed, and the stopped reader is kept for a warm start."""
        if not isinstance(running, Ingest) or self._context.metastore.snapshot().get(slot.object_id) is None:
            running.stop()
            return
        end = running.stop_async()
        if end is not None:
            query = run_in_background(end if is_sound else partial(end_for_good, running, end), f"{slot.job_id}-end")
            reader = running if is_sound else None
            self._stopped_readers[slot.job_id] = StoppedReader(query=query, reader=reader, since=time.monotonic())

    def _await_batch(self, slot: JobSlot, running: Ingest) -> None:
        """If a reader must restart only because of newly discovered splits, waits until the reader has finished its
        batch, because an immediate restart would discard the batch. If new splits then appeared more often than batches
        end, no batch would ever finish."""
        try:
            while not self._is_closed and running.failure() is None:
                wanted = slot.wanted
                is_known = wanted is not None and wanted == slot.awaiting
                if not is_known and not was_discovered(self._context, running.spec, wanted):
                    return
                slot.awaiting = wanted
                if running.streaming.wait_idle(_LOOK_SECONDS):
                    return
        finally:
            slot.awaiting = None

    def _try(self, slot: JobSlot, act: Callable[[], None]) -> Failure | None:
        """Runs one action on a job. Returns the failure of the action; None if the action succeeded."""
        from deltalake.exceptions import DeltaError
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            act()
        except StalledError as error:
            return error.failure
        except SqlError as error:
            return Failure(reason=error.message)
        except (PySparkException, Py4JError, FencedError, DeltaError, OSError) as error:
            slot.last_error = cause_line(str(error)) or type(error).__name__
            if not self._context.explains(error):
                logger.warning("%s: %s", slot.job_id, slot.last_error)
            return Failure(reason=slot.last_error)
        except Exception as error:  # noqa: BLE001 - log_error logs the error
            # Connectors, Arrow and Spark may raise any exception here. The reason is reported, the job is retried
            # later, and the other jobs continue. Without this handler, the job would be retried in a loop without
            # pauses.
            reason = f"{type(error).__name__}: {cause_line(str(error))}"
            if not self._context.explains(error):
                log_error(logger, f"{slot.job_id}: {reason}", error if slot.last_error != reason else None)
            slot.last_error = reason
            return Failure(reason=reason)
        return None

    def _hold_back(self, slot: JobSlot, spec: JobSpec, problem: Failure) -> bool:
        """Stores the problem of a job, and schedules a retry of ``spec`` unless the problem is final.

        If the desired spec is no longer ``spec``, the problem is irrelevant. In this case, changes nothing and returns
        False.
        """
        with self._deciding:
            if slot.wanted != spec:
                return False
            slot.back_off(problem.reason, is_lasting=problem.is_lasting)
            slot.is_final = problem.is_final
            return True

    def _renewed(self, now: float, told: Collection[str]) -> list[JobStatus]:
        """Returns the last reported statuses of the jobs that have made progress inside a long start or a long batch,
        but with the present time. Jobs in ``told`` are left out.

        Other processes recognize the progress of these jobs only by the new time.
        """
        running = {id_: slot.running for id_, slot in self._slots.items() if slot.running is not None}
        at, known = now_ms(), self._reports.known
        starting = {id_: worker for id_, slot in self._slots.items() if (worker := slot.worker) is not None}
        moved = [job for job in self._beats.of(running, starting, now) if job in known and job not in told]
        return [replace(known[job], updated_ms=at) for job in moved if known[job].state in ("RUNNING", STARTING)]

    def _why_stopped(self, slot: JobSlot) -> str | None:
        """The reason why this process keeps the slot's job stopped although the catalog requires the job; None if there
        is no such reason."""
        if slot.wanted is not None or slot.job_id not in self._kept:
            return None
        if slot.job_id in self._arrivals.waiting:
            return MOVING
        lock = self._quiesced.get(slot.job_id)
        return WITHHELD if lock is None else f"{QUIESCED} by process {lock.pid} on {lock.host.partition(' ')[0]}"

    def stop_all(self) -> None:
        """Stops all jobs of this process permanently. The catalog still requires the jobs, so the next owner will start
        them.

        After this method returns, no job of this process commits. If two threads call this method, both wait until the
        jobs have stopped.
        """
        with self._turn:
            self._is_closed = True
        with self._ending:
            self._rests.stop()
            self._rewinding.stop()
            wait([slot.work for slot in self._slots.values() if slot.work is not None])
            running = [slot for slot in self._slots.values() if slot.running is not None]
            # All jobs are stopped at the same time, because the batch in progress of each job has some time to end.
            for first in range(0, len(running), MOST_STARTS):
                some = running[first : first + MOST_STARTS]
                wait([run_in_background(partial(self._end, slot), f"{slot.job_id}-stop") for slot in some])
            readers = self._stopped_readers
            wait([stopped.query for stopped in readers.values()])
            wait([run_in_background(stopped.close, f"{job_id}-close") for job_id, stopped in readers.items()])

    def _end(self, slot: JobSlot) -> None:
        if slot.running is not None:
            self._try(slot, slot.running.stop)
            slot.running = None

    def report_stopped(self) -> None:
        """Reports that the jobs are stopped. Must be called after :meth:`stop_all`, and only while this process has the
        lease, because the statuses would replace those of another owner."""
        self._rests.note_at_stop(self._slots)
        self._context.metastore.jobs.write_job_status(
            [
                JobStatus(job=slot.job_id, object_id=slot.object_id, state="STOPPED", updated_ms=now_ms())
                for slot in self._slots.values()
            ]
        )

    def stall(self, spec: JobSpec, error: StalledError) -> None:
        """Stops a job that runs or is at rest, because a check of its upstream has found a reason. The job is retried
        unless the reason is final.

        ``spec`` is the spec to which the reason applies. If the desired spec is another one now, the job starts with
        the new spec.
        """
        slot = self._slots.get(spec.job)
        if slot is None or (slot.running is None and slot.idle is None):
            return

        def work() -> None:
            self._rests.end(slot)
            slot.leave_rest()
            running, slot.running = slot.running, None
            if running is not None:
                self._try(slot, running.stop)
                if not error.is_final:
                    slot.trouble.note_end(error.reason, slot.started_at)
            self._hold_back(slot, spec, error.failure)
            self._changed.set()

        with self._turn:
            if not self._is_closed and not slot.is_working:
                slot.work = run_in_background(work, spec.job)

    def take_changed(self) -> frozenset[int]:
        """The sources at rest whose splits may have changed since the last call."""
        return self._rests.take_changed()

    def wants_discovery(self) -> list[int]:
        """The sources that discovery must check: those with a reader that runs or waits for splits. The watcher checks
        the sources at rest."""
        found: dict[int, None] = {}
        for slot in self._slots.values():
            if slot.is_final or slot.is_settled:
                continue
            if isinstance(slot.wanted, IngestSpec):
                found[slot.object_id] = None
            elif isinstance(slot.wanted, ViewSpec):
                found |= dict.fromkeys(reader.source_id for reader in slot.wanted.readers)
        return list(found)


def _start(context: Context, spec: JobSpec, before: Ingest | None = None, prepared: WarmStart | None = None) -> Job:
    match spec:
        case IngestSpec():
            return Ingest.start(context, spec, before, prepared)
        case ViewSpec():
            return View.start(context, spec)
        case SinkSpec():
            return Sink.start(context, spec)
        case RefreshSpec():
            return RefreshJob.start(context, spec)
        case _:
            assert_never(spec)
