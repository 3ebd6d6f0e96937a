"""Manages one job in the process that runs it: its desired spec, its running instance, its next retry and its stored
status."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rw_sql.metastore.facts import JobStatus
from rw_sql.metastore.job_store import StatusMark
from rw_sql.model.job_specs import IngestSpec, ViewSpec
from rw_sql.model.resource_groups import group_of
from rw_sql.runtime.control.retries import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, Trouble
from rw_sql.runtime.jobs.statuses import IDLE, RETRYING
from rw_sql.runtime.support.event_log import log_event
from rw_sql.runtime.support.processes import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from rw_sql.model.job_specs import JobSpec
    from rw_sql.runtime.control.rest_conditions import Idle
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.jobs.job import Job
    from rw_sql.runtime.spark.work_progress import WorkerThread

_PASSING_SECONDS = 0.3
_REPLACED_SECONDS = 10.0
"""The interval in seconds at which the owner checks whether another process has overwritten the statuses that the owner
has stored. In an object store, each check is a request. For a warehouse on a local path, this interval does not apply:
every pass makes the check."""

_LONG_RETRY_SECONDS = 1.0
"""If a retry of a failed start takes longer than this number of seconds, the job's status shows that the retry is in
progress. On an idle machine, most retries take less time."""


@dataclass(slots=True)
class JobSlot:
    """One job, with its desired spec, its running instance, and the time of its next retry.

    ``wanted`` is the desired spec; None if the job must not run. ``awaiting`` is the spec that the job adopts at the
    end of the batch in progress. ``idle`` is the job's state at rest; None if the job is not at rest. A job at rest
    counts as running, even while it is being woken (``is_woken``). ``going_to_rest`` is the job's spec while the job is
    being stopped in order to rest. ``problem`` is the reason why the upstream of a source at rest cannot be watched.
    ``behind`` is the known number of unread records. If ``is_queued`` is True, the start of the job may be delayed by
    the starts of other jobs. ``worker`` is the thread that starts or stops the job now; None if there is none. If
    ``is_settled`` is True, the job's status cannot change until the job is woken or the catalog changes.
    """

    job_id: str
    object_id: int
    wanted: JobSpec | None = None
    running: Job | None = None
    work: Future[None] | None = None
    work_since: float = 0.0
    worker: WorkerThread | None = None
    retry_at: float = 0.0
    delay: float = FIRST_RETRY_SECONDS
    sound_since: float | None = None
    is_final: bool = False
    restarts: int = 0
    reason: str | None = None
    last_error: str | None = None
    idle: Idle | None = None
    is_woken: bool = False
    going_to_rest: JobSpec | None = None
    is_settled: bool = False
    is_queued: bool = False
    behind: int = 0
    problem: str | None = None
    awaiting: JobSpec | None = None
    looked_at: float = 0.0
    passing_since: float | None = None
    started_at: float = 0.0
    trouble: Trouble = field(default_factory=Trouble)

    @property
    def is_working(self) -> bool:
        """True while a thread starts, stops or replaces the job's running instance."""
        return self.work is not None and not self.work.done()

    @property
    def is_over(self) -> bool:
        """True if the job is not desired, has no running instance, and is not being started or stopped."""
        return self.wanted is None and self.running is None and not self.is_working

    @property
    def is_at_rest(self) -> bool:
        """True if the job is at rest with the spec that the catalog requires, and nothing has woken it."""
        idle = self.idle
        if idle is None or self.is_woken or self.running is not None or self.is_working:
            return False
        return idle.spec == self.wanted

    @property
    def is_unchanged_by_rest(self) -> bool:
        """True if the job is at rest, is being stopped in order to rest, or is being woken, and has the spec that the
        catalog requires."""
        if self.going_to_rest is not None:
            return self.going_to_rest == self.wanted
        return self.idle is not None and self.running is None and self.idle.spec == self.wanted

    @property
    def matches_catalog(self) -> bool:
        """True if no statement has to wait for a start, stop or other change of this job."""
        if self.awaiting is not None and self.awaiting == self.wanted:
            return True  # The reader continues for now, because no statement waits for discovered splits.
        if self.wanted is not None and self.is_unchanged_by_rest:
            return True  # No statement waits for a job to rest or to wake.
        if self.is_working:
            # A statement does not wait for retries of a job that cannot start. But if a running job must stop, the
            # statement waits until the job has stopped.
            is_retry = self.running is None and self.reason is not None and self.delay > FIRST_RETRY_SECONDS
            return self.wanted is not None and is_retry
        if self.running is not None:
            return self.wanted == self.running.spec
        return self.wanted is None or self.reason is not None

    def needs_work(self, now: float) -> bool:
        """True if the job must be started, stopped or replaced, and this may be done at the time ``now``."""
        if self.is_working:
            return False
        if self.running is not None:
            return self.wanted != self.running.spec or self.running.failure() is not None
        if self.idle is not None:
            return self.is_woken or self.wanted != self.idle.spec
        return self.wanted is not None and not self.is_final and now >= self.retry_at

    def wake(self, behind: int = 0) -> None:
        """Marks a job at rest as woken. The next pass starts it. Has no effect on a job that is not at rest. ``behind``
        is the job's known number of unread records."""
        if self.idle is not None:
            self.is_woken, self.is_settled, self.problem = True, False, None
            self.behind = behind

    def leave_rest(self) -> None:
        """Deletes the job's state at rest."""
        self.idle, self.is_woken, self.is_settled, self.problem = None, False, False, None

    def back_off(self, reason: str, *, is_lasting: bool = False) -> None:
        """Schedules a retry with an increasing delay.

        Failed runs increase the delay even if discovery has since assigned new splits to the job.

        If ``is_lasting`` is True, a retry alone cannot remove the reason, and the delay is the maximum delay.
        """
        self.reason = reason
        self.sound_since = None
        now = self.trouble.delay_before_retry(self.delay, is_lasting=is_lasting)
        self.retry_at = time.monotonic() + now
        self.delay = min(now * 2, LAST_RETRY_SECONDS)

    def note_failed_run(self, reason: str) -> None:
        """Counts a run that ended by itself, without being stopped."""
        self.restarts += 1
        self.last_error = reason
        self.trouble.note_end(reason, self.started_at)

    def ease(self, now: float) -> None:
        """Forgets the earlier failures if the current run has lasted for :attr:`Trouble.seconds_to_recover`."""
        if self.sound_since is None:
            self.sound_since = now
        elif now - self.sound_since >= self.trouble.seconds_to_recover:
            self.delay = FIRST_RETRY_SECONDS
            self.trouble = Trouble()

    def status(self, why_stopped: str | None) -> JobStatus:
        """The job's current status. ``why_stopped`` is the reason why the job does not run although the catalog
        requires it; None if there is no such reason."""
        running, idle = self.running, self.idle
        run = running.run if running is not None else None
        reason = why_stopped or self.reason or getattr(running, "notice", None)
        if self.wanted is None:
            state = "STOPPING" if running is not None or self.is_working else "STOPPED"
        elif running is not None and self.going_to_rest == self.wanted:
            state = "RUNNING"
        elif idle is not None and running is None and idle.spec == self.wanted:
            state, run = ("RUNNING" if self.problem is None else "STALLED"), idle.run
            reason = self.problem or (reason if self.is_woken else _at_rest(idle))
        elif running is not None and running.failure() is None:
            state = "RUNNING"
            # Until the first batch has succeeded, the run may still fail, regardless of its duration.
            if not running.is_unproven:
                self.ease(time.monotonic())
            if self.trouble.is_flapping:
                # All programs that read statuses support STALLED, including older versions of this program.
                state, reason = "STALLED", self.trouble.told
        elif self.reason is not None:
            state = "STALLED"
            if self.trouble.is_flapping and self.reason == self.trouble.reason and not self.is_final:
                reason = self.trouble.told
            elif why_stopped is None and self._is_in_long_retry(time.monotonic()):
                reason = f"{self.reason}{RETRYING}"
        else:
            state = "STARTING"
        return JobStatus(
            job=self.job_id,
            object_id=self.object_id,
            state=state,
            reason=reason,
            last_error=self.last_error,
            run=run,
            restarts=self.restarts,
        )

    def _is_in_long_retry(self, now: float) -> bool:
        """True if the retry of a failed start has been in progress for at least ``_LONG_RETRY_SECONDS``."""
        if not self.is_working or self.running is not None:
            return False
        return now - self.work_since >= _LONG_RETRY_SECONDS

    def is_passing(self, status: JobStatus) -> bool:
        """True if ``status`` shows that the job is starting or stopping, and has done so for less than
        ``_PASSING_SECONDS``. Such a short transition is not reported."""
        if status.state not in ("STARTING", "STOPPING") or status.reason is not None:
            self.passing_since = None
            return False
        now = time.monotonic()
        if self.passing_since is None:
            self.passing_since = now
        return now - self.passing_since < _PASSING_SECONDS


