"""Enables another thread to end a connector's wait for an upstream, such as the wait for a lock in a database.

The caller of a connector opens :func:`interruptible`, which yields a function, and passes this function to other
threads. The connector uses :func:`ended_by` to declare how its waits can be ended.
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
    """A context manager that yields a function. Other threads call this function to end the waits of this thread inside
    the ``with`` block.

    The function affects only a wait that is in progress, so other threads call the function repeatedly until the thread
    has ended its work. Outside a wait, the function does nothing.
    """
    waits = _Waits()
    token = _CURRENT.set(waits)
    try:
        yield waits.interrupt
    finally:
        _CURRENT.reset(token)


@contextmanager
def ended_by(end: Callable[[], None]) -> Iterator[None]:
    """A context manager. If another thread interrupts this thread inside the ``with`` block, ``end`` is called.
    (Outside of a block of :func:`interruptible`, no thread can interrupt this thread.)

    ``end`` must make the wait raise an error. ``end`` runs in another thread and must raise no error. ``end`` may be
    called several times, and also shortly after the end of the block.
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
