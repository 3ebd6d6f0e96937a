"""Discovers new splits of running sources and assigns them to the readers. Stalls readers whose upstream was
replaced."""

from __future__ import annotations

import logging
import math
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.ranged import RangedConnector
from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError
from rw_sql.metastore import ConcurrentCommit
from rw_sql.metastore.records import DISCOVERY, Operation, SourceRecord
from rw_sql.model.job_specs import ingest_spec, view_spec
from rw_sql.model.options import source_options, visible
from rw_sql.model.pauses import is_view_paused
from rw_sql.model.source_readers import readers_of
from rw_sql.model.split_status import still_asked
from rw_sql.plan.statements.common import take_up_new_topics
from rw_sql.runtime.control.inspector import WarehouseInspector
from rw_sql.runtime.control.quiesce import quiesced_jobs
from rw_sql.runtime.jobs.startable import require_same, require_splits
from rw_sql.runtime.observe.upstream_watcher import DISCOVERY_SECONDS, discovery_seconds
from rw_sql.runtime.support.background import run_in_background
from rw_sql.runtime.support.failures import StalledError, cause_line
from rw_sql.runtime.support.faults import fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from rw_sql.connectors.base import Upstream
    from rw_sql.metastore import Snapshot
    from rw_sql.model.job_specs import JobSpec
    from rw_sql.runtime.jobs.context import Context

logger = logging.getLogger(__name__)

_MOST_DISCOVERIES = 4
_LOCKED_SECONDS = 1.0
"""The interval in seconds between two checks of a source while quiesce locks prevent the commit of discovered
splits."""


