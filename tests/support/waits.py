"""How long tests wait, in one place.

A test waits for a condition. A bound is only there so that a hung test ends: it must be far above what a machine with
eight other busy processes needs, since a bound that a slow machine reaches is a failure without a fault.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LAST_RESORT_SECONDS = 600.0
"""After so long without its condition a test has hung."""

LIFE_SECONDS = 900.0
"""The same for a child process that does many things in its life."""


def wait_until(is_met: Callable[[], bool], what: str, *, look_seconds: float = 0.01) -> None:
    """Returns once the condition holds; fails naming it as a last resort."""
    never = threading.Event()
    deadline = time.monotonic() + LAST_RESORT_SECONDS
    while not is_met():
        assert time.monotonic() < deadline, f"after {LAST_RESORT_SECONDS:g} s still not: {what}"
        never.wait(look_seconds)
