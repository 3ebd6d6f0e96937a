"""Brings the world to what the catalog wants: stops, starts and restarts jobs, and says what each is doing.

A job's state in this process is one :class:`JobSlot`. Work on one job never overlaps with itself; jobs do not wait for
each other, so an upstream that does not answer holds up nobody else.
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
from rw_sql.metastore.facts import JobStatus
from rw_sql.model.job_ids import ingest_fragment, view_job
from rw_sql.model.job_specs import IngestSpec, RefreshSpec, SinkSpec, ViewSpec, desired_jobs
from rw_sql.runtime.control.heartbeats import Beats
from rw_sql.runtime.control.job_slot import FIRST_RETRY_SECONDS, JobSlot, Trouble
from rw_sql.runtime.control.quiesce import held_jobs
from rw_sql.runtime.delta.job_output import FencedError
from rw_sql.runtime.ingest.job import Ingest
from rw_sql.runtime.ingest.split_discovery import goes_on_with_more, was_discovered
from rw_sql.runtime.ingest.stopped_reader import StoppedReader
from rw_sql.runtime.refresh.job import RefreshJob
from rw_sql.runtime.rewind.scheduler import Rewinding
from rw_sql.runtime.sinks.job import Sink
from rw_sql.runtime.support.background import run_in_background
from rw_sql.runtime.support.event_log import log_event
from rw_sql.runtime.support.failures import Failure, StalledError, cause_line
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.views.idle import REST_AFTER_SECONDS, IdleView
from rw_sql.runtime.views.job import View

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from rw_sql.model.job_specs import JobSpec
    from rw_sql.runtime.ingest.warm_start import WarmStart
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.jobs.job import Job

logger = logging.getLogger(__name__)

HELD = "held while a block is committed"
"""The reason of a reader that stands still for a COMMIT."""

WITHHELD = "stands still while a rewind point is made or a REWIND is carried out"
"""The reason of a job that waits for what is done between two runs."""

_LOOK_SECONDS = 0.2


class Reconciler:
    """The jobs of one warehouse in the process that owns it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._slots: dict[str, JobSlot] = {}
        self._wanted_epoch = -1
        self._held: frozenset[str] = frozenset()
        self._kept: frozenset[str] = frozenset()
        self._desired: dict[str, JobSpec] = {}
        self._desired_epoch = -1
        self._reported: dict[str, JobStatus] = {}
        self._changed = threading.Event()
        self._rewinding = Rewinding(context, self.wake)
        # What is left of stopped readers, by their jobs.
        self._endings: dict[str, StoppedReader] = {}
        self._beats = Beats()
        self._turn = threading.Lock()
        # Held while what is wanted of a job changes, and while it is decided to try it again later.
        self._deciding = threading.Lock()
        self._is_closed = False
        self._has_reported = False
        # Jobs that the catalog wants, and that stand still until a rewind point is made or a REWIND carried out.
        self._owed: frozenset[str] = frozenset()
        self.applied_epoch = -1
        """The newest epoch at which every job was as wanted."""
        self.acted_epoch = -1
        """The newest epoch that was acted on."""
        self.unsettled: frozenset[str] = frozenset()
        """The jobs that are not as ``acted_epoch`` wants them yet; what is in neither has been reported."""

    def reconcile(self) -> None:
        """One pass: never blocks on a job. After it, ``applied_epoch`` tells how far the world has come.

        Does nothing after :meth:`stop_all`.
        """
        with self._turn:
            if not self._is_closed:
                self._pass()

    def _pass(self) -> None:
        snapshot = self._context.metastore.snapshot()
        held = held_jobs(self._context, snapshot)
        if snapshot.epoch != self._desired_epoch:
            self._desired, self._desired_epoch = desired_jobs(snapshot), snapshot.epoch
        wanted = self._desired
        busy = self._busy()
        withheld = self._rewinding.withheld(snapshot, busy) | _doubled(wanted, busy)
        kept = withheld | held.keys()
        if snapshot.epoch != self._wanted_epoch or kept != self._kept:
            self._want({job: spec for job, spec in wanted.items() if job not in kept})
            self._wanted_epoch, self._held, self._kept = snapshot.epoch, frozenset(held), frozenset(kept)
            self._owed = withheld & wanted.keys()
            self._prepare(self._owed - self._rewinding.owed, wanted)
        now = time.monotonic()
        self._let_rest(now)
        self._let_go_of_readers(now)
        for slot in list(self._slots.values()):
            if slot.needs_work(now):
                slot.work = run_in_background(partial(self._advance, slot), slot.job_id)
        # Asked before the report is made: what counts as applied is reported.
        unsettled = frozenset(job_id for job_id, slot in self._slots.items() if not self._is_settled(slot))
        unsettled |= self._owed | self._rewinding.owed
        # Statements of this process that wait for it go on while it is written down; who asks waits for that.
        with self._context.metastore.runtime.saying:
            fresh = self._report()
            fresh += self._renewed(now, {status.job for status in fresh})
            self.acted_epoch, self.unsettled = self._wanted_epoch, unsettled
            if not unsettled:
                self.applied_epoch = self._wanted_epoch
            self._context.applied.tell(self.acted_epoch, self.unsettled)
            if fresh:
                self._context.metastore.runtime.write_job_status(fresh)
        for job_id in [job_id for job_id, slot in self._slots.items() if slot.is_over]:
            told = self._reported.get(job_id)
            if told is not None and told.state == "STOPPED":
                # What is said of it next is new: nothing that was said before is taken for it.
                del self._slots[job_id], self._reported[job_id]
        waiting = {hold for job, holds in held.items() if job in self._slots for hold in holds}
        all_holds = dict.fromkeys(hold for holds in held.values() for hold in holds)
        stopped = [hold for hold in all_holds if hold not in waiting and not hold.is_taken]
        if stopped:
            self._context.metastore.runtime.acknowledge_holds(stopped)

    def _prepare(self, jobs: Collection[str], wanted: Mapping[str, JobSpec]) -> None:
        """Lets readers that stand still for a rewind point get ready for what comes after it, and no others."""
        for job, ending in list(self._endings.items()):
            spec = wanted.get(job)
            if spec is None and ending.prepared is not None:
                run_in_background(ending.abandon, f"{job}-abandon")
            elif job in jobs and isinstance(spec, IngestSpec):
                ending.prepare(self._context, spec)

    def _busy(self) -> dict[str, JobSpec | None]:
        """The jobs that do not stand still, each with what runs of it."""
        return {
            job_id: slot.running.spec if slot.running is not None and not slot.is_working else None
            for job_id, slot in self._slots.items()
            if slot.running is not None or slot.is_working
        }

    def _want(self, wanted: dict[str, JobSpec]) -> None:
        for job_id, spec in wanted.items():
            slot = self._slots.setdefault(job_id, JobSlot(job_id=job_id, object_id=spec.object_id))
            with self._deciding:
                if slot.wanted != spec:
                    if slot.wanted is None or not goes_on_with_more(slot.wanted, spec):
                        slot.trouble = Trouble()
                    slot.wanted = spec
                    slot.retry_at, slot.delay, slot.is_final = 0.0, FIRST_RETRY_SECONDS, False
        for job_id, slot in self._slots.items():
            if job_id not in wanted:
                with self._deciding:
                    slot.wanted = None

    def _let_rest(self, now: float) -> None:
        """Ends the queries of views to which nothing comes for a while, and lets those begin to which something may."""
        for slot in self._slots.values():
            spec = slot.wanted
            if slot.is_working or not isinstance(spec, ViewSpec):
                continue
            is_quiet = self._is_quiet(spec)
            if slot.rest is not None:
                if not is_quiet or not slot.rest.holds(self._context):
                    slot.rest, slot.quiet_since = None, None
            elif not is_quiet or slot.running is None:
                slot.quiet_since = None
            elif slot.quiet_since is None:
                slot.quiet_since = now
            elif now - slot.quiet_since > REST_AFTER_SECONDS and slot.running.spec == spec:
                slot.quiet_since = now
                slot.work = run_in_background(partial(self._rest, slot, spec), slot.job_id)

    def _let_go_of_readers(self, now: float) -> None:
        """Forgets what stopped readers have, once it is likely that nobody moves their sources."""
        for job_id, ending in list(self._endings.items()):
            if ending.query.done() and now - ending.since > REST_AFTER_SECONDS:
                with self._deciding:
                    if self._endings.get(job_id) is ending:
                        del self._endings[job_id]
                        run_in_background(ending.close, f"{job_id}-close")

    def _is_quiet(self, spec: ViewSpec) -> bool:
        """Whether none of a view's inputs is being written: its source is not read, its view or table rests."""
        if spec.readers or not spec.inputs:
            return False
        for given in spec.inputs:
            job = ingest_fragment(given.id) if given.kind == "source" else view_job(given.id)
            slot = self._slots.get(job)
            if given.path or (slot is not None and (given.kind == "source" or slot.rest is None)):
                return False
            if slot is None and given.kind != "source":
                return False
        return True

    def _rest(self, slot: JobSlot, spec: ViewSpec) -> None:
        """Stops a view's query if it has read all there is; its job counts as running all the same."""
        try:
            running = slot.running
            rest = IdleView.of(self._context, spec, running)
            if rest is not None and running is not None:
                self._try(slot, running.stop)
                slot.rest, slot.running = rest, None
        finally:
            self._changed.set()

    def _is_settled(self, slot: JobSlot) -> bool:
        if slot.awaiting is not None and slot.awaiting == slot.wanted:
            return True  # it reads on; nobody asked for the splits that were found
        if slot.is_working:
            # Another try of a job that cannot run holds up nobody; but a job that is to stop has not until it has.
            is_retry = slot.running is None and slot.reason is not None and slot.delay > FIRST_RETRY_SECONDS
            return slot.wanted is not None and is_retry
        if slot.running is not None:
            return slot.wanted == slot.running.spec
        if slot.rest is not None:
            return slot.wanted == slot.rest.spec
        return slot.wanted is None or slot.reason is not None

    def wait_changed(self, seconds: float) -> bool:
        """Waits until some work on a job has ended, or a while; whether it has."""
        has_changed = self._changed.wait(seconds)
        if has_changed:
            self._changed.clear()
        return has_changed

    def wake(self) -> None:
        """Ends a :meth:`wait_changed`."""
        self._changed.set()

    def _advance(self, slot: JobSlot) -> None:
        try:
            self._replace(slot)
        finally:
            self._changed.set()

    def _replace(self, slot: JobSlot) -> None:
        running, wanted = slot.running, slot.wanted
        slot.rest = None
        if running is not None:
            if isinstance(running, Ingest):
                self._await_batch(slot, running)
                wanted = slot.wanted
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
            before = prepared = None
            with self._deciding:
                ending = self._endings.pop(slot.job_id, None)
            if ending is not None:
                wait([ending.query])  # two queries of one name cannot be
                if ending.query.exception() is None:
                    before, prepared = ending.reader, ending.take_prepared()
                ending.abandon()
            slot.started_at = time.monotonic()
            slot.running = _start(self._context, spec, before, prepared)
            slot.reason = None

        problem = self._try(slot, start)
        if problem is None:
            fault("reconciler.after_start")
        elif not self._hold_back(slot, spec, problem):
            slot.reason = None

    def _stop(self, slot: JobSlot, running: Job, *, is_sound: bool) -> None:
        """Stops a job. What is left of the query of a source's reader that is paused ends beside what comes next."""
        if not isinstance(running, Ingest) or self._context.metastore.snapshot().get(slot.object_id) is None:
            running.stop()
            return
        end = running.stop_async()
        if end is not None:
            query = run_in_background(end, f"{slot.job_id}-end")
            reader = running if is_sound else None
            self._endings[slot.job_id] = StoppedReader(query=query, reader=reader, since=time.monotonic())

    def _await_batch(self, slot: JobSlot, running: Ingest) -> None:
        """Lets a reader end its batch before it takes up splits that were found: it would begin it anew, and where new
        ones are found more often than a batch takes, never end it."""
        try:
            while not self._is_closed and running.failure() is None:
                wanted = slot.wanted
                is_known = wanted is not None and wanted == slot.awaiting
                if not is_known and not was_discovered(self._context, running.spec, wanted):
                    return
                slot.awaiting = wanted
                if running.gate.wait_idle(_LOOK_SECONDS):
                    return
        finally:
            slot.awaiting = None

    def _try(self, slot: JobSlot, act: Callable[[], None]) -> Failure | None:
        """Does one thing to a job; why it failed, if it did."""
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
            logger.warning("%s: %s", slot.job_id, slot.last_error)
            return Failure(reason=slot.last_error)
        except Exception as error:
            # A job's edge: whatever a connector, Arrow or Spark raises here, the job is tried again later, its reason
            # is told, and the other jobs go on. Unhandled, the job would be tried again at once and for ever.
            reason = f"{type(error).__name__}: {cause_line(str(error))}"
            logger.error("%s: %s", slot.job_id, reason, exc_info=error if slot.last_error != reason else None)
            slot.last_error = reason
            return Failure(reason=reason)
        return None

    def _hold_back(self, slot: JobSlot, spec: JobSpec, problem: Failure) -> bool:
        """Tries ``spec`` again later, or not at all where that is final.

        False where something else is wanted by now: what was found says nothing of that.
        """
        with self._deciding:
            if slot.wanted != spec:
                return False
            slot.back_off(problem.reason, is_lasting=problem.is_lasting)
            slot.is_final = problem.is_final
            return True

    def _report(self) -> list[JobStatus]:
        """What is new to say of the jobs."""
        at = now_ms()
        fresh = []
        for slot in self._slots.values():
            status = slot.status(self._why_stopped(slot))
            old = self._reported.get(slot.job_id)
            # What the last owner said of a job that is just being started does not hold any more.
            if slot.is_passing(status) and self._has_reported:
                continue
            if old is None or _told(old) != _told(status):
                fresh.append(replace(status, updated_ms=at))
                log_event("job", job=status.job, state=status.state, run=status.run, reason=status.reason)
                if status.state == "STALLED" and (old is None or old.state != "STALLED"):
                    self._context.figures.note_stall(status.job)
                self._reported[slot.job_id] = status
        facts = self._context.metastore.runtime
        if not self._has_reported:
            # What the last owner said of other jobs does not hold any more: it may have been killed.
            for job_id, told in facts.job_statuses().items():
                if job_id not in self._slots and told.state != "STOPPED":
                    fresh.append(replace(told, state="STOPPED", run=None, updated_ms=at))
            self._has_reported = True
        return fresh

    def _renewed(self, now: float, told: Collection[str]) -> list[JobStatus]:
        """The statuses of jobs that get on with a long batch, with a new time: to others that is all that is seen."""
        running = {id_: slot.running for id_, slot in self._slots.items() if slot.running is not None}
        at, known = now_ms(), self._reported
        moved = [job for job in self._beats.of(running, now) if job in known and job not in told]
        return [replace(known[job], updated_ms=at) for job in moved if known[job].state == "RUNNING"]

    def _why_stopped(self, slot: JobSlot) -> str | None:
        """Why a job stands still that the catalog wants."""
        if slot.wanted is not None or slot.job_id not in self._kept:
            return None
        return HELD if slot.job_id in self._held else WITHHELD

    def stop_all(self, *, is_owner: bool) -> None:
        """Stops every job of this process for good; the catalog still wants them, and the next owner starts them.

        When it returns nothing of them commits any more. Where another process owns them already, what it says of them
        stays.
        """
        with self._turn:
            self._is_closed = True
        self._rewinding.stop()
        for slot in self._slots.values():
            if slot.work is not None:
                wait([slot.work])
        for slot in self._slots.values():
            if slot.running is not None:
                self._try(slot, slot.running.stop)
                slot.running = None
        wait([ending.query for ending in self._endings.values()])
        wait([run_in_background(ending.close, f"{job_id}-close") for job_id, ending in self._endings.items()])
        if not is_owner:
            return
        self._context.metastore.runtime.write_job_status(
            [
                JobStatus(job=slot.job_id, object_id=slot.object_id, state="STOPPED", updated_ms=now_ms())
                for slot in self._slots.values()
            ]
        )

    def stall(self, spec: JobSpec, error: StalledError) -> None:
        """Stops a running job for a reason that was found outside of it; it is tried again unless that is final.

        ``spec`` is what the reason was found for: where a statement changed it meanwhile, the job just starts again.
        """
        slot = self._slots.get(spec.job)
        if slot is None or slot.running is None:
            return

        def work() -> None:
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

    def wants_discovery(self) -> list[int]:
        """The sources whose reader runs, or waits for its splits."""
        found: dict[int, None] = {}
        for slot in self._slots.values():
            if slot.is_final:
                continue
            if isinstance(slot.wanted, IngestSpec):
                found[slot.object_id] = None
            elif isinstance(slot.wanted, ViewSpec):
                found |= dict.fromkeys(reader.source_id for reader in slot.wanted.readers)
        return list(found)


def _doubled(wanted: Mapping[str, JobSpec], busy: Mapping[str, JobSpec | None]) -> frozenset[str]:
    """The jobs of views that another job still writes: the one that made them anew, before it lets them serve."""
    found = set()
    for job in busy:
        serving, _, generation = job.partition(".")
        spec = wanted.get(serving)
        if generation and isinstance(spec, ViewSpec) and spec.generation == int(generation):
            found.add(serving)
    return frozenset(found)


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


def _told(status: JobStatus) -> tuple[object, ...]:
    return (status.state, status.reason, status.last_error, status.run, status.restarts)
