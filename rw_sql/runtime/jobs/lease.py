"""The lease of a resource group: a row with a heartbeat that identifies the one process that runs the group's jobs."""

from __future__ import annotations

import hashlib
import os
import shlex
import socket
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rw_sql.metastore.facts import Lease
from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.runtime.support.processes import (
    is_process_alive,
    is_process_suspended,
    now_ms,
    process_start,
    this_machine,
)
from rw_sql.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.metastore.job_store import JobStore
    from rw_sql.runtime.support.warehouse import Warehouse

HEARTBEAT_SECONDS, STORE_HEARTBEAT_SECONDS = 2.0, 4.0
"""The intervals in seconds at which an owner renews its lease. The first interval applies on a local path. The second
interval applies in an object store, where a renewal takes several requests."""

LEASE_SECONDS = 15.0
"""If an owner has written no heartbeat for this number of seconds, another process may take the lease. If the warehouse
is on a local path, the limit does not apply to an owner on the machine of that process, because process ids decide in
this case (:func:`is_held`).
"""

GONE_SECONDS = 120.0
"""If an owner on another machine has written no heartbeat for this number of seconds, waiting statements assume that
the owner has ended. Until then, they assume that the heartbeat is late.

The limit is longer than LEASE_SECONDS, because a busy process may write its heartbeat late, and the clocks of machines
differ.
"""

CLOCKS_SECONDS = 3600.0
"""The time without a heartbeat, in seconds, after which a process may take a lease without observing it first. The
clocks of two machines are assumed to differ by less than this time."""


def new_owner_name(warehouse: Warehouse) -> str:
    """A unique owner name for this process, with marks of the warehouse's place (:func:`is_of_copy`)."""
    marks = ".".join(sorted(_place_marks(warehouse)))
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}{_MARKS}{marks}"


_MARKS = "@"
"""The character that separates the marks of the place from the rest of an owner's name. A host name does not contain
this character."""


def _place_marks(warehouse: Warehouse) -> set[str]:
    """Returns a hash of the warehouse's path or URI and, for a local path, also a hash of the identity of the catalog's
    folder."""
    found = [(warehouse.uri.partition("://")[2] or warehouse.uri).rstrip("/")]
    if warehouse.is_local:
        with suppress(OSError):
            folder = os.stat(f"{warehouse.uri}/rw_catalog")
            found.append(f"{folder.st_dev} {folder.st_ino}")
    return {hashlib.sha256(each.encode()).hexdigest()[:8] for each in found}


def is_of_copy(lease: Lease, warehouse: Warehouse) -> bool:
    """True if the owner took the lease in another folder or bucket, and this warehouse is a copy of that place. The
    owner's processes then do not use this warehouse.

    Returns False if the owner's name contains the mark of this path or of this folder's identity. The same folder may
    be mounted or linked at two paths, and a restored folder has a new identity at the old path. Also returns False for
    an owner whose version of rw_sql writes no marks.
    """
    _, is_marked, marks = lease.owner.rpartition(_MARKS)
    return bool(is_marked) and _place_marks(warehouse).isdisjoint(marks.split("."))


def is_held(lease: Lease | None, *, is_local: bool, now_ms: int) -> bool:
    """True if a process still owns the warehouse.

    If the warehouse is on a local path and the owner is on this machine, process ids decide. An owner whose Python or
    JVM process still runs keeps the lease regardless of its heartbeat, because this process may have a commit in
    flight. Otherwise, the heartbeat decides. If the heartbeat decides, a late owner loses the lease even if it is
    alive. An object store refuses the commits of the late owner after a commit of the new owner.
    """
    if lease is None or lease.is_released:
        return False
    if is_local and lease.host == this_machine():
        return _is_alive(lease)
    return lease.expires_ms > now_ms


def is_owned(lease: Lease | None, *, now_ms: int) -> bool:
    """True if the lease has an owner for which a statement should wait. An owner on another machine counts until its
    heartbeat is GONE_SECONDS old.

    An owner on this machine counts while its Python process or its JVM runs, even if the warehouse is in an object
    store.
    """
    if lease is None or lease.is_released:
        return False
    if lease.host == this_machine():
        return _is_alive(lease)
    return lease.heartbeat_ms + int(GONE_SECONDS * 1000) > now_ms


