"""Sends a Ctrl-C again if Python has lost it.

Python runs a signal's handler between any two instructions of the main thread, and therefore also inside a finalizer or
a weak reference's callback. If a finalizer or a weak reference's callback raises an exception, Python only prints this
exception (``sys.unraisablehook``). A KeyboardInterrupt that is raised there is therefore lost, and a prompt continues
to wait.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from sys import UnraisableHookArgs

_AFTER_SECONDS = 0.02
"""The delay in seconds before a lost interrupt is sent again. By then, the finalizer that swallowed the interrupt has
returned."""


@contextmanager
def resent_interrupts() -> Iterator[None]:
    """A context manager. If a Ctrl-C arrives inside the ``with`` block while a finalizer runs, KeyboardInterrupt is
    raised in the main thread after the finalizer has returned."""
    report, main = sys.unraisablehook, threading.main_thread()
    lost: SimpleQueue[bool] = SimpleQueue()  # a queue whose put may be called in a finalizer

    def send_again() -> None:
        while lost.get():
            time.sleep(_AFTER_SECONDS)
            if main.ident is not None and main.is_alive():
                signal.pthread_kill(main.ident, signal.SIGINT)

    def hook(ignored: UnraisableHookArgs) -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            lost.put(True)
        else:
            report(ignored)

    threading.Thread(target=send_again, name="rw_sql-interrupts", daemon=True).start()
    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = report
        lost.put(False)
