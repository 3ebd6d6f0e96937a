"""Produces the texts about a warehouse's status that both the terminal and the status page show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rw_sql.errors import SqlError
from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.runtime.jobs.lease import serve_command
from rw_sql.runtime.support.failures import cause_line

if TYPE_CHECKING:
    from rw_sql.runtime.status.reading import JobLine, OwnerStatus, WarehouseStatus

_WITH_TENTHS = 9.95
"""Durations below this number of seconds are shown with one digit after the decimal point."""

STATES = ("STALLED", "WAITING", "STOPPED", "STOPPING", "STARTING", "THROTTLED", "PAUSED", "BACKFILLING")
"""The states of jobs that may need an operator, sorted by urgency: the most urgent state comes first."""


_MEANINGS = {
    "EXPIRED": "the upstream has removed records before they were read",
    "AHEAD": "the position is beyond the end of the upstream's log",
    "ORPHAN": "the position belongs to a topic that the source no longer names",
    "RECREATED": "the position belongs to an earlier topic of the same name",
    "OTHER_CLUSTER": "the position belongs to another cluster",
    "DIVERGED": "the upstream has lost records that were read",
    "REPLACED": "the target is not the one that the sink has written",
}


def in_words(reason: str) -> str:
    """Returns a job's reason. If the reason begins with a status word such as EXPIRED, the word's meaning is added in
    parentheses."""
    status = reason.partition(" ")[0]
    return f"{reason} ({_MEANINGS[status]})" if status in _MEANINGS else reason


def owner_texts(status: WarehouseStatus) -> list[tuple[OwnerStatus, str]]:
    """Returns the owners of all resource groups, each with a text about the owner. The texts name the groups, unless
    only the default group is in use."""
    names_groups = [owner.resource_group for owner in status.owners] != [DEFAULT_GROUP]
    epoch, at_ms, warehouse = status.epoch, status.at_ms, status.warehouse
    return [(each, owner_text(each, epoch, at_ms, warehouse, names_group=names_groups)) for each in status.owners]


def owner_text(owner: OwnerStatus, epoch: int, at_ms: int, warehouse: str, *, names_group: bool = False) -> str:
    """Returns the text about the process that runs the jobs of a resource group of a warehouse."""
    title = f"owner of resource group {owner.resource_group}" if names_group else "owner"
    if owner.state == "NONE":
        idle = "none of its jobs runs" if names_group else "no job runs"
        last = "" if owner.heartbeat_ms is None else f"; the last owner was seen {ago(owner.heartbeat_ms, at_ms)}"
        start = serve_command(warehouse, owner.resource_group)
        return f"{title}: none, so {idle}{last}. To start an owner: {start}"
    behind = epoch - (owner.applied_epoch or 0)
    applied = "all statements applied" if behind <= 0 else f"statements not applied yet: {behind}"
    if owner.state == "SUSPENDED":
        last = ago(owner.heartbeat_ms, at_ms)
        return f"{title}: process {owner.pid} is suspended, last heartbeat {last}. {owner.resume} resumes it"
    # In a lease, the host's name is followed by ids that distinguish a machine's boots and containers.
    host = (owner.host or "").partition(" ")[0]
    late = f", last heartbeat {ago(owner.heartbeat_ms, at_ms)}" if owner.state == "LATE" else ""
    since = "" if owner.since_ms is None else f", for {duration(max(0, at_ms - owner.since_ms) / 1000)}"
    problem = "" if owner.problem is None else f"; it cannot write the warehouse: {owner.problem}"
    return f"{title}: process {owner.pid} on {host}{since}{late}; {applied}{problem}"


def unreadable(error: Exception, shown_ms: int | None, at_ms: int, again_seconds: float) -> str:
    """The text that reports that the status cannot be read at present. ``shown_ms`` is the time of the status that is
    still shown; None if no status is shown."""
    reason = cause_line(error.message if isinstance(error, SqlError) else str(error)) or type(error).__name__
    last = "" if shown_ms is None else f"; the last status is from {ago(shown_ms, at_ms)}"
    return f"the status cannot be read: {reason}{last}; trying again in {duration(again_seconds)}"


def worst_first(jobs: tuple[JobLine, ...]) -> list[JobLine]:
    """Sorts jobs. Jobs whose state is in STATES come first, in the order of STATES; all other jobs follow. Jobs with
    the same rank are sorted by lag, the greatest lag first."""
    rank = {state: at for at, state in enumerate(STATES)}
    return sorted(jobs, key=lambda job: (rank.get(job.state, len(STATES)), -(job.lag_records or 0)))


def ago(then_ms: int | None, at_ms: int) -> str:
    """The time from ``then_ms`` to ``at_ms``, as text such as ``5 s ago``; ``never`` if ``then_ms`` is None."""
    return "never" if then_ms is None else f"{duration(max(0, at_ms - then_ms) / 1000)} ago"


def duration(seconds: float) -> str:
    """A duration in one or two units, rounded to the smaller unit: ``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 10 min``,
    ``4 d 3 h``."""
    if seconds < _WITH_TENTHS:
        tenths = round_half_up(seconds * 10)
        return f"{tenths / 10:.1f} s" if tenths else "0 s"
    whole, minutes = round_half_up(seconds), round_half_up(seconds / 60)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return _in_two_units(whole, 60, "min", "s")
    if minutes < 24 * 60:
        return _in_two_units(minutes, 60, "h", "min")
    return _in_two_units(round_half_up(seconds / 3_600), 24, "d", "h")


def _in_two_units(count: int, size: int, unit: str, smaller: str) -> str:
    whole, rest = divmod(count, size)
    return f"{whole} {unit}" + (f" {rest} {smaller}" if rest else "")


def round_half_up(number: float) -> int:
    """The nearest integer. Halves are rounded up. (Python's ``round`` rounds 10.5 down.)"""
    return math.floor(number + 0.5)