def _is_alive(lease: Lease) -> bool:
    is_python_alive = is_process_alive(lease.python_pid, lease.python_start)
    return is_python_alive or is_process_alive(lease.jvm_pid, lease.jvm_start)


def suspended_pid(lease: Lease | None) -> int | None:
    """The id of the owner's Python or JVM process, if it is on this machine and suspended by a signal; otherwise
    None.

    A suspended process keeps the lease of a warehouse on a local path, because it would continue its commit when
    resumed.
    """
    return next(iter(_suspended_pids(lease)), None)


def resume_command(lease: Lease) -> str:
    """The command that resumes a suspended owner.

    Ctrl-Z in a terminal suspends both the Python process and its JVM. If ``kill -CONT`` resumed only the Python
    process, the owner would renew its lease but would run no batch.
    """
    return f"kill -CONT {' '.join(map(str, _suspended_pids(lease) or [lease.python_pid]))}"


def serve_command(warehouse: str, group: str = DEFAULT_GROUP) -> str:
    """The command that starts a process for a group of a warehouse."""
    return f"rw-sql serve {_where(warehouse, group)}"


def takeover_command(lease: Lease, warehouse: str, *, is_forced: bool = True) -> str:
    """The command that kills an owner that does not respond. The user must run this command on the owner's machine. If
    ``is_forced`` is False, the command only shows whether the owner can be killed."""
    return f"rw-sql takeover {'--force ' if is_forced else ''}{_where(warehouse, lease.group)}"


def _where(warehouse: str, group: str) -> str:
    named = "" if group == DEFAULT_GROUP else f" --resource-group {shlex.quote(group)}"
    return f"--warehouse {shlex.quote(warehouse)}{named}"


def _suspended_pids(lease: Lease | None) -> list[int]:
    if lease is None or lease.is_released or lease.host != this_machine():
        return []
    processes = dict.fromkeys(((lease.python_pid, lease.python_start), (lease.jvm_pid, lease.jvm_start)))
    return [pid for pid, start in processes if is_process_suspended(pid, start)]


def is_orphaned(lease: Lease, *, is_local: bool, now_ms: int) -> bool:
    """True if the owner's Python process has ended, but its JVM still runs after the time at which the lease expires.
    The owner then still holds the lease.

    Normally the JVM ends about two seconds after its Python process, unless the JVM is suspended or stuck.
    """
    if lease.is_released or not is_local or lease.host != this_machine() or lease.expires_ms > now_ms:
        return False
    is_python_alive = is_process_alive(lease.python_pid, lease.python_start)
    return not is_python_alive and is_process_alive(lease.jvm_pid, lease.jvm_start)


@dataclass(slots=True)
class LeaseWatch:
    """Observes lease renewals with this process's monotonic clock. Any thread may use this object.

    The times in the lease come from its owner's clock, which may be wrong or may have been changed.
    """

    clock: Callable[[], float] = time.monotonic
    _seen: tuple[tuple[str, int], float] | None = None
    """The last heartbeat, and the time at which this process first saw this heartbeat. Both values are replaced in one
    step, because other threads may read the pair at the same time."""
    _renewed: tuple[str, float] | None = None
    """The owner whose renewal of the lease this process saw last, and the latest time at which the owner can have
    written this renewal."""

    def is_renewed(self, lease: Lease, now_ms: int) -> bool:
        """True if this process has seen a renewal of the lease within the last LEASE_SECONDS, or has observed the lease
        for less than LEASE_SECONDS.

        If the last heartbeat is older than any plausible difference between two clocks, returns False at once.
        """
        if lease.heartbeat_ms + int(CLOCKS_SECONDS * 1000) <= now_ms:
            return False
        beat, at, seen = (lease.owner, lease.heartbeat_ms), self.clock(), self._seen
        if seen is None or seen[0] != beat:
            if seen is not None and seen[0][0] == lease.owner and lease.heartbeat_ms > seen[0][1]:
                # The previous heartbeat was written before this process first saw it, and the owner's clock measures
                # the time from one heartbeat to the next. The sum of both times is the latest time of the new
                # heartbeat, which may be long before now.
                self._renewed = (lease.owner, min(at, seen[1] + (lease.heartbeat_ms - seen[0][1]) / 1000))
            seen = self._seen = (beat, at)
        return at - seen[1] < LEASE_SECONDS

    def has_seen_renewal(self, lease: Lease) -> bool:
        """True if :meth:`is_renewed` has seen a renewal by the lease's owner that may have been written within the last
        GONE_SECONDS."""
        renewed = self._renewed
        return renewed is not None and renewed[0] == lease.owner and self.clock() - renewed[1] < GONE_SECONDS


