"""Stops all processes that a run has started, however the run itself ends. A run executes tests, the demo, benchmarks
or proofs.

Every process that the run starts, directly or indirectly (including brokers, JVMs and servers), inherits a mark in its
environment. A small process, the keeper, runs longer than the run itself. The keeper waits for the end of the run, and
afterwards stops every process with the run's mark. If the keeper was killed before that, the next run stops the
remaining processes. The environments of processes are read from ``/proc`` on Linux and with ``ps`` on other systems.

The keeper is started by running this file as a script. Therefore, the top of this file may import only the standard
library.
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
"""The environment variable that marks the processes of a run. Its value consists of the process id, the start time and
(on Linux) the namespace of the run's own process."""

_END_SECONDS = 8.0
"""The time in seconds that the remaining processes have to end after SIGTERM. Processes that are still running
afterwards are killed."""
_LOOK_SECONDS = 0.05

_held: list[int] = []
"""This process's ends of the pipes to its keepers, as file descriptors.

The pipes stay open until this process ends. A keeper detects the end of this process because the keeper's pipe is
closed at that moment.
"""


def keep_tidy() -> None:
    """Marks all processes that this process starts from now on, and starts a keeper, which stops them when this process
    ends.

    Also stops processes that earlier runs left behind.
    """
    end_orphans()
    mark = f"{os.getpid()}:{_start_of(os.getpid())}:{_namespace()}"
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    reading, writing = os.pipe()
    try:
        # The keeper runs in a separate session, so that Ctrl-C at the terminal does not reach the keeper.
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
    """Stops the processes of runs that no longer exist, and returns their ids."""
    left = {pid: mark for pid, mark in _marked().items() if not _is_alive(mark)}
    for mark in sorted(set(left.values())):
        _end(mark)
    return tuple(sorted(left))


def _is_alive(mark: str) -> bool:
    """True if the run's process that ``mark`` identifies is alive.

    A process in another container counts as alive, because its state cannot be determined here.
    """
    pid, start, namespace = mark.split(":", 2)
    return namespace != _namespace() or _start_of(int(pid)) == start


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """The start time of a process, as a string. On one machine, equal process ids with different strings denote
    different processes. The string is empty if there is no such process, or if it has ended."""
    if Path("/proc/self/stat").exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] in ("Z", "X") else fields[19]
    told = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return "-".join(told.split())


def _marked() -> dict[int, str]:
    """Maps the id of every process with a mark, except this process, to the mark."""
    found = {pid: mark for pid, mark in _environments() if mark.count(":") >= 2}
    found.pop(os.getpid(), None)
    return found


def _environments() -> list[tuple[int, str]]:
    """The processes whose environment this process can read, each with its mark. The mark is empty if the process has
    none."""
    begin = f"{MARK}="
    if Path("/proc/self/environ").exists():
        told = []
        for entry in os.listdir("/proc"):
            if entry.isdecimal():
                with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
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
    """Stops every process whose environment has this mark. Sends SIGTERM first, and later SIGKILL to processes that
    take too long to end."""
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
            return  # the processes left belong to another user, or are blocked in the kernel
        time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    sys.stdin.buffer.read()  # returns when the process that this keeper watches has ended
    _end(sys.argv[1])
