"""Defines a timeout that restarts whenever there is progress. A wait on a slow machine therefore does not time out as
long as there is progress."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MOST_SIGNS_OF_LIFE = 10
"""A wait without progress, but with signs of life, ends after this multiple of the wait's limit."""


class StallTimeout:
    """A timeout that expires after ``seconds`` without progress.

    A *mark* is a value that changes only with progress, such as a position, a version or an epoch. A *sign of life*,
    such as the owner's heartbeat, only shows that a process is alive. Signs of life without progress extend a wait to
    at most ten times the limit, because a process that is alive may still never finish.
    """

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._moved_at = self._lived_at = clock()
        self._marks: dict[str, object] = {}
        self._signs: dict[str, object] = {}
        self._last: str | None = None

    def note(self, marks: Mapping[str, object], signs: Mapping[str, object] | None = None) -> None:
        """Compares the marks and the signs of life with those of the previous call. A changed mark restarts the
        timeout. A changed sign of life extends the timeout, up to the maximum of ten times the limit.

        A mark that the previous call did not contain also restarts the timeout, because its earlier progress is
        unknown.
        """
        now = self._clock()
        for name, mark in marks.items():
            if name not in self._marks:
                self._moved_at = now
            elif self._marks[name] != mark:
                self._moved_at, self._last = now, name
            self._marks[name] = mark
        for name, sign in (signs or {}).items():
            if name in self._signs and self._signs[name] != sign:
                self._lived_at = now
            self._signs[name] = sign

    def begin(self) -> None:
        """Restarts the timeout, because the caller begins to wait for its next condition."""
        self._moved_at = self._lived_at = self._clock()

    @property
    def left(self) -> float:
        """The time in seconds until the timeout expires if no progress is made; never negative."""
        last = max(self._moved_at, min(self._lived_at, self._moved_at + (_MOST_SIGNS_OF_LIFE - 1) * self.seconds))
        return max(0.0, last + self.seconds - self._clock())

    @property
    def is_over(self) -> bool:
        """True if the timeout has expired."""
        return self.left <= 0

    @property
    def told(self) -> str:
        """A text about the lack of progress, for an error message after the timeout has expired."""
        said = f"no progress for {spoken_seconds(self.seconds)}"
        return said if self._last is None else f"{said} ({self._last} advanced last)"

    @property
    def longer(self) -> str:
        """A larger value for ``statement_timeout``, as text that a user can type."""
        longer = max(1.0, 5 * self.seconds)
        return f"{longer / 60:.0f}min" if longer >= 120 else f"{longer:.0f}s"


def spoken_seconds(seconds: float) -> str:
    """A duration as text in one unit: hours from 2 h on, minutes from 2 min on, otherwise seconds (``90 s``, ``4 min``,
    ``3 h``)."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1, round(seconds))} s" if seconds >= 1 else f"{seconds:.1g} s"
