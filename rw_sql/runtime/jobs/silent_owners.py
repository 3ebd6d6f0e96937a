"""Detects owners that no longer write to the warehouse, and determines the reason. The job statuses that such an owner
stored earlier are no longer valid.

Only the owner itself sees the error with which its writes fail. Other processes see only the age of the owner's
heartbeat. They find the reason through the operating system, and write nothing themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rw_sql.runtime.jobs.lease import GONE_SECONDS, resume_command, suspended_pid
from rw_sql.runtime.support.processes import is_process_alive, now_ms, this_machine
from rw_sql.runtime.support.write_obstacles import Obstacle, visible_obstacle

if TYPE_CHECKING:
    from rw_sql.metastore.facts import Lease
    from rw_sql.runtime.jobs.context import Context

LATE_SECONDS = 30.0
"""If the last heartbeat of an owner on this machine is at least this number of seconds old, the owner's statuses are
not valid. For a warehouse in an object store, only the owner's own ``/readyz`` applies this limit."""

LOOK_SECONDS = 5.0
"""If the last heartbeat of an owner is at least this number of seconds old, another process looks for a reason why the
owner cannot write."""

UNWRITABLE, SILENT, SUSPENDED = "UNWRITABLE", "SILENT", "SUSPENDED"
"""The first words of the reasons that are shown for jobs whose owner writes nothing. UNWRITABLE: the warehouse cannot
be written. SILENT: the cause is not known. SUSPENDED: a signal has suspended the owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """The reason why an owner writes nothing. ``word`` is the reason's first word, and ``told`` is the remaining text.
    ``obstacle`` is None unless a known obstacle prevents all writes to the warehouse."""

    word: str
    told: str
    obstacle: Obstacle | None = None

    @property
    def reason(self) -> str:
        """The reason that SHOW JOBS shows for the owner's jobs."""
        return f"{self.word} {self.told}"


def silence_of(context: Context, lease: Lease, at_ms: int | None = None) -> Silence | None:
    """The reason why the owner of a group writes nothing; None if the owner has renewed its lease recently.

    The statuses of an owner on another machine stay valid until the owner counts as gone, because the clocks of two
    machines may differ. In an object store, the statuses of every owner stay valid until the owner counts as gone,
    because one write may take long.
    """
    silent = (now_ms() if at_ms is None else at_ms) - lease.heartbeat_ms
    is_near = lease.host == this_machine() and context.warehouse.is_local
    is_late = silent >= 1000 * (LATE_SECONDS if is_near else GONE_SECONDS)
    if context.owning.is_set() and lease.group == context.group:
        problem = context.store.problem
        if problem is not None and problem.obstacle is not None:
            return _unwritable(problem.obstacle)
        if problem is not None and is_late:
            return Silence(word=UNWRITABLE, told=f"the warehouse cannot be read or written: {problem.told}")
        if lease.owner != context.owner:
            return None  # This process has just taken the lease over.
    elif silent >= LOOK_SECONDS * 1000:
        if is_late and (pid := suspended_pid(lease)) is not None:
            return Silence(
                word=SUSPENDED,
                told=f"process {pid} runs the jobs and is suspended: {resume_command(lease)} resumes it",
            )
        obstacle = obstacle_before(context, lease)
        if obstacle is not None:
            return _unwritable(obstacle)
    if not is_late:
        return None
    since = datetime.fromtimestamp(lease.heartbeat_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Silence(
        word=SILENT,
        told=f"process {lease.python_pid} runs the jobs and has written no heartbeat since {since}: its log contains "
        "the reason, and rw-sql doctor examines the warehouse",
    )


def obstacle_before(context: Context, lease: Lease) -> Obstacle | None:
    """The obstacle that prevents the holder of a lease from writing to a warehouse on a local path, or None if this
    machine detects no obstacle.

    This machine does not know the mounts and the user of an owner on another machine. For an owner on another machine,
    only a full file system therefore counts as an obstacle.
    """
    if lease.host != this_machine():
        return visible_obstacle(context.warehouse, is_here=False)
    is_alive = is_process_alive(lease.python_pid, lease.python_start)
    return visible_obstacle(context.warehouse, lease.python_pid if is_alive else None)


def _unwritable(obstacle: Obstacle) -> Silence:
    return Silence(word=UNWRITABLE, told=f"{obstacle}; the job then continues without a restart", obstacle=obstacle)
