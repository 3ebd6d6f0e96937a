"""Named places where a test may kill the process: between any two steps of a statement, a start or a batch.

``RW_SQL_FAULT=name[@n]`` kills at the n-th passing (the first by default), with SIGKILL, what ``RW_SQL_FAULT_KILLS``
names: ``python`` (this process alone), ``jvm`` (its JVM alone) or ``both``. Unset, a fault point costs a comparison.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass, field

FAULT = "RW_SQL_FAULT"
KILLS = "RW_SQL_FAULT_KILLS"


@dataclass(slots=True)
class _Armed:
    name: str = ""
    remaining: int = 0
    jvm_pid: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def _read() -> _Armed:
    name, _, count = os.environ.get(FAULT, "").partition("@")
    return _Armed(name=name, remaining=int(count or "1"))


_armed = _read()


def know_jvm(pid: int) -> None:
    """Tells the fault points which JVM is this process's own."""
    _armed.jvm_pid = pid


def fault(name: str) -> None:
    """Passes the fault point ``name``; the process ends here if it is armed."""
    if _armed.name != name:
        return
    with _armed.lock:
        _armed.remaining -= 1
        if _armed.remaining != 0:
            return
    kills = os.environ.get(KILLS, "python")
    if kills in ("jvm", "both") and _armed.jvm_pid:
        os.kill(_armed.jvm_pid, signal.SIGKILL)
    if kills in ("python", "both"):
        os.kill(os.getpid(), signal.SIGKILL)
