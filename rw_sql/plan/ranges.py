"""Which offsets a source's log holds, and what moving a position among them repeats or leaves out. Pure arithmetic."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

Spans = tuple[tuple[int, int], ...]
"""Offsets ``[start, end)``, ascending, apart from each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLife:
    """What was read of one life of a split: ``spans`` are the offsets, ``reached`` is where the newest read ended.

    ``cluster`` and ``incarnation`` tell the life, as a split state's do; None where they were not known.
    """

    spans: Spans
    reached: int
    cluster: str | None = None
    incarnation: str | None = None


def with_span(spans: Spans, start: int, end: int) -> Spans:
    """``spans`` and ``[start, end)``, joined where they touch."""
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
    """How many offsets of ``spans`` lie in ``[start, end)``; without an ``end``, from ``start`` on."""
    found = 0
    for low, high in spans:
        top = high if end is None else min(high, end)
        found += max(0, top - max(low, start))
    return found


def uncovered(spans: Spans, start: int, end: int) -> int:
    """How many offsets of ``[start, end)`` lie in none of ``spans``."""
    return max(0, end - start) - covered(spans, start, max(start, end))
