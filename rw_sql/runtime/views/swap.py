"""Replaces the table of a view with the rebuilt table after the rebuilt table has caught up with the old table."""

from __future__ import annotations

import time
from concurrent.futures import wait
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError, TableNotFoundError

from rw_sql.metastore import ConcurrentCommit
from rw_sql.metastore.records import DeltaTableRecord, MaterializedViewRecord
from rw_sql.model.job_ids import rebuild_job
from rw_sql.model.rebuilds import rebuilt, rebuilt_view
from rw_sql.model.resource_groups import group_of
from rw_sql.model.view_inputs import fed_by
from rw_sql.plan.statements.view.rebuild import rebuild_groups, swap_operation
from rw_sql.runtime.delta.delta_log import commits, has_new_data, latest_version, table_id, takes_data
from rw_sql.runtime.jobs.table_paths import table_path
from rw_sql.runtime.positions.high_water import appends_windows
from rw_sql.runtime.positions.progress import committed_versions, owes_windows
from rw_sql.runtime.support.background import prepare
from rw_sql.runtime.support.faults import fault

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import RebuildRecord
    from rw_sql.runtime.jobs.context import Context


_ENDS: dict[tuple[str, int, int, str], int] = {}
"""The query of a rebuild may read input tables that the view's old query does not read. For each of these tables, this
cache contains a version. Before the swap, the rebuild must have read everything before this version, which is the
version after the last one that had new rows at the first check. The key is (warehouse, view, generation, table).

The cache is only in memory. A process that takes over the jobs begins with its own first check.
"""

_CHECKS = "swap-checks"
_CHECK_SECONDS = 1.0
"""The maximum time in seconds for which the owner waits for the result of a check that reads tables of the user."""

_RECENT_SECONDS = 10.0
"""The result of a check that reads tables of the user expires after this number of seconds."""


def swap_rebuilt(context: Context) -> bool:
    """Swaps the views of one group of rebuilds that have all caught up. Returns True if views were swapped.

    If a rebuilt view reads another rebuilt view, both are in the same group and are swapped in one commit.
    """
    snapshot = context.metastore.snapshot()
    if not snapshot.all("rebuild"):
        return False
    for group in rebuild_groups(snapshot):
        if group_of(snapshot, group[0].view_id) != context.group:
            continue
        # The checks of all views begin at once, so that their results are known at about the same time.
        caught_up = [_has_caught_up(context, snapshot, rebuild) for rebuild in group]
        if not all(caught_up):
            continue
        fault("rebuild.before_swap")
        try:
            context.metastore.commit(swap_operation(snapshot, group, context.owner), based_on=snapshot)
        except ConcurrentCommit:
            return False
        fault("rebuild.after_swap")
        return True
    return False


def _has_caught_up(context: Context, snapshot: Snapshot, rebuild: RebuildRecord) -> bool:
    """True if the backfill of the new table is complete, and the new query has read each input at least as far as the
    old query."""
    view = snapshot.get(rebuild.view_id)
    if not isinstance(view, MaterializedViewRecord):
        return True
    job = rebuild_job(rebuild)
    status = context.metastore.jobs.job_statuses().get(job)
    if status is None or status.state != "RUNNING":
        return False
    # If a log has no rows, the comparison of versions below succeeds before the backfill is complete.
    progress = context.metastore.jobs.backfills([job]).get(job) if rebuild.histories else None
    if rebuild.histories and (progress is None or not progress.is_over):
        return False
    warehouse, then, made = context.warehouse, rebuilt(snapshot), rebuilt_view(view, rebuild)
    if latest_version(warehouse, warehouse.data(view.id, rebuild.generation)) < 0:
        return False
    fed, fed_before = fed_by(then, made), fed_by(snapshot, view)
    old_checkpoint = warehouse.view_checkpoint(view.id, view.generation)
    new_checkpoint = warehouse.view_checkpoint(view.id, rebuild.generation)
    # Each batch writes the windows that close because of the rows of the batch before it.
    before = int(appends_windows(made) and owes_windows(warehouse, new_checkpoint))

    def has_read(id_: int) -> bool:
        given = table_path(warehouse, then, id_)
        table = table_id(warehouse, given)
        feeds, feeds_before = ({table: given} if id_ in those else {} for those in (fed, fed_before))
        old = committed_versions(warehouse, old_checkpoint, feeds=feeds_before, before=before)
        new = committed_versions(warehouse, new_checkpoint, feeds=feeds, before=before)
        # If the old query does not read a table, the new query must have read the rows that the table had at the first
        # check. The present end of the table is not used, because the table may grow continuously, so that the new
        # query might never reach this end.
        place = (warehouse.uri, view.id, rebuild.generation, table)
        if table not in old and place not in _ENDS:
            _ENDS[place] = _last_data(context, given) + 1
        wanted = old[table] if table in old else _ENDS[place]
        return not _has_data(context, given, new.get(table, 0), wanted)

    users = [id_ for id_ in made.inputs if isinstance(then.get(id_), DeltaTableRecord)]
    try:
        if not all(has_read(id_) for id_ in made.inputs if id_ not in users):
            return False
    except TableNotFoundError:
        return False
    return not users or _in_time(context, (view.id, rebuild.generation), lambda: all(map(has_read, users)))


def _in_time(context: Context, key: tuple[int, int], check: Callable[[], bool]) -> bool:
    """Returns the result of ``check``, which reads the user's own tables. Returns False if the result is not known yet,
    because the store of a user's table may be unresponsive.

    The check runs in the background, and the owner waits only a short time for the result. Later calls with the same
    ``key`` return the result of this check. If a slow check returns True, the result stays valid for _RECENT_SECONDS.
    Therefore, the results for several views that are swapped together can be true at the same time.
    """
    pending: dict[tuple[int, int], tuple[Future[tuple[bool, float]], float]] = context.made.setdefault(_CHECKS, {})
    if key not in pending:
        begun = time.monotonic()
        pending[key] = prepare(lambda: (check(), time.monotonic()), _CHECKS), begun
        wait([pending[key][0]], _CHECK_SECONDS)
    found, begun = pending[key]
    if not found.done():
        return False
    try:
        is_true, at = found.result()
    except (OSError, DeltaError):
        is_true, at = False, begun
    is_recent = time.monotonic() - at < _RECENT_SECONDS
    if not (is_true and is_recent and at - begun > _CHECK_SECONDS):
        del pending[key]
    return is_true and is_recent


def _has_data(context: Context, table: str, first: int, end: int) -> bool:
    """True if one of a table's versions from ``first`` up to, but not including, ``end`` has added or removed rows.

    Versions without changes to rows, such as the fence of a new run, do not count. The old query may have read past a
    version without changes to rows, whereas the new query stops before this version until new rows arrive.
    """
    if first >= end:
        return False
    version = end
    for version, actions in commits(context.warehouse, table, down_to=first):
        if version < end and (has_new_data(actions) or takes_data(actions)):
            return True
    return version > first  # Commits that were removed may have had rows.


def _last_data(context: Context, table: str) -> int:
    return next((version for version, actions in commits(context.warehouse, table) if has_new_data(actions)), -1)
