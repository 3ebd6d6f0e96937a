"""Keeps a table of a captured database from running a batch for each commit of other tables.

The log of a change data capture source contains the changes of all tables of the source, and each table reads the whole
log. A batch without rows takes Spark about as much time as a batch with rows.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rw_sql.runtime.delta.delta_log import latest_version, read_actions, rows_of_table
from rw_sql.runtime.positions.progress import planned_stretch
from rw_sql.runtime.views.streamed import upstream_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.runtime.views.strategy import ViewRun

MOST_SECONDS = 1.0
"""The maximum time in seconds for which a table waits after a batch without rows of its own. A statement of another
process that waits for the table may have to wait this much longer."""

_LOOK_SECONDS = 0.02
"""The interval in seconds between two checks of the log. Each check is one call to the file system."""

ASKED_SECONDS = 2.0
"""A statement counts as waiting for this number of seconds after its last request for the table's job. A waiting FLUSH
repeats its request several times within this time."""


def await_own_rows(run: ViewRun, batch: int, is_over: Callable[[], bool]) -> None:
    """Waits after a batch that has read no row of the table, for at most :data:`MOST_SECONDS`.

    Returns at once in three cases: the log has rows of the table after that batch, a statement waits for the table, or
    ``is_over`` returns true. In an object store, this function never waits, because each check of the log would be a
    request.
    """
    (given,) = run.spec.inputs
    warehouse, table, upstream = run.context.warehouse, run.table_of(given), upstream_table(given)
    if not warehouse.is_local or upstream is None:
        return
    stretch = planned_stretch(warehouse, run.checkpoint, batch)
    if stretch is None:
        return
    seen, deadline = stretch[0].stop - 1, time.monotonic() + MOST_SECONDS
    while time.monotonic() < deadline and not is_over():
        if run.context.wakes.is_asked(run.spec.job, ASKED_SECONDS):
            return
        newest = latest_version(warehouse, table)
        for version in range(seen + 1, newest + 1):
            try:
                rows = rows_of_table(read_actions(warehouse, table, version), upstream)
            except FileNotFoundError:  # the commit was cleaned up
                return
            if rows != 0:
                return
        seen = newest
        time.sleep(_LOOK_SECONDS)
