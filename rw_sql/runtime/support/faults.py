"""Defines fault points. A fault point is a named place in the code where a test may kill the process. Each fault point
is between two steps of a statement, of a job's start or of a batch.

With ``RW_SQL_FAULT=name[@n]``, SIGKILL is sent when this process reaches the fault point ``name`` for the n-th time
(default: the first time). The variable ``RW_SQL_FAULT_KILLS`` selects the target of the signal: ``python`` (only this
process), ``jvm`` (only the JVM) or ``both``. If ``RW_SQL_FAULT`` is unset, a fault point costs one comparison.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.runtime.support.processes import process_start

if TYPE_CHECKING:
    from collections.abc import Callable

FAULT = "RW_SQL_FAULT"
KILLS = "RW_SQL_FAULT_KILLS"


@dataclass(slots=True)
class _Armed:
    name: str = ""
    remaining: int = 0
    kills: str = "python"
    jvm_pid: int = 0
    tell: Callable[[str], None] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_armed = _Armed()


def arm(point: str, kills: str = "python", tell: Callable[[str], None] | None = None) -> None:
    """Arms one fault point, ``name`` or ``name@n``, and disarms any other fault point.

    ``tell`` is a callback that receives the fault point's name right before the kill.
    """
    name, _, count = point.partition("@")
    with _armed.lock:
        _armed.name, _armed.remaining, _armed.kills, _armed.tell = name, int(count or "1"), kills, tell


arm(os.environ.get(FAULT, ""), os.environ.get(KILLS, "python"))


def know_jvm(pid: int) -> None:
    """Registers the JVM of this process as a target of kills."""
    _armed.jvm_pid = pid


def fault(name: str) -> None:
    """Marks the fault point ``name``. If this fault point is armed and reached for the n-th time, kills the configured
    target."""
    if _armed.name != name:
        return
    with _armed.lock:
        _armed.remaining -= 1
        if _armed.remaining != 0:
            return
    kill(name)


def kill(name: str) -> None:
    """Kills the configured target immediately. ``name`` is the fault point that ``tell`` receives before the kill."""
    if _armed.tell is not None:
        _armed.tell(name)
    if _armed.kills in ("jvm", "both") and _armed.jvm_pid:
        os.kill(_armed.jvm_pid, signal.SIGKILL)
        # Waits until the process has ended, because the following code relies on it.
        while process_start(_armed.jvm_pid):
            time.sleep(0.001)
    if _armed.kills in ("python", "both"):
        os.kill(os.getpid(), signal.SIGKILL)
