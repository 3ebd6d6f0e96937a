"""What lowering asks the world: requests as data, so that lowering itself reads and writes nothing.

A lowering is a generator: it yields a request, gets the answer sent back, and returns a Plan.
The runtime answers from the real world, a test from a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from rw_sql.connectors.base import GroupOffsets, SplitState, Upstream
from rw_sql.connectors.sink_base import SinkLook, SinkShape
from rw_sql.errors import SqlError
from rw_sql.metastore.facts import BackfillProgress, JobStatus
from rw_sql.metastore.records import OperationRecord, SecretRecord, StoredState
from rw_sql.plan.checkpoint_requests import CheckpointRequest
from rw_sql.plan.log_requests import LogSize, MeasureLogs
from rw_sql.plan.options import PlannedOptions
from rw_sql.plan.ranges import LogPiece, ReadLife
from rw_sql.plan.rewind_requests import RewindRequest
from rw_sql.plan.table_requests import LookAtTable

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtUpstream:
    """Splits, bounds and identities of what ``options`` (unresolved: references by name) point at.

    ``candidates`` are secrets as they will be, in place of those that the catalog holds.
    """

    connector: str
    options: PlannedOptions
    candidates: tuple[SecretRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtTarget:
    """Whether a sink's target can take rows of this shape; without one, whether it answers. Writes nothing there.

    ``candidates`` are secrets as they will be, in place of those that the catalog holds.
    """

    connector: str
    options: PlannedOptions
    shape: SinkShape | None
    candidates: tuple[SecretRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadVersion:
    """The newest version of the table of a source's log or of a view, -1 where there is none yet."""

    object_id: int


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
class FindOffsetsAt:
    """The first offsets at or after a time."""

    connector: str
    options: PlannedOptions
    milliseconds: int
    splits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindSparseTopics:
    """Why offsets of the upstream's topics are no count of records: per topic the reason, none where they are one."""

    connector: str
    options: PlannedOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class FindRecordTimes:
    """When the records at these offsets (split, offset) were written, as far as that can be told soon."""

    connector: str
    options: PlannedOptions
    offsets: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadWatermarks:
    """Below which event time views drop the rows that come, in milliseconds since 1970; only those that drop any."""

    view_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadGroupOffsets:
    """What a consumer group has committed of these splits, at the upstream that ``options`` point at."""

    connector: str
    options: PlannedOptions
    group: str
    splits: tuple[str, ...]


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
class ReadPositions:
    """Where a fragment stands: folded from the catalog, the noted positions and its log's commits.

    Without ``fragment``, the source's shared one. Of a view's own reader its checkpoint tells.
    """

    source_id: int
    fragment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHistoryGround:
    """As :class:`ReadPositions`, and what the log holds: the ground that a new view's history is planned on."""

    source_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """The next record per split, the log's version (-1 without a log), and the splits with rows in the log.

    ``forgotten`` splits had a position that a RESET took from them: they are not new to the source. ``lives`` are the
    offsets that the log holds per split, the newest life last; of ``sparse`` splits fewer records came than offsets.
    ``is_complete``: the log still tells all that was ever read. ``pieces`` are what the log's rows hold of each split,
    run by run; ``is_trimmed``: rows that were read are not in it any more. ``reader_epoch`` is the epoch of the oldest
    run that may still commit to the log, None where no run was ever started.
    """

    states: Mapping[str, SplitState] = field(default_factory=dict)
    log_version: int = -1
    read_splits: frozenset[str] = frozenset()
    forgotten: frozenset[str] = frozenset()
    lives: Mapping[str, tuple[ReadLife, ...]] = field(default_factory=dict)
    sparse: frozenset[str] = frozenset()
    is_complete: bool = True
    pieces: Mapping[str, tuple[LogPiece, ...]] = field(default_factory=dict)
    is_trimmed: bool = False
    reader_epoch: int | None = None


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
class ReadPositionsBefore:
    """Where splits of a source stood when the operation with ``epoch`` took hold.

    That is ``stood``, moved on by what runs that started before the operation committed after each one's version.
    """

    source_id: int
    epoch: int
    stood: tuple[StoredState, ...]
    fragment: str | None = None


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
class ReadCommittedRanges:
    """What the commits of a source's log, or of the view with this fragment, say was read, in their order."""

    source_id: int
    fragment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRanges:
    """One commit: the epoch that its run started at, and the offsets ``[start, end)`` it read per split.

    ``lives`` are the cluster and the incarnation that a split was read in, where the commit says so.
    """

    epoch: int
    ranges: Mapping[str, tuple[int, int]]
    lives: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsIf:
    """A request that is answered as if the catalog were ``snapshot``, which follows from statements not committed yet.

    A source that only these hold counts as stopped.
    """

    snapshot: Snapshot
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureLags:
    """Per job, how many records it is behind (None where that cannot be told)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A source or view as a query sees it: its name, its columns as Spark DDL types, its watermark (column, delay)."""

    name: str
    columns: tuple[tuple[str, str], ...]
    watermark: tuple[str, str] | None = None


