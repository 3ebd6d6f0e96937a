"""Defines the port for the positions of readers, and for the ranges of offsets that the readers have read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from rw_sql.connectors.base import SplitState
from rw_sql.model.offset_ranges import LogPiece, ReadIncarnation

if TYPE_CHECKING:
    from rw_sql.metastore.records import StoredState


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """The positions of a reader.

    ``states`` maps each split to the next record to read. ``log_version`` is the version of the log (-1 without a log),
    and ``read_splits`` are the splits that have rows in the log.

    ``forgotten`` are splits whose position a RESET removed; these splits do not count as new. ``lives`` maps each split
    to its incarnations, oldest first. Each incarnation comes with those offsets in the log that were read from it.
    ``sparse`` are the splits in which some offsets have been found to have no record. ``is_complete`` is True if the
    log still contains all rows that were ever read. ``pieces`` maps each split to the ranges of its offsets in the log;
    each range comes with the run that wrote it. ``is_trimmed`` is True if rows have been deleted from the log.
    ``readings`` contains the ranges in ``pieces``, and also the ranges whose rows were deleted from the log.
    ``reader_epoch`` is the epoch of the oldest run that may still commit to the log; None if no run was ever started.
    ``cuts`` maps a split to the first offset that the upstream has lost, if this offset is before the split's position.
    The mapping contains only splits with such an offset (:func:`rw_sql.plan.effects.verdicts.with_cuts`).
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
    readings: Mapping[str, tuple[LogPiece, ...]] = field(default_factory=dict)
    reader_epoch: int | None = None
    cuts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRanges:
    """The ranges of one commit. The fields are the epoch at which the run of the commit started, and the offsets
    ``[start, end)`` that the commit contains for each split.

    If the commit contains the cluster and the incarnation of its splits, ``lives`` maps each split to these two values.
    """

    epoch: int
    ranges: Mapping[str, tuple[int, int]]
    lives: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)


class PositionPort(Protocol):
    """The port for the positions of readers, and for the ranges that the readers have read. If ``fragment`` is not
    given, the reader is the source's shared reader."""

    def of(self, source_id: int, fragment: str | None = None) -> Positions:
        """The positions of a fragment, computed from the catalog, the stored positions and the commits of the
        fragment's log.

        The positions of a direct reader come from the checkpoint of its view.
        """
        ...

    def with_log(self, source_id: int) -> Positions:
        """Does the same as :meth:`of`, and also reads which ranges the log contains. The plan of a new view's backfill
        needs these ranges."""
        ...

    def before(
        self, source_id: int, epoch: int, stood: tuple[StoredState, ...], fragment: str | None = None
    ) -> Mapping[str, SplitState]:
        """The positions of a source's splits just before the operation with ``epoch`` took effect.

        ``stood`` are stored positions from before the operation. Runs that had started before the operation may have
        made later commits. The result contains the positions after these commits.
        """
        ...

    def newest_run(self, source_id: int) -> int:
        """The number of the newest run of a source's shared reader; 0 before the first run."""
        ...

    def committed_ranges(
        self, source_id: int, fragment: str | None = None, *, down_to: int = 0
    ) -> tuple[CommittedRanges, ...]:
        """The ranges that were read, oldest first. There is one entry per commit of the source's log. For a direct
        reader, there is one entry per commit of the reader's view.

        For a shared reader, ``down_to`` limits the result to the commits from that version of the log on, so that fewer
        commits are read. An entry that joins several commits may also contain earlier commits.
        """
        ...

    def watermarks(self, view_ids: tuple[int, ...]) -> Mapping[int, int]:
        """Maps each view that drops late rows to an event time, in milliseconds since 1970. The view drops rows that
        are older than this time."""
        ...
