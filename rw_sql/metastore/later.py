"""Work that nobody waits for: on another thread, after a while in which more of it may come."""

from __future__ import annotations

import time
from threading import Event, Lock, Thread, main_thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_SECONDS = 0.1


class Later:
    """One kind of such work. What is asked for until it begins is done with it; any thread may ask.

    It begins ``seconds`` after it was asked for, at once where somebody waits for it or the interpreter ends, which
    waits for it. ``work`` handles its own errors, and runs on several threads where it is asked for while it runs.
    """

    def __init__(self, work: Callable[[], None], name: str, *, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self._work = work
        self._name = name
        self._lock = Lock()
        self._hurry = Event()
        self._is_due = False
        self._threads: list[Thread] = []

    def ask(self) -> None:
        """Lets it be done. Where there can be no more threads (from Python 3.12 on: while the interpreter ends) it is
        done before this returns."""
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

    def settle(self) -> None:
        """Waits until all that was asked for is done."""
        if not self._threads:
            return
        self._hurry.set()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _wait_and_do(self) -> None:
        until = time.monotonic() + self.seconds
        # Where the interpreter ends nothing follows, and it waits for this thread.
        while time.monotonic() < until and main_thread().is_alive() and not self._hurry.wait(_LOOK_SECONDS):
            pass
        with self._lock:
            self._is_due = False
        self._work()
