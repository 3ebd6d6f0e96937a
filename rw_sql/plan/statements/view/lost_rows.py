"""Finds the rows of a source's log whose records the upstream has lost. The upstream may have other records at the same
offsets now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.connectors.base import SplitState
from rw_sql.model.offset_ranges import without
from rw_sql.model.split_status import OK, identity_status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import Upstream
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.model.offset_ranges import LogPiece, Spans
    from rw_sql.model.options import PlannedOptions
    from rw_sql.plan.ports.inspector import Inspector


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRange:
    """Offsets ``[start, end)`` of a split. The upstream has lost the records that the source last read at these
    offsets. ``cut`` is the split's first lost offset, which may be before ``start``."""

    split: str
    start: int
    end: int
    cut: int


def lost_ranges(
    inspector: Inspector,
    source: SourceRecord,
    options: PlannedOptions,
    readings: Mapping[str, tuple[LogPiece, ...]],
    wanted: Mapping[str, Spans],
    upstream: Upstream,
) -> tuple[LostRange, ...]:
    """Returns the offsets in ``wanted`` at which the upstream has lost the records that the source last read.

    ``readings`` are the pieces of the log that contain records of the splits' current incarnations. The upstream is
    contacted only for pieces that were read in an earlier term (Kafka: leader epoch) than the split's present term.
    """
    waiting: list[tuple[int, SplitState]] = []
    for split, left in wanted.items():
        seen = upstream.splits.get(split)
        if seen is None or seen.term is None:
            continue
        for piece in reversed(readings.get(split, ())):
            rest = without(left, ((piece.start, piece.end),))
            if piece.term is not None and piece.term < seen.term and identity_status(_state(piece, split), seen) == OK:
                waiting += [(start, _state(piece, split, end)) for start, end in without(left, rest)]
            left = rest
    found: list[LostRange] = []
    while waiting:
        # One request compares one position of each split.
        asked: dict[str, tuple[int, SplitState]] = {}
        later: list[tuple[int, SplitState]] = []
        for start, state in waiting:
            if state.split in asked:
                later.append((start, state))
            else:
                asked[state.split] = (start, state)
        waiting = later
        states = {split: state for split, (_, state) in asked.items()}
        for split, cut in inspector.upstreams.cut_logs(source.connector, options, states).items():
            start, state = asked[split]
            found.append(LostRange(split=split, start=max(start, cut), end=state.offset, cut=cut))
    return tuple(found)


def _state(piece: LogPiece, split: str, offset: int | None = None) -> SplitState:
    return SplitState(
        split=split,
        offset=piece.end if offset is None else offset,
        cluster=piece.cluster,
        incarnation=piece.incarnation,
        term=piece.term,
    )
