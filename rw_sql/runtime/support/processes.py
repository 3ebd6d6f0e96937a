"""Provides facts about processes on this machine (whether they run, and when they started), and the current time."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from functools import cache
from pathlib import Path


@cache
def this_machine() -> str:
    """Returns an id of the scope in which a process id denotes the same process. This scope is the host since its last
    boot and, on Linux, the present PID namespace.

    The namespace is part of the id because two containers with the same host name may use the same warehouse. An id may
    denote one process in the first container and another process in the second container.
    """
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def process_start(pid: int) -> str:
    """The start time of a process on this machine, in the kernel's clock ticks. Empty if no process has the id ``pid``.

    The start time (Linux: field 22 of ``/proc/<pid>/stat``) distinguishes a process from an earlier process with the
    same id. For a zombie, the result is empty. If a process exists but its start time cannot be read, the result is
    ``alive``. The start time cannot be read on systems without /proc (macOS), and for a process of another user that
    /proc hides (mount option ``hidepid``, systemd's ``ProtectProc``).
    """
    fields = _stat(pid)
    if fields:
        return "" if fields[0] in ("Z", "X") else fields[19]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return _ALIVE
    # /proc does not hide a process to which this process may send signals. If /proc does not show such a process, the
    # process has just ended.
    return "" if Path("/proc/self").exists() else _ALIVE


_ALIVE = "alive"


def _stat(pid: int) -> list[str]:
    """The fields of ``/proc/<pid>/stat`` from the third field (the state) on; empty if there is no such process, or if
    the process is hidden."""
    try:
        return stat_fields(Path(f"/proc/{pid}/stat"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def stat_fields(stat: Path) -> list[str]:
    """The fields of the ``stat`` file of a process or a thread, from the third field (the state) on. The manual page
    proc_pid_stat(5) describes these fields. The first two fields are left out, because the second field, the process's
    name, may contain any bytes. Raises OSError."""
    return stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def is_process_alive(pid: int, start: str) -> bool:
    """True if the process with this id and start time still runs on this machine. A process whose start time cannot be
    read counts as running."""
    return pid > 0 and start != "" and process_start(pid) in (start, _ALIVE)


def is_process_suspended(pid: int, start: str) -> bool:
    """True if a signal (SIGSTOP, SIGTSTP) or a debugger has suspended this process on this machine.

    The result is always False on systems other than Linux.
    """
    fields = _stat(pid)
    return len(fields) > 19 and fields[19] == start and fields[0] in ("T", "t")


def credentials_of(pid: int) -> tuple[int, frozenset[int]]:
    """The effective user id and the group ids of a process on this machine. If they cannot be determined, the result is
    the effective user id and the group ids of this process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        told = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
        return int(told["Uid"][1]), frozenset(map(int, (told["Gid"][1], *told["Groups"])))
    except (OSError, KeyError, IndexError, ValueError):
        return os.geteuid(), frozenset((os.getegid(), *os.getgroups()))


def now_ms() -> int:
    """The current time in milliseconds since 1970."""
    return int(time.time() * 1000)
