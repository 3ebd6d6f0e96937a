"""Combines groups in this process's memory, by Arrow.

A table of groups has key columns, whose values identify a group, and other columns, each with a function that combines
the values of two groups (:data:`rw_sql.syntax.query.combined_groups.FUNCTIONS`). As in Spark, a NULL in a key equals
NULL, and a NULL in another column counts as no value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from rw_sql.syntax.query.combined_groups import FUNCTIONS, KEY, MAX, SUM

if TYPE_CHECKING:
    from collections.abc import Mapping

_AT, _NEW, _ABOUT = "_rw_at", "_rw_new", "_rw_about_"
_ALMOST = 0.999_999
"""The part of a type's largest value up to which a sum of rounded numbers proves that the exact sum fits the type."""

_LARGEST_BIGINT = float(2**63)


@dataclass(frozen=True, slots=True)
class Combination:
    """The result of combining groups: all groups, and those that are new or differ from before."""

    groups: pa.Table
    changed: pa.Table


def combine(groups: pa.Table, added: pa.Table, functions: Mapping[str, str]) -> Combination | None:
    """Combines ``groups``, which has at most one row for each key, with the rows ``added``.

    Both have the same columns; ``functions`` are their functions. Returns None if a sum may exceed its type, or if
    Arrow compares values in another way than Spark (NaN). Raises pa.ArrowException for a type that Arrow cannot
    combine.
    """
    keys = [name for name, function in functions.items() if function == KEY]
    others = {name: FUNCTIONS[function] for name, function in functions.items() if function != KEY}
    if any(function != SUM and _has_nan(groups[name], added[name]) for name, function in others.items()):
        return None
    both = pa.concat_tables(
        [
            groups.append_column(_AT, pa.array(range(groups.num_rows), pa.int64())).append_column(
                _NEW, pa.repeat(False, groups.num_rows)
            ),
            added.append_column(_AT, pa.nulls(added.num_rows, pa.int64())).append_column(
                _NEW, pa.repeat(True, added.num_rows)
            ),
        ]
    )
    aggregates = [*others.items(), (_AT, MAX), (_NEW, MAX)]
    checked = {name: _limit_of(both.schema.field(name).type) for name, function in others.items() if function == SUM}
    for name, limit in checked.items():
        if limit is not None:
            both = both.append_column(_ABOUT + name, both[name].cast(pa.float64(), safe=False))
            aggregates.append((_ABOUT + name, SUM))
    found = both.group_by(keys, use_threads=False).aggregate(aggregates)
    if any(limit is not None and _exceeds(found[f"{_ABOUT}{name}_{SUM}"], limit) for name, limit in checked.items()):
        return None
    schema = groups.schema
    columns = [
        found[f"{column.name}_{others[column.name]}" if column.name in others else column.name].cast(column.type)
        for column in schema
    ]
    result = pa.table(columns, schema=schema)
    is_touched = found[f"{_NEW}_{MAX}"]
    touched, at = result.filter(is_touched), found[f"{_AT}_{MAX}"].filter(is_touched)
    before = groups.take(at)
    differs = pc.is_null(at)
    for name in others:
        differs = pc.or_(differs, _differ(touched[name], before[name]))
    return Combination(groups=result, changed=touched.filter(differs))


def _differ(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    is_same = pc.if_else(pc.is_null(one), pc.is_null(other), pc.fill_null(pc.equal(one, other), False))
    return pc.invert(is_same)


def _has_nan(*columns: pa.ChunkedArray) -> bool:
    return any(pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py() for column in columns)


def _limit_of(kind: pa.DataType) -> float | None:
    """The smallest number that is too large for a column; None if the type has no limit."""
    if pa.types.is_decimal(kind):
        return float(10 ** (kind.precision - kind.scale))
    return _LARGEST_BIGINT if pa.types.is_integer(kind) else None


def _exceeds(sums: pa.ChunkedArray, limit: float) -> bool:
    bounds = pc.min_max(sums)
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    return least is not None and max(-least, most) >= _ALMOST * limit
