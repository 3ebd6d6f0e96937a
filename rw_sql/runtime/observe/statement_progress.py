"""Describes the jobs for which a running statement waits, with the phase and the row count of each job. Status lines,
notices and errors show these descriptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rw_sql.errors import SqlError
from rw_sql.model.job_ids import job_object, rebuild_job
from rw_sql.runtime.jobs.groups import groups_of_jobs
from rw_sql.runtime.jobs.lease import resume_command, suspended_pid
from rw_sql.runtime.jobs.silent_owners import silence_of
from rw_sql.runtime.jobs.statuses import STARTING, present_statuses
from rw_sql.runtime.jobs.unfinished import unfinished_backfills
from rw_sql.runtime.spark.interrupts import running_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import BackfillProgress, JobStatus
    from rw_sql.runtime.jobs.context import Context

_MOST_SAID = 5
_NONE: frozenset[str] = frozenset()
_SETTLED = frozenset({"RUNNING", "PAUSED", "IDLE", "STOPPED"})


@dataclass(slots=True)
class Waiting:
    """The condition and the jobs for which the running statement of a session waits.

    The statement's thread updates this object at almost no cost. A status line reads this object from another thread.
    ``what`` describes the condition; it is empty if the statement waits for nothing. ``jobs`` are the ids of the jobs;
    None for all jobs. ``left`` returns a description of the remaining work.
    """

    what: str = ""
    jobs: frozenset[str] | None = _NONE
    left: Callable[[], str] | None = None

    def begin(self, what: str, jobs: Collection[str] | None = (), left: Callable[[], str] | None = None) -> None:
        """Records the condition for which the statement waits from now on. ``what`` describes the condition. ``jobs``
        are the ids of the jobs; None for all jobs. ``left`` is a function that returns a description of the remaining
        work."""
        self.what = what
        self.jobs = None if jobs is None else frozenset(jobs)
        self.left = left

    def end(self) -> None:
        """Records that the statement no longer waits for any job."""
        self.begin("")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPhase:
    """The phase of one job. The fields are the name of the job's object, the job's current activity and, if known, the
    number of finished rows or offsets and their total number."""

    job: str
    name: str
    phase: str
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        said = f"{self.name} ({self.job}): {self.phase}"
        return f"{said}, {self.done:,} of {self.total:,} rows" if self.total else said


def job_phases(context: Context, jobs: Collection[str] | None) -> tuple[JobPhase, ...]:
    """Returns the phases of ``jobs``. If ``jobs`` is None, returns the phases of the jobs with an unfinished backfill
    or refresh, of the rebuilds, and of the jobs that are starting, stopping or stalled."""
    snapshot = context.metastore.snapshot()
    statuses = present_statuses(context)
    making = unfinished_backfills(context.metastore, snapshot)
    if jobs is None:
        unsettled = (job for job, status in statuses.items() if status.state not in _SETTLED)
        jobs = dict.fromkeys([*making, *map(rebuild_job, snapshot.all("rebuild")), *unsettled])
    return tuple(_phase(snapshot, job, statuses.get(job), making.get(job)) for job in sorted(jobs))


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementProgress:
    """The activity of a running statement, and the phases of the jobs for which the statement waits."""

    what: str
    jobs: tuple[JobPhase, ...] = ()


def progress_of(context: Context, waiting: Waiting) -> StatementProgress:
    """The progress of the running statement. Values that cannot be read at the moment are left out."""
    what, jobs, left = waiting.what, waiting.jobs, waiting.left
    try:
        if what:
            return StatementProgress(
                what=what if left is None else f"{what}: {left()}",
                jobs=job_phases(context, jobs) if jobs != _NONE else (),
            )
        done, known = running_tasks()
        return StatementProgress(what=f"Spark runs it, {done} of {known} tasks done" if known else "Spark plans it")
    except (SqlError, OSError, DeltaError, Py4JError, PySparkException):
        return StatementProgress(what=what or "Spark runs it")


def _phase(snapshot: Snapshot, job: str, status: JobStatus | None, making: BackfillProgress | None) -> JobPhase:
    state = STARTING if status is None else status.state
    if status is not None and (status.state == "STALLED" or (status.state == "STOPPED" and status.reason)):
        state = f"{status.state}: {status.reason}"
    elif making is not None:
        state = making.phase
    record = snapshot.get(job_object(job))
    return JobPhase(
        job=job,
        name=job if record is None else record.name,
        phase=state,
        done=0 if making is None else making.done,
        total=0 if making is None else making.total,
    )


def what_goes_on(context: Context, jobs: Collection[str] | None) -> str | None:
    """The text for a wait that has timed out. The text states that the jobs ``jobs`` (all jobs if ``jobs`` is None)
    continue, and contains the phases of up to five of these jobs. If the owner is suspended or writes nothing, the text
    states only this fact.

    The result is None if no process runs the jobs.
    """
    groups = groups_of_jobs(jobs or (), context.metastore.snapshot())
    leases = [lease for group, lease in context.metastore.jobs.leases().items() if not groups or group in groups]
    if not any(map(context.has_owner, leases)):
        return None
    for lease in leases:
        if (pid := suspended_pid(lease)) is not None:
            return f"process {pid}, which runs the jobs, is suspended: {resume_command(lease)} resumes it"
    silences = (silence_of(context, lease) for lease in leases if context.has_owner(lease))
    if (silence := next(filter(None, silences), None)) is not None:
        return f"the jobs stand still: {silence.told}"
    phases = job_phases(context, present_statuses(context) if jobs is None else jobs)
    phases = tuple(sorted(phases, key=lambda phase: phase.phase in _SETTLED))
    said = [str(phase) for phase in phases[:_MOST_SAID]]
    if len(phases) > _MOST_SAID:
        said.append(f"{len(phases) - _MOST_SAID} more")
    return f"the jobs continue: {'; '.join(said)}" if said else "the jobs continue"
