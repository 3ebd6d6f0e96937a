"""What the metastore holds of the running jobs, as frozen records: facts, which advance no epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Who runs the jobs of this warehouse. Pids are of ``host``; ``process_start`` tells a reused pid from the old one.

    ``applied_epoch`` is the newest epoch that the owner's reconciler brought into the world.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One start of a job. Runs of one job are numbered from 1; a later one fences all earlier ones."""

    job: str
    run: int
    epoch: int
    owner: str
    started_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """What a job is doing. ``state`` is RUNNING, PAUSED, IDLE (no reader), STALLED, STARTING or STOPPED."""

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
    """How far a view has come with its history: ``done`` of ``total`` offsets. ``is_over``: it is live.

    ``phase`` is in words. ``generation`` is the view's.
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
    """A split's position as its ingest noted it at a barrier that matters, up to ``log_version`` of the log."""

    fragment: str
    split: str
    state: str
    epoch: int
    run: int
    log_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A source whose reader stands still while one COMMIT of a block runs.

    ``epoch`` is that of the catalog it is committed on; ``pid`` is of ``host``. ``is_taken``: the reader has stopped.
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
    """A reader of a source, direct or through others, as it was at a rewind point.

    ``version`` is that of its table with all up to ``batch`` in it, its newest committed batch (-1: none).
    ``reads`` are (input, first version of its table that is not in it).
    """

    id: int
    generation: int
    version: int
    batch: int
    reads: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindPoint:
    """What REWIND goes back to: a source and all that depends on it, just before an unsafe operation took hold.

    Where there is none ``reason`` says why, and the rest is empty. ``states`` are the positions as the connector's
    JSON; ``folder`` holds the copies of the dependents' checkpoints.
    """

    source_id: int
    operation: int
    made_ms: int
    reason: str | None = None
    folder: str = ""
    log_version: int = -1
    states: Mapping[str, str] = field(default_factory=dict)
    dependents: tuple[PointDependent, ...] = ()
