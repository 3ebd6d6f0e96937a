"""What lowering asks of readers and of what they wrote: where they stand, what was read, how far a table has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.connectors.base import SplitState
from rw_sql.metastore.records import StoredState
from rw_sql.model.offset_ranges import LogPiece, ReadLife
from rw_sql.plan.requests.ask import ask

if TYPE_CHECKING:
    from collections.abc import Generator


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
class ReadPositionsBefore:
    """Where splits of a source stood when the operation with ``epoch`` took hold.

    That is ``stood``, moved on by what runs that started before the operation committed after each one's version.
    """

    source_id: int
    epoch: int
    stood: tuple[StoredState, ...]
    fragment: str | None = None


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
class ReadVersion:
    """The newest version of the table of a source's log or of a view, -1 where there is none yet."""

    object_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadWatermarks:
    """Below which event time views drop the rows that come, in milliseconds since 1970; only those that drop any."""

    view_ids: tuple[int, ...]


PositionRequest = (
    ReadPositions | ReadHistoryGround | ReadPositionsBefore | ReadCommittedRanges | ReadVersion | ReadWatermarks
)


def positions(source_id: int, fragment: str | None = None) -> Generator[PositionRequest, object, Positions]:
    """Asks where a source's reader stands: its shared one, or the one with this fragment."""
    return ask(ReadPositions(source_id=source_id, fragment=fragment), Positions)


def history_ground(source_id: int) -> Generator[PositionRequest, object, Positions]:
    """Asks where a source's reader stands and what its log holds."""
    return ask(ReadHistoryGround(source_id=source_id), Positions)


def positions_before(
    source_id: int, epoch: int, stood: tuple[StoredState, ...], fragment: str | None = None
) -> Generator[PositionRequest, object, dict[str, SplitState]]:
    """Asks where splits stood when an operation took hold."""
    return ask(ReadPositionsBefore(source_id=source_id, epoch=epoch, stood=stood, fragment=fragment), dict)


def committed_ranges(
    source_id: int, fragment: str | None = None
) -> Generator[PositionRequest, object, tuple[CommittedRanges, ...]]:
    """Asks what the commits of a source's log, or of a view that reads it itself, say was read."""
    return ask(ReadCommittedRanges(source_id=source_id, fragment=fragment), tuple)


def table_version(object_id: int) -> Generator[PositionRequest, object, int]:
    """Asks for the newest version of a source's log or a view's table."""
    return ask(ReadVersion(object_id=object_id), int)


def watermarks(view_ids: tuple[int, ...]) -> Generator[PositionRequest, object, dict[int, int]]:
    """Asks below which event time views drop rows."""
    return ask(ReadWatermarks(view_ids=view_ids), dict)
