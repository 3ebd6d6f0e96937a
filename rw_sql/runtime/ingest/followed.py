"""Finds the next small batch of a source whose fetcher receives records as soon as they are written."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.connectors.base import PooledConnector
from rw_sql.connectors.fetching import FollowingFetcher
from rw_sql.runtime.delta.job_output import SMALL_ROWS
from rw_sql.runtime.jobs.batch_mode import LeftToSparkError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rw_sql.connectors.base import Connector
    from rw_sql.connectors.fetching import RecordFetcher
    from rw_sql.runtime.jobs.rate_limit import BatchLimits

MOST_SPLITS = 1000
"""The maximum number of splits that a fetcher follows. Each request of a fetcher names all splits of a server."""

_WAIT_SECONDS = 0.05
"""The maximum time in seconds for which the fetcher waits for records. A stop of the run therefore waits at most this
long for the fetcher."""

_ASK_SECONDS = 0.5
"""The time in seconds between two requests for the splits' ends while no records arrive. The requests are needed
because a fetcher may not notice that a split was deleted, or that the split's end moved although no record was
added."""

_PATIENCE_SECONDS = 5.0
"""The maximum time in seconds for which the ends of splits may remain unknown. After this time, the run ends. The start
of the next run reports why the ends are unknown."""


def may_follow(kind: Connector, fetcher: RecordFetcher | None, splits: int, pace: BatchLimits) -> bool:
    """True if a thread may read the small batches of a source without a query.

    A source with a rate limit needs Spark's query, which divides the records of each batch among the splits.
    """
    if not isinstance(kind, PooledConnector) or not isinstance(fetcher, FollowingFetcher):
        return False
    return fetcher.can_follow and splits <= MOST_SPLITS and pace.per_second is None


@dataclass(slots=True, kw_only=True)
class FollowedSource:
    """The records of one source after ``positions``. The positions advance with each batch.

    ``require_same`` is a function that raises StalledError if the upstream has been replaced.
    """

    kind: PooledConnector
    options: Mapping[str, str]
    fetcher: FollowingFetcher
    positions: Mapping[str, int]
    most: int
    require_same: Callable[[], None]
    ends: dict[str, int] = field(default_factory=dict, init=False)
    """The end offsets of the next batch; splits without new records are absent."""
    _ask_at: float = field(default=0.0, init=False)
    _answered_at: float = field(default=0.0, init=False)

    def begin(self) -> bool:
        """Begins to receive records. If more records are available upstream than fit into a small batch, returns False
        and receives nothing, because only a query reads larger batches."""
        self._answered_at = time.monotonic()
        self._ask_at = self._answered_at + _ASK_SECONDS
        try:
            known = self.kind.pooled_ends(self.options, tuple(self.positions))
        except OSError:
            known = {}  # If the error lasts, the first batch reports it.
        if sum(max(0, known.get(split, 0) - at) for split, at in self.positions.items()) > SMALL_ROWS:
            return False
        self.fetcher.follow(dict(self.positions))
        return True

    def has_next(self) -> bool:
        """Waits at most 0.05 seconds for records, and determines ``ends``. Returns True if a split has new records.

        Raises LeftToSparkError if the batch is not small or the fetcher cannot read it. Raises OSError if the upstream
        does not respond, and StalledError if the upstream has been replaced.
        """
        arrived = self.fetcher.arrived(_WAIT_SECONDS, most=min(self.most, SMALL_ROWS))
        if arrived is None:
            raise LeftToSparkError("the fetcher has given up")
        self.ends = {split: end for split, end in arrived.items() if end > self.positions[split]}
        now = time.monotonic()
        if self.ends:
            self._answered_at, self._ask_at = now, now + _ASK_SECONDS
        elif now >= self._ask_at:
            self.ends = self._asked(now)
            self._ask_at = time.monotonic() + _ASK_SECONDS
        if sum(end - self.positions[split] for split, end in self.ends.items()) > SMALL_ROWS:
            raise LeftToSparkError("the batch is not small")
        return bool(self.ends)

    def _asked(self, now: float) -> dict[str, int]:
        """Requests the ends of all splits from the upstream. Returns the ends of those splits that have new records."""
        try:
            known = self.kind.pooled_ends(self.options, tuple(self.positions))
        except OSError:
            if now - self._answered_at > _PATIENCE_SECONDS:
                raise
            return {}
        unknown = self.positions.keys() - known.keys()
        passed = [split for split, end in known.items() if end < self.positions[split]]
        if unknown or passed:
            self.require_same()
            if now - self._answered_at > _PATIENCE_SECONDS:
                named = ", ".join(sorted(unknown) or passed)
                raise ConnectionError(f"the ends of {named} are {'unknown' if unknown else 'before the positions'}")
            return {}
        self._answered_at = time.monotonic()
        return {split: end for split, end in known.items() if end > self.positions[split]}
