"""Decides when a repeated failure is logged. The failure is logged at its beginning, at growing intervals while it
continues, and at its end."""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_SECONDS, MOST_SECONDS = 60.0, 3600.0
"""The first and the largest interval in seconds between two log lines about a failure that continues."""

_NEW_AFTER_SECONDS = 60.0
"""The time in seconds without a failure after which the next failure counts as new. If a failure occurs again sooner
than this, it counts as a continuation of the earlier failure."""


class FailureLog:
    """One failure that may repeat. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._since: float | None = None
        self._ended_at: float | None = None
        self._next_at = 0.0
        self._interval = FIRST_SECONDS
        self._cause: object = None
        self._is_told = False

    @property
    def seconds(self) -> float:
        """The time in seconds for which the failure has continued; 0 if there is no failure."""
        since = self._since
        return 0.0 if since is None else self._clock() - since

    def failed(self, cause: object = None) -> bool:
        """Records a failure. Returns True if the caller must log the failure. A failure whose cause differs from the
        previous cause is logged at once."""
        with self._lock:
            now = self._clock()
            if self._since is None:
                self._since, self._is_told = now, False
                if self._ended_at is None or now - self._ended_at >= _NEW_AFTER_SECONDS:
                    self._next_at, self._interval = now, FIRST_SECONDS
            if now < self._next_at and cause == self._cause:
                return False
            self._cause, self._is_told = cause, True
            self._next_at, self._interval = now + self._interval, min(2 * self._interval, MOST_SECONDS)
            return True

    def ended(self) -> float | None:
        """Records a success. If the caller must log the end of a failure, returns the duration of the failure in
        seconds; otherwise None."""
        with self._lock:
            since, now = self._since, self._clock()
            if since is None:
                return None
            self._since, self._ended_at = None, now
            return now - since if self._is_told else None
