"""The time limits of tests, in one place.

A test waits for a condition. A limit only ensures that a hung test ends. It must be far above the needs of a machine
with eight other busy processes, because otherwise a slow machine would cause a failure without a fault.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LAST_RESORT_SECONDS = 600.0
"""The time in seconds after which a test that still waits for its condition counts as hung."""

LIFE_SECONDS = 900.0
"""The time limit in seconds for a child process that does several steps."""


def wait_until(is_met: Callable[[], bool], what: str, *, look_seconds: float = 0.01) -> None:
    """Returns once the condition holds. Fails with ``what`` after LAST_RESORT_SECONDS."""
    never = threading.Event()
    deadline = time.monotonic() + LAST_RESORT_SECONDS
    while not is_met():
        assert time.monotonic() < deadline, f"after {LAST_RESORT_SECONDS:g} s still not: {what}"
        never.wait(look_seconds)
