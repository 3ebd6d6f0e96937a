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

    ``states`` maps each split to its position, which is the offset of the next record to read. ``log_version`` is the
    version of the log; -1 if there is no log. ``read_splits`` are the splits that have rows in the log.

    ``forgotten`` are the splits whose positions a RESET removed. Forgotten splits do not count as new splits. ``lives``
    maps each split to its incarnations, oldest first. Each incarnation comes with the offsets in the log that were read
    from this incarnation. ``sparse`` are the splits in which readers have found offsets without a record.
    ``is_complete`` is True if the log still contains all rows that were ever read. ``pieces`` maps each split to the
    ranges of offsets that the log contains. Each range comes with the run that wrote it. ``is_trimmed`` is True if rows
    have been deleted from the log. ``readings`` contains the ranges in ``pieces``, and also the ranges whose rows were
    deleted from the log. ``reader_epoch`` is the epoch of the oldest run that may still commit to the log; None if no
    run has ever started. ``cuts`` maps a split to the first offset that the upstream has lost, if this offset is before
    the split's position. All other splits are absent from ``cuts``, which
    :func:`rw_sql.plan.effects.verdicts.with_cuts` computes.
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
    """The ranges of offsets in one commit. The fields are the epoch at which the committing run started, and the
    offsets ``[start, end)`` that the commit contains for each split.

    ``lives`` maps each split to its cluster and incarnation, if the commit contains these values.
    """

    epoch: int
    ranges: Mapping[str, tuple[int, int]]
    lives: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)


class PositionPort(Protocol):
    """The port for the positions of readers, and for the ranges of offsets that the readers have read. If ``fragment``
    is None, a method's result is about the source's shared reader."""

    def of(self, source_id: int, fragment: str | None = None) -> Positions:
        """Returns the positions of a fragment, computed from the catalog, the stored positions and the commits of the
        source's log.

        The positions of a direct reader come from the checkpoint of its view.
        """
        ...

    def with_log(self, source_id: int) -> Positions:
        """Does the same as :meth:`of` for the shared reader, and also determines which ranges of offsets the log
        contains. A plan needs these ranges for the backfill of a new view."""
        ...

    def before(
        self, source_id: int, epoch: int, stood: tuple[StoredState, ...], fragment: str | None = None
    ) -> Mapping[str, SplitState]:
        """Returns the positions of a source's splits just before the operation with ``epoch`` took effect.

        ``stood`` are the positions that were stored before the operation. Runs that started before the operation may
        have committed further records since these positions were stored. The result takes these commits into account.
        """
        ...

    def newest_run(self, source_id: int) -> int:
        """Returns the number of the newest run of a source's shared reader; 0 if there was no run yet."""
        ...

    def committed_ranges(
        self, source_id: int, fragment: str | None = None, *, down_to: int = 0
    ) -> tuple[CommittedRanges, ...]:
        """Returns the ranges of offsets that were read, in the order of the commits. For the shared reader, the result
        has one entry per commit to the source's log. For a direct reader, it has one entry per commit to the reader's
        view.

        For the shared reader, ``down_to`` is the first version of the log to read. An entry that joins several commits
        may nevertheless include commits before this version.
        """
        ...

    def watermarks(self, view_ids: tuple[int, ...]) -> Mapping[int, int]:
        """Maps each view that drops late rows to its watermark, in milliseconds since 1970. The view drops rows whose
        event time is before the watermark."""
        ...
