"""Counters that jobs keep for the metrics, for facts that their tables do not show."""

from __future__ import annotations

import threading
from collections import Counter


class DecodeErrors:
    """The records that direct readers could not decode, counted separately for each view. Thread-safe."""

    def __init__(self) -> None:
        self._found: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, source: str, records: int) -> None:
        """Adds records of a source."""
        with self._lock:
            self._found[source] += records

    def of(self, source: str) -> int:
        """The records of a source counted since the process attached."""
        with self._lock:
            return self._found[source]
