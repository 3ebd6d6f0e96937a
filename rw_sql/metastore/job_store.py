"""Stores facts about the running jobs: the lease, runs, statuses, progress and positions.

Writing facts does not advance the epoch. Rows are appended with compare-and-set. The newest row of each key is the
current row. Upkeep removes the key's older rows, so a table has only a few dozen files even after days of a heartbeat
every two seconds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from threading import RLock
from typing import TYPE_CHECKING

import msgspec

from rw_sql.metastore.facts import (
    BackfillProgress,
    JobStatus,
    Lease,
    NotedPosition,
    PointDependent,
    QuiesceLock,
    RewindPoint,
    Run,
)
from rw_sql.metastore.keyed_table import Key as _Key
from rw_sql.metastore.keyed_table import KeyedTable
from rw_sql.metastore.keyed_table import Row as _Row
from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.metastore.refresh_records import RefreshChunk
from rw_sql.metastore.request_store import RequestStore, recent_requests
from rw_sql.metastore.table import join

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from threading import Event

    from rw_sql.metastore.commit_log import Looks
    from rw_sql.metastore.failed_writes import FailedWrites

RUNS_KEPT = 20
"""The number of runs that upkeep keeps for each job: the latest ones. A job whose query stops after each batch starts a
new run for each batch, so its older runs are removed within a few hours."""

_THE_LEASE = "jobs"

_WORTH_FOLDING = 200

_ID = re.compile(r"[0-9]+")
"""Matches the id of the object in the id of a job or fragment: the 9 in ``mv-9``, ``mv-9.2`` and ``mv-9:7``."""


def _present(rows: list[_Row]) -> list[_Row]:
    return [row for row in rows if not row["is_dropped"]]


def _unreleased(rows: list[_Row]) -> list[_Row]:
    return [row for row in rows if not row["is_released"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusMark:
    """Marks the statuses that :meth:`JobStore.statuses_after` has already returned; by default, no statuses."""

    rows: Mapping[_Key, _Row] | None = None
    seq: int = -1


class JobStore:
    """The ``runtime_*`` tables. Each table is opened at its first use. Thread-safe."""

    def __init__(self, directory: str, failed_writes: FailedWrites | None = None, looks: Looks | None = None) -> None:
        self._directory = directory
        self._failed_writes = failed_writes
        self._looks = looks
        self._lock = RLock()
        self._tables: dict[str, KeyedTable] = {}
        # The last run of each job, as of the write with the number in ``_runs_at``. Rows of runs never change.
        self._last_runs: dict[str, Run] = {}
        self._runs_at = -1
        # Returns True if the object with the given id was dropped. The next fold of a table removes the rows of such
        # objects.
        self._is_dropped: Callable[[int], bool] = lambda _: False
        # The rows of noted positions are grouped by fragment, so that each of a thousand sources reads only its own
        # rows.
        self._noted: tuple[Mapping[_Key, _Row], dict[str, list[_Row]]] | None = None
        self._told: set[Event] = set()
        self.saying = RLock()
        """A lock that a thread holds while it computes and stores a status. A thread that takes this lock before it
        reads statuses therefore does not read a status that another thread is about to replace."""
        self.requests = RequestStore(partial(self._open, "runtime_requests", ("request",), recent_requests))

    @contextmanager
    def telling(self, event: Event) -> Iterator[None]:
        """A context manager. Inside it, each write of a job's status or progress through this object sets ``event``."""
        self._told.add(event)
        try:
            yield
        finally:
            self._told.discard(event)

    def _tell(self) -> None:
        for event in tuple(self._told):
            event.set()

    def lease(self, group: str = DEFAULT_GROUP) -> Lease | None:
        """The last lease of a resource group, even if it was released or has expired; None if the group never had
        one."""
        return _lease(self._leases().rows(), group)

    def leases(self) -> Mapping[str, Lease]:
        """The last lease of each resource group that ever had one, even if this lease was released or has expired."""
        rows = self._leases().rows()
        found = (_lease(rows, _group_of(key[0])) for key in sorted(rows))
        return {lease.group: lease for lease in found if lease is not None}

    def take_lease(self, lease: Lease, replacing: Lease | None) -> bool:
        """Writes a lease if the stored lease of its group still equals ``replacing``, or if ``replacing`` is None and
        no lease is stored. If another process has written a lease first, writes nothing and returns False."""

        def choose(present: Mapping[_Key, _Row]) -> Sequence[_Row]:
            return [_lease_row(lease)] if _lease(present, lease.group) == replacing else []

        return bool(self._leases().write(choose))

    def renew_lease(self, lease: Lease) -> bool:
        """Replaces the stored state of a lease with its newer state ``lease``. Writes nothing and returns False if the
        owner has lost or released the lease."""

        def choose(present: Mapping[_Key, _Row]) -> Sequence[_Row]:
            return [_lease_row(lease)] if _is_held(_lease(present, lease.group), lease) else []

        return bool(self._leases().write(choose))

    def release_lease(self, lease: Lease) -> bool:
        """Marks the owner's lease as released. Returns False if the owner has lost or already released the lease."""
        return self.renew_lease(replace(lease, is_released=True))

    def claim_run(self, job: str, epoch: int, owner: str) -> Run:
        """Claims the job's next run number. No two callers get the same number."""
        return self.claim_runs([job], epoch, owner)[0]

    def claim_runs(self, jobs: Sequence[str], epoch: int, owner: str) -> tuple[Run, ...]:
        """Claims the next run number of each job, in one commit."""
        at = time.time_ns() // 1_000_000

        def choose(present: Mapping[_Key, _Row]) -> Sequence[_Row]:
            last = self._last_of(present)
            numbers = {job: last[job].run + 1 if job in last else 1 for job in jobs}
            return [
                {"job": job, "run": run, "epoch": epoch, "owner": owner, "started_ms": at}
                for job, run in numbers.items()
            ]

        claimed = {row["job"]: msgspec.convert(row, Run) for row in self._run_table().write(choose)}
        return tuple(claimed[job] for job in jobs)

    def runs(self, job: str) -> tuple[Run, ...]:
        """The job's latest runs, oldest first: at least :data:`RUNS_KEPT` runs, or all runs if there are fewer."""
        rows = self._run_table().rows()
        found = (msgspec.convert(row, Run) for (of_job, _), row in rows.items() if of_job == job)
        return tuple(sorted(found, key=lambda run: run.run))

    def last_runs(self) -> Mapping[str, Run]:
        """The last run of each job."""
        return dict(self._last_of(self._run_table().rows()))

    def forget_dropped(self, is_dropped: Callable[[int], bool]) -> None:
        """Makes the next upkeep of each table remove the runs, positions and progress of dropped objects.

        ``is_dropped`` returns True if the object with the given id was dropped. Ids are never used again, so no job of
        a dropped object ever starts again. The removal does not reset the run numbers that this process has cached.
        """
        self._is_dropped = is_dropped

    def write_job_status(self, statuses: Sequence[JobStatus]) -> None:
        """Stores the statuses. Each status replaces the earlier status of its job."""
        rows = [{**msgspec.to_builtins(status), "is_dropped": False} for status in statuses]
        self._statuses().write(lambda _: rows)
        self._tell()

    def job_statuses(self) -> Mapping[str, JobStatus]:
        """The status of each job."""
        with self.saying:
            rows = self._statuses().rows().values()
        return {row["job"]: msgspec.convert(row, JobStatus) for row in rows if not row["is_dropped"]}

    def statuses_after(self, mark: StatusMark) -> tuple[StatusMark, Mapping[str, JobStatus | None]]:
        """Returns the mark for the next call, and the statuses that any process has stored after ``mark``. A deleted
        status is None. If nothing was stored after ``mark``, the duration of the call does not depend on the number of
        jobs."""
        rows = self._statuses().rows()
        if rows is mark.rows:
            return mark, {}
        newer = [row for row in rows.values() if row["seq"] > mark.seq]
        found = {row["job"]: None if row["is_dropped"] else msgspec.convert(row, JobStatus) for row in newer}
        return StatusMark(rows=rows, seq=max((row["seq"] for row in newer), default=mark.seq)), found

    def drop_jobs(self, jobs: Iterable[str]) -> None:
        """Deletes the statuses of jobs."""
        wanted = tuple(jobs)

        def choose(present: Mapping[_Key, _Row]) -> Sequence[_Row]:
            known = [job for job in wanted if (job,) in present and not present[job,]["is_dropped"]]
            return [{"job": job, "is_dropped": True} for job in known]

        self._statuses().write(choose)

    def write_backfill(self, progress: BackfillProgress) -> None:
        """Replaces the progress of a view's backfill."""
        # A BIGINT cannot hold offsets of 56 digits.
        most = 2**63 - 1
        kept = replace(progress, done=min(progress.done, most), total=min(progress.total, most))
        self._backfills().write(lambda _: [msgspec.to_builtins(kept)])
        self._tell()

    def backfills(self, jobs: Iterable[str] | None = None) -> Mapping[str, BackfillProgress]:
        """The progress of the backfills of ``jobs``, or of all jobs, by job. A job without a backfill is absent."""
        rows = self._backfills().rows()
        found = rows.values() if jobs is None else [rows[job,] for job in jobs if (job,) in rows]
        return {row["job"]: msgspec.convert(row, BackfillProgress) for row in found}

    def note_chunks(self, chunks: Sequence[RefreshChunk]) -> None:
        """Records the progress of chunks of refreshes."""
        self._chunks().write(lambda _: [msgspec.to_builtins(chunk) for chunk in chunks])

    def chunks_of(self, table_id: int) -> tuple[RefreshChunk, ...]:
        """The chunks of a table's last refresh, in ascending order. The first chunk stands for the loading phase."""
        rows = [row for row in self._chunks().rows().values() if row["table_id"] == table_id]
        newest = max((row["refresh"] for row in rows), default=0)
        found = [msgspec.convert(row, RefreshChunk) for row in rows if row["refresh"] == newest]
        return tuple(sorted(found, key=lambda chunk: chunk.chunk))

    def note_positions(self, positions: Sequence[NotedPosition]) -> tuple[NotedPosition, ...]:
        """Records each position for its fragment and split.

        Does not write a position that is already stored, or that is older than the stored position. Of two positions,
        the one with the greater triple (epoch, run, log_version) is newer. Returns the positions that were not written
        because a newer position is stored.
        """

        def choose(present: Mapping[_Key, _Row]) -> Sequence[_Row]:
            return [
                msgspec.to_builtins(position)
                for position in positions
                if (row := present.get((position.fragment, position.split))) is None
                or _age(position) > (row["epoch"], row["run"], row["log_version"])
            ]

        table = self._positions()
        table.write(choose)
        rows = table.rows()
        return tuple(
            position
            for position in positions
            if (row := rows.get((position.fragment, position.split))) is not None
            and _age(position) < (row["epoch"], row["run"], row["log_version"])
        )

    def noted_positions(self, fragment: str) -> Mapping[str, NotedPosition]:
        """The stored positions of a fragment, by split."""
        rows = self._positions().rows()
        cached = self._noted
        if cached is None or cached[0] is not rows:
            by_fragment: dict[str, list[_Row]] = {}
            for row in rows.values():
                by_fragment.setdefault(row["fragment"], []).append(row)
            cached = self._noted = (rows, by_fragment)
        return {row["split"]: msgspec.convert(row, NotedPosition) for row in cached[1].get(fragment, ())}

    def add_locks(self, locks: Sequence[QuiesceLock]) -> None:
        """Adds quiesce locks."""
        self._holds().write(lambda _: [msgspec.to_builtins(lock) for lock in locks])

    def quiesce_locks(self) -> tuple[QuiesceLock, ...]:
        """The quiesce locks that were not released. Some of them may have expired."""
        rows = self._holds().rows().values()
        return tuple(msgspec.convert(row, QuiesceLock) for row in rows if not row["is_released"])

    def acknowledge_locks(self, locks: Sequence[QuiesceLock]) -> None:
        """Records that the readers have stopped, as the given quiesce locks request."""
        self._change_locks(locks, is_taken=True)

    def release_locks(self, locks: Sequence[QuiesceLock]) -> None:
        """Releases quiesce locks."""
        self._change_locks(locks, is_released=True)

    def extend_locks(self, locks: Sequence[QuiesceLock], expires_ms: int) -> None:
        """Sets the expiry time of quiesce locks to ``expires_ms``."""
        self._change_locks(locks, expires_ms=expires_ms)

    def _change_locks(self, locks: Sequence[QuiesceLock], **values: bool | int) -> None:
        def choose(present: Mapping[_Key, _Row]) -> Sequence[_Row]:
            rows = [present.get((lock.hold, lock.source_id)) for lock in locks]
            return [{**row, **values} for row in rows if row is not None and not row["is_released"]]

        self._holds().write(choose)

    def write_rewind_points(self, points: Sequence[RewindPoint]) -> None:
        """Adds rewind points, with or without data. Never replaces a stored point: a former owner whose process was
        suspended may call this method after the next owner has stored the same point."""

        def choose(present: Mapping[_Key, _Row]) -> Sequence[_Row]:
            return [_point_row(point) for point in points if (point.source_id, point.operation) not in present]

        self._rewind_points().write(choose)

    def replace_rewind_points(self, points: Sequence[RewindPoint]) -> None:
        """Replaces stored rewind points. A point that another process has deleted stays deleted."""

        def choose(present: Mapping[_Key, _Row]) -> Sequence[_Row]:
            keys = {(point.source_id, point.operation): point for point in points}
            return [_point_row(keys[key]) for key in keys if key in present and not present[key]["is_dropped"]]

        self._rewind_points().write(choose)

    def rewind_points(self, source_id: int | None = None) -> tuple[RewindPoint, ...]:
        """The rewind points of one source, or of all sources, in ascending order of source id and operation."""
        rows = self._rewind_points().rows()
        return tuple(
            _point(rows[key])
            for key in sorted(rows)
            if not rows[key]["is_dropped"] and source_id in (None, rows[key]["source_id"])
        )

    def rewind_operations(self, source_id: int) -> frozenset[int]:
        """The operations on a source for which a rewind point, or a reason for its absence, was stored. The result can
        include operations whose rewind points were deleted."""
        rows = self._rewind_points().rows()
        return frozenset(operation for of_source, operation in rows if of_source == source_id)

    def rewind_stamp(self) -> tuple[object, ...]:
        """Returns a tuple that a caller compares with an earlier result, item by item, with ``is``. An item is another
        object if, since the earlier call, a job has started, or a rewind point or a completed REWIND was recorded."""
        return self._run_table().rows(), self._rewind_points().rows(), self._rewinds().rows()

    def drop_rewind_points(self, points: Sequence[RewindPoint]) -> None:
        """Deletes rewind points."""
        keys = [(point.source_id, point.operation) for point in points]

        def choose(present: Mapping[_Key, _Row]) -> Sequence[_Row]:
            return [{**present[key], "is_dropped": True} for key in keys if key in present]

        self._rewind_points().write(choose)

    def note_rewound(self, epoch: int, source_id: int) -> None:
        """Records that the owner has completed the REWIND with the operation number ``epoch``."""
        row = {"epoch": epoch, "source_id": source_id, "done_ms": time.time_ns() // 1_000_000}
        self._rewinds().write(lambda present: [] if (epoch,) in present else [row])

    def rewound(self) -> frozenset[int]:
        """The operation numbers of the completed REWIND operations."""
        return frozenset(row["epoch"] for row in self._rewinds().rows().values())

    def _last_of(self, rows: Mapping[_Key, _Row]) -> Mapping[str, Run]:
        """The last run of each job. ``rows`` are the current rows of the table of runs, in the order in which they were
        written. The method reads only the rows that were written since its previous call. The next call may change the
        returned mapping."""
        with self._lock:
            new = [*takewhile(lambda row: row["seq"] > self._runs_at, reversed([*rows.values()]))]
            for row in reversed(new):
                last = self._last_runs.get(row["job"])
                if last is None or last.run < row["run"]:
                    self._last_runs[row["job"]] = msgspec.convert(row, Run)
            self._runs_at = new[0]["seq"] if new else self._runs_at
            return self._last_runs

    def _kept_runs(self, rows: list[_Row]) -> list[_Row]:
        newest: dict[str, int] = {}
        for row in rows:
            newest[row["job"]] = max(row["run"], newest.get(row["job"], 0))
        return self._of_present([row for row in rows if row["run"] > newest[row["job"]] - RUNS_KEPT], "job")

    def _of_present(self, rows: list[_Row], column: str) -> list[_Row]:
        """The rows whose objects are not known to be dropped. ``column`` contains the id of the object, or the id of
        its job or fragment, such as ``mv-9``."""
        ids = {value: _ID.search(str(value)) for value in {row[column] for row in rows}}
        gone = {value for value, id_ in ids.items() if id_ is not None and self._is_dropped(int(id_[0]))}
        return [row for row in rows if row[column] not in gone]

    def _open(
        self, name: str, keys: Sequence[str], trim: Callable[[list[_Row]], list[_Row]], *, is_small: bool = False
    ) -> KeyedTable:
        with self._lock:
            table = self._tables.get(name)
            if table is None:
                worth = 0 if is_small else _WORTH_FOLDING
                table = KeyedTable(
                    join(self._directory, name),
                    keys,
                    trim,
                    worth_folding=worth,
                    failed_writes=self._failed_writes,
                    looks=self._looks,
                )
                self._tables[name] = table
            return table

    def _leases(self) -> KeyedTable:
        return self._open("runtime_lease", ("lease",), list, is_small=True)

    def _run_table(self) -> KeyedTable:
        return self._open("runtime_runs", ("job", "run"), self._kept_runs)

    def _statuses(self) -> KeyedTable:
        return self._open("runtime_job_status", ("job",), _present)

    def _holds(self) -> KeyedTable:
        return self._open("runtime_holds", ("hold", "source_id"), _unreleased)

    def _rewind_points(self) -> KeyedTable:
        return self._open("runtime_rewind_points", ("source_id", "operation"), _present)

    def _rewinds(self) -> KeyedTable:
        return self._open("runtime_rewinds", ("epoch",), partial(self._of_present, column="source_id"))

    def _backfills(self) -> KeyedTable:
        return self._open("runtime_backfills", ("job",), partial(self._of_present, column="job"))

    def _chunks(self) -> KeyedTable:
        return self._open("runtime_refresh_chunks", ("table_id", "refresh", "chunk"), self._newest_refreshes)

    def _positions(self) -> KeyedTable:
        return self._open("runtime_positions", ("fragment", "split"), partial(self._of_present, column="fragment"))

    def _newest_refreshes(self, rows: list[_Row]) -> list[_Row]:
        newest: dict[int, int] = {}
        for row in rows:
            newest[row["table_id"]] = max(row["refresh"], newest.get(row["table_id"], 0))
        return self._of_present([row for row in rows if row["refresh"] == newest[row["table_id"]]], "table_id")


def _lease(rows: Mapping[_Key, _Row], group: str) -> Lease | None:
    row = rows.get((_lease_key(group),))
    return None if row is None else msgspec.convert({**row, "group": group}, Lease)


def _lease_row(lease: Lease) -> _Row:
    row = msgspec.to_builtins(lease)
    return {**row, "lease": _lease_key(row.pop("group"))}


def _lease_key(group: str) -> str:
    return _THE_LEASE if group == DEFAULT_GROUP else f"{_THE_LEASE}.{group}"


def _group_of(key: str) -> str:
    return DEFAULT_GROUP if key == _THE_LEASE else key.removeprefix(f"{_THE_LEASE}.")


def _is_held(present: Lease | None, lease: Lease) -> bool:
    return (
        present is not None
        and not present.is_released
        and (present.owner, present.taken_at_ms) == (lease.owner, lease.taken_at_ms)
    )


def _age(position: NotedPosition) -> tuple[int, int, int]:
    return position.epoch, position.run, position.log_version


class _PointBody(msgspec.Struct):
    """The part of a rewind point that is stored as JSON."""

    log_version: int
    states: Mapping[str, str]
    dependents: tuple[PointDependent, ...]


def _point_row(point: RewindPoint) -> _Row:
    return {
        "source_id": point.source_id,
        "operation": point.operation,
        "reason": point.reason,
        "folder": point.folder,
        "body": msgspec.json.encode(_PointBody(point.log_version, point.states, point.dependents)).decode(),
        "made_ms": point.made_ms,
        "is_dropped": False,
    }


def _point(row: _Row) -> RewindPoint:
    body = msgspec.json.decode(row["body"], type=_PointBody)
    return RewindPoint(
        source_id=row["source_id"],
        operation=row["operation"],
        made_ms=row["made_ms"],
        reason=row["reason"],
        folder=row["folder"],
        log_version=body.log_version,
        states=body.states,
        dependents=body.dependents,
    )
