"""Refuses a statement that starts jobs in a resource group that has no owner."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rw_sql.errors import OWNER_MISSING, SqlError
from rw_sql.metastore.records import DEFAULT_GROUP, PutObject
from rw_sql.model.job_ids import job_object
from rw_sql.runtime.jobs.groups import doubtful_groups, owned_groups
from rw_sql.runtime.jobs.lease import serve_command

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.result.plan import Plan
    from rw_sql.runtime.jobs.context import Context


_LOOK_SECONDS = 0.2


def require_owners(context: Context, snapshot: Snapshot, plan: Plan) -> None:
    """Raises SqlError OWNER_MISSING if a plan starts a job, creates an object, or moves an object, and the job or
    object is then in a group without an owner. The error's hint is the command that starts an owner.

    The default group needs no owner, because users often create objects before a process runs the jobs. Statements that
    only stop jobs, or that move an object out of a group without an owner, are allowed. If an owner's last heartbeat
    seems old, the function waits up to LEASE_SECONDS for a new heartbeat, because the clock of the owner's machine may
    be wrong.
    """
    if plan.operation is None:
        return
    put = {change.record.id: change.record for change in plan.operation.changes if isinstance(change, PutObject)}
    started = {job_object(step.subject) for step in plan.steps if step.action in ("StartJob", "RestartJob")}
    created = {id_ for id_ in put if snapshot.get(id_) is None}
    moved = {id_ for id_ in put if _group(put[id_]) != _group(snapshot.get(id_))}
    records = [put.get(id_, snapshot.get(id_)) for id_ in sorted(started | created | moved)]
    groups = {_group(record) for record in records} - {DEFAULT_GROUP}
    while groups and groups & doubtful_groups(context):
        time.sleep(_LOOK_SECONDS)
    missing = sorted(groups - owned_groups(context)) if groups else []
    if missing:
        raise SqlError(
            OWNER_MISSING,
            f"no process runs the jobs of resource group {missing[0]}: nothing was changed",
            span=plan.statement.span,
            hint=serve_command(context.warehouse.uri, missing[0]),
        )


def _group(record: object) -> str:
    return str(getattr(record, "resource_group", DEFAULT_GROUP))
