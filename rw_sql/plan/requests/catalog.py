"""What lowering asks the world: requests as data, so that lowering itself reads and writes nothing.

A lowering is a generator: it yields a request, gets the answer sent back, and returns a Plan.
The runtime answers from the real world, a test from a dict. Requests that belong together stand in a module
of their own (``*_requests.py``); here is what all of them come to, and the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from rw_sql.errors import SqlError
from rw_sql.metastore.facts import BackfillProgress, JobStatus
from rw_sql.metastore.records import OperationRecord, SecretRecord
from rw_sql.plan.requests.ask import ask
from rw_sql.plan.requests.checkpoints import CheckpointRequest
from rw_sql.plan.requests.logs import MeasureLogs
from rw_sql.plan.requests.positions import PositionRequest
from rw_sql.plan.requests.queries import AnalyzeQuery
from rw_sql.plan.requests.rewind import RewindRequest
from rw_sql.plan.requests.tables import LookAtTable
from rw_sql.plan.requests.upstream import UpstreamRequest

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SealSecret:
    """The value of a secret of backend ``meta``, encrypted for the catalog. The value is in no ``repr``."""

    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSecret:
    """Whether a secret's value can be had where it is kept; answered with True, never with the value."""

    secret: SecretRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCheckpoint:
    """The newest committed entry of a Structured Streaming checkpoint's offset log."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointText:
    """The answer: the newest committed batch and the text of its offsets.

    ``planned`` is the newest batch that was planned: where it is a later one, that batch is under way or broke off.
    """

    batch: int
    planned: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """The text of a file the statement names."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadClock:
    """The time, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadJobStatuses:
    """What the owner last reported of each job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBackfills:
    """How far each view has come with its history, by its job; a view that is live is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOperations:
    """The log of record, newest first; with ``since``, from that epoch on."""

    is_unsafe: bool | None = None
    object_name: str | None = None
    since: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMetrics:
    """Every figure that the metrics' port serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One figure: its name, its labels and its value."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureLags:
    """Per job, how many records it is behind (None where that cannot be told)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsIf:
    """A request that is answered as if the catalog were ``snapshot``, which follows from statements not committed yet.

    A source that only these hold counts as stopped.
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


def drive(asking: Asking[T], answer: Callable[[Request], object]) -> T:
    """Drives a lowering to its end. An SqlError of an answer is raised inside of the lowering."""
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
    """Drives a lowering whose requests are answered as if the catalog were ``snapshot``."""
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
    """Asks for a secret's value in encrypted form."""
    return ask(SealSecret(name=name, value=value), str)


def opened(secret: SecretRecord) -> Asking[bool]:
    """Asks whether a secret can be read where it is kept."""
    return ask(OpenSecret(secret=secret), bool)


def checkpoint_text(path: str) -> Asking[CheckpointText]:
    """Asks for a checkpoint's newest committed offsets. The runtime raises SqlError where there are none."""
    return ask(ReadCheckpoint(path=path), CheckpointText)


def file_text(path: str) -> Asking[str]:
    """Asks for a file's text. The runtime raises SqlError where it cannot be read."""
    return ask(ReadFile(path=path), str)


def clock() -> Asking[int]:
    """Asks for the time, in milliseconds since 1970."""
    return ask(ReadClock(), int)


def job_statuses() -> Asking[dict[str, JobStatus]]:
    """Asks for what the owner reported of each job."""
    return ask(ReadJobStatuses(), dict)


def backfills() -> Asking[dict[str, BackfillProgress]]:
    """Asks which views are still on their way through their history."""
    return ask(ReadBackfills(), dict)


def operations(
    is_unsafe: bool | None = None, object_name: str | None = None, since: int | None = None
) -> Asking[tuple[OperationRecord, ...]]:
    """Asks for operations, newest first."""
    return ask(ReadOperations(is_unsafe=is_unsafe, object_name=object_name, since=since), tuple)


def metrics() -> Asking[tuple[Sample, ...]]:
    """Asks for every figure."""
    return ask(ReadMetrics(), tuple)


def lags() -> Asking[dict[str, int | None]]:
    """Asks how far each job is behind."""
    return ask(MeasureLags(), dict)
