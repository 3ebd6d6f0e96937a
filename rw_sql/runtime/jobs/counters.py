"""Counts that jobs keep for the warehouse's metrics: what no table of theirs shows."""

from __future__ import annotations

import threading
from collections import Counter


class DecodeErrors:
    """Records that views which read a source themselves could not decode, each view for itself. Any thread may add."""

    def __init__(self) -> None:
        self._found: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, source: str, records: int) -> None:
        """Counts records of a source."""
        with self._lock:
            self._found[source] += records

    def of(self, source: str) -> int:
        """How many records of a source were counted since the process attached."""
        with self._lock:
            return self._found[source]