_left_behind: set[str] = set()
"""The names of former owners that ran in this process. Their jobs have stopped."""


def leave_behind(owner: str) -> None:
    """Makes the lease of an ended owner in this process count as free, even if the lease could not be released in the
    store. Without this call, the lease of a warehouse on a local path would be held until this process ends."""
    _left_behind.add(owner)


def try_take(
    facts: JobStore,
    owner: str,
    jvm_pid: int,
    *,
    is_local: bool,
    watch: LeaseWatch | None = None,
    group: str = DEFAULT_GROUP,
    on_free: Callable[[Lease | None], object] = lambda _: None,
) -> Lease | None:
    """Takes the lease of a group if the lease is free. Returns None if the lease is not free, or if another process
    took it first.

    Calls ``on_free`` with the previous lease (None if there was none) right before taking the lease. If ``watch`` is
    None, the stored times decide whether the lease has expired.
    """
    old = facts.lease(group)
    at = now_ms()
    # The stored lease may already be this owner's own, because the store may have reported an error although it stored
    # the lease.
    is_own = old is not None and (old.owner == owner or old.owner in _left_behind)
    if not is_own and not _is_free(old, at, is_local=is_local, watch=watch):
        return None
    on_free(old)
    at = now_ms()
    lease = Lease(
        owner=owner,
        host=this_machine(),
        python_pid=os.getpid(),
        jvm_pid=jvm_pid,
        python_start=process_start(os.getpid()),
        jvm_start=process_start(jvm_pid),
        taken_at_ms=at,
        heartbeat_ms=at,
        expires_ms=at + int(LEASE_SECONDS * 1000),
        applied_epoch=old.applied_epoch if old else 0,
        version=__version__,
        let_go_epoch=old.let_go if old else 0,
        group=group,
    )
    return lease if facts.take_lease(lease, replacing=old) else None


def _is_free(old: Lease | None, at: int, *, is_local: bool, watch: LeaseWatch | None) -> bool:
    """True if no process holds the lease ``old`` any more.

    If the heartbeat decides, this function uses the renewals that ``watch`` observes instead of the times in the lease.
    With the times in the lease, an owner whose clock is ahead would keep the lease too long after its end. An owner
    whose clock is behind would lose the lease at once. A process on the owner's machine uses the owner's clock, and
    therefore need not observe an expired lease.
    """
    if old is None or old.is_released:
        return True
    is_here = old.host == this_machine()
    is_past = not is_held(old, is_local=is_local, now_ms=at)
    if watch is None or (is_local and is_here):
        return is_past
    is_renewed = watch.is_renewed(old, at)
    return not is_renewed or (is_here and is_past)


def renewed(lease: Lease, applied_epoch: int, let_go_epoch: int = -1) -> Lease:
    """The lease with a new heartbeat, a new expiry time and the given epochs."""
    at = now_ms()
    return replace(
        lease,
        heartbeat_ms=at,
        expires_ms=at + int(LEASE_SECONDS * 1000),
        applied_epoch=applied_epoch,
        let_go_epoch=max(let_go_epoch, applied_epoch, lease.let_go),
    )
