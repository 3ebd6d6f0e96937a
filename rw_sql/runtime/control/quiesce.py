"""Quiesce locks, which keep readers stopped until a block or a REWIND is committed. Without them, the readers would
advance, and the preview of the statement would no longer be exact."""

from __future__ import annotations

import logging
import os
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from deltalake.exceptions import DeltaError

from rw_sql.errors import NOT_SUPPORTED, SOURCE_IS_RUNNING, SqlError
from rw_sql.metastore.facts import QuiesceLock
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.job_ids import job_object
from rw_sql.model.resource_groups import group_of
from rw_sql.model.source_readers import readers_of
from rw_sql.plan.statements.move.inject import ReaderStillRunsError
from rw_sql.runtime.jobs.groups import groups_of_jobs, owned_groups, possibly_owned_groups
from rw_sql.runtime.jobs.statuses import owner_marks
from rw_sql.runtime.observe.statement_progress import what_goes_on
from rw_sql.runtime.support.failures import cause_line
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.support.processes import is_process_alive, now_ms, process_start, this_machine
from rw_sql.runtime.support.stall_timeout import StallTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.control.session_state import SessionState
    from rw_sql.runtime.jobs.context import Context

logger = logging.getLogger(__name__)

QUIESCED = "stopped until a block or a REWIND is committed"
"""The reason that SHOW JOBS shows for a reader that a quiesce lock keeps stopped."""

LOCK_SECONDS = 600.0
"""The maximum age of a lock in seconds. If a session takes longer, because it is suspended or waits for the user's
answer, it needs a new lock for its commit."""

COMMIT_SECONDS = 60.0
"""The number of seconds for which a lock must still be valid at the start of a commit. A commit takes less time, so the
lock does not expire during the commit."""

_APART_SECONDS = 86_400.0
"""The maximum difference in seconds between the clocks of two machines. If the clocks of two machines differ by more, a
lock from one machine may not apply on the other."""

_seen: dict[tuple[str, str, int, int], float] = {}
"""Maps each lock, as (warehouse, lock, source, end), to the time on the monotonic clock at which this process first
read the lock."""

_LOOK_SECONDS = 0.02
_MARK_SECONDS = 1.0
_PAUSED_SECONDS = 0.2
"""A statement that waits until a reader of a paused source has stopped is planned again at this interval in seconds."""

_T = TypeVar("_T")


def is_in_force(lock: QuiesceLock, snapshot: Snapshot, *, seen_seconds: float | None = None) -> bool:
    """True if a lock applies to the catalog ``snapshot`` now.

    A lock becomes invalid with the first commit after its epoch. A lock from this machine also becomes invalid when its
    process ends; thus, the sources resume after a session is killed. Finally, a lock becomes invalid after
    LOCK_SECONDS, because its session may be suspended, or may wait for an answer that never comes. ``seen_seconds`` is
    the number of seconds since this process first read the lock; None if unknown. For a lock from another machine,
    whose clock may be wrong, this number is compared with LOCK_SECONDS. The lock is at least as old as this number
    says, so the lock expires on this machine no earlier than in the process that created it.
    """
    if lock.is_released or snapshot.epoch != lock.epoch:
        return False
    if lock.host == this_machine():
        if not is_process_alive(lock.pid, lock.process_start):
            return False
    elif seen_seconds is not None:
        return seen_seconds < LOCK_SECONDS and lock.expires_ms > now_ms() - int(_APART_SECONDS * 1000)
    return lock.expires_ms > now_ms()


def quiesced_jobs(context: Context, snapshot: Snapshot, group: str | None = None) -> dict[str, tuple[QuiesceLock, ...]]:
    """Maps each job that locks keep stopped now to these locks. If ``group`` is not None, the result contains only the
    jobs of this resource group."""
    found: dict[str, tuple[QuiesceLock, ...]] = {}
    locks = context.metastore.jobs.quiesce_locks()
    seen = _seconds_seen(context.warehouse.uri, locks)
    for lock, seconds in zip(locks, seen, strict=True):
        if is_in_force(lock, snapshot, seen_seconds=seconds):
            source = snapshot.get(lock.source_id)
            for reader in readers_of(snapshot, source) if isinstance(source, SourceRecord) else ():
                if group is not None and group_of(snapshot, job_object(reader.job)) != group:
                    continue
                found[reader.job] = (*found.get(reader.job, ()), lock)
    return found


