"""Defines facts about the running jobs, as frozen records. Writing a fact does not advance the epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.metastore.records import DEFAULT_GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.metastore.records import StoredState


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The lease of a resource group. It identifies the process that runs the jobs of the group.

    ``python_pid`` and ``jvm_pid`` are the ids of the owner's Python process and of its JVM on ``host``. The start times
    ``python_start`` and ``jvm_start`` distinguish these two processes from later processes with the same ids.
    ``applied_epoch`` is the last epoch that the owner's reconciler has applied. ``version`` is the owner's version of
    rw_sql; None if this version does not have resource groups yet.
    """

    owner: str
    host: str
    python_pid: int
    jvm_pid: int
    python_start: str
    jvm_start: str
    taken_at_ms: int
    heartbeat_ms: int
    expires_ms: int
    applied_epoch: int
    is_released: bool = False
    version: str | None = None
    let_go_epoch: int | None = None
    group: str = DEFAULT_GROUP

    @property
    def let_go(self) -> int:
        """The last epoch for which the owner has stopped all jobs that the catalog no longer assigns to the lease's
        group."""
        return self.applied_epoch if self.let_go_epoch is None else self.let_go_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a job. Runs are numbered from 1 for each job, and a later run fences all earlier runs."""

    job: str
    run: int
    epoch: int
    owner: str
    started_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The status of a job. ``state`` is RUNNING, PAUSED, IDLE (no object reads the job's rows), STALLED, STARTING,
    STOPPING or STOPPED."""

    job: str
    object_id: int
    state: str
    reason: str | None = None
    last_error: str | None = None
    run: int | None = None
    restarts: int = 0
    updated_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillProgress:
    """The progress of a view's backfill. ``done`` of ``total`` offsets have been read. If ``is_over`` is true, the
    backfill is complete.

    ``phase`` is a human-readable description. ``generation`` is the generation of the view.
    """

    job: str
    object_id: int
    generation: int
    phase: str
    done: int
    total: int
    started_ms: int
    updated_ms: int
    is_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedPosition:
    """A split's position that the ingest job recorded. The position includes all commits of the source's log up to
    ``log_version``."""

    fragment: str
    split: str
    state: str
    epoch: int
    run: int
    log_version: int

    def counts(self, row: StoredState) -> bool:
        """True if this position is newer than ``row``, a position of the same split that a statement has set."""
        return self.epoch >= row.epoch and self.log_version >= row.log_version


ASKED, TAKEN, DONE, WITHDRAWN = "ASKED", "TAKEN", "DONE", "WITHDRAWN"
"""The states of a request. ASKED: the session has stored the request. TAKEN: the owner runs it. DONE: the answer is
stored. WITHDRAWN: the session withdrew the request before the owner ran it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A statement that a session without a JVM passes to the owner of a resource group.

    ``body``, ``progress`` and ``answer`` are JSON. ``body`` is None after the request was answered or withdrawn.
    ``taken_by`` is the owner that runs the statement; None if no owner has taken the request.
    """

    request: str
    session: str
    resource_group: str
    state: str
    asked_ms: int
    body: str | None
    taken_by: str | None = None
    progress: str | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuiesceLock:
    """A request to stop the readers of a source until a BEGIN UNSAFE block or a REWIND is committed.

    ``epoch`` is the epoch of the catalog on which the block or the REWIND was planned. ``pid`` is the id of the
    requesting process on ``host``. If ``is_taken`` is true, the readers have stopped.
    """

    hold: str
    source_id: int
    epoch: int
    host: str
    pid: int
    process_start: str
    expires_ms: int
    is_taken: bool = False
    is_released: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PointDependent:
    """The state of a direct or indirect dependent of a source at a rewind point.

    ``batch`` is the dependent's last committed batch; -1 if the dependent has committed no batch. ``version`` is the
    version of the dependent's table that includes every batch up to ``batch``. ``reads`` has a pair (id of an input,
    first version of this input's table that the dependent has not read) for each input.
    """

    id: int
    generation: int
    version: int
    batch: int
    reads: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindPoint:
    """A state that REWIND restores: the state of a source and all its dependents directly before an unsafe operation
    took effect.

    If no point could be recorded, or if its data was removed because of the point's age, ``reason`` states the cause,
    and ``folder``, ``states`` and ``dependents`` are empty. ``made_ms`` is the time at which the point was made or, if
    the point has a ``reason``, the time at which the reason was recorded, in milliseconds since 1970. ``states`` maps
    each split to its position in the connector's JSON. ``folder`` contains copies of the dependents' checkpoints. If a
    point has both a ``reason`` and a ``folder``, its data will soon be removed. Only a REWIND that was planned before
    the reason was recorded can still restore such a point.
    """

    source_id: int
    operation: int
    made_ms: int
    reason: str | None = None
    folder: str = ""
    log_version: int = -1
    states: Mapping[str, str] = field(default_factory=dict)
    dependents: tuple[PointDependent, ...] = ()

    @property
    def has_data(self) -> bool:
        """True if the checkpoint copies and the table versions with which REWIND restores the point are still kept."""
        return bool(self.folder)
