"""Requests of a lowering, as data, so that the lowering itself reads and writes nothing.

A lowering is a generator: it yields a request, receives the answer, and finally returns a Plan. The runtime answers
from the metastore and the upstreams, a test from a dict. The neighbouring modules contain groups of related requests;
this one defines their union, and the remaining requests.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from rw_sql.errors import SqlError
from rw_sql.metastore.facts import BackfillProgress, JobStatus
from rw_sql.metastore.records import OperationRecord, SecretRecord
from rw_sql.plan.ports.ask import ask
from rw_sql.plan.ports.checkpoints import CheckpointRequest
from rw_sql.plan.ports.logs import MeasureLogs
from rw_sql.plan.ports.positions import PositionRequest
from rw_sql.plan.ports.queries import AnalyzeQuery
from rw_sql.plan.ports.rewinds import RewindRequest
from rw_sql.plan.ports.tables import LookAtTable
from rw_sql.plan.ports.upstreams import UpstreamRequest

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SealSecret:
    """Encrypts the value of a secret of backend ``meta`` for the catalog. No ``repr`` shows the value."""

    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSecret:
    """Checks that a secret's value is readable; the answer is True, never the value."""

    secret: SecretRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCheckpoint:
    """The newest committed entry of a Structured Streaming checkpoint's offset log."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointText:
    """The answer: the newest committed batch and the text of its offsets.

    ``planned`` is the newest planned batch: if it is later, that batch is running or was interrupted.
    """

    batch: int
    planned: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """The text of a file that the statement names."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadClock:
    """The current time, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadJobStatuses:
    """The status that the owner last reported for each job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBackfills:
    """The progress of each view's backfill, by job; live views are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOperations:
    """The log of record, newest first; with ``since``, from that epoch on."""

    is_unsafe: bool | None = None
    object_name: str | None = None
    since: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMetrics:
    """Every metric that the metrics server provides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value of a metric, with its name and labels."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureLags:
    """The number of records that each job is behind (None if unknown)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsIf:
    """A request to be answered as if the catalog were ``snapshot``, which includes uncommitted statements.

    A source that is paused only in that snapshot counts as stopped.
    """

    snapshot: Snapshot
    request: Request


Request = (
    UpstreamRequest
    | PositionRequest
    | SealSecret
    | OpenSecret
    | ReadCheckpoint
    | ReadFile
    | ReadClock
    | ReadJobStatuses
    | ReadBackfills
    | ReadOperations
    | ReadMetrics
    | AsIf
    | MeasureLags
    | AnalyzeQuery
    | CheckpointRequest
    | RewindRequest
    | MeasureLogs
    | LookAtTable
)

T = TypeVar("T")
Asking = Generator[Request, object, T]


def run_plan(asking: Asking[T], answer: Callable[[Request], object]) -> T:
    """Runs a lowering and returns its result. SqlErrors of answers are raised inside the lowering."""
    try:
        request = next(asking)
        while True:
            try:
                found = answer(request)
            except SqlError as error:
                request = asking.throw(error)
            else:
                request = asking.send(found)
    except StopIteration as end:
        result: T = end.value
        return result


def as_if(snapshot: Snapshot, asking: Asking[T]) -> Asking[T]:
    """Runs a lowering whose requests are answered as if the catalog were ``snapshot``."""
    try:
        request = next(asking)
        while True:
            try:
                answer = yield AsIf(snapshot=snapshot, request=request)
            except SqlError as error:
                request = asking.throw(error)
            else:
                request = asking.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def sealed(name: str, value: str) -> Asking[str]:
    """Requests a secret's value in encrypted form."""
    return ask(SealSecret(name=name, value=value), str)


def opened(secret: SecretRecord) -> Asking[bool]:
    """Requests a check that a secret is readable."""
    return ask(OpenSecret(secret=secret), bool)


def checkpoint_text(path: str) -> Asking[CheckpointText]:
    """Requests a checkpoint's newest committed offsets. Raises SqlError if there are none."""
    return ask(ReadCheckpoint(path=path), CheckpointText)


def file_text(path: str) -> Asking[str]:
    """Requests a file's text. Raises SqlError if it cannot be read."""
    return ask(ReadFile(path=path), str)


def clock() -> Asking[int]:
    """Requests the time, in milliseconds since 1970."""
    return ask(ReadClock(), int)


def job_statuses() -> Asking[dict[str, JobStatus]]:
    """Requests the status of each job."""
    return ask(ReadJobStatuses(), dict)


def backfills() -> Asking[dict[str, BackfillProgress]]:
    """Requests the progress of unfinished backfills."""
    return ask(ReadBackfills(), dict)


def operations(
    is_unsafe: bool | None = None, object_name: str | None = None, since: int | None = None
) -> Asking[tuple[OperationRecord, ...]]:
    """Requests operations, newest first."""
    return ask(ReadOperations(is_unsafe=is_unsafe, object_name=object_name, since=since), tuple)


def metrics() -> Asking[tuple[Sample, ...]]:
    """Requests all metrics."""
    return ask(ReadMetrics(), tuple)


def lags() -> Asking[dict[str, int | None]]:
    """Requests the lag of each job."""
    return ask(MeasureLags(), dict)