def _seconds_seen(warehouse: str, locks: Collection[QuiesceLock]) -> list[float]:
    """For each lock, the number of seconds since this process first read the lock. ``locks`` must contain all locks of
    the warehouse, because this function forgets the times of all locks that are missing in ``locks``."""
    now = time.monotonic()
    keys = [(warehouse, lock.hold, lock.source_id, lock.expires_ms) for lock in locks]
    for gone in [key for key in list(_seen) if key[0] == warehouse and key not in keys]:
        _seen.pop(gone, None)
    return [now - _seen.setdefault(key, now) for key in keys]


def are_valid(snapshot: Snapshot, locks: Iterable[QuiesceLock]) -> bool:
    """True if all of ``locks`` will still be valid during the commit that follows ``snapshot``.

    The locks may have expired during a long confirmation.
    """
    ahead = int(COMMIT_SECONDS * 1000)
    return all(is_in_force(replace(lock, expires_ms=lock.expires_ms - ahead), snapshot) for lock in locks)


def lock_sources(
    context: Context, snapshot: Snapshot, sources: Collection[int], seconds: float, wake: Callable[[], None]
) -> tuple[QuiesceLock, ...]:
    """Locks sources for the commit that follows ``snapshot``. Waits until the readers of the sources have stopped, and
    returns the locks. ``wake`` wakes the owner if this process is the owner.

    Without an owner, no reader runs, and a new owner will respect the locks. If a reader neither stops nor makes
    progress for ``seconds``, releases the locks and raises SqlError SOURCE_IS_RUNNING. If this process does not know
    whether the reader's owner still runs, waits longer.
    """
    for source_id in sources:
        _require_one_group(snapshot, source_id)
    name = uuid.uuid4().hex
    locks = tuple(
        QuiesceLock(
            hold=name,
            source_id=source_id,
            epoch=snapshot.epoch,
            host=this_machine(),
            pid=os.getpid(),
            process_start=process_start(os.getpid()),
            expires_ms=now_ms() + int(LOCK_SECONDS * 1000),
        )
        for source_id in sources
    )
    if not locks:
        return ()
    fault("block.before_hold")
    facts = context.metastore.jobs
    facts.add_locks(locks)
    fault("block.holding")
    limit = StallTimeout(seconds)
    jobs = [
        reader.job
        for record in map(snapshot.get, sources)
        if isinstance(record, SourceRecord)
        for reader in readers_of(snapshot, record)
    ]
    marked_at = extended_at = time.monotonic()
    wake()
    try:
        while not _has_stopped(context, name):
            if context.metastore.snapshot().epoch != snapshot.epoch:
                break  # The lock is no longer valid. The commit detects this too, and the statement is planned again.
            if time.monotonic() - extended_at >= LOCK_SECONDS / 2:
                locks, extended_at = _extended(context, locks), time.monotonic()
            if time.monotonic() - marked_at >= min(_MARK_SECONDS, seconds):
                limit.note(*owner_marks(context, jobs))
                marked_at = time.monotonic()
            if limit.is_over and not owned_groups(context).isdisjoint(_groups_to_stop(context, name)):
                named = ", ".join(_name(snapshot, lock.source_id) for lock in locks)
                raise SqlError(
                    SOURCE_IS_RUNNING,
                    f"the reader of {named} did not stop within {seconds:g} s of the last progress: "
                    "nothing was changed",
                    hint=f"SHOW JOBS shows what it is doing; wait longer: SET statement_timeout = '{limit.longer}'",
                    detail=what_goes_on(context, jobs),
                )
            time.sleep(_LOOK_SECONDS)
    except BaseException:
        # The locks are released even after an interrupt, because the readers would otherwise stay stopped.
        release_locks(context, locks, wake)
        raise
    if time.monotonic() - extended_at >= COMMIT_SECONDS:
        locks = _extended(context, locks)  # The time for an answer begins when the readers have stopped.
    fault("block.held")
    return locks


