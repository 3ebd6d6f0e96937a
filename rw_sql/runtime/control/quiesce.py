"""Quiesce locks: keep readers stopped while a block is committed, so that its preview stays exact."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.errors import SOURCE_IS_RUNNING, SqlError
from rw_sql.metastore.facts import QuiesceLock
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.source_readers import readers_of
from rw_sql.runtime.jobs.statuses import owner_marks
from rw_sql.runtime.observe.waiting import what_goes_on
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.support.processes import is_process_alive, now_ms, process_start, this_machine
from rw_sql.runtime.support.stall_timeout import StallTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.jobs.context import Context

LOCK_SECONDS = 600.0
"""The maximum age of a lock in seconds.

It applies if the owner cannot determine whether the locking process is alive.
"""

COMMIT_SECONDS = 60.0
"""The minimum remaining validity of a lock in seconds to begin a commit, so that the lock cannot expire during the
commit."""

_LOOK_SECONDS = 0.02
_MARK_SECONDS = 1.0


def is_in_force(lock: QuiesceLock, snapshot: Snapshot, *, is_local: bool) -> bool:
    """True if a lock still applies.

    A lock is valid until the commit that follows its epoch. It also becomes invalid when its process ends, so that
    sources resume after a session is killed.
    """
    if lock.is_released or snapshot.epoch != lock.epoch:
        return False
    if lock.host == this_machine():
        is_alive = is_process_alive(lock.pid, lock.process_start)
        if is_local or not is_alive:
            return is_alive
    return lock.expires_ms > now_ms()


def quiesced_jobs(context: Context, snapshot: Snapshot) -> dict[str, tuple[QuiesceLock, ...]]:
    """The jobs that locks keep stopped now."""
    found: dict[str, tuple[QuiesceLock, ...]] = {}
    for lock in context.metastore.jobs.quiesce_locks():
        if is_in_force(lock, snapshot, is_local=context.warehouse.is_local):
            source = snapshot.get(lock.source_id)
            for reader in readers_of(snapshot, source) if isinstance(source, SourceRecord) else ():
                found[reader.job] = (*found.get(reader.job, ()), lock)
    return found


def are_valid(context: Context, snapshot: Snapshot, locks: Iterable[QuiesceLock]) -> bool:
    """True if locks are still valid for the commit after ``snapshot``.

    They may have expired during a long confirmation.
    """
    is_local = context.warehouse.is_local
    ahead = int(COMMIT_SECONDS * 1000)
    return all(is_in_force(replace(h, expires_ms=h.expires_ms - ahead), snapshot, is_local=is_local) for h in locks)


def lock_sources(
    context: Context, snapshot: Snapshot, sources: Collection[int], seconds: float, wake: Callable[[], None]
) -> tuple[QuiesceLock, ...]:
    """Locks sources for the commit that follows ``snapshot``, and returns when their readers have stopped.

    Without an owner no reader runs, and a new owner respects the lock. If a reader neither stops nor makes progress
    for ``seconds``, releases the lock and raises SqlError SOURCE_IS_RUNNING.
    """
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
    marked_at = time.monotonic()
    wake()
    try:
        while not _has_stopped(context, name):
            if context.metastore.snapshot().epoch != snapshot.epoch:
                break  # The lock is void: the commit will detect that too, and the block is planned again.
            if time.monotonic() - marked_at >= min(_MARK_SECONDS, seconds):
                limit.note(*owner_marks(context, jobs))
                marked_at = time.monotonic()
            if limit.is_over:
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
        # Done regardless of how the wait ends, even by an interrupt. Otherwise these readers would stay
        # stopped.
        release_locks(context, locks, wake)
        raise
    fault("block.held")
    return locks


def release_locks(context: Context, locks: tuple[QuiesceLock, ...], wake: Callable[[], None]) -> None:
    """Releases the locks and lets the readers continue."""
    if locks:
        context.metastore.jobs.release_locks(locks)
        wake()


def _has_stopped(context: Context, name: str) -> bool:
    facts = context.metastore.jobs
    if all(lock.is_taken for lock in facts.quiesce_locks() if lock.hold == name):
        return True
    return not context.has_owner()


def _name(snapshot: Snapshot, source_id: int) -> str:
    record = snapshot.get(source_id)
    return f'source "{record.name}"' if record is not None else f"source {source_id}"
