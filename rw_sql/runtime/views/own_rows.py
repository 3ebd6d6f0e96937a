"""Keeps a table that reads a change data capture source from running a batch for each commit that has only rows of
other tables.

The log of such a source contains the changes of all its upstream tables, and each table of rw_sql reads the whole log.
Spark needs about as much time for a batch without rows as for a batch with rows.
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
"""The maximum time in seconds for which a table waits after a batch that has no rows of this table. If a statement of
another process waits for the table, the statement's wait may be longer by this time."""

_LOOK_SECONDS = 0.02
"""The interval in seconds between two checks of the log. Each check is one call to the file system."""

ASKED_SECONDS = 2.0
"""For this number of seconds after a statement has requested the table's next batch, the statement counts as waiting. A
FLUSH that still waits repeats its request several times within this time."""


def await_own_rows(run: ViewRun, batch: int, is_over: Callable[[], bool]) -> None:
    """Waits after a batch that has read no row of the table, for at most :data:`MOST_SECONDS`.

    The wait ends early in three cases: the log has rows of the table after that batch, a statement waits for the table,
    or ``is_over`` returns true. In an object store, this function never waits, because each check of the log would
    require a request to the store.
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
