"""Provides the data of the HTTP endpoints of a process that runs a warehouse's jobs, or stands by to take over these
jobs."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from rw_sql.errors import SqlError
from rw_sql.runtime.jobs.silent_owners import LATE_SECONDS, silence_of
from rw_sql.runtime.observe.metrics import metrics_of
from rw_sql.runtime.status.reading import Observer
from rw_sql.runtime.support.failures import cause_line
from rw_sql.runtime.support.processes import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.observe.metrics import Metrics
    from rw_sql.runtime.status.reading import WarehouseStatus

logger = logging.getLogger(__name__)

STANDING_BY = "standing by: another process runs the jobs"

PATIENCE_SECONDS = 10.0
"""While a ready process applies a statement, ``/readyz`` still reports the process as ready, but for at most this
number of seconds."""

COUNT_SECONDS = 30.0
"""The interval in seconds at which a process with endpoints counts the rows of its jobs for the metrics. The process
counts even if no client requests the metrics.

Rows must be counted this often because the numbers of rows come from the commits in each table's Delta log, and upkeep
deletes these commits after a few minutes.
"""


class ServedWarehouse:
    """The data of the endpoints for one warehouse (:class:`rw_sql.runtime.status.http_server.Served`). Thread-safe."""

    def __init__(self, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._observer = Observer(context)
        self._clock = clock
        self._was_ready_at: float | None = None
        self._next_count = 0.0

    @property
    def metrics(self) -> Metrics:
        """The text of ``/metrics``."""
        return metrics_of(self._context)

    def status(self) -> WarehouseStatus:
        """The data of the page."""
        return self._observer.status()

    def why_not_ready(self) -> str | None:
        """The reason why this process is not ready: it stands by, it cannot read or write the warehouse, or its jobs do
        not match the catalog. None if the process is ready, or was ready at most PATIENCE_SECONDS ago and is applying a
        statement."""
        context = self._context
        if not context.owning.is_set():
            self._was_ready_at = None
            return STANDING_BY
        try:
            lease, epoch = context.metastore.jobs.lease(context.group), context.metastore.snapshot().epoch
        except (SqlError, OSError, DeltaError):
            return "the catalog cannot be read"
        if lease is not None and lease.owner == context.owner:
            silence = silence_of(context, lease)
            # The time of this heartbeat comes from this machine's own clock, so the same limit applies to every store.
            silent = (now_ms() - lease.heartbeat_ms) / 1000
            if silence is not None or silent >= LATE_SECONDS:
                obstacle = None if silence is None else silence.obstacle
                why = "" if obstacle is None else f"{obstacle.problem}; "
                return f"the warehouse cannot be written: {why}the last heartbeat is {silent:.0f} s old"
        now = self._clock()
        applied = -1 if lease is None or lease.owner != context.owner else lease.applied_epoch
        if applied >= epoch:
            self._was_ready_at = now
            return None
        if self._was_ready_at is not None and now - self._was_ready_at < PATIENCE_SECONDS:
            return None
        return f"{max(applied, 0)} of {epoch} statements are applied to the jobs"

    def count(self) -> None:
        """Counts the rows of the jobs for the metrics, unless they were counted within the last COUNT_SECONDS."""
        now = self._clock()
        if now < self._next_count:
            return
        self._next_count = now + COUNT_SECONDS
        try:
            self.metrics.count_rows()
        except (SqlError, OSError, DeltaError) as error:
            # The error is ignored, because the jobs must not end if a store does not respond for a moment. The next
            # count includes these rows.
            logger.warning("the rows of the jobs cannot be counted for the metrics now: %s", cause_line(str(error)))
