"""Computes with offset ranges: which offsets a source's log contains, and which offsets a move repeats or skips.
Without side effects."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace

Spans = tuple[tuple[int, int], ...]
"""Ranges of offsets ``[start, end)``, ascending and disjoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadIncarnation:
    """The offsets that were read from one incarnation of a split. ``reached`` is the offset after the last one that was
    read.

    ``cluster`` and ``incarnation`` identify the incarnation, as in a split state; None if unknown.
    """

    spans: Spans
    reached: int
    cluster: str | None = None
    incarnation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """Offsets ``[start, end)`` of one incarnation of a split. The log contains each of them exactly once in this piece.

    The runs ``first_run`` to ``last_run`` wrote its rows; each continued where the previous run ended. A new piece
    begins where a statement set the position. ``version`` is the version of the log with the first of these rows (-1:
    unknown, because an earlier version of rw_sql wrote the file of ranges). ``epoch`` is the epoch at which the run
    that wrote this row started. ``term`` is a term (Kafka: leader epoch) in which the upstream had all records of the
    piece; None if unknown.
    """

    first_run: int
    last_run: int
    start: int
    end: int
    cluster: str | None = None
    incarnation: str | None = None
    version: int = -1
    epoch: int = 0
    term: int | None = None


def with_piece(pieces: tuple[LogPiece, ...], read: LogPiece) -> tuple[LogPiece, ...]:
    """Extends ``pieces``, which are in log order, with the range that the next commit has read."""
    if read.end <= read.start:
        return pieces
    if pieces and _continues(pieces[-1], read):
        return (*pieces[:-1], replace(pieces[-1], last_run=read.last_run, end=read.end, term=read.term))
    return (*pieces, read)


def _continues(last: LogPiece, read: LogPiece) -> bool:
    if (last.end, last.cluster, last.incarnation) != (read.start, read.cluster, read.incarnation):
        return False
    if last.last_run > read.first_run:
        return False
    # One run checks at each change of the term that the upstream still has the records that it has read. Between two
    # runs, a statement may have set the position after the end of records that the upstream has lost.
    return last.last_run == read.first_run or last.term == read.term or None in (last.term, read.term)


def with_span(spans: Spans, start: int, end: int) -> Spans:
    """Adds ``[start, end)`` to ``spans``, merging adjacent ranges."""
    if end <= start:
        return spans
    if spans and spans[-1][1] == start:
        return (*spans[:-1], (spans[-1][0], end))
    if not spans or spans[-1][1] < start:
        return (*spans, (start, end))
    first = bisect_left(spans, start, key=lambda span: span[1])
    last = bisect_right(spans, end, key=lambda span: span[0])
    touched = spans[first:last]
    if touched:
        start, end = min(start, touched[0][0]), max(end, touched[-1][1])
    return (*spans[:first], (start, end), *spans[last:])


def covered(spans: Spans, start: int, end: int | None = None) -> int:
    """The number of offsets of ``spans`` that are in ``[start, end)`` or, if ``end`` is None, at or after ``start``."""
    found = 0
    for low, high in spans:
        top = high if end is None else min(high, end)
        found += max(0, top - max(low, start))
    return found


def uncovered(spans: Spans, start: int, end: int) -> int:
    """The number of offsets of ``[start, end)`` that are not in ``spans``."""
    return max(0, end - start) - covered(spans, start, max(start, end))


def without(spans: Spans, others: Spans) -> Spans:
    """The offsets of ``spans`` that are not in ``others``."""
    left: list[tuple[int, int]] = []
    for low, high in spans:
        at = low
        for start, end in others:
            if end <= at or start >= high:
                continue
            if start > at:
                left.append((at, start))
            at = max(at, end)
        if at < high:
            left.append((at, high))
    return tuple(left)


def within(spans: Spans, start: int, end: int) -> Spans:
    """The offsets of ``spans`` in ``[start, end)``."""
    return tuple((max(low, start), min(high, end)) for low, high in spans if high > start and low < end)


def total(spans: Spans) -> int:
    """The number of offsets."""
    return sum(end - start for start, end in spans)