def _extended(context: Context, locks: tuple[QuiesceLock, ...]) -> tuple[QuiesceLock, ...]:
    expires_ms = now_ms() + int(LOCK_SECONDS * 1000)
    context.metastore.jobs.extend_locks(locks, expires_ms)
    return tuple(replace(lock, expires_ms=expires_ms) for lock in locks)


def release_locks(context: Context, locks: tuple[QuiesceLock, ...], wake: Callable[[], None]) -> None:
    """Releases the locks and wakes the owner, which starts the readers again."""
    if locks:
        context.metastore.jobs.release_locks(locks)
        wake()


def try_release(context: Context, locks: tuple[QuiesceLock, ...], wake: Callable[[], None]) -> None:
    """Does the same as :func:`release_locks`, but logs an error of the store instead of raising it, because the
    statement may already be committed. After such an error, the locks end with the next commit or after
    LOCK_SECONDS."""
    try:
        release_locks(context, locks, wake)
    except (OSError, DeltaError) as error:
        logger.warning(
            "the readers that a statement has stopped stay stopped until the next commit, or for at most %g s: %s",
            LOCK_SECONDS,
            cause_line(str(error)),
        )


def _has_stopped(context: Context, name: str) -> bool:
    # Readers in groups without an owner do not run.
    return possibly_owned_groups(context).isdisjoint(_groups_to_stop(context, name))


def _groups_to_stop(context: Context, name: str) -> frozenset[str]:
    """Returns the resource groups of the readers that the locks with the name ``name`` stop, without the groups whose
    owners have reported that these readers have stopped."""
    locks = [lock for lock in context.metastore.jobs.quiesce_locks() if lock.hold == name and not lock.is_taken]
    snapshot = context.metastore.snapshot()
    return frozenset(group for lock in locks for group in _reader_groups(snapshot, lock.source_id))


def _reader_groups(snapshot: Snapshot, source_id: int) -> frozenset[str]:
    source = snapshot.get(source_id)
    jobs = [reader.job for reader in readers_of(snapshot, source)] if isinstance(source, SourceRecord) else []
    return groups_of_jobs(jobs, snapshot) or frozenset({group_of(snapshot, source_id)})


def _require_one_group(snapshot: Snapshot, source_id: int) -> None:
    """Raises SqlError if the readers of a source are in several resource groups. In this case, none of the groups'
    owners would know whether all readers have stopped."""
    groups = _reader_groups(snapshot, source_id)
    if len(groups) > 1:
        raise SqlError(
            NOT_SUPPORTED,
            f"the views that read {_name(snapshot, source_id)} directly are in resource groups "
            f"{', '.join(sorted(groups))}, and the statement has to stop all of them at once",
            hint="ALTER MATERIALIZED VIEW a_view SET RESOURCE_GROUP TO a_group moves them into one",
        )


def _name(snapshot: Snapshot, source_id: int) -> str:
    record = snapshot.get(source_id)
    return f'source "{record.name}"' if record is not None else f"source {source_id}"


def once_stopped(plan: Callable[[], _T], session: SessionState, wake: Callable[[], None]) -> _T:
    """Calls ``plan`` and returns its result.

    If ``plan`` raises ReaderStillRunsError, waits and calls ``plan`` again, until ``statement_timeout``. The readers of
    a paused source may still run because another session has just paused it, or because the owner that must stop them
    has just started. ``wake`` wakes the owner if this process is the owner.
    """
    started = time.monotonic()
    while True:
        try:
            return plan()
        except ReaderStillRunsError:
            if time.monotonic() - started > session.timeout:
                raise
        session.waiting.begin("waiting until the readers of the paused source stop")
        wake()
        time.sleep(_PAUSED_SECONDS)