STREAM, UPSERT, WHOLE = "stream", "upsert", "whole"
"""What a query is analyzed as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeQuery:
    """What Spark makes of a query over ``relations``.

    As ``STREAM``, which Spark keeps up to date by itself; as ``UPSERT``, the same for one whose keys are known and
    whose aggregation nothing filters; as ``WHOLE``, over tables that stand still. ``closes_windows``: a window's row
    comes once, when the watermark has passed its end (EMIT ON WINDOW CLOSE). ``same_as`` is a text that should mean the
    same.
    """

    query: str
    relations: tuple[Relation, ...]
    closes_windows: bool = False
    form: str = STREAM
    same_as: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnalysis:
    """The answer: the result's schema as Spark's JSON, the columns a row is replaced by (none: appended), or a refusal.

    ``hint`` belongs to ``refusal``. Of a WHOLE query ``operators`` are the names that Spark has for the steps of it,
    and ``varies`` is what in it gives another result each time, if anything does. ``is_same``: the other text means
    the same.
    """

    schema: str = ""
    keys: tuple[str, ...] = ()
    refusal: str | None = None
    hint: str | None = None
    operators: frozenset[str] = frozenset()
    varies: str | None = None
    is_same: bool = True


Request = (
    LookAtUpstream
    | LookAtTarget
    | ReadVersion
    | SealSecret
    | OpenSecret
    | FindOffsetsAt
    | FindSparseTopics
    | FindRecordTimes
    | ReadWatermarks
    | ReadGroupOffsets
    | ReadCheckpoint
    | ReadPositions
    | ReadHistoryGround
    | ReadFile
    | ReadClock
    | ReadJobStatuses
    | ReadBackfills
    | ReadOperations
    | ReadPositionsBefore
    | ReadCommittedRanges
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


def _answer(kind: type[T], value: object) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"a request was answered with {type(value).__name__}, not {kind.__name__}")
    return value


def look(connector: str, options: PlannedOptions, candidates: tuple[SecretRecord, ...] = ()) -> Asking[Upstream]:
    """Asks for a look at the upstream."""
    request = LookAtUpstream(connector=connector, options=options, candidates=candidates)
    return _answer(Upstream, (yield request))


def look_at_target(
    connector: str, options: PlannedOptions, shape: SinkShape | None, candidates: tuple[SecretRecord, ...] = ()
) -> Asking[SinkLook]:
    """Asks for a look at a sink's target."""
    request = LookAtTarget(connector=connector, options=options, shape=shape, candidates=candidates)
    return _answer(SinkLook, (yield request))


def table_version(object_id: int) -> Asking[int]:
    """Asks for the newest version of a source's log or a view's table."""
    return _answer(int, (yield ReadVersion(object_id=object_id)))


def sealed(name: str, value: str) -> Asking[str]:
    """Asks for a secret's value in encrypted form."""
    return _answer(str, (yield SealSecret(name=name, value=value)))


def opened(secret: SecretRecord) -> Asking[bool]:
    """Asks whether a secret can be read where it is kept."""
    return _answer(bool, (yield OpenSecret(secret=secret)))


def offsets_at(
    connector: str, options: PlannedOptions, milliseconds: int, splits: tuple[str, ...]
) -> Asking[dict[str, int]]:
    """Asks for the first offsets at or after a time."""
    request = FindOffsetsAt(connector=connector, options=options, milliseconds=milliseconds, splits=splits)
    return _answer(dict, (yield request))


def look_closely(connector: str, options: PlannedOptions) -> Asking[Upstream]:
    """As :func:`look`, and asks of which topics offsets do not count records: what a preview of a move needs."""
    upstream = yield from look(connector, options)
    if not upstream.is_reachable or not upstream.splits:
        return upstream
    sparse = _answer(dict, (yield FindSparseTopics(connector=connector, options=options)))
    return replace(upstream, sparse=sparse) if sparse else upstream


