"""Determines which reported statuses of jobs are still valid, and extracts the values that indicate progress."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.metastore.facts import JobStatus
from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.model.job_ids import job_object
from rw_sql.model.job_specs import desired_jobs
from rw_sql.model.pauses import pauses_of
from rw_sql.model.resource_groups import group_of
from rw_sql.model.source_readers import readers_of
from rw_sql.runtime.jobs.groups import groups_of_jobs, owned_groups
from rw_sql.runtime.jobs.silent_owners import silence_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.runtime.jobs.context import Context

STALLED, STARTING, STOPPED = "STALLED", "STARTING", "STOPPED"

IDLE = "idle: nothing to read, the next record wakes it"
"""The reason that SHOW JOBS shows for a job at rest, or the beginning of that reason."""


def present_statuses(context: Context) -> dict[str, JobStatus]:
    """Maps the name of each job to the job's status. If a job's group has no owner, the job is STOPPED, regardless of
    its last reported status."""
    statuses = dict(context.metastore.jobs.job_statuses())
    owned, snapshot = owned_groups(context), context.metastore.snapshot()
    if context.metastore.jobs.leases().keys() <= {DEFAULT_GROUP} <= owned:
        # If only the default group exists, the jobs are not checked one by one, because there may be ten thousand jobs.
        return statuses
    return {
        job: status if group_of(snapshot, status.object_id) in owned else replace(status, state=STOPPED, run=None)
        for job, status in statuses.items()
    }


def jobs_at_rest(context: Context) -> frozenset[str]:
    """The jobs that the owner reports as being at rest. Such a job has read all records. As soon as the owner notices
    new records in the job's input, the owner wakes the job."""
    return frozenset(
        job
        for job, status in present_statuses(context).items()
        if status.state == "RUNNING" and (status.reason or "").startswith(IDLE)
    )


def as_taken_over(
    statuses: Iterable[JobStatus], snapshot: Snapshot, at_ms: int, group: str = DEFAULT_GROUP
) -> list[JobStatus]:
    """The statuses that a new owner of a group reports for the group's jobs before it has started them: STARTING for
    the jobs that the catalog requires, STOPPED for the jobs that it does not require. ``statuses`` are the last
    statuses of the previous owner. Jobs that are already STOPPED are left out, because this status stays valid."""
    wanted = desired_jobs(snapshot)
    return [
        replace(status, state=STARTING if status.job in wanted else STOPPED, reason=None, run=None, updated_ms=at_ms)
        for status in statuses
        if status.state != STOPPED and group_of(snapshot, status.object_id) == group
    ]


def shown_statuses(context: Context, snapshot: Snapshot, real: Snapshot | None = None) -> dict[str, JobStatus]:
    """Returns the status of each job, as shown by SHOW statements, the status page and the metrics.

    A job's status is the status that the owner reported, if this status is still valid. If the owner has reported no
    status for a job, the job's status is STARTING. A job whose group has no owner is STOPPED, and the running jobs of
    an owner that writes nothing are STALLED. Until the owner has applied a pause, the readers of the paused source are
    STOPPING, regardless of their reported status. If ``snapshot`` is the catalog that a block would produce, ``real``
    is the warehouse's present catalog; otherwise, ``real`` is None.
    """
    statuses = present_statuses(context)
    owned = owned_groups(context)
    if not owned:
        return statuses
    applied = {group: lease.applied_epoch for group, lease in context.metastore.jobs.leases().items()}
    if real is not None:
        # If the block pauses a source that is not paused yet, the source's reader stops before the block is committed.
        for source in snapshot.all("source"):
            if not pauses_of(snapshot, source.id) or pauses_of(real, source.id):
                continue
            for job in _jobs_of(snapshot, source):
                if job in statuses:
                    statuses[job] = replace(statuses[job], state=STOPPED, run=None)
    else:
        statuses = _with_unreported(statuses, snapshot, owned)
    present = snapshot if real is None else real
    for pause in present.all("pause"):
        # The pauses of the present catalog apply, because the owner cannot have applied a change to a pause that the
        # block has not committed yet.
        epoch = present.object_epoch(pause.id)
        if all(epoch <= applied.get(group, -1) for group in owned):
            continue
        for source in snapshot.all("source"):
            if pause.source_id not in (None, source.id):
                continue
            for job in _jobs_of(snapshot, source):
                status, group = statuses.get(job), group_of(snapshot, job_object(job))
                if group not in owned or epoch <= applied.get(group, -1):
                    continue
                is_own = group == context.group
                if status is not None and not (is_own and context.applied.has_applied(epoch, [job])):
                    statuses[job] = replace(status, state="STOPPING")
    return _without_outdated(context, statuses, snapshot)


