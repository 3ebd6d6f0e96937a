"""Waits until views that are being made have what was there before them, and tables have been refreshed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rw_sql.metastore.records import MaterializedViewRecord, TableRecord
from rw_sql.plan.desired import rebuild_job, view_job
from rw_sql.plan.lower_backfill import progress_text
from rw_sql.plan.lower_rebuild import rebuild_groups
from rw_sql.plan.plan import ObjectChange
from rw_sql.plan.refreshes import progress_of, refresh_of
from rw_sql.runtime.backfills import unfinished_backfills

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import BackfillProgress, JobStatus
    from rw_sql.metastore.records import RebuildRecord
    from rw_sql.runtime.context import Context

_LOOK_SECONDS = 0.1
_WAIT = "WAIT waits until it is made"
_ANEW = "it is made anew"


def wait_until_made(
    context: Context,
    jobs: Collection[str] | None,
    seconds: float | None,
    tell: Callable[[BackfillProgress], None] | None = None,
) -> tuple[ObjectChange, ...]:
    """Waits for these jobs' views (all where None), at most so long, and says which are not made then and why.

    A view that is made anew counts as made once it serves. One that stands still, or that nobody runs, is not waited
    for. ``tell`` is told of each how far it has come.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        context.sessions.require_alive()
        snapshot = context.metastore.snapshot()
        unfinished = unfinished_backfills(context.metastore, snapshot)
        left = [progress for job, progress in unfinished.items() if jobs is None or job in jobs]
        statuses = context.metastore.runtime.job_statuses()
        is_owned = context.has_owner()
        is_late = deadline is not None and time.monotonic() > deadline
        notices: list[ObjectChange] = []
        is_waiting = False
        for progress in left:
            view = snapshot.get(progress.object_id)
            status = statuses.get(progress.job)
            name = view.name if view is not None else progress.job
            said = progress_of(progress) if isinstance(view, TableRecord) else progress_text(progress)
            if tell is not None:
                tell(progress)
            if not is_owned:
                why = f"no process runs the jobs of this warehouse; {said}"
            elif status is not None and status.state == "STALLED":
                why = f"STALLED: {status.reason}"
            elif isinstance(view, MaterializedViewRecord) and view.backfill_rate_limit == 0:
                why = f"{said}; backfill_rate_limit is 0"
            elif is_late:
                why = f"{said}; {_WAIT}"
            else:
                is_waiting = True
                continue
            notices.append(ObjectChange(object=name, change="NOTICE", detail=why))
        for group in rebuild_groups(snapshot):
            if jobs is not None and not any(view_job(rebuild.view_id) in jobs for rebuild in group):
                continue
            said = "" if is_owned else "no process runs the jobs of this warehouse"
            said = said or _held_up(snapshot, group, statuses) or (_WAIT if is_late else "")
            is_waiting = is_waiting or not said
            notices += _of_group(snapshot, group, f"{_ANEW}; {said}") if said else ()
        if not is_waiting:
            return tuple(notices)
        time.sleep(_LOOK_SECONDS)


def _held_up(snapshot: Snapshot, group: Sequence[RebuildRecord], statuses: Mapping[str, JobStatus]) -> str:
    """Why views that are made anew together, and serve together, will not for now; empty where they may any moment."""
    for rebuild in group:
        status, view = statuses.get(rebuild_job(rebuild)), snapshot.get(rebuild.view_id)
        if status is not None and status.state == "STALLED":
            return f"STALLED: {status.reason}"
        if isinstance(view, MaterializedViewRecord) and view.backfill_rate_limit == 0 and rebuild.histories:
            return "backfill_rate_limit is 0"
    return ""


def _of_group(snapshot: Snapshot, group: Sequence[RebuildRecord], why: str) -> list[ObjectChange]:
    views = [snapshot.get(rebuild.view_id) for rebuild in group]
    return [ObjectChange(object=view.name, change="NOTICE", detail=why) for view in views if view is not None]


def refreshes_without_end(before: Snapshot, after: Snapshot, jobs: Collection[str] | None) -> tuple[ObjectChange, ...]:
    """Says of the refreshes that were under way why they came to nothing, where they did; of those jobs, or of all."""
    told = []
    for record in before.all("refresh"):
        if jobs is not None and view_job(record.table_id) not in jobs:
            continue
        now = refresh_of(after, record.table_id)
        if now is not None and now.failure is not None and (record.failure is None or now.refresh > record.refresh):
            detail = f"the refresh came to nothing: {now.failure}"
            told.append(ObjectChange(object=record.name, change="NOTICE", detail=detail))
    return tuple(told)
