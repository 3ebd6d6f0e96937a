"""Lets another thread end a connector's wait for an upstream, such as the wait for a lock in a database.

The caller of a connector opens :func:`interruptible`, which yields a function, and passes this function to other
threads. The connector declares with :func:`ended_by` how its waits can be ended.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class _Waits:
    """The functions that end the current waits of one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: list[Callable[[], None]] = []

    def add(self, end: Callable[[], None]) -> None:
        with self._lock:
            self._ends.append(end)

    def remove(self, end: Callable[[], None]) -> None:
        with self._lock:
            self._ends.remove(end)

    def interrupt(self) -> None:
        with self._lock:
            ends = list(self._ends)
        for end in ends:
            end()


_CURRENT: ContextVar[_Waits | None] = ContextVar("waits", default=None)


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Yields a function with which other threads end the waits of this thread within the block.

    The function affects only waits that are in progress, so a caller calls the function repeatedly until the thread has
    ended its work. Outside a wait, the function does nothing.
    """
    waits = _Waits()
    token = _CURRENT.set(waits)
    try:
        yield waits.interrupt
    finally:
        _CURRENT.reset(token)


@contextmanager
def ended_by(end: Callable[[], None]) -> Iterator[None]:
    """Within the block, ``end`` is called if another thread interrupts this thread. Outside of a block of
    :func:`interruptible`, no thread can interrupt this thread.

    ``end`` makes the wait raise an error. ``end`` runs in another thread and must raise nothing. ``end`` may be called
    several times, and also shortly after the end of the block.
    """
    waits = _CURRENT.get()
    if waits is None:
        yield
        return
    waits.add(end)
    try:
        yield
    finally:
        waits.remove(end)