def _without_outdated(context: Context, statuses: Mapping[str, JobStatus], snapshot: Snapshot) -> dict[str, JobStatus]:
    """Returns ``statuses``, but with STALLED for each running or starting job whose owner writes nothing. Such a job
    may have failed since its last status was stored. If nothing can be written to the warehouse, the job cannot commit
    either."""
    silent = {
        group: silence.reason
        for group, lease in context.metastore.jobs.leases().items()
        if context.has_owner(lease) and (silence := silence_of(context, lease)) is not None
    }
    if not silent:
        return dict(statuses)
    found = dict(statuses)
    for job, status in statuses.items():
        reason = silent.get(group_of(snapshot, status.object_id))
        if reason is not None and status.state in ("RUNNING", STARTING):
            found[job] = replace(status, state=STALLED, reason=reason)
    return found


def _jobs_of(snapshot: Snapshot, source: SourceRecord) -> tuple[str, ...]:
    return tuple(reader.job for reader in readers_of(snapshot, source))


def _with_unreported(
    statuses: Mapping[str, JobStatus], snapshot: Snapshot, owned: Collection[str]
) -> dict[str, JobStatus]:
    """Returns ``statuses`` and, in addition, the status STARTING for each required job that has no status and whose
    group has an owner."""
    missing = {job: id_ for job, id_ in _wanted(snapshot).items() if job not in statuses}
    started = {job: id_ for job, id_ in missing.items() if group_of(snapshot, id_) in owned}
    return {**statuses, **{job: JobStatus(job=job, object_id=id_, state=STARTING) for job, id_ in started.items()}}


# The jobs of the latest snapshot are cached, so that a caller that polls need not derive 10,000 jobs each time.
_newest: tuple[Snapshot, dict[str, int]] | None = None


def _wanted(snapshot: Snapshot) -> dict[str, int]:
    """The jobs that the catalog requires, with the ids of their objects."""
    global _newest
    known = _newest
    if known is None or known[0] is not snapshot:
        known = _newest = (snapshot, {job: spec.object_id for job, spec in desired_jobs(snapshot).items()})
    return known[1]


def run_mark(status: JobStatus | None) -> object:
    """A value, computed from a status, that changes when the job makes progress. Retries of a stalled job do not change
    this value.

    While Spark makes progress in a long batch of a job, the owner updates the job's status, which changes this value.
    """
    if status is None or status.state == STALLED:
        return None
    return status.state, status.run, status.updated_ms


def owner_marks(context: Context, jobs: Collection[str]) -> tuple[dict[str, object], dict[str, object]]:
    """Returns the values that a StallTimeout compares: marks of the owner's progress with ``jobs`` (with all jobs if
    ``jobs`` is empty), and the heartbeats."""
    facts = context.metastore.jobs
    statuses = facts.job_statuses()
    marks: dict[str, object] = {job: run_mark(statuses.get(job)) for job in jobs or statuses}
    groups = groups_of_jobs(jobs, context.metastore.snapshot())
    leases = {group: lease for group, lease in facts.leases().items() if not groups or group in groups}
    marks |= {f"the owner of {group}": lease.applied_epoch for group, lease in leases.items()}
    return marks, {f"heartbeat of {group}": (lease.owner, lease.heartbeat_ms) for group, lease in leases.items()}


RETRYING = "; retrying"
"""The suffix of a stalled job's reason while its next start is in progress."""

FLAPPING = "FLAPPING"
"""The first word of the reason of a job that repeatedly starts and fails."""
