"""Python's cyclic garbage collector, kept away from work that makes many objects and little garbage."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


MOST_SECONDS = 5.0
"""After so long the next block that begins or ends lets the collector run, where those of several threads overlap."""


class _Rest:
    """How many threads want the collector to rest, and since when it does; None while it runs, or was off before."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.wanted = 0
        self.since: float | None = None


_REST = _Rest()


@contextmanager
def collector_resting() -> Iterator[None]:
    """Nothing is collected in this process within the block, and as before after it.

    A plan for thousands of splits makes so many objects that stay that the collector walks all the process's, and finds
    nothing: about a fifth of the time of an INJECT into 10,000 splits.
    """
    with _REST.lock:
        if _REST.wanted == 0 and gc.isenabled():
            _REST.since = time.monotonic()
            gc.disable()
        _REST.wanted += 1
        _end_long_rest()
    try:
        yield
    finally:
        with _REST.lock:
            _REST.wanted -= 1
            _end_long_rest()


def _end_long_rest() -> None:
    since = _REST.since
    if since is not None and (_REST.wanted == 0 or time.monotonic() - since > MOST_SECONDS):
        _REST.since = None
        gc.enable()
