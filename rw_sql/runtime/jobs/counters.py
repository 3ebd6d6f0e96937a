"""Counters for metrics that cannot be read from tables."""

from __future__ import annotations

import threading
from collections import Counter


class DecodeErrors:
    """Counts, by source, the records that direct readers could not decode. A record counts once for each view that
    reads it directly. Thread-safe."""

    def __init__(self) -> None:
        self._found: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, source: str, records: int) -> None:
        """Adds ``records`` to the count of a source's undecodable records."""
        with self._lock:
            self._found[source] += records

    def of(self, source: str) -> int:
        """The number of records of a source that the direct readers of this process could not decode since it attached
        the warehouse."""
        with self._lock:
            return self._found[source]


class JobFigures:
    """Values that exist only in the process that runs the jobs, because no table contains them. Thread-safe."""

    def __init__(self) -> None:
        self._batches: dict[str, tuple[int, float]] = {}
        self._stalls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def note_batch(self, job: str, at_ms: int, seconds: float) -> None:
        """Records a batch that ended at ``at_ms`` without an error, and its duration."""
        with self._lock:
            self._batches[job] = (at_ms, seconds)

    def last_batch(self, job: str) -> tuple[int, float] | None:
        """The end and duration of a job's last batch; None if no batch has ended in this process."""
        with self._lock:
            return self._batches.get(job)

    def note_stall(self, job: str) -> None:
        """Adds one to the number of times that a job became STALLED."""
        with self._lock:
            self._stalls[job] += 1

    def stalls(self, job: str) -> int:
        """The number of times that a job became STALLED in this process."""
        with self._lock:
            return self._stalls[job]
