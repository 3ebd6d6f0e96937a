"""Ends what a run of tests, of the demo, of benchmarks or proofs has started, however that run itself ends.

Everything that a process starts inherits a mark in its environment, down to the brokers, Java machines and servers that
its children start. A keeper, a small process that outlives the one it is for, waits for that one's end and ends what
still bears its mark; where the keeper was killed too, the next run does. Linux tells environments in ``/proc``, ``ps``
tells them elsewhere.

The keeper runs this file by itself: nothing but the standard library may be imported at the top.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

MARK = "RW_SQL_STARTED_BY"
"""The environment variable: process id, start, and (Linux) namespace of the process that is responsible."""

_END_SECONDS = 8.0
"""How long what is left may take to end in order."""
_LOOK_SECONDS = 0.05

_held: list[int] = []
"""This process's ends of the keepers' pipes: they are closed when it is gone, and never before."""


def keep_tidy() -> None:
    """Marks all that this process starts from now on, and sees to its end; ends what earlier runs left behind."""
    end_orphans()
    mark = f"{os.getpid()}:{_start_of(os.getpid())}:{_namespace()}"
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    reading, writing = os.pipe()
    try:
        # In a session of its own: Ctrl-C at the terminal must not reach it.
        subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, mark],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    finally:
        os.close(reading)
    _held.append(writing)
    os.environ[MARK] = mark


def end_orphans() -> tuple[int, ...]:
    """Ends what processes that are gone have started, and gives back the process ids."""
    left = {pid: mark for pid, mark in _marked().items() if not _is_alive(mark)}
    for mark in sorted(set(left.values())):
        _end(mark)
    return tuple(sorted(left))


def _is_alive(mark: str) -> bool:
    """Whether the process of a mark lives; one of another container's counts as living, nobody here can tell."""
    pid, start, namespace = mark.split(":", 2)
    return namespace != _namespace() or _start_of(int(pid)) == start


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """When a process started, as this machine tells it; empty where there is none."""
    if Path("/proc/self/stat").exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] in ("Z", "X") else fields[19]
    told = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return "-".join(told.split())


def _marked() -> dict[int, str]:
    """Every process that bears a mark, but for this one."""
    found = {pid: mark for pid, mark in _environments() if mark.count(":") >= 2}
    found.pop(os.getpid(), None)
    return found


def _environments() -> list[tuple[int, str]]:
    """Each process that this one may look into, and its mark."""
    begin = f"{MARK}="
    if Path("/proc/self/environ").exists():
        told = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):  # it has ended, or is somebody else's
                    variables = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
                    marks = [value for value in variables if value.startswith(begin.encode())]
                    told.append((int(entry), marks[0].decode().removeprefix(begin) if marks else ""))
        return told
    listed = subprocess.run(["ps", "-axEww", "-o", "pid=,command="], capture_output=True, text=True, check=False)
    told = []
    for line in listed.stdout.splitlines():
        pid, *words = line.split()
        told.append((int(pid), next((word.removeprefix(begin) for word in words if word.startswith(begin)), "")))
    return told


def _end(mark: str) -> None:
    """Ends all that bears a mark: in order where it does so soon, for good otherwise."""
    deadline = time.monotonic() + _END_SECONDS
    asked: set[int] = set()
    while left := [pid for pid, found in _marked().items() if found == mark and _start_of(pid)]:
        is_late = time.monotonic() > deadline
        for pid in left:
            if is_late or pid not in asked:
                asked.add(pid)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL if is_late else signal.SIGTERM)
        if is_late and time.monotonic() > deadline + _END_SECONDS:
            return  # somebody else's, or stuck in the kernel
        time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    sys.stdin.buffer.read()  # until the process that this is for has gone
    _end(sys.argv[1])
