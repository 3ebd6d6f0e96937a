"""Decides when a failure that may repeat is logged: when it begins, at growing intervals while it continues, and when
it ends."""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_SECONDS, MOST_SECONDS = 60.0, 3600.0
"""The first and the longest interval in seconds between two log lines about the same continuing failure."""

_NEW_AFTER_SECONDS = 60.0
"""If a failure occurs at least this number of seconds after the previous failure ended, it counts as new. If it occurs
sooner, it continues the previous failure, and is not logged before the current interval is over."""


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
        """The time in seconds for which the present failure has continued; 0 if there is no failure at present."""
        since = self._since
        return 0.0 if since is None else self._clock() - since

    def failed(self, cause: object = None) -> bool:
        """Records that the failure has occurred. Returns True if the caller must log it now. If ``cause`` differs from
        the previous cause, the result is always True."""
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
        """Records a success. If this ends a failure that was logged, returns the duration of the failure in seconds,
        and the caller must log its end. Otherwise, returns None."""
        with self._lock:
            since, now = self._since, self._clock()
            if since is None:
                return None
            self._since, self._ended_at = None, now
            return now - since if self._is_told else None