def _at_rest(idle: Idle) -> str:
    notice = getattr(idle, "notice", None)
    return IDLE if notice is None else f"{IDLE}; {notice}"


def due_slots(slots: Collection[JobSlot], now: float, most: int) -> list[JobSlot]:
    """Returns the slots whose jobs must be started or stopped now. These are all due slots that are not queued, and due
    queued slots up to the limit ``most``. Queued slots that are already being started or stopped count towards the
    limit. Among queued slots, those with the most unread records come first.

    If the numbers of unread records are equal, as at the start of a process, sources come first. The query of a view
    polls its inputs until they have rows, and this polling takes CPU time from the jobs that are being started.
    """
    due = [slot for slot in slots if slot.needs_work(now)]
    waiting = (slot for slot in due if slot.is_queued)
    queued = sorted(waiting, key=lambda slot: (-slot.behind, not isinstance(slot.wanted, IngestSpec)))
    if not queued:
        return due
    starting = sum(1 for slot in slots if slot.is_queued and slot.is_working)
    return [slot for slot in due if not slot.is_queued] + queued[: max(0, most - starting)]


def doubled(wanted: Mapping[str, JobSpec], busy: Mapping[str, JobSpec | None]) -> frozenset[str]:
    """Returns the jobs of rebuilt views that must not start yet, because the job of the rebuild still runs. Both jobs
    write the same table."""
    found = set()
    for job in busy:
        serving, _, generation = job.partition(".")
        spec = wanted.get(serving)
        if generation and isinstance(spec, ViewSpec) and spec.generation == int(generation):
            found.add(serving)
    return frozenset(found)


