"""Determines which owners of resource groups have applied a statement, and which owners may still run a moved job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.model.job_ids import job_object
from rw_sql.model.resource_groups import group_of, jobs_by_group
from rw_sql.plan.ports.jobs import Owner
from rw_sql.runtime.jobs.lease import (
    LEASE_SECONDS,
    is_held,
    resume_command,
    serve_command,
    suspended_pid,
    takeover_command,
)
from rw_sql.runtime.jobs.silent_owners import silence_of
from rw_sql.runtime.support.processes import now_ms, this_machine

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import Lease
    from rw_sql.runtime.jobs.context import Context


def groups_of_jobs(jobs: Collection[str], *snapshots: Snapshot) -> frozenset[str]:
    """The groups to which the jobs ``jobs`` belong in at least one of ``snapshots``. If one of the snapshots is the
    catalog before a statement, the result includes the former group of a job that the statement drops or moves."""
    return frozenset(
        group_of(snapshot, job_object(job))
        for snapshot in snapshots
        for job in jobs
        if snapshot.get(job_object(job)) is not None
    )


def owned_groups(context: Context) -> frozenset[str]:
    """Returns the groups that have an owner. The owner of a group is the process that runs the jobs of the group."""
    own = {context.group} if context.owning.is_set() else set()
    leases = context.metastore.jobs.leases()
    return frozenset(own | {group for group, lease in leases.items() if context.has_owner(lease)})


def possibly_owned_groups(context: Context) -> frozenset[str]:
    """The groups that have an owner, and the groups that may have an owner. A group may have an owner if the group's
    last owner is on another machine, and the last heartbeat is old according to this machine's clock. The owner may
    still run, because the clock of the other machine may be wrong.

    A group is left out after this process has observed the group's lease for LEASE_SECONDS without a renewal.
    """
    owned, here = owned_groups(context), this_machine()
    others = {group: lease for group, lease in context.metastore.jobs.leases().items() if lease.host != here}
    return owned | {group for group, lease in others.items() if group not in owned and _may_run(context, lease)}


def doubtful_groups(context: Context) -> frozenset[str]:
    """Returns the groups for which it is not known yet whether they have an owner; see
    :func:`possibly_owned_groups`."""
    return possibly_owned_groups(context) - owned_groups(context)


def groups_in_use(context: Context, snapshot: Snapshot) -> tuple[str, ...]:
    """The groups that have jobs or an owner, sorted by name. If no group has jobs or an owner, the result is the group
    of this process.

    A group with neither jobs nor an owner is left out, even if it has objects or a former owner, because a group
    without jobs needs no owner.
    """
    used = jobs_by_group(snapshot).keys() | owned_groups(context)
    return tuple(sorted(used or {context.group}))


def unapplied(context: Context, epoch: int, *, without: str | None = None) -> Mapping[str, Lease]:
    """Returns, by group, the leases of the owners that have not applied ``epoch`` and may still run jobs as they were
    before that epoch.

    ``without`` is a group to leave out; None if no group is left out. The result omits a lease that another process
    could take, because the owner of such a lease has ended or, in an object store, is fenced.
    """
    return {
        group: lease
        for group, lease in context.metastore.jobs.leases().items()
        if group != without and lease.applied_epoch < epoch and _may_run(context, lease)
    }


def _may_run(context: Context, lease: Lease) -> bool:
    """True if the owner of a group may still run jobs.

    If the owner is on another machine, the lease renewals that this process observes decide. The stored time of the
    heartbeat does not decide, because this time comes from the other machine's clock.
    """
    at, is_here = now_ms(), lease.host == this_machine()
    if is_here or lease.is_released:
        return is_held(lease, is_local=context.warehouse.is_local, now_ms=at)
    return context.watch_of(lease.group).is_renewed(lease, at)


def owners_of(context: Context) -> dict[str, Owner]:
    """The last owner of each group that ever had an owner."""
    at = now_ms()
    return {group: _owner(context, lease, at) for group, lease in context.metastore.jobs.leases().items()}


def _owner(context: Context, lease: Lease, at_ms: int) -> Owner:
    state, pid, hint = "RUNNING", lease.python_pid, None
    if not (lease.owner == context.owner and context.owning.is_set()) and not context.has_owner(lease):
        state, hint = "NONE", serve_command(context.warehouse.uri, lease.group)
    elif (suspended := suspended_pid(lease)) is not None:
        state, pid, hint = (
            "SUSPENDED",
            suspended,
            f"{resume_command(lease)} resumes it; {takeover_command(lease, context.warehouse.uri)} ends it",
        )
    elif lease.heartbeat_ms + int(LEASE_SECONDS * 1000) < at_ms:
        state = "LATE"
    if hint is None and (silence := silence_of(context, lease, at_ms)) is not None:
        hint = silence.told
    return Owner(
        state=state,
        name=lease.owner,
        host=lease.host.partition(" ")[0],
        pid=pid,
        version=lease.version,
        since_ms=lease.taken_at_ms,
        heartbeat_ms=lease.heartbeat_ms,
        applied_epoch=lease.applied_epoch,
        hint=hint,
    )


def holding(context: Context, epoch: int) -> Mapping[str, Lease]:
    """Returns, by group, the leases of other owners that may still run moved jobs. A moved job is a job that the
    catalog of ``epoch`` no longer assigns to the owner's group.

    An owner stops its jobs without waiting for other owners. Therefore, two owners cannot block each other if jobs move
    in both directions between their groups.
    """
    return {
        group: lease
        for group, lease in context.metastore.jobs.leases().items()
        if group != context.group and lease.let_go < epoch and _may_run(context, lease)
    }


def least_applied(context: Context) -> int:
    """The last epoch that the owners of all groups have applied. If no group has an owner now, the last epoch that any
    former owner has applied; -1 if there was never an owner.

    An owner that has ended runs no job. Therefore, its epoch does not count while any group has an owner.
    """
    leases = context.metastore.jobs.leases()
    groups = owned_groups(context)
    owned = [lease for group, lease in leases.items() if group in groups]
    if owned:
        return min(lease.applied_epoch for lease in owned)
    return max((lease.applied_epoch for lease in leases.values()), default=-1)
