"""Derives bounds for offsets, partitions and times from the predicates of a query over records, without side effects.

Spark's Kafka reader ignores predicates in batch queries, so rw_sql passes the bounds to the reader as options. Bounds
that are too wide do no harm, because Spark still applies the predicates. Bounds that are too narrow would lose rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from rw_sql.syntax.dialect.time_zones import time_zone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import tzinfo

OFFSET_COLUMNS = frozenset({"offset", "_rw_offset"})
PARTITION_COLUMN = "partition"
TIME_COLUMN = "timestamp"

_WIDE = (exp.DataType.Type.BIGINT, exp.DataType.Type.DECIMAL)
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.LT: exp.GT,
    exp.GTE: exp.LTE,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanBounds:
    """The bounds for the records that a query can need: the offsets ``[low, high)``, the partitions, and the earliest
    time of a record (in milliseconds since 1970).

    A field is None if the query has no such bound.
    """

    low: int | None = None
    high: int | None = None
    partitions: frozenset[str] | None = None
    since_ms: int | None = None

    @property
    def is_open(self) -> bool:
        """True if no field has a bound."""
        return self == ScanBounds()


def bounds_of(conditions: Iterable[str], zone: str = "UTC") -> ScanBounds:
    """Returns bounds that include every record that satisfies all ``conditions``, which are Spark SQL over the reader's
    columns.

    ``zone`` is the time zone in which Spark wrote the times of the conditions. If Python does not know the zone of a
    time, no bound is derived from this time.
    """
    found = ScanBounds()
    at = time_zone(zone)
    for condition in conditions:
        try:
            tree = parse_one(condition, read="spark")
        except SqlglotError:  # Spark applies the condition, but this module derives no bound from it
            continue
        found = _both(found, _bounds(tree, at))
    return found


def below(conditions: Iterable[str], outputs: Mapping[str, str]) -> list[str]:
    """Rewrites conditions on the output of a projection to conditions on the projection's input. Each output column is
    replaced with its expression.

    ``outputs`` are the projection's columns with their expressions. Conditions that use any other column are left out.
    """
    found = []
    for condition in conditions:
        try:
            tree = parse_one(condition, read="spark").unnest()
        except SqlglotError:
            continue
        parts = list(tree.flatten()) if isinstance(tree, exp.And) else [tree]
        found += [text for part in parts if (text := _below(part, outputs)) is not None]
    return found


def _below(tree: exp.Expr, outputs: Mapping[str, str]) -> str | None:
    names = {column.name for column in tree.find_all(exp.Column)}
    if not names <= outputs.keys():
        return None
    try:
        made = {name: parse_one(outputs[name], read="spark") for name in names}
    except SqlglotError:
        return None
    changed = tree.transform(lambda node: made[node.name].copy() if isinstance(node, exp.Column) else node)
    return changed.sql(dialect="spark")


def hull(bounds: Iterable[ScanBounds]) -> ScanBounds:
    """Returns the smallest bounds that contain the bounds of all reads. If there are no reads, the result has no
    bounds."""
    listed = list(bounds)
    return reduce(_either, listed) if listed else ScanBounds()


def _bounds(tree: exp.Expr, zone: tzinfo | None) -> ScanBounds:
    tree = tree.unnest()
    match tree:
        case exp.And():
            return _both(_bounds(tree.this, zone), _bounds(tree.expression, zone))
        case exp.Or():
            return _either(_bounds(tree.this, zone), _bounds(tree.expression, zone))
        case exp.EQ() | exp.GT() | exp.GTE() | exp.LT() | exp.LTE():
            return _comparison(type(tree), tree.this.unnest(), tree.expression.unnest(), zone)
        case exp.In():
            values = [_comparison(exp.EQ, tree.this.unnest(), value.unnest(), zone) for value in tree.expressions]
            return hull(values)
        case exp.Between():
            low = _comparison(exp.GTE, tree.this.unnest(), tree.args["low"].unnest(), zone)
            return _both(low, _comparison(exp.LTE, tree.this.unnest(), tree.args["high"].unnest(), zone))
        case _:
            return ScanBounds()


def _comparison(kind: type[exp.Expr], left: exp.Expr, right: exp.Expr, zone: tzinfo | None) -> ScanBounds:
    if not left.find(exp.Column):
        left, right = right, left
        kind = _MIRRORED[kind]
    casts: list[exp.DataType] = []
    column = left
    while isinstance(column, exp.Cast | exp.Case):
        if isinstance(column, exp.Case):
            # CASE WHEN … THEN timestamp END equals the column wherever the CASE is not NULL.
            branches = column.args["ifs"]
            if column.this is not None or column.args.get("default") is not None or len(branches) != 1:
                return ScanBounds()
            column = branches[0].args["true"].unnest()
            continue
        casts.append(column.to)
        column = column.this.unnest()
    if not isinstance(column, exp.Column) or column.table:  # a qualified name may be a field of the row
        return ScanBounds()
    is_text = bool(casts) and casts[0].this in exp.DataType.TEXT_TYPES
    name = column.name.lower()
    is_time = name == TIME_COLUMN and all(cast.is_type("timestamp", "timestamptz", "timestampltz") for cast in casts)
    # A cast to a type that is narrower than the type of the column could overflow. Offsets have 64 bits, and partitions
    # have 32 bits.
    wide = _WIDE if name in OFFSET_COLUMNS else (*_WIDE, exp.DataType.Type.INT)
    if not is_time and not all(cast.this in (*wide, *exp.DataType.TEXT_TYPES) for cast in casts):
        return ScanBounds()
    if name in OFFSET_COLUMNS:
        return _offsets(kind, right, is_text=is_text)
    if name == PARTITION_COLUMN and kind is exp.EQ:
        value = _number(right)
        return ScanBounds() if value is None else ScanBounds(partitions=frozenset({str(value)}))
    if is_time and kind in (exp.GT, exp.GTE, exp.EQ):
        at = _milliseconds(right, zone)
        return ScanBounds() if at is None else ScanBounds(since_ms=at)
    return ScanBounds()


def _offsets(kind: type[exp.Expr], right: exp.Expr, *, is_text: bool) -> ScanBounds:
    value = _number(right)
    if value is None:
        return ScanBounds()
    if kind is exp.EQ:
        return ScanBounds(low=value, high=value + 1)
    if is_text:  # as strings, '10' is less than '9'
        return ScanBounds()
    if kind is exp.GTE:
        return ScanBounds(low=value)
    if kind is exp.GT:
        return ScanBounds(low=value + 1)
    return ScanBounds(high=value + 1 if kind is exp.LTE else value)


def _number(tree: exp.Expr) -> int | None:
    """An integer, written as a number or as text."""
    while isinstance(tree, exp.Cast | exp.Paren):
        tree = tree.this
    is_negative = isinstance(tree, exp.Neg)
    literal = tree.this if is_negative else tree
    if not isinstance(literal, exp.Literal):
        return None
    text = str(literal.this).removesuffix("L").strip()
    if not (text.isascii() and text.isdecimal()):
        return None
    return -int(text) if is_negative else int(text)


def _milliseconds(tree: exp.Expr, zone: tzinfo | None) -> int | None:
    """Parses a time such as TIMESTAMP '…'. ``zone`` is the time zone of a time that is written without a zone. Returns
    None if this zone is unknown, or if the text is not a time.

    The result is rounded down to milliseconds. A local time that occurs twice at the end of summer time is read as the
    earlier moment.
    """
    while isinstance(tree, exp.Cast | exp.Paren):
        tree = tree.this
    if not isinstance(tree, exp.Literal) or not tree.is_string:
        return None
    try:
        moment = datetime.fromisoformat(str(tree.this))
    except ValueError:
        return None
    if moment.tzinfo is None:
        if zone is None:
            return None
        moment = moment.replace(tzinfo=zone)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _both(one: ScanBounds, other: ScanBounds) -> ScanBounds:
    partitions = one.partitions
    if other.partitions is not None:
        partitions = other.partitions if partitions is None else partitions & other.partitions
    return ScanBounds(
        low=max(_given(one.low, other.low), default=None),
        high=min(_given(one.high, other.high), default=None),
        partitions=partitions,
        since_ms=max(_given(one.since_ms, other.since_ms), default=None),
    )


def _given(*values: int | None) -> list[int]:
    return [value for value in values if value is not None]


def _either(one: ScanBounds, other: ScanBounds) -> ScanBounds:
    return ScanBounds(
        low=None if one.low is None or other.low is None else min(one.low, other.low),
        high=None if one.high is None or other.high is None else max(one.high, other.high),
        partitions=None if one.partitions is None or other.partitions is None else one.partitions | other.partitions,
        since_ms=None if one.since_ms is None or other.since_ms is None else min(one.since_ms, other.since_ms),
    )


def narrowed(
    ranges: Mapping[str, tuple[int, int]],
    bounds: ScanBounds,
    partition_of: Mapping[str, str],
    since: Mapping[str, int],
) -> dict[str, tuple[int, int]]:
    """Narrows the offset ``ranges`` to the bounds. A split is left out if none of its offsets is within the bounds.

    ``since`` maps a split to its first offset at or after ``since_ms``.
    """
    found = {}
    for split, (start, end) in ranges.items():
        if bounds.partitions is not None and partition_of[split] not in bounds.partitions:
            continue
        low = max(start, bounds.low if bounds.low is not None else start, since.get(split, start))
        high = min(end, bounds.high if bounds.high is not None else end)
        if low < high:
            found[split] = (low, high)
    return found
