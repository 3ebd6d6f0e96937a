"""How often a reader begins a batch, how much one may hold, and that no more than its rate comes in."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.model.rates import BARRIER_INTERVAL, rate_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BATCH_RECORDS = 2_500_000
"""The most records one batch reads, over all splits: it bounds what a pause may have to throw away. Every batch costs
its reader and each view about a second of CPU whatever it holds, so that one of fewer is dearer to catch up with."""

_MOST_IN_AN_INTERVAL = 10_000_000
"""How many at most where batches are to start seldom: one then holds what comes in the meantime."""

_RATE_INTERVAL_MS = 1000
"""With a rate limit batches start once a second: what one may read is the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """How often a batch starts (0: as soon as there is data) and how many records it reads at most.

    ``per_second`` is the rate that no stretch of batches may exceed, None where there is none.
    """

    interval_ms: int
    batch_records: int
    per_second: int | None = None


def pace_of(options: Mapping[str, str]) -> BatchLimits:
    """The pace that ``barrier_interval_ms`` and ``source_rate_limit`` (records per second over all splits) ask for."""
    interval_ms = int(options.get(BARRIER_INTERVAL, "0"))
    limit = rate_limit(options)
    # Between two batches of a minute's interval more comes in than in a second.
    most = max(BATCH_RECORDS, min(BATCH_RECORDS * interval_ms // 1000, _MOST_IN_AN_INTERVAL))
    if limit is None:
        return BatchLimits(interval_ms=interval_ms, batch_records=most)
    interval_ms = max(interval_ms, _RATE_INTERVAL_MS)
    records = min(max(1, limit * interval_ms // 1000), most)
    return BatchLimits(interval_ms=interval_ms, batch_records=records, per_second=limit)


@dataclass(slots=True)
class Throttle:
    """Holds each batch back until those before it have had their time.

    A reader's own limit is not exact: Spark's takes at least one record of every split, however many there are. What
    that is too much is paid for by the time until the next batch.
    """

    per_second: int | None
    clock: Callable[[], float] = time.monotonic
    _free_at: float = 0.0
    _is_over: threading.Event = field(default_factory=threading.Event)

    def take(self, records: int) -> bool:
        """Waits until a batch of so many records may be written; False where :meth:`end` was called meanwhile."""
        if self.per_second is None:
            return not self._is_over.is_set()
        now = self.clock()
        wait = self._free_at - now
        if wait > 0 and self._is_over.wait(wait):
            return False
        self._free_at = max(self._free_at, now) + records / self.per_second
        return not self._is_over.is_set()

    def end(self) -> None:
        """Lets nobody wait any more."""
        self._is_over.set()
