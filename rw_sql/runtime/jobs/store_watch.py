"""Records whether this process's own writes to the warehouse fail, since when they fail, and why."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from rw_sql.runtime.support.failure_log import FailureLog
from rw_sql.runtime.support.failures import cause_line
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.stall_timeout import spoken_seconds
from rw_sql.runtime.support.write_obstacles import Obstacle, obstacle_of, try_to_write

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.runtime.support.warehouse import Warehouse

logger = logging.getLogger(__name__)

HEARTBEAT, LOOP = "heartbeat", "loop"
"""The two writers of an owner. Both writers must succeed before the owner's writes count as successful again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreProblem:
    """The failure of an owner's writes. ``told`` is the last error. ``obstacle`` is the reason for this error, if the
    reason is known."""

    since_ms: int
    told: str
    obstacle: Obstacle | None


class StoreWatch:
    """Records whether this process, as an owner of jobs, can write to its warehouse. Thread-safe.

    While the writes fail, the owner starts no job, and logs one line at the beginning, further lines at growing
    intervals, and one line at the end.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = FailureLog(clock)
        self._lock = Lock()
        self._problem: StoreProblem | None = None
        self._failing: set[str] = set()

    @property
    def problem(self) -> StoreProblem | None:
        """The failure of the writes; None if the last writes have succeeded."""
        return self._problem

    @property
    def obstacle(self) -> Obstacle | None:
        """The reason why all writes fail; None if the writes succeed, or if the reason is not known."""
        problem = self._problem
        return None if problem is None else problem.obstacle

    def failed(self, error: Exception, warehouse: Warehouse) -> None:
        """Records a failed write of the heartbeat, the lease or the jobs' statuses."""
        told = cause_line(str(error)) or type(error).__name__
        obstacle = obstacle_of(error, warehouse.uri)
        with self._lock:
            before = self._problem
            since = now_ms() if before is None else before.since_ms
            self._failing = {HEARTBEAT, LOOP}
            self._problem = StoreProblem(since_ms=since, told=told, obstacle=obstacle)
        if not self._log.failed(obstacle):
            return
        lasting = f" (for {spoken_seconds(self._log.seconds)})" if before is not None else ""
        if obstacle is None:
            logger.warning("the warehouse %s cannot be read or written%s: %s", warehouse.uri, lasting, told)
        else:
            logger.error(
                "the warehouse %s cannot be written%s, so its jobs stand still: %s; the jobs then continue without a "
                "restart (%s)",
                warehouse.uri,
                lasting,
                obstacle,
                told,
            )

    def succeeded(self, writer: str, warehouse: Warehouse) -> None:
        """Records that a writer (HEARTBEAT or LOOP) has completed its writes."""
        if self._problem is None:
            return
        with self._lock:
            self._failing.discard(writer)
            if self._failing or self._problem is None:
                return
            self._problem = None
        seconds = self._log.ended()
        if seconds is not None:
            logger.warning(
                "the warehouse %s can be written again, after %s; its jobs continue",
                warehouse.uri,
                spoken_seconds(seconds),
            )

    def may_write(self, writer: str, warehouse: Warehouse) -> bool:
        """Returns False if a known obstacle has made the last writes fail and still exists. In an object store, the
        method tests nothing and returns True.

        If the last writes to a local path have failed, this method tries to write a small file. Without this test,
        delta-rs would print the traceback of a panic for each failed write.
        """
        obstacle = self.obstacle
        if obstacle is None or not warehouse.is_local or writer not in self._failing:
            return True
        error = try_to_write(warehouse)
        if error is not None:
            self.failed(error, warehouse)
        return error is None

    def explains(self, error: Exception, warehouse: Warehouse) -> bool:
        """True if all writes to the warehouse currently fail, and the error of a job has the same reason. This reason
        is logged once for all jobs."""
        obstacle = obstacle_of(error, warehouse.uri)
        if obstacle is None:
            return False
        if self.obstacle == obstacle:
            return True
        # The job's error may be about another file system, such as the one with Spark's temporary files.
        written = try_to_write(warehouse) if warehouse.is_local else None
        if written is None:
            return False
        self.failed(written, warehouse)
        return True
