"""Implements the part of a statement that follows the commit: waits until the jobs match the committed catalog, and
records the outcome."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError

from rw_sql.errors import NOT_APPLIED_YET, SqlError
from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.model.job_ids import view_job
from rw_sql.plan.result.plan import ResultRow
from rw_sql.runtime.control.outcomes import APPLIED, NOT_YET_APPLIED
from rw_sql.runtime.control.statement_kinds import HOLDS
from rw_sql.runtime.jobs.groups import groups_of_jobs, possibly_owned_groups
from rw_sql.runtime.jobs.lease import serve_command
from rw_sql.runtime.jobs.statuses import owner_marks
from rw_sql.runtime.observe.statement_progress import what_goes_on
from rw_sql.runtime.observe.wait_statement import wait_until_made
from rw_sql.runtime.support.event_log import log_event
from rw_sql.runtime.support.failures import cause_line
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.support.stall_timeout import StallTimeout, spoken_seconds
from rw_sql.syntax import statements as ast

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rw_sql.metastore import Snapshot
    from rw_sql.plan.result.plan import Plan
    from rw_sql.runtime.control.owner import Owner
    from rw_sql.runtime.control.session_state import SessionState
    from rw_sql.runtime.jobs.context import Context

_LOOK_SECONDS = 0.05
_MARK_SECONDS = 1.0


def is_awaited(plan: Plan) -> bool:
    """True if the statement waits until the owner has applied it.

    The statements in ``HOLDS`` always wait, even if no running job has to change. In this case, they wait until the
    owner has read their change, such as a pause, from the catalog.
    """
    return isinstance(plan.statement, HOLDS) or any(not step.is_catalog for step in plan.steps)


class FollowUp:
    """Waits, after the commit of a statement, until the jobs match the catalog. Thread-safe.

    ``owner`` is a function that returns this process's owner, or None if this process runs no jobs.
    """

    def __init__(self, context: Context, owner: Callable[[], Owner | None]) -> None:
        self._context = context
        self._owner = owner

    def finish(
        self, plan: Plan, before: Snapshot, epoch: int, session: SessionState, started: float
    ) -> tuple[ResultRow, ...]:
        """Waits for the owner if :func:`is_awaited` is True, records the outcome, and returns the notices for the user.

        ``before`` is the catalog before the commit. ``epoch`` is the epoch of the commit. ``started`` is the time at
        which the statement began (``time.monotonic()``). Every error states that the statement is committed.
        """
        try:
            return self._finish(plan, before, epoch, session, started)
        except (OSError, DeltaError, Py4JError) as error:
            self._context.sessions.require_alive(f"the statement is committed as epoch {epoch}")
            raise SqlError(
                NOT_APPLIED_YET,
                f"the statement is committed as epoch {epoch}, and the wait for the jobs failed: "
                f"{cause_line(str(error)) or type(error).__name__}",
                hint="do not run it again: SHOW JOBS shows whether the jobs have applied it",
            ) from error

    def _finish(
        self, plan: Plan, before: Snapshot, epoch: int, session: SessionState, started: float
    ) -> tuple[ResultRow, ...]:
        jobs = frozenset(step.subject for step in plan.steps if not step.is_catalog)
        groups = groups_of_jobs(jobs, before, self._context.metastore.snapshot()) if jobs else frozenset()
        notices: list[ResultRow] = []
        outcome = APPLIED
        session.waiting.begin(f"committed as epoch {epoch}; waiting until the jobs apply it", jobs)
        if is_awaited(plan) and not self.wait_applied(epoch, session.timeout, jobs, groups):
            outcome = NOT_YET_APPLIED if jobs else APPLIED
        if outcome == NOT_YET_APPLIED:
            named = plan.changes[0].object if plan.changes else ""
            notices.append(ResultRow(object=named, change="NOTICE", detail=outcome))
            if said := what_goes_on(self._context, jobs):
                waited = f"no progress for {spoken_seconds(session.timeout)}; {said}; SHOW JOBS shows the jobs"
                notices.append(ResultRow(object=named, change="NOTICE", detail=waited))
            else:
                missing = sorted((groups or {DEFAULT_GROUP}) - possibly_owned_groups(self._context))
                start = serve_command(self._context.warehouse.uri, missing[0] if missing else DEFAULT_GROUP)
                detail = f"no process runs the jobs: {start} applies the statement"
                notices.append(ResultRow(object=named, change="NOTICE", detail=detail))
        elif jobs:
            notices += self._stalls(plan)
            if isinstance(plan.statement, ast.CreateMaterializedView) and not notices:
                notices += self._wait_made(plan, session)
        fault("statement.applied")
        duration = int((time.monotonic() - started) * 1000)
        log_event("finished", epoch=epoch, outcome=outcome, duration_ms=duration)
        if plan.effect is None and (jobs or plan.is_unsafe):  # The outcome of an effect is recorded with the effect.
            self._tell_outcome(epoch, outcome, duration)
        fault("statement.told")
        return tuple(notices)

    def _tell_outcome(self, epoch: int, outcome: str, duration_ms: int) -> None:
        metastore = self._context.metastore
        if outcome != NOT_YET_APPLIED:
            # This outcome is final, so the caller need not wait until it is written.
            metastore.record_outcome_later(epoch, outcome, duration_ms)
            return
        metastore.record_outcome(epoch, outcome, duration_ms)
        if self._is_applied(epoch):
            # The owner applied the epoch before this outcome was written, so the owner could not replace this outcome.
            metastore.record_outcome(epoch, APPLIED, duration_ms)

    def _wait_made(self, plan: Plan, session: SessionState) -> tuple[ResultRow, ...]:
        """Waits until the backfill of a new view is complete. If ``background_ddl`` is true, does not wait."""
        seconds = 0.0 if session.parameter("background_ddl") == "true" else session.timeout
        jobs = [view_job(id_) for id_ in plan.affected]
        session.waiting.begin("committed; waiting for its backfill", jobs)
        return wait_until_made(self._context, jobs, seconds, session.on_progress)

    def _is_applied(self, epoch: int, groups: Collection[str] = ()) -> bool:
        """True if the owners of ``groups`` have applied ``epoch``. If ``groups`` is empty, the owners of all groups
        that have or may have an owner are checked."""
        leases = self._context.metastore.jobs.leases()
        asked = groups or possibly_owned_groups(self._context) or leases.keys()
        found = [leases.get(group) for group in asked]
        return bool(found) and all(lease is not None and lease.applied_epoch >= epoch for lease in found)

    def _stalls(self, plan: Plan) -> list[ResultRow]:
        wanted = {step.subject for step in plan.steps if not step.is_catalog and step.action != "StopJob"}
        if not wanted:
            return []  # Avoids reading the statuses, which would wait for pending writes.
        statuses = self._context.metastore.jobs.job_statuses()
        return [
            ResultRow(object=job, change="NOTICE", detail=f"STALLED: {statuses[job].reason}")
            for job in sorted(wanted)
            if job in statuses and statuses[job].state == "STALLED"
        ]

    def wait_applied(
        self, epoch: int, seconds: float, jobs: Collection[str] | None = None, groups: Collection[str] = ()
    ) -> bool:
        """Waits until the owners of ``groups`` have applied ``epoch``, and returns True. If ``groups`` is empty, waits
        for the owners of all groups. Returns False at once if one of the groups has no owner.

        Also returns False if neither the jobs nor the applied epoch make progress for ``seconds``. While the owner
        still writes heartbeats, this limit is ten times as long. ``jobs`` are the jobs to wait for; None means all
        jobs. For groups that another process owns, the method always waits for all jobs.
        """
        owner, limit, awaited = self._owner(), StallTimeout(seconds), frozenset(jobs or ())
        own = self._context.group
        if owner is not None:
            owner.wake()
        while True:
            elsewhere = frozenset(groups or possibly_owned_groups(self._context)) - {own}
            is_own = not groups or own in groups
            is_here = owner is not None and owner.is_owner
            if is_here and owner is not None and is_own:
                is_done = owner.wait_applied(epoch, min(limit.left, _MARK_SECONDS), jobs)
            else:
                is_done = not is_own or self._is_applied(epoch, (own,))
            if is_done and (not elsewhere or self._is_applied(epoch, elsewhere)):
                return True
            if not is_here or elsewhere:
                self._context.sessions.require_alive(f"the statement is committed as epoch {epoch}")
                awaited_groups = elsewhere | ({own} if is_own and owner is None else frozenset())
                if awaited_groups - possibly_owned_groups(self._context):
                    return False
            limit.note(*self._marks(awaited))
            if limit.is_over:
                return False
            if not is_here or elsewhere:
                time.sleep(_LOOK_SECONDS)

    def _marks(self, jobs: Collection[str]) -> tuple[dict[str, object], dict[str, object]]:
        """Returns two maps of values. The values of the first map change when the owner makes progress with ``jobs``.
        The values of the second map change as long as the owner is alive."""
        marks, signs = owner_marks(self._context, jobs)
        return {**marks, "what the owner has applied": self._context.applied.left(jobs)}, signs