def content_of(status: JobStatus) -> tuple[object, ...]:
    """Returns the fields of a status that can change, except its time. The caller compares them with the fields of an
    earlier status."""
    return (status.state, status.reason, status.last_error, status.run, status.restarts)


class StatusReports:
    """Stores the statuses of jobs. A job's status is stored again when it changes, and when another process has
    replaced the stored status."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._has_reported = False
        self._seen = StatusMark()
        self.known: dict[str, JobStatus] = {}
        """The last status that this process has stored for each job."""

    def forget_replaced(self, slots: Mapping[str, JobSlot]) -> None:
        """Removes from ``known`` the statuses that another process has replaced, so that :meth:`fresh` returns them
        again.

        An earlier owner that was suspended may write its statuses after this owner has written its own. This method
        ignores jobs that must not run at present: if a REWIND cannot be carried out, their stored statuses contain the
        reason.
        """
        with self._context.metastore.looks.at_most_every(_REPLACED_SECONDS):
            self._seen, stored = self._context.metastore.jobs.statuses_after(self._seen)
        for job_id, present in stored.items():
            slot, told = slots.get(job_id), self.known.get(job_id)
            if slot is None or slot.wanted is None or told is None:
                continue
            if present is None or content_of(present) != content_of(told):
                del self.known[job_id]
                slot.is_settled = False

    def fresh(
        self, moving: Iterable[JobSlot], slots: Mapping[str, JobSlot], why_stopped: Callable[[JobSlot], str | None]
    ) -> list[JobStatus]:
        """Returns the statuses to store: the changed statuses of the jobs in ``moving``. ``slots`` are the slots of all
        jobs. Until the first :meth:`write`, the result also contains the status STOPPED for each job of this group that
        only an earlier owner has reported."""
        at = now_ms()
        found = []
        for slot in moving:
            # ``is_settled`` is set before the status is computed, because every later change to the slot resets
            # ``is_settled``.
            slot.is_settled = slot.is_at_rest
            status = slot.status(why_stopped(slot))
            old = self.known.get(slot.job_id)
            # The first call reports starting jobs too, because the statuses that the last owner reported for them are
            # no longer valid.
            if slot.is_passing(status) and self._has_reported:
                continue
            if old is None or content_of(old) != content_of(status):
                found.append(replace(status, updated_ms=at))
        if not self._has_reported:
            # The statuses that the last owner reported for other jobs are no longer valid, because the owner may have
            # been killed.
            snapshot = self._context.metastore.snapshot()
            for job_id, told in self._context.metastore.jobs.job_statuses().items():
                is_own = group_of(snapshot, told.object_id) == self._context.group
                if is_own and job_id not in slots and told.state != "STOPPED":
                    found.append(replace(told, state="STOPPED", run=None, updated_ms=at))
        return found

    def write(self, statuses: Sequence[JobStatus], slots: Mapping[str, JobSlot]) -> None:
        """Stores statuses, unless another process has taken over the jobs. If the statuses could not be stored, the
        next call of :meth:`fresh` computes them again."""
        try:
            if statuses and self._context.is_replaced():
                self._unsettle(statuses, slots)
                return
            if statuses:
                self._context.metastore.jobs.write_job_status(statuses)
        except BaseException:
            self._unsettle(statuses, slots)
            raise
        self._has_reported = True
        for status in statuses:
            old = self.known.get(status.job)
            if status.job not in slots or (old is not None and content_of(old) == content_of(status)):
                continue
            self.known[status.job] = status
            log_event("job", job=status.job, state=status.state, run=status.run, reason=status.reason)
            if status.state == "STALLED" and (old is None or old.state != "STALLED"):
                self._context.figures.note_stall(status.job)

    @staticmethod
    def _unsettle(statuses: Sequence[JobStatus], slots: Mapping[str, JobSlot]) -> None:
        for slot in filter(None, (slots.get(status.job) for status in statuses)):
            slot.is_settled = False
