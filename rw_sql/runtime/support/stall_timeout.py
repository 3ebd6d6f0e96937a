"""A limit for waits that counts progress: it runs out when nothing has moved for a while, however slow the machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MOST_SIGNS_OF_LIFE = 10
"""Signs of life keep a wait going for at most so many times its limit."""


class StallTimeout:
    """Runs out once nothing has moved for ``seconds``.

    A *mark* is a value that changes only with progress: a position, a version, an epoch. A *sign of life*, such as the
    owner's heartbeat, says only that somebody is still at work: alone it prolongs a wait to ten times the limit, since
    what never ends although its process lives must end the wait too.
    """

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._moved_at = self._lived_at = clock()
        self._marks: dict[str, object] = {}
        self._signs: dict[str, object] = {}
        self._last: str | None = None

    def note(self, marks: Mapping[str, object], signs: Mapping[str, object] | None = None) -> None:
        """Compares the marks and signs of life with those that were noted before.

        From where something is noted for the first time it has the whole time: what it did before nobody saw.
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
        """Begins anew, as for the next of several things that are waited for."""
        self._moved_at = self._lived_at = self._clock()

    @property
    def left(self) -> float:
        """The seconds until it runs out, unless something moves; never negative."""
        last = max(self._moved_at, min(self._lived_at, self._moved_at + (_MOST_SIGNS_OF_LIFE - 1) * self.seconds))
        return max(0.0, last + self.seconds - self._clock())

    @property
    def is_over(self) -> bool:
        """Whether nothing has moved for so long."""
        return self.left <= 0

    @property
    def told(self) -> str:
        """What to say once it has run out."""
        said = f"nothing moved for {spoken_seconds(self.seconds)}"
        return said if self._last is None else f"{said} ({self._last} moved last)"

    @property
    def longer(self) -> str:
        """A greater ``statement_timeout`` as it can be typed."""
        longer = max(1.0, 5 * self.seconds)
        return f"{longer / 60:.0f}min" if longer >= 120 else f"{longer:.0f}s"


def spoken_seconds(seconds: float) -> str:
    """A period as people say it, in the largest unit of which there are at least two: ``90 s``, ``4 min``, ``3 h``."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1, round(seconds))} s" if seconds >= 1 else f"{seconds:.1g} s"
