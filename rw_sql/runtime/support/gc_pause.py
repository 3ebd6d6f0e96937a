"""Pauses Python's cyclic garbage collector while code creates many objects of which only a few become garbage."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


MOST_SECONDS = 5.0
"""The ``with`` blocks of several threads may overlap, so that at each time at least one block runs. If the collector
has been paused for more than this number of seconds, it is enabled again when the next block begins or ends."""


class _Pauses:
    """The number of ``with`` blocks that are running, and the time at which the pause began. The time is None if this
    module has not disabled the collector."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.wanted = 0
        self.since: float | None = None


_PAUSES = _Pauses()


@contextmanager
def gc_paused() -> Iterator[None]:
    """A context manager that pauses cyclic garbage collection in this process inside the ``with`` block, but not for
    much longer than MOST_SECONDS.

    A plan for thousands of splits creates so many lasting objects that the collector often traverses the whole process
    without finding garbage. Without the pause, these traversals would take about a fifth of the time of an INJECT into
    10,000 splits.
    """
    with _PAUSES.lock:
        if _PAUSES.wanted == 0 and gc.isenabled():
            _PAUSES.since = time.monotonic()
            gc.disable()
        _PAUSES.wanted += 1
        _end_long_rest()
    try:
        yield
    finally:
        with _PAUSES.lock:
            _PAUSES.wanted -= 1
            _end_long_rest()


def _end_long_rest() -> None:
    since = _PAUSES.since
    if since is not None and (_PAUSES.wanted == 0 or time.monotonic() - since > MOST_SECONDS):
        _PAUSES.since = None
        gc.enable()
