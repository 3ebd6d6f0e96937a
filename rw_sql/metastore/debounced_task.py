"""Runs background work once for several requests that arrive within a short time."""

from __future__ import annotations

import time
from threading import Event, Lock, Thread, main_thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_SECONDS = 0.1


class DebouncedTask:
    """Runs work on another thread, once for all requests that arrive before the work starts. Thread-safe.

    The work starts ``seconds`` after the first request. The work starts earlier if :meth:`flush` is called or if the
    interpreter exits. The interpreter waits for the work before it exits. ``work`` must handle its own errors. A
    request that arrives while the work runs starts another thread, so ``work`` may run on several threads at once.
    """

    def __init__(self, work: Callable[[], None], name: str, *, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self._work = work
        self._name = name
        self._lock = Lock()
        self._hurry = Event()
        self._is_due = False
        self._threads: list[Thread] = []

    def schedule(self) -> None:
        """Requests the work.

        If Python cannot start a thread, which is the case during interpreter exit since Python 3.12, runs the work in
        the calling thread.
        """
        with self._lock:
            if self._is_due:
                return
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            thread = Thread(target=self._wait_and_do, name=f"rw_sql-{self._name}")
            self._hurry.clear()
            try:
                thread.start()
            except RuntimeError:
                pass
            else:
                self._is_due = True
                self._threads.append(thread)
                return
        self._work()

    def flush(self) -> None:
        """Blocks until all requested work is done."""
        if not self._threads:
            return
        self._hurry.set()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _wait_and_do(self) -> None:
        until = time.monotonic() + self.seconds
        # If the interpreter is exiting, no further requests can arrive, and the exit waits for this thread.
        while time.monotonic() < until and main_thread().is_alive() and not self._hurry.wait(_LOOK_SECONDS):
            pass
        with self._lock:
            self._is_due = False
        self._work()
