"""Defines the limits of a reader: how often it starts a batch, how many records a batch has, and how many records per
second the reader reads."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.model.rates import BARRIER_INTERVAL, rate_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BATCH_RECORDS = 2_500_000
"""The maximum number of records in one batch with two cores, over all splits.

The limit bounds the work that is lost if a pause cancels a batch.

Every batch costs its reader and each view about a second of CPU time, so smaller batches would make catching up more
expensive. With more cores, the maximum is proportionally higher, so a batch of the maximum size takes about as long as
with two cores.
"""

_MOST_IN_AN_INTERVAL = 10_000_000
"""The maximum number of records in a batch, with two cores, if the barrier interval is long. This maximum is higher
than ``BATCH_RECORDS``, because more records arrive during a long interval, and one batch should read all of them."""

_RATE_INTERVAL_MS = 1000
"""The minimum batch interval, in milliseconds, of a source with a rate limit. At this interval, each batch reads the
records of one second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The minimum interval between batches, and the maximum number of records in a batch. If ``interval_ms`` is 0, a
    batch starts as soon as there is data.

    ``per_second`` is the maximum average rate of records over any sequence of batches; None if there is no limit.
    """

    interval_ms: int
    batch_records: int
    per_second: int | None = None


def pace_of(options: Mapping[str, str], cores: int = 2) -> BatchLimits:
    """The limits that the options ``barrier_interval_ms`` and ``source_rate_limit`` (records per second over all
    splits) define.

    ``cores`` is the number of cores that work on a batch.
    """
    interval_ms = int(options.get(BARRIER_INTERVAL, "0"))
    limit = rate_limit(options)
    # During a longer interval, more records arrive between two batches.
    most = max(BATCH_RECORDS, min(BATCH_RECORDS * interval_ms // 1000, _MOST_IN_AN_INTERVAL)) * max(2, cores) // 2
    if limit is None:
        return BatchLimits(interval_ms=interval_ms, batch_records=most)
    interval_ms = max(interval_ms, _RATE_INTERVAL_MS)
    records = min(max(1, limit * interval_ms // 1000), most)
    return BatchLimits(interval_ms=interval_ms, batch_records=records, per_second=limit)


@dataclass(slots=True)
class Throttle:
    """Delays each batch until the rate limit permits the batch.

    Spark's limit per batch is not exact: Spark reads at least one record per split, even if the limit allows fewer
    records than there are splits. Delaying the next batch compensates for the excess.
    """

    per_second: int | None
    clock: Callable[[], float] = time.monotonic
    _free_at: float = 0.0
    _is_over: threading.Event = field(default_factory=threading.Event)

    def take(self, records: int) -> bool:
        """Waits until a batch of ``records`` records may be written. Returns False if :meth:`end` was called before or
        during the wait."""
        if self.per_second is None:
            return not self._is_over.is_set()
        now = self.clock()
        wait = self._free_at - now
        if wait > 0 and self._is_over.wait(wait):
            return False
        self._free_at = max(self._free_at, now) + records / self.per_second
        return not self._is_over.is_set()

    def end(self) -> None:
        """Ends the wait in progress and all later waits."""
        self._is_over.set()
