"""Removes rewind points: a source's oldest points if the source has more than ``rewind_points``, and the points that
are older than ``rewind_point_retention``.

The age of a point does not include the time during which no process runs the jobs of the source's resource group.

A point that is too old is removed in two steps. First, the point gets a reason why it cannot be used. From then on, no
new REWIND to the point can be planned. However, a REWIND that was planned earlier may still be committed when its user
confirms it. The data of the point are therefore kept for at least ``ERASE_AFTER_SECONDS`` and, if a REWIND to the point
is committed in this time, until that REWIND is carried out.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import wait
from dataclasses import replace
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from rw_sql.errors import SqlError
from rw_sql.metastore.facts import RewindPoint
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.parameters import (
    REWIND_POINT_RETENTION,
    SYSTEM_PARAMETERS,
    period_text,
    rewind_point_retention_ms,
)
from rw_sql.object_stores import delta_errors
from rw_sql.runtime.jobs.downtime import downtime_of_all_groups, downtime_until, waited_ms
from rw_sql.runtime.positions.pins import FOLDER
from rw_sql.runtime.support.background import run_in_background
from rw_sql.runtime.support.processes import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from concurrent.futures import Future

    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.jobs.downtime import Stretch

logger = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
"""The interval in seconds between two searches for points that are too old."""

ERASE_AFTER_SECONDS = 3600.0
"""The time in seconds for which the data of a point that is too old are kept. This time is longer than the time within
which a user must confirm a REWIND before the REWIND is planned again."""

_CLOCKS_MS = 120_000
"""If the stored time of a point is in the future by at most this number of milliseconds, the time is not corrected,
because the clocks of two machines may differ."""


def kept_points(snapshot: Snapshot) -> int:
    """The maximum number of points of a source."""
    return int(snapshot.parameter("rewind_points") or SYSTEM_PARAMETERS["rewind_points"].default)


def prune_points(context: Context, snapshot: Snapshot, source_id: int) -> None:
    """Deletes all but the newest points of a source, and deletes copies that belong to no point.

    Keeps the points to which unfinished REWINDs return. Also keeps the copies for operations that may still get a
    point, because another owner may be making these copies.
    """
    facts = context.metastore.jobs
    points = facts.rewind_points(source_id)
    limit = kept_points(snapshot)
    old = _surplus(points, limit, _pending(context, snapshot, source_id))
    # The records that state why an operation has no point are limited separately: the newest 2 * limit + 1 are kept.
    told = [point for point in points if not point.has_data]
    old += told[: max(0, len(told) - 2 * limit - 1)]
    if old:
        facts.drop_rewind_points(old)
    root = f"{context.warehouse.uri}/{FOLDER}"
    # The points are read last: the owner of another group may write a point in the meantime.
    last = facts.last_runs().get(ingest_fragment(source_id))
    newest = max((*facts.rewind_operations(source_id), 0 if last is None else last.epoch))
    kept = {point.folder for point in facts.rewind_points(source_id)}
    for name in context.warehouse.list_names(f"{root}/rewind-{source_id}"):
        operation = name.partition("-")[0]
        is_later = operation.isdecimal() and int(operation) > newest
        if f"rewind-{source_id}/{name}" not in kept and not is_later:
            context.warehouse.remove(f"{root}/rewind-{source_id}/{name}")


def _pending(context: Context, snapshot: Snapshot, source_id: int) -> frozenset[int]:
    """The operations to which unfinished REWINDs of a source return."""
    done = context.metastore.jobs.rewound()
    return frozenset(r.operation for r in snapshot.all("rewind") if r.source_id == source_id and r.epoch not in done)


def _surplus(points: Collection[RewindPoint], limit: int, pending: Collection[int]) -> list[RewindPoint]:
    """The oldest points of a source that must be deleted to keep at most ``limit`` points. Points for the operations
    ``pending`` are left out. ``points`` must be in ascending order of their operations."""
    made = [point for point in points if point.reason is None]
    return [point for point in made[: max(0, len(made) - limit)] if point.operation not in pending]


class PointPruning:
    """Removes the points of the sources of one resource group, in the process that owns its jobs.

    A separate thread removes the points, because the copies of a point may be thousands of files. Only one thread may
    call the public methods.
    """

    def __init__(self, context: Context, wake: Callable[[], None] = lambda: None) -> None:
        """``wake`` is called when the removal has finished with a source for which :meth:`reserve` returned False."""
        self._context = context
        self._wake = wake
        self._next = time.monotonic() + EVERY_SECONDS
        self._limits: tuple[int, int | None] | None = None
        self._is_tidied = False
        self._run_in_progress: Future[None] | None = None
        self._is_stopping = threading.Event()
        self._reserving = threading.Lock()
        self._reserved: set[int] = set()
        """The sources whose points the removal in progress must not touch."""
        self._current: int | None = None

    def run_if_due(self, snapshot: Snapshot, busy: Collection[int]) -> None:
        """Begins to remove points if the removal is due. A removal is due at regular intervals, and after a change of
        the system parameters.

        The points of the sources ``busy`` are kept: for each of these sources, another thread makes a point or carries
        out a REWIND, or a point must be made first. Failures of the store are logged, and the next due call repeats the
        failed steps.
        """
        if self._run_in_progress is not None and not self._run_in_progress.done():
            return
        limits = (kept_points(snapshot), rewind_point_retention_ms(snapshot))
        is_changed = self._limits not in (None, limits)
        self._limits = limits
        if time.monotonic() < self._next and not is_changed:
            return
        self._next = time.monotonic() + EVERY_SECONDS
        self._reserved = set(busy)
        self._run_in_progress = run_in_background(self._try, "old-rewind-points")

    def reserve(self, source_id: int) -> bool:
        """Prevents the removal in progress from removing points of a source. Returns False if the removal is working on
        this source now."""
        with self._reserving:
            self._reserved.add(source_id)
            return self._current != source_id

    def wait(self) -> None:
        """Waits until the removal in progress has ended."""
        if self._run_in_progress is not None:
            wait([self._run_in_progress])

    def stop(self) -> None:
        """Makes the removal in progress end after its current source, and waits for this end."""
        self._is_stopping.set()
        self.wait()

    def _try(self) -> None:
        try:
            with delta_errors():
                self._run()
        except (SqlError, DeltaError, OSError) as error:
            if not self._context.explains(error):
                logger.warning("old rewind points could not be removed yet: %s", error)
            self._is_tidied = False  # copies may remain although their points are erased already

    def _run(self) -> None:
        context = self._context
        points = context.metastore.jobs.rewind_points()
        # If the machine sleeps during this run, the sleep counts neither as age nor as downtime.
        now = now_ms()
        stretches = downtime_until(context, context.group, now) if points else ()
        ids = self._left_behind() | {point.source_id for point in points}
        for id_ in sorted(ids):
            if self._is_stopping.is_set() or not context.holds_lease():
                return
            with self._reserving:
                self._current = None if id_ in self._reserved else id_
            if self._current is None:
                continue
            try:
                # A statement may have been committed since the last source.
                self._prune(context.metastore.snapshot(), id_, stretches, now)
            finally:
                with self._reserving:
                    self._current, is_wanted = None, id_ in self._reserved
                if is_wanted:
                    self._wake()
        self._is_tidied = True

    def _left_behind(self) -> set[int]:
        """Returns the ids of all sources that have copies, if this process has not yet searched for copies without a
        point; otherwise an empty set. An owner that was killed, or a failure of the store, may have left copies without
        a point."""
        if self._is_tidied:
            return set()
        names = self._context.warehouse.list_names(f"{self._context.warehouse.uri}/{FOLDER}")
        found = (name.removeprefix("rewind-") for name in names if name.startswith("rewind-"))
        return {int(id_) for id_ in found if id_.isdecimal()}

    def _is_previewed(self, snapshot: Snapshot, source_id: int) -> bool:
        """True if the readers of a source are stopped for the preview of a statement. This statement may be a
        REWIND."""
        locks, now = self._context.metastore.jobs.quiesce_locks(), now_ms()
        return any(
            lock.source_id == source_id and lock.epoch == snapshot.epoch and lock.expires_ms > now for lock in locks
        )

    def _prune(self, snapshot: Snapshot, source_id: int, stretches: Collection[Stretch], now: int) -> None:
        jobs, source = self._context.metastore.jobs, snapshot.get(source_id)
        if not isinstance(source, SourceRecord) or source.resource_group != self._context.group:
            return
        if self._is_previewed(snapshot, source_id):
            return
        points, pending = jobs.rewind_points(source_id), _pending(self._context, snapshot, source_id)
        before = self._downtime_before_move(source, points)
        found: list[RewindPoint] = []
        for point in points:
            counted = [*stretches, *(before if point.operation < source.group_since else ())]
            is_pending = point.operation in pending
            found.append(point if is_pending else self._aged(point, rewind_point_retention_ms(snapshot), counted, now))
        changed = [aged for aged, point in zip(found, points, strict=True) if aged is not point]
        if changed:
            jobs.replace_rewind_points(changed)
        is_erased = any(not point.has_data for point in changed)
        if is_erased or not self._is_tidied or _surplus(points, kept_points(snapshot), pending):
            prune_points(self._context, snapshot, source_id)

    def _downtime_before_move(self, source: SourceRecord, points: Collection[RewindPoint]) -> Collection[Stretch]:
        """Returns periods before the source's move to its present group. In each period, no process ran the jobs of at
        least one group. The periods of all groups are used, because the source's earlier group is not known. The result
        is empty if the source has no points from before the move."""
        if not any(point.has_data and point.operation < source.group_since for point in points):
            return ()
        move = self._context.metastore.operation(source.group_since)
        if move is None:
            return ()
        found = downtime_of_all_groups(self._context.warehouse, until_ms=move.at_ms)
        return [(start, min(end, move.at_ms)) for start, end in found if start < move.at_ms]

    def _aged(
        self, point: RewindPoint, retention_ms: int | None, stretches: Collection[Stretch], now: int
    ) -> RewindPoint:
        """Returns the point in the form in which it must be stored now. A point that is too old gets a reason. A point
        that has had this reason for ERASE_AFTER_SECONDS loses its data.

        When a point gets a reason, the present time replaces the time at which the point was made. The stored time thus
        shows the next owner of the jobs when the data may be erased. If the stored time is in the future because the
        clock was set back, the present time replaces the stored time. Without this correction, the point would not grow
        older until the clock reaches the stored time again.
        """
        if not point.has_data:
            return point
        if point.made_ms > now + _CLOCKS_MS:
            return replace(point, made_ms=now)
        age_ms = waited_ms(point.made_ms, now, stretches)
        if point.reason is not None:
            return _erased(point) if age_ms >= ERASE_AFTER_SECONDS * 1000 else point
        if retention_ms is None or age_ms < retention_ms:
            return point
        reason = f"it was older than {REWIND_POINT_RETENTION} ({period_text(retention_ms)})"
        return replace(point, reason=reason, made_ms=now)


def _erased(point: RewindPoint) -> RewindPoint:
    return RewindPoint(source_id=point.source_id, operation=point.operation, made_ms=point.made_ms, reason=point.reason)
