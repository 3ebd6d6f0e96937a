"""Runs busy neighbours, which are processes that compute without pause during the tests. Also draws a sample of tests
by a seed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

# Each neighbour ends by itself within a second after the end of its parent, even if the parent was killed.
_NEIGHBOUR = """
import os, sys, time
parent, nice = int(sys.argv[1]), int(sys.argv[2])
os.nice(nice)
value, end = 0, time.monotonic() + 1
while True:
    value += 1
    if time.monotonic() > end:
        if os.getppid() != parent:
            break
        end = time.monotonic() + 1
"""


@contextmanager
def busy_neighbours(number: int, nice: int = 0) -> Iterator[list[int]]:
    """Runs ``number`` processes, each of which keeps a core busy at a niceness. Yields their process ids."""
    command = [sys.executable, "-c", _NEIGHBOUR, str(os.getpid()), str(nice)]
    running = [subprocess.Popen(command) for _ in range(number)]
    try:
        yield [process.pid for process in running]
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def is_crash_or_live(item: pytest.Item) -> bool:
    """True if a test kills processes or runs statements against live jobs; a busy machine may change the outcome of
    these tests."""
    return item.get_closest_marker("crash") is not None or item.path.name.startswith("test_live_")


def draw_sample(items: Sequence[pytest.Item], number: int, seed: int) -> list[pytest.Item]:
    """The drawn tests, in their order. Only tests for which :func:`is_crash_or_live` is true are drawn. The same seed
    and tests give the same draw."""
    known = [item for item in items if is_crash_or_live(item)]
    drawn = {item.nodeid for item in random.Random(seed).sample(known, min(number, len(known)))}
    return [item for item in known if item.nodeid in drawn]
