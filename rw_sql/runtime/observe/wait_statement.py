"""Waits until backfills, rebuilds and refreshes are complete."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.errors import NOT_APPLIED_YET, SqlError
from rw_sql.metastore.records import MaterializedViewRecord, TableRecord
from rw_sql.model.job_ids import rebuild_job, view_job
from rw_sql.model.rebuilds import backfill_rate_limit
from rw_sql.model.refresh_states import progress_of, refresh_of
from rw_sql.model.resource_groups import group_of
from rw_sql.plan.result.plan import ResultRow
from rw_sql.plan.statements.view.rebuild import rebuild_groups
from rw_sql.plan.statements.view.set_rate_and_cancel import progress_text
from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.jobs.groups import owned_groups
from rw_sql.runtime.jobs.statuses import STALLED, run_mark
from rw_sql.runtime.jobs.unfinished import unfinished_backfills
from rw_sql.runtime.observe.stall_grace import StallGrace
from rw_sql.runtime.observe.statement_progress import what_goes_on
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.stall_timeout import StallTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import BackfillProgress, JobStatus, Lease
    from rw_sql.metastore.records import RebuildRecord
    from rw_sql.runtime.jobs.context import Context

_LOOK_SECONDS = 0.1
_OWN_LOOK_SECONDS = 1.0
_LEAST_SECONDS = 0.01
_RESTART_MS = 30_000
"""The time, in milliseconds, after the last heartbeat of a group's owner for which WAIT waits for another owner. The
process that runs the jobs may just be restarting."""

_WAIT = "WAIT waits for it"
_ANEW = "it is being rebuilt"


def wait_until_made(
    context: Context,
    jobs: Collection[str] | None,
    seconds: float,
    tell: Callable[[BackfillProgress], None] | None = None,
    *,
    gives_up: bool = False,
) -> tuple[ResultRow, ...]:
    """Waits until the views and tables with the jobs ``jobs`` are complete. If ``jobs`` is None, waits for all views
    and tables.

    Returns the incomplete objects, each with the reason.

    A rebuild is complete when queries read the new table. Does not wait for a view if the view's job is stalled, if no
    process runs the job, or if the view's ``backfill_rate_limit`` is 0. Stops waiting after ``seconds`` without any
    progress.

    ``tell`` is a function that each check calls with the progress of every unfinished view and table. If ``gives_up``
    is true, a timeout raises SqlError NOT_APPLIED_YET instead of being reported in the result. If ``gives_up`` is true,
    the function also waits, as FLUSH does, for a job that has just stalled, and waits up to half a minute for another
    owner if the jobs have just lost their owner.
    """
    changed = threading.Event()
    limit = StallTimeout(seconds)
    grace = StallGrace() if gives_up else None
    # Commits and jobs of this process set ``changed`` at once. Polling finds the commits and jobs of other processes.
    with context.metastore.telling(changed), context.metastore.jobs.telling(changed):
        while True:
            changed.clear()
            look = _look(context, jobs, limit, tell, grace)
            if look.late and gives_up:
                raise SqlError(
                    NOT_APPLIED_YET,
                    f"WAIT gave up: {limit.told}: {look.late}",
                    hint=f"wait longer: SET statement_timeout = '{limit.longer}'; WAIT; "
                    "SHOW JOBS shows what each job does",
                    detail=what_goes_on(context, jobs),
                )
            if not look.is_waiting:
                return tuple(look.notices)
            changed.wait(min(_OWN_LOOK_SECONDS if look.is_owner else _LOOK_SECONDS, max(limit.left, _LEAST_SECONDS)))


@dataclass(slots=True)
class _Look:
    """The result of one check. ``late`` describes the first object that timed out; empty if no object did."""

    notices: list[ResultRow] = field(default_factory=list)
    is_waiting: bool = False
    is_owner: bool = False
    late: str = ""


def _look(
    context: Context,
    jobs: Collection[str] | None,
    limit: StallTimeout,
    tell: Callable[[BackfillProgress], None] | None,
    grace: StallGrace | None,
) -> _Look:
    context.sessions.require_alive()
    snapshot = context.metastore.snapshot()
    unfinished = unfinished_backfills(context.metastore, snapshot)
    left = [progress for job, progress in unfinished.items() if jobs is None or job in jobs]
    groups = rebuild_groups(snapshot)
    stalls = _Stalls.of(context, snapshot, grace, [*unfinished, *map(rebuild_job, snapshot.all("rebuild"))])
    statuses = stalls.statuses
    owned = owned_groups(context)
    marks: dict[str, object] = {p.job: (p.phase, p.done, run_mark(statuses.get(p.job))) for p in left}
    for rebuild in (rebuild for group in groups for rebuild in group):
        making = context.warehouse.data(rebuild.view_id, rebuild.generation)
        marks[rebuild_job(rebuild)] = (
            run_mark(statuses.get(rebuild_job(rebuild))),
            latest_version(context.warehouse, making),
        )
    limit.note({**marks, "what is left": len(left)})
    leases = stalls.leases.values()
    found = _Look(is_owner=any(lease.owner == context.owner and not lease.is_released for lease in leases))
    for progress in left:
        view = snapshot.get(progress.object_id)
        status = statuses.get(progress.job)
        name = view.name if view is not None else progress.job
        said = progress_of(progress) if isinstance(view, TableRecord) else progress_text(progress)
        if tell is not None:
            tell(progress)
        if stalls.is_unowned(group_of(snapshot, progress.object_id), owned):
            why = f"no process runs the jobs of this warehouse; {said}"
        elif reason := stalls.reason(progress.job, progress.object_id):
            why = reason
        elif isinstance(view, MaterializedViewRecord) and view.backfill_rate_limit == 0:
            why = f"{said}; backfill_rate_limit is 0"
        elif limit.is_over:
            why = f"{said}; {_WAIT}"
            found.late = found.late or f"{name} is {said} ({_state(status)})"
        else:
            found.is_waiting = True
            continue
        found.notices.append(ResultRow(object=name, change="NOTICE", detail=why))
    for group in groups:
        if jobs is not None and not any(view_job(rebuild.view_id) in jobs for rebuild in group):
            continue
        is_unowned = stalls.is_unowned(group_of(snapshot, group[0].view_id), owned)
        said = "no process runs the jobs of this warehouse" if is_unowned else ""
        said = said or _held_up(snapshot, group, stalls)
        if not said and limit.is_over:
            said = _WAIT
            found.late = (
                found.late or f"{group[0].name} is being rebuilt ({_state(statuses.get(rebuild_job(group[0])))})"
            )
        found.is_waiting = found.is_waiting or not said
        found.notices += _of_group(snapshot, group, f"{_ANEW}; {said}") if said else ()
    return found


def _state(status: JobStatus | None) -> str:
    if status is None:
        return "not started"
    return f"{STALLED}: {status.reason}" if status.state == STALLED else status.state


def _held_up(snapshot: Snapshot, group: Sequence[RebuildRecord], stalls: _Stalls) -> str:
    """The reason why a group of rebuilds that must be swapped together cannot finish now; empty if the group can
    finish."""
    for rebuild in group:
        if reason := stalls.reason(rebuild_job(rebuild), rebuild.view_id, rebuild.id):
            return reason
        if rebuild.histories and backfill_rate_limit(snapshot, rebuild.view_id, rebuild.generation) == 0:
            name = "" if len(group) == 1 else f" of {rebuild.name}"
            return f"backfill_rate_limit{name} is 0"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stalls:
    """The statuses of the jobs in one check, and the epochs that their owners had applied before these statuses were
    read.

    The epochs are needed because a status that the owner reported before it applied a statement does not describe the
    job after that statement.
    """

    context: Context
    snapshot: Snapshot
    grace: StallGrace | None
    acted: int
    pending: frozenset[str]
    leases: Mapping[str, Lease]
    statuses: Mapping[str, JobStatus]

    @staticmethod
    def of(context: Context, snapshot: Snapshot, grace: StallGrace | None, jobs: Collection[str]) -> _Stalls:
        acted, pending = context.applied.left(jobs)
        facts = context.metastore.jobs
        return _Stalls(
            context=context,
            snapshot=snapshot,
            grace=grace,
            acted=acted,
            pending=pending,
            leases=facts.leases(),
            # The statuses are read last, so that they are at least as new as the applied epochs.
            statuses=facts.job_statuses(),
        )

    def reason(self, job: str, view_id: int, *ids: int) -> str:
        """If the statement skips a view's job because the job is stalled, returns the reason of the stall. If the
        statement waits for the job, returns the empty string.

        ``ids`` are the ids of other objects on which the job depends.
        """
        status = self.statuses.get(job)
        if status is None or not self._is_applied(job, view_id, *ids):
            return ""
        is_over = status.state == STALLED if self.grace is None else self.grace.is_over(status, now_ms())
        return f"{STALLED}: {status.reason}" if is_over else ""

    def is_unowned(self, group: str, owned: Collection[str]) -> bool:
        """True if the statement does not wait for a group's jobs, because no process runs them. If a group has just
        lost its owner, a statement that waits for stalled jobs also waits for the next owner; the result is then
        False."""
        if group in owned:
            return False
        lease = self.leases.get(group)
        return self.grace is None or lease is None or now_ms() - lease.heartbeat_ms > _RESTART_MS

    def _is_applied(self, job: str, view_id: int, *ids: int) -> bool:
        """True if the job's owner has applied the last change to the view, its inputs and its refresh."""
        view, refresh = self.snapshot.get(view_id), refresh_of(self.snapshot, view_id)
        inputs = view.inputs if isinstance(view, MaterializedViewRecord) else ()
        refreshes = () if refresh is None else (refresh.id,)
        epoch = max(map(self.snapshot.object_epoch, (view_id, *inputs, *refreshes, *ids)))
        group = group_of(self.snapshot, view_id)
        if group == self.context.group and self.context.owning.is_set():
            return self.acted >= epoch and job not in self.pending
        lease = self.leases.get(group)
        return lease is not None and lease.applied_epoch >= epoch


def _of_group(snapshot: Snapshot, group: Sequence[RebuildRecord], why: str) -> list[ResultRow]:
    views = [snapshot.get(rebuild.view_id) for rebuild in group]
    return [ResultRow(object=view.name, change="NOTICE", detail=why) for view in views if view is not None]


def refreshes_without_end(before: Snapshot, after: Snapshot, jobs: Collection[str] | None) -> tuple[ResultRow, ...]:
    """Returns a result row for each refresh that has failed between the snapshots ``before`` and ``after``. If ``jobs``
    is given, only the tables with these jobs are considered."""
    told = []
    for record in before.all("refresh"):
        if jobs is not None and view_job(record.table_id) not in jobs:
            continue
        now = refresh_of(after, record.table_id)
        if now is not None and now.failure is not None and (record.failure is None or now.refresh > record.refresh):
            detail = f"the refresh failed: {now.failure}"
            told.append(ResultRow(object=record.name, change="NOTICE", detail=detail))
    return tuple(told)
