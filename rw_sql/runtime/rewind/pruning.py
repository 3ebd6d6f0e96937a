"""Removes rewind points: a source's oldest points if it has more than ``rewind_points``, and the points that are older
than ``rewind_point_retention``.

The time in which no process ran the jobs of the source's resource group does not count. After a long pause, the points
are therefore as old as before the pause.

A point that is too old is removed in two steps. First, the point gets a reason, and no new REWIND can return to it. But
a REWIND that was planned earlier may be committed after its user has confirmed it. The data of the point therefore
stay for ``ERASE_AFTER_SECONDS``, or until that REWIND is carried out.
"""

from __future__ import annotations

import logging
import time
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
from rw_sql.runtime.jobs.downtime import downtime_until, waited_ms
from rw_sql.runtime.positions.pins import FOLDER
from rw_sql.runtime.support.processes import now_ms

if TYPE_CHECKING:
    from collections.abc import Collection

    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.jobs.context import Context

logger = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
"""The interval in seconds between two searches for points that are too old."""

ERASE_AFTER_SECONDS = 3600.0
"""The time in seconds for which the data of a point that is too old are kept. It is longer than a user can take to
confirm a REWIND without having it planned again."""

_CLOCKS_MS = 120_000
"""The difference in milliseconds between the clocks of two machines that is not corrected."""


def kept_points(snapshot: Snapshot) -> int:
    """The number of points that a source keeps."""
    return int(snapshot.parameter("rewind_points") or SYSTEM_PARAMETERS["rewind_points"].default)


def prune_points(context: Context, snapshot: Snapshot, source_id: int) -> None:
    """Deletes all but the newest points of a source, and copies without a point.

    Keeps the copies that an unfinished REWIND needs, and the copies for operations that may still get a point, because
    another owner may be making them.
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
    kept = {point.folder for point in facts.rewind_points(source_id)}
    last = facts.last_runs().get(ingest_fragment(source_id))
    newest = max((*facts.rewind_operations(source_id), 0 if last is None else last.epoch))
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
    """The points of a source that are too many. ``points`` ascend by their operations."""
    made = [point for point in points if point.reason is None]
    return [point for point in made[: max(0, len(made) - limit)] if point.operation not in pending]


class PointPruning:
    """Removes the points of the sources of one resource group, in the process that owns its jobs. Not thread-safe."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._next = time.monotonic() + EVERY_SECONDS
        self._limits: tuple[int, int | None] | None = None
        self._is_tidied = False
        self._expired: dict[tuple[int, int], float] = {}
        """The time on the monotonic clock at which this process first found a point to have a reason and data."""

    def run_if_due(self, snapshot: Snapshot, busy: Collection[int]) -> None:
        """Removes points if that is due: at intervals, and after a change of the system parameters.

        The points of the sources ``busy`` stay, because another thread makes a point or carries out a REWIND, or a
        point must be made first. Failures of the store are logged; the next call that is due repeats the failed steps.
        """
        limits = (kept_points(snapshot), rewind_point_retention_ms(snapshot))
        is_changed = self._limits not in (None, limits)
        self._limits = limits
        if time.monotonic() < self._next and not is_changed:
            return
        self._next = time.monotonic() + EVERY_SECONDS
        try:
            with delta_errors():
                self._run(snapshot, busy)
        except (SqlError, DeltaError, OSError) as error:
            if not self._context.explains(error):
                logger.warning("old rewind points could not be removed yet: %s", error)

    def _run(self, snapshot: Snapshot, busy: Collection[int]) -> None:
        context = self._context
        if not context.holds_lease():
            return
        points = context.metastore.jobs.rewind_points()
        expired = [
            (point.source_id, point.operation) for point in points if point.reason is not None and point.has_data
        ]
        self._expired = {key: self._expired.get(key, time.monotonic()) for key in expired}
        by_source: dict[int, list[RewindPoint]] = {id_: [] for id_ in self._left_behind(points)}
        for point in points:
            by_source.setdefault(point.source_id, []).append(point)
        for id_ in sorted(by_source.keys() - self._previewed(snapshot) - set(busy)):
            source = snapshot.get(id_)
            if isinstance(source, SourceRecord) and source.resource_group == context.group:
                self._prune(snapshot, id_, by_source[id_])
        self._is_tidied = True

    def _left_behind(self, points: Collection[RewindPoint]) -> set[int]:
        """The sources with copies and without points, if this process has not looked for them yet. An owner that was
        killed may have left such copies."""
        if self._is_tidied:
            return set()
        names = self._context.warehouse.list_names(f"{self._context.warehouse.uri}/{FOLDER}")
        found = (name.removeprefix("rewind-") for name in names if name.startswith("rewind-"))
        return {int(id_) for id_ in found if id_.isdecimal()} - {point.source_id for point in points if point.has_data}

    def _previewed(self, snapshot: Snapshot) -> set[int]:
        """The sources whose readers are stopped for a statement that may be a REWIND."""
        locks, now = self._context.metastore.jobs.quiesce_locks(), now_ms()
        return {lock.source_id for lock in locks if lock.epoch == snapshot.epoch and lock.expires_ms > now}

    def _prune(self, snapshot: Snapshot, source_id: int, points: list[RewindPoint]) -> None:
        pending = _pending(self._context, snapshot, source_id)
        erased = [_erased(point) for point in points if point.operation not in pending and self._is_erasable(point)]
        aged = [
            self._aged(point, rewind_point_retention_ms(snapshot))
            for point in points
            if point.reason is None and point.operation not in pending
        ]
        changed = [point for point in aged if point not in points]
        if erased or changed:
            self._context.metastore.jobs.replace_rewind_points([*erased, *changed])
        has_data = any(point.has_data for point in points)
        if erased or not (self._is_tidied or has_data) or _surplus(points, kept_points(snapshot), pending):
            prune_points(self._context, snapshot, source_id)

    def _is_erasable(self, point: RewindPoint) -> bool:
        since = self._expired.get((point.source_id, point.operation))
        return since is not None and time.monotonic() - since >= ERASE_AFTER_SECONDS

    def _aged(self, point: RewindPoint, retention_ms: int | None) -> RewindPoint:
        """The point, with a reason if it is too old. If the clock was set back since the point was made, the point
        counts as made now, because it would otherwise not grow old until the clock is at the recorded time again."""
        context, now = self._context, now_ms()
        if point.made_ms > now + _CLOCKS_MS:
            return replace(point, made_ms=now)
        if retention_ms is None or now - point.made_ms < retention_ms:
            return point
        if waited_ms(point.made_ms, now, downtime_until(context, context.group, now)) < retention_ms:
            return point
        return replace(point, reason=f"it was older than {REWIND_POINT_RETENTION} ({period_text(retention_ms)})")


def _erased(point: RewindPoint) -> RewindPoint:
    return RewindPoint(source_id=point.source_id, operation=point.operation, made_ms=point.made_ms, reason=point.reason)
