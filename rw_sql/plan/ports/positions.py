"""Requests about readers and their output: positions, ranges read, versions of tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.connectors.base import SplitState
from rw_sql.metastore.records import StoredState
from rw_sql.model.offset_ranges import LogPiece, ReadIncarnation
from rw_sql.plan.ports.ask import ask

if TYPE_CHECKING:
    from collections.abc import Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPositions:
    """The positions of a fragment: folded from the catalog, the noted positions and the commits of its log.

    Without ``fragment``, those of the source's shared reader. The positions of a direct reader come from its
    checkpoint.
    """

    source_id: int
    fragment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHistoryGround:
    """As :class:`ReadPositions`, with the content of the log: the basis for planning a new view's backfill."""

    source_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """The next record per split, the log's version (-1 without a log), and the splits with rows in the log.

    ``forgotten`` splits had a position that a RESET removed: they are not new to the source. ``lives`` are the offsets
    in the log per split, the newest incarnation last; ``sparse`` splits returned fewer records than offsets.
    ``is_complete``: the log still shows everything ever read. ``pieces`` are the ranges of each split in the log's
    rows, by run; ``is_trimmed``: rows that were read are no longer in it. ``reader_epoch`` is the epoch of the oldest
    run that may still commit to the log, None if no run was ever started.
    """

    states: Mapping[str, SplitState] = field(default_factory=dict)
    log_version: int = -1
    read_splits: frozenset[str] = frozenset()
    forgotten: frozenset[str] = frozenset()
    lives: Mapping[str, tuple[ReadIncarnation, ...]] = field(default_factory=dict)
    sparse: frozenset[str] = frozenset()
    is_complete: bool = True
    pieces: Mapping[str, tuple[LogPiece, ...]] = field(default_factory=dict)
    is_trimmed: bool = False
    reader_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPositionsBefore:
    """The positions of a source's splits just before the operation with ``epoch`` took effect.

    These are the positions in ``stood``, advanced by the commits, after each one's version, of runs from before the
    operation.
    """

    source_id: int
    epoch: int
    stood: tuple[StoredState, ...]
    fragment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCommittedRanges:
    """The ranges read according to the commits of a source's log, or of the view with this fragment, in order."""

    source_id: int
    fragment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRanges:
    """One commit: the epoch at which its run started, and the offsets ``[start, end)`` that it read per split.

    ``lives`` are the cluster and the incarnation of each split, if the commit has them.
    """

    epoch: int
    ranges: Mapping[str, tuple[int, int]]
    lives: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadVersion:
    """The newest version of the table of a source's log or of a view, -1 if it does not exist."""

    object_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadWatermarks:
    """The event times below which views drop new rows, in milliseconds since 1970; only of views that drop any."""

    view_ids: tuple[int, ...]


PositionRequest = (
    ReadPositions | ReadHistoryGround | ReadPositionsBefore | ReadCommittedRanges | ReadVersion | ReadWatermarks
)


def positions(source_id: int, fragment: str | None = None) -> Generator[PositionRequest, object, Positions]:
    """Requests the positions of a source's reader: the shared one, or the one with this fragment."""
    return ask(ReadPositions(source_id=source_id, fragment=fragment), Positions)


def history_ground(source_id: int) -> Generator[PositionRequest, object, Positions]:
    """Requests the positions of a source's reader and the content of its log."""
    return ask(ReadHistoryGround(source_id=source_id), Positions)


def positions_before(
    source_id: int, epoch: int, stood: tuple[StoredState, ...], fragment: str | None = None
) -> Generator[PositionRequest, object, dict[str, SplitState]]:
    """Requests the positions of splits just before an operation took effect."""
    return ask(ReadPositionsBefore(source_id=source_id, epoch=epoch, stood=stood, fragment=fragment), dict)


def committed_ranges(
    source_id: int, fragment: str | None = None
) -> Generator[PositionRequest, object, tuple[CommittedRanges, ...]]:
    """Requests the ranges read according to the commits of a source's log, or of a view with a direct reader."""
    return ask(ReadCommittedRanges(source_id=source_id, fragment=fragment), tuple)


def table_version(object_id: int) -> Generator[PositionRequest, object, int]:
    """Requests the newest version of a source's log or a view's table."""
    return ask(ReadVersion(object_id=object_id), int)


def watermarks(view_ids: tuple[int, ...]) -> Generator[PositionRequest, object, dict[int, int]]:
    """Requests the event times below which views drop rows."""
    return ask(ReadWatermarks(view_ids=view_ids), dict)
