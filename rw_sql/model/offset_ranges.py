"""Provides set operations on ranges of offsets, such as the offsets that a source's log contains, or the offsets that
an unsafe operation repeats or skips. The functions have no side effects."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rw_sql.connectors.support.incarnations import is_same_incarnation

if TYPE_CHECKING:
    from collections.abc import Iterable

Spans = tuple[tuple[int, int], ...]
"""Ranges of offsets ``[start, end)``. They are in ascending order and do not overlap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadIncarnation:
    """The offsets that were read from one incarnation of a split. ``reached`` is the offset that follows the last
    offset that was read.

    ``cluster`` and ``incarnation`` identify the incarnation, as in a split state. Each of them is None if unknown.
    """

    spans: Spans
    reached: int
    cluster: str | None = None
    incarnation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IncarnationReads:
    """The offsets that were read, or may have been read, from one incarnation of a split. For some readings, the
    identity of the incarnation is unknown.

    ``spans`` and ``reached`` include all readings that may have read this incarnation. ``certain_spans`` and
    ``certain_reached`` exclude each reading that may have read another known incarnation instead. If all readings are
    excluded, ``certain_reached`` is None.
    """

    spans: Spans
    reached: int
    certain_spans: Spans
    certain_reached: int | None

    @property
    def is_certain(self) -> bool:
        """True if every offset in ``spans`` was certainly read from this incarnation."""
        return (self.spans, self.reached) == (self.certain_spans, self.certain_reached)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """A piece of a source's log: the offsets ``[start, end)`` of one incarnation of a split. The piece has exactly one
    row for each offset.

    The runs ``first_run`` to ``last_run`` wrote the rows of the piece; each of these runs continued where the previous
    run ended. A new piece begins, for example, where a statement has set the position. ``version`` is the version of
    the log that added the first row of the piece. ``version`` is -1 if an earlier version of rw_sql, which did not
    record this number, wrote the piece. ``epoch`` is the epoch at which the run that wrote the first row started.
    ``term`` is a term (Kafka: leader epoch) in which the upstream had all records of the piece; None if unknown.
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


def same_incarnation(
    cluster: str | None, incarnation: str | None, other_cluster: str | None, other_incarnation: str | None
) -> bool:
    """True if two incarnations of a split are the same. An unknown value counts as equal to any value."""
    if cluster and other_cluster and cluster != other_cluster:
        return False
    return not incarnation or not other_incarnation or is_same_incarnation(incarnation, other_incarnation)


def with_read(
    lives: tuple[ReadIncarnation, ...], start: int, end: int, *, cluster: str | None, incarnation: str | None
) -> tuple[ReadIncarnation, ...]:
    """Returns ``lives``, the incarnations of a split, with the reading of ``[start, end)`` added. The incarnation of
    this reading comes last."""
    if end <= start:
        return lives
    same = next((life for life in lives if (life.cluster, life.incarnation) == (cluster, incarnation)), None)
    spans = with_span(same.spans if same is not None else (), start, end)
    read = ReadIncarnation(spans=spans, reached=end, cluster=cluster, incarnation=incarnation)
    return (*(life for life in lives if life is not same), read)


def reads_of(
    lives: tuple[ReadIncarnation, ...], cluster: str | None, incarnation: str | None
) -> IncarnationReads | None:
    """The offsets that were read from the incarnation ``incarnation`` of a split in ``cluster``; None if no offset was
    read from it.

    ``lives`` are the incarnations of the split, in the order that :func:`with_read` produces. ``lives`` can contain one
    incarnation several times, with and without its identity, because brokers do not always report the identity. If
    ``cluster`` or ``incarnation`` is unknown, the function uses the value of the newest reading that matches the known
    value.
    """
    for life in reversed(lives):
        if same_incarnation(life.cluster, life.incarnation, cluster, incarnation):
            cluster, incarnation = cluster or life.cluster, incarnation or life.incarnation
    own, others = list[ReadIncarnation](), list[ReadIncarnation]()
    for life in reversed(lives):
        if not same_incarnation(life.cluster, life.incarnation, cluster, incarnation):
            others.append(life)
        elif not any(_was_replaced(life, other, cluster) for other in others):
            own.append(life)
    if not own:
        return None
    certain = [
        life
        for life in own
        if not any(
            same_incarnation(life.cluster, life.incarnation, other.cluster, other.incarnation) for other in others
        )
    ]
    return IncarnationReads(
        spans=_union(life.spans for life in own),
        reached=own[0].reached,
        certain_spans=_union(life.spans for life in certain),
        certain_reached=certain[0].reached if certain else None,
    )


def _was_replaced(life: ReadIncarnation, later: ReadIncarnation, cluster: str | None) -> bool:
    """True if the reading ``life``, whose incarnation is unknown, cannot have read the newest incarnation in
    ``cluster``. ``later`` is a reading that came after ``life``, and that read an incarnation that the newest
    incarnation has replaced. The result is True if ``life`` and ``later`` are both in ``cluster``."""
    return not life.incarnation and cluster is not None and life.cluster == later.cluster == cluster


def _union(parts: Iterable[Spans]) -> Spans:
    """The offsets that at least one of ``parts`` contains."""
    found = tuple(parts)
    if len(found) == 1:
        return found[0]
    joined: list[tuple[int, int]] = []
    for start, end in sorted(span for spans in found for span in spans):
        if joined and joined[-1][1] >= start:
            start, end = joined[-1][0], max(joined.pop()[1], end)
        joined.append((start, end))
    return tuple(joined)


def with_piece(pieces: tuple[LogPiece, ...], read: LogPiece) -> tuple[LogPiece, ...]:
    """Returns ``pieces`` with ``read``, the range of the next commit, added. ``pieces`` are in the order in which they
    were written to the log."""
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
    # At each change of the term, a run checks that the upstream still has the records that the run has read. Between
    # two runs, a statement may have set the position after the end of records that the upstream has lost.
    return last.last_run == read.first_run or last.term == read.term or None in (last.term, read.term)


def with_span(spans: Spans, start: int, end: int) -> Spans:
    """Returns ``spans`` with ``[start, end)`` added. Adjacent and overlapping ranges are merged."""
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
    """The number of offsets in ``spans`` that are in ``[start, end)``. If ``end`` is None, the range has no end."""
    found = 0
    for low, high in spans:
        top = high if end is None else min(high, end)
        found += max(0, top - max(low, start))
    return found


def uncovered(spans: Spans, start: int, end: int) -> int:
    """The number of offsets in ``[start, end)`` that are not in ``spans``."""
    return max(0, end - start) - covered(spans, start, max(start, end))


def without(spans: Spans, others: Spans) -> Spans:
    """The offsets in ``spans`` that are not in ``others``."""
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
    """The offsets in ``spans`` that are in ``[start, end)``."""
    return tuple((max(low, start), min(high, end)) for low, high in spans if high > start and low < end)


def total(spans: Spans) -> int:
    """The number of offsets in ``spans``."""
    return sum(end - start for start, end in spans)