def record_times(connector: str, options: PlannedOptions, offsets: Mapping[str, int]) -> Asking[dict[str, int]]:
    """Asks when records were written, in milliseconds since 1970."""
    if not offsets:
        return {}
    request = FindRecordTimes(connector=connector, options=options, offsets=tuple(offsets.items()))
    return _answer(dict, (yield request))


def watermarks(view_ids: tuple[int, ...]) -> Asking[dict[int, int]]:
    """Asks below which event time views drop rows."""
    return _answer(dict, (yield ReadWatermarks(view_ids=view_ids)))


def group_offsets(connector: str, options: PlannedOptions, group: str, splits: tuple[str, ...]) -> Asking[GroupOffsets]:
    """Asks for what a consumer group has committed."""
    request = ReadGroupOffsets(connector=connector, options=options, group=group, splits=splits)
    return _answer(GroupOffsets, (yield request))


def checkpoint_text(path: str) -> Asking[CheckpointText]:
    """Asks for a checkpoint's newest committed offsets. The runtime raises SqlError where there are none."""
    return _answer(CheckpointText, (yield ReadCheckpoint(path=path)))


def positions(source_id: int, fragment: str | None = None) -> Asking[Positions]:
    """Asks where a source's reader stands: its shared one, or the one with this fragment."""
    return _answer(Positions, (yield ReadPositions(source_id=source_id, fragment=fragment)))


def history_ground(source_id: int) -> Asking[Positions]:
    """Asks where a source's reader stands and what its log holds."""
    return _answer(Positions, (yield ReadHistoryGround(source_id=source_id)))


def file_text(path: str) -> Asking[str]:
    """Asks for a file's text. The runtime raises SqlError where it cannot be read."""
    return _answer(str, (yield ReadFile(path=path)))


def clock() -> Asking[int]:
    """Asks for the time, in milliseconds since 1970."""
    return _answer(int, (yield ReadClock()))


def job_statuses() -> Asking[dict[str, JobStatus]]:
    """Asks for what the owner reported of each job."""
    return _answer(dict, (yield ReadJobStatuses()))


def backfills() -> Asking[dict[str, BackfillProgress]]:
    """Asks which views are still on their way through their history."""
    return _answer(dict, (yield ReadBackfills()))


def operations(
    is_unsafe: bool | None = None, object_name: str | None = None, since: int | None = None
) -> Asking[tuple[OperationRecord, ...]]:
    """Asks for operations, newest first."""
    return _answer(tuple, (yield ReadOperations(is_unsafe=is_unsafe, object_name=object_name, since=since)))


def positions_before(
    source_id: int, epoch: int, stood: tuple[StoredState, ...], fragment: str | None = None
) -> Asking[dict[str, SplitState]]:
    """Asks where splits stood when an operation took hold."""
    request = ReadPositionsBefore(source_id=source_id, epoch=epoch, stood=stood, fragment=fragment)
    return _answer(dict, (yield request))


def committed_ranges(source_id: int, fragment: str | None = None) -> Asking[tuple[CommittedRanges, ...]]:
    """Asks what the commits of a source's log, or of a view that reads it itself, say was read."""
    return _answer(tuple, (yield ReadCommittedRanges(source_id=source_id, fragment=fragment)))


def metrics() -> Asking[tuple[Sample, ...]]:
    """Asks for every figure."""
    return _answer(tuple, (yield ReadMetrics()))


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


def lags() -> Asking[dict[str, int | None]]:
    """Asks how far each job is behind."""
    return _answer(dict, (yield MeasureLags()))


def log_sizes(source_ids: tuple[int, ...]) -> Asking[dict[int, LogSize]]:
    """Asks how large the logs of sources are, by source id."""
    return _answer(dict, (yield MeasureLogs(source_ids=source_ids)))


def analysis(
    query: str, relations: tuple[Relation, ...], *, closes_windows: bool = False, form: str = STREAM, same_as: str = ""
) -> Asking[QueryAnalysis]:
    """Asks what Spark makes of a query."""
    request = AnalyzeQuery(query=query, relations=relations, closes_windows=closes_windows, form=form, same_as=same_as)
    return _answer(QueryAnalysis, (yield request))
