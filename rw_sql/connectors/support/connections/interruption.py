"""Lets one thread end the waits of a connector in another thread, such as the wait for a lock in a database.

The thread that calls a connector enters :func:`interruptible`, and passes the yielded function to other threads. The
connector uses :func:`ended_by` to declare how another thread can end its waits.
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
    """A context manager that yields a function. Another thread calls this function to end a wait of the thread that
    runs the ``with`` block.

    The function ends only a wait that is in progress; at other times, it does nothing. The other thread must therefore
    call it repeatedly until the ``with`` block has ended.
    """
    waits = _Waits()
    token = _CURRENT.set(waits)
    try:
        yield waits.interrupt
    finally:
        _CURRENT.reset(token)


@contextmanager
def ended_by(end: Callable[[], None]) -> Iterator[None]:
    """A context manager around a wait. If another thread calls the function of :func:`interruptible` during the wait,
    this function calls ``end``. Without an enclosing :func:`interruptible`, this context manager has no effect.

    ``end`` must make the wait raise an error. ``end`` runs in another thread and must raise no error. ``end`` may be
    called several times, and even shortly after the ``with`` block has ended.
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
