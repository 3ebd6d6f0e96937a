"""Kills an owner on this machine that does not respond, so that another process can take over its jobs. Such an owner
hangs, or was suspended by a signal.

The owner's processes are killed before the lease is released. A suspended process may be in the middle of a commit, and
would continue this commit when it is resumed.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import OWNER_ALIVE, SqlError
from rw_sql.runtime.jobs.lease import (
    LEASE_SECONDS,
    is_held,
    is_of_copy,
    is_owned,
    resume_command,
    serve_command,
    suspended_pid,
    takeover_command,
)
from rw_sql.runtime.jobs.silent_owners import silence_of
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.support.processes import is_process_alive, now_ms, this_machine

if TYPE_CHECKING:
    from rw_sql.metastore.facts import Lease
    from rw_sql.runtime.jobs.context import Context

_END_SECONDS = 30.0
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """The result of :func:`take_over`. ``ended`` are the ids of the killed processes, and ``said`` is a message about
    the next step."""

    ended: tuple[int, ...]
    said: str


def take_over(context: Context, group: str, *, is_forced: bool) -> Takeover:
    """Kills an owner that does not respond, and releases its lease. If the group has no owner, changes nothing. If
    ``is_forced`` is False, never changes anything: raises SqlError OWNER_ALIVE, whose hint contains the command that
    forces the takeover.

    If the warehouse is a copy, and the owner runs the jobs of the original, the lease is released after it has expired,
    and no process is killed. Also raises SqlError OWNER_ALIVE if the owner works normally, is on another machine, or
    cannot be killed.
    """
    lease = context.metastore.jobs.lease(group)
    at = now_ms()
    start = serve_command(context.warehouse.uri, group)
    is_free = lease is None or not is_held(lease, is_local=context.warehouse.is_local, now_ms=at)
    if lease is None or (is_free and not is_owned(lease, now_ms=at)):
        return Takeover(ended=(), said=f"no process runs the jobs of resource group {group}: {start} starts one")
    if lease.host == this_machine() and is_of_copy(lease, context.warehouse):
        return _release_in_copy(context, lease, start, is_forced=is_forced)
    _require_unresponsive(lease, group, context.warehouse.uri)
    if not is_forced:
        raise _unresponsive(context, lease)
    ended = _end(lease)
    fault("takeover.ended")
    context.metastore.jobs.release_lease(lease)
    return Takeover(
        ended=ended,
        said=f"resource group {group} has no owner: a standby process takes over, or start one: {start}",
    )


def _unresponsive(context: Context, lease: Lease) -> SqlError:
    """The error for an owner that does not respond. The hint contains a remedy, and the command that kills the
    owner."""
    suspended = suspended_pid(lease)
    pid = lease.python_pid if suspended is None else suspended
    if suspended is not None:
        state, remedy = "is suspended", f"{resume_command(lease)} resumes it"
    else:
        silence = silence_of(context, lease)
        obstacle = None if silence is None else silence.obstacle
        state = "writes no heartbeat" if obstacle is None else f"cannot write the warehouse: {obstacle.problem}"
        remedy = f"the log of process {pid} contains the reason" if obstacle is None else obstacle.remedy
    ends = takeover_command(lease, context.warehouse.uri)
    pids = " ".join(str(pid) for pid, _ in _processes(lease))
    return SqlError(
        OWNER_ALIVE,
        f"process {pid}, which runs the jobs of resource group {lease.group}, {state}",
        hint=f"{remedy}; {ends} ends its processes ({pids})",
    )


def _release_in_copy(context: Context, lease: Lease, start: str, *, is_forced: bool) -> Takeover:
    """Releases a lease that was copied together with its warehouse. Raises SqlError if the copy of the lease has not
    expired, or if ``is_forced`` is False."""
    runs = f"process {lease.python_pid} runs the jobs of the warehouse from which {context.warehouse.uri} was copied"
    if _is_fresh(lease):
        raise SqlError(
            OWNER_ALIVE,
            f"{runs}, and the copied lease has not expired",
            hint=f"run the same command again after {LEASE_SECONDS:g} s",
        )
    if not is_forced:
        release = takeover_command(lease, context.warehouse.uri)
        raise SqlError(OWNER_ALIVE, runs, hint=f"{release} releases the lease of the copy, and ends no process")
    context.metastore.jobs.release_lease(lease)
    return Takeover(
        ended=(),
        said=f"resource group {lease.group} of the copy has no owner, and no process was ended: a standby process "
        f"takes over, or start one: {start}",
    )


def _is_fresh(lease: Lease) -> bool:
    return lease.heartbeat_ms + int(LEASE_SECONDS * 1000) >= now_ms()


def _require_unresponsive(lease: Lease, group: str, warehouse: str) -> None:
    if lease.host != this_machine():
        host = lease.host.partition(" ")[0]
        raise SqlError(
            OWNER_ALIVE,
            f"the owner of resource group {group} is on another machine, {host}, and cannot be ended from here",
            hint=f"run {takeover_command(lease, warehouse, is_forced=False)} on {host}; without heartbeats, a standby "
            f"process takes over after {LEASE_SECONDS:g} s",
        )
    if suspended_pid(lease) is None and _is_fresh(lease):
        raise SqlError(
            OWNER_ALIVE,
            f"process {lease.python_pid} runs the jobs of resource group {group}",
            hint=f"kill {lease.python_pid} stops it cleanly; a standby process takes over",
        )


def _processes(lease: Lease) -> list[tuple[int, str]]:
    both = ((lease.python_pid, lease.python_start), (lease.jvm_pid, lease.jvm_start))
    return [(pid, start) for pid, start in dict.fromkeys(both) if is_process_alive(pid, start)]


def _end(lease: Lease) -> tuple[int, ...]:
    """Kills the owner's processes, waits until they have ended, and returns their ids. Raises SqlError if a process
    cannot be killed."""
    found = _processes(lease)
    for pid, start in found:
        try:
            if is_process_alive(pid, start):
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        except PermissionError as error:
            raise SqlError(
                OWNER_ALIVE, f"process {pid} belongs to another user, and cannot be ended", hint=f"sudo kill -9 {pid}"
            ) from error
    deadline = time.monotonic() + _END_SECONDS
    while left := _processes(lease):
        if time.monotonic() > deadline:
            raise SqlError(
                OWNER_ALIVE,
                f"process {left[0][0]} has not ended within {_END_SECONDS:g} s of SIGKILL: it is blocked in the kernel",
                hint="unblock it (it may wait for a network file system that is down); then run the command again",
            )
        time.sleep(_LOOK_SECONDS)
    return tuple(pid for pid, _ in found)