class SplitDiscovery:
    """Checks the upstreams of running sources for new splits. Each source has its own interval. At most four checks run
    at a time.

    The source that has been due for the longest time is checked first. Therefore, slow upstreams delay the checks of
    other upstreams, but do not prevent them. ``stall`` is the function that stops a job for a reason that a check has
    found.
    """

    def __init__(self, context: Context, stall: Callable[[JobSpec, StalledError], None]) -> None:
        self._context = context
        self._stall = stall
        self._checks: dict[int, Future[None]] = {}
        self._next_check: dict[int, float] = {}
        self._next_check_lock = threading.Lock()
        self._changed: dict[int, None] = {}
        self._slots = threading.BoundedSemaphore(_MOST_DISCOVERIES)
        self._problems: dict[int, str] = {}
        self._looked_after: dict[int, tuple[Upstream, tuple[int, ...]]] = {}
        self._forgotten_at: Snapshot | None = None

    def schedule(self, source_id: int) -> None:
        """Makes a source due at once, even if its interval is not over."""
        with self._next_check_lock:
            self._next_check[source_id] = 0.0

    def look(self, changed: Iterable[int], running: Iterable[int]) -> None:
        """Starts the due checks in the background. The sources in ``changed`` are due at once, because their splits may
        have changed. The sources in ``running`` are due when their intervals are over."""
        now = time.monotonic()
        for source_id in changed:
            self._check_again(source_id, 0.0)
        self._forget_dropped()
        for source_id in sorted({**self._changed, **dict.fromkeys(running)}, key=self._due):
            work = self._checks.get(source_id)
            if (work is not None and not work.done()) or now < self._due(source_id):
                continue
            if source_id not in self._next_check and self._has_splits(source_id):
                self._next_check[source_id] = now + self._interval(source_id)
                continue
            interval = self._interval(source_id)
            if not self._slots.acquire(blocking=False):
                return
            check = partial(self._check, source_id, interval, is_changed=source_id in self._changed)
            self._changed.pop(source_id, None)
            self._next_check[source_id] = math.inf  # until the check has ended
            self._checks[source_id] = run_in_background(check, f"discovery-{source_id}")

    def _check_again(self, source_id: int, at: float) -> None:
        """Schedules the next check of a source for the time ``at`` on the monotonic clock, even if the source does not
        run at that time."""
        self._changed[source_id] = None
        with self._next_check_lock:
            self._next_check[source_id] = at

    def _due(self, source_id: int) -> float:
        """The time of a source's next check; 0 for a check without delay."""
        return self._next_check.get(source_id, 0.0)

    def _forget_dropped(self) -> None:
        """Removes what this object has stored about dropped sources. Does this only once for each version of the
        catalog."""
        snapshot = self._context.metastore.snapshot()
        if snapshot is self._forgotten_at:
            return
        self._forgotten_at = snapshot
        known: tuple[dict[int, Any], ...] = (
            self._checks,
            self._next_check,
            self._changed,
            self._problems,
            self._looked_after,
        )
        for facts in known:
            for source_id in [id_ for id_ in list(facts) if snapshot.get(id_) is None]:
                facts.pop(source_id, None)

    def _has_splits(self, source_id: int) -> bool:
        snapshot = self._context.metastore.snapshot()
        source = snapshot.get(source_id)
        if not isinstance(source, SourceRecord):
            return False
        return all(splits for _, _, splits in _running_readers(snapshot, source))

    def _interval(self, source_id: int) -> float:
        snapshot = self._context.metastore.snapshot()
        source = snapshot.get(source_id)
        if not isinstance(source, SourceRecord):
            return DISCOVERY_SECONDS
        return discovery_seconds(connector(source.connector), visible(source_options(snapshot, source)))

    def _check(self, source_id: int, interval: float, *, is_changed: bool = False) -> None:
        problem, is_complete = "", False
        try:
            self._look_after(source_id)
            is_complete = True
        except SqlError as error:
            problem = error.message
        except Exception as error:  # noqa: BLE001 - a connector may raise any exception
            # The client may raise any exception. The next check tries again, and the problem is logged once.
            if not self._context.explains(error):
                problem = f"{type(error).__name__}: {cause_line(str(error))}"
        finally:
            if is_changed and not is_complete:
                self._changed.setdefault(source_id)  # The source still needs a check.
            with self._next_check_lock:
                if self._due(source_id) == math.inf:
                    self._next_check[source_id] = time.monotonic() + interval
            self._slots.release()
        if problem and self._problems.get(source_id) != problem:
            logger.warning("the splits of source %d could not be checked: %s", source_id, problem)
        self._problems[source_id] = problem

    def _look_after(self, source_id: int) -> None:
        """Checks a source: stalls the readers whose upstream has been replaced. If no reader was stalled, assigns the
        new splits."""
        metastore = self._context.metastore
        snapshot = metastore.snapshot()
        source = snapshot.get(source_id)
        if not isinstance(source, SourceRecord):
            return
        readers = _running_readers(snapshot, source)
        if not readers:
            return
        inspector = WarehouseInspector(self._context, snapshot)
        # The inspector caches this state of the upstream, so that the operation below assigns the splits of this state.
        upstream = inspector.upstreams.look(source.connector, source_options(snapshot, source))
        stamp = (upstream, tuple(snapshot.fragment_epoch(fragment) for fragment, _, _ in readers))
        if self._looked_after.get(source_id) == stamp:
            return  # No split is new, changed or missing since the last check, so 100,000 files are not checked again.
        has_stalled = False
        for fragment, spec, splits in readers:
            if not upstream.is_reachable or not splits:
                continue
            try:
                require_splits(splits, upstream)
                states = inspector.positions.of(source_id, fragment).states
                kind = connector(source.connector)
                require_same(source.name, still_asked(kind, splits, states, upstream), states, upstream, kind)
            except StalledError as error:
                has_stalled = True
                self._stall(spec, error)
        if has_stalled:
            return
        changes, notes = take_up_new_topics(snapshot, inspector, source)
        if not changes:
            if isinstance(connector(source.connector), RangedConnector):
                self._looked_after[source_id] = stamp
            return
        operation = Operation(
            kind=DISCOVERY,
            statement=f"-- discovered for source {source.name}: {'; '.join(notes)}",
            objects=(source.name,),
            changes=changes,
            actor=self._context.owner,
        )
        fault("owner.before_discovery")
        if quiesced_jobs(self._context, snapshot):
            # Any commit would end the locks. The statement that holds the locks would then be planned again with other
            # positions, and would have to be confirmed again.
            self._check_again(source_id, time.monotonic() + _LOCKED_SECONDS)
            return
        try:
            metastore.commit(operation, based_on=snapshot)
        except ConcurrentCommit:
            self._check_again(source_id, 0.0)


def _running_readers(snapshot: Snapshot, source: SourceRecord) -> list[tuple[str, JobSpec, tuple[str, ...]]]:
    """Returns the fragments of those readers of a source that should run, each with the spec of its job and its
    splits."""
    found: list[tuple[str, JobSpec, tuple[str, ...]]] = []
    for reader in readers_of(snapshot, source):
        if reader.view is None:
            ingest = ingest_spec(snapshot, source)
            if ingest is not None:
                found.append((reader.fragment, ingest, ingest.splits))
        elif not is_view_paused(snapshot, reader.view):
            view = view_spec(snapshot, reader.view)
            own = view.reader_of(source.id)
            found.append((reader.fragment, view, own.splits if own is not None else ()))
    return found
