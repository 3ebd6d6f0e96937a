"""Combines groups in this process's memory, with Arrow.

A table of groups has key columns, whose values identify a group. Each other column has a function that combines the
values of two groups (:data:`rw_sql.syntax.query.combined_groups.FUNCTIONS`). As in Spark, two NULLs in a key column are
equal, and the functions ignore a NULL in any other column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from rw_sql.syntax.query.combined_groups import FUNCTIONS, KEY, ROWS, SUM
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ALMOST = 0.999_999
"""Sums are first computed with rounded numbers. If the absolute value of a rounded sum is less than this fraction of
the limit of the sum's type, the exact sum certainly fits the type."""

_LARGEST_BIGINT = float(2**63)


@dataclass(frozen=True, slots=True)
class Combination:
    """The result of combining groups. ``groups`` contains all groups that have rows, and ``changed`` contains the
    groups that are new or have changed. If a column counts the rows of each group, ``changed`` has a column KEEP, which
    is false for a group that no longer has rows."""

    groups: pa.Table
    changed: pa.Table


def combine(groups: pa.Table, added: pa.Table, functions: Mapping[str, str]) -> Combination | None:
    """Combines the groups in ``groups`` with the rows in ``added``. Each key occurs once in ``groups``, but may occur
    several times in ``added``.

    ``groups`` and ``added`` have the same columns. ``functions`` maps each column's name to its function. Returns None
    if a sum may exceed the range of its type, or if a minimum or maximum involves NaN, which Arrow and Spark compare
    differently. Raises pa.ArrowException for a type that Arrow cannot combine.
    """
    keys = [name for name, function in functions.items() if function == KEY]
    others = {name: FUNCTIONS[function] for name, function in functions.items() if function != KEY}
    at = _rows_with_keys(groups, added, keys)
    known = groups.take(at)
    if any(function != SUM and _has_nan(known[name], added[name]) for name, function in others.items()):
        return None
    touched = _aggregated(pa.concat_tables([known, added]), keys, others)
    if touched is None:
        return None
    others_at = pc.invert(pc.is_in(_positions(groups), at))
    before = _in_order_of(touched, known, keys)
    differs = pc.is_null(before)
    was = known.take(before)
    for name in others:
        differs = pc.or_(differs, _differ(touched[name], was[name]))
    rows = next((name for name, function in functions.items() if function == ROWS), None)
    if rows is None:
        return Combination(
            groups=pa.concat_tables([groups.filter(others_at), touched]), changed=touched.filter(differs)
        )
    is_kept = pc.greater(touched[rows], 0)
    kept = pa.concat_tables([groups.filter(others_at), touched.filter(is_kept)])
    is_known = pc.is_valid(before)
    changed = touched.append_column(pa.field(KEEP, pa.bool_()), is_kept)
    return Combination(groups=kept, changed=changed.filter(pc.and_(differs, pc.or_(is_kept, is_known))))


def _rows_with_keys(groups: pa.Table, added: pa.Table, keys: Sequence[str]) -> pa.Array:
    """The positions in ``groups`` of those groups whose keys occur in ``added``."""
    at = _grouped_positions(groups, added, keys)
    return at.filter(pc.is_valid(at)).combine_chunks()


def _in_order_of(touched: pa.Table, known: pa.Table, keys: Sequence[str]) -> pa.Array:
    """For each group in ``touched``, in the order of ``touched``: its position in ``known``, or NULL if the group is
    new."""
    return _grouped_positions(known, touched, keys).combine_chunks()


def _grouped_positions(groups: pa.Table, added: pa.Table, keys: Sequence[str]) -> pa.ChunkedArray:
    """For each key of ``added``, in the order of first occurrence: its position in ``groups``, or NULL if ``groups``
    does not contain the key."""
    names = [f"k{index}" for index in range(len(keys))]

    def labelled(rows: pa.Table, at: pa.Array, *, is_added: bool) -> pa.Table:
        columns = [*(rows[key] for key in keys), pa.repeat(is_added, rows.num_rows), at]
        return pa.table(columns, names=[*names, "is_added", "at"])

    both = pa.concat_tables(
        [
            labelled(added, pa.nulls(added.num_rows, pa.int64()), is_added=True),
            labelled(groups, _positions(groups), is_added=False),
        ]
    )
    found = both.group_by(names, use_threads=False).aggregate([("is_added", "max"), ("at", "max")])
    return found["at_max"].filter(found["is_added_max"])


def _positions(rows: pa.Table) -> pa.Array:
    return pa.array(range(rows.num_rows), pa.int64())


def _aggregated(rows: pa.Table, keys: Sequence[str], others: Mapping[str, str]) -> pa.Table | None:
    """Combines all rows with the same key into one row. Returns None if a sum may exceed the range of its type."""
    # Columns are named by position, because a result's columns have the names of the aggregates, and a key may have
    # such a name.
    names = {name: f"c{number}" for number, name in enumerate(rows.column_names)}
    aggregates = [(names[name], function) for name, function in others.items()]
    checked = {name: _limit_of(rows.schema.field(name).type) for name, function in others.items() if function == SUM}
    given = rows.rename_columns([names[name] for name in rows.column_names])
    for name, limit in checked.items():
        if limit is not None:
            about = f"about {names[name]}"
            given = given.append_column(about, rows[name].cast(pa.float64(), safe=False))
            aggregates.append((about, SUM))
    found = given.group_by([names[key] for key in keys], use_threads=False).aggregate(aggregates)
    if any(limit and _exceeds(found[f"about {names[name]}_{SUM}"], limit) for name, limit in checked.items()):
        return None
    columns = [
        found[f"{names[name]}_{others[name]}" if name in others else names[name]].cast(rows.schema.field(name).type)
        for name in rows.column_names
    ]
    return pa.table(columns, schema=rows.schema)


def _differ(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    is_same = pc.if_else(pc.is_null(one), pc.is_null(other), pc.fill_null(pc.equal(one, other), False))
    return pc.invert(is_same)


def _has_nan(*columns: pa.ChunkedArray) -> bool:
    return any(pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py() for column in columns)


def _limit_of(kind: pa.DataType) -> float | None:
    """The smallest number that is too large for a column of the type ``kind``; None if sums of this type are not
    checked."""
    if pa.types.is_decimal(kind):
        return float(10 ** (kind.precision - kind.scale))
    return _LARGEST_BIGINT if pa.types.is_integer(kind) else None


def _exceeds(sums: pa.ChunkedArray, limit: float) -> bool:
    bounds = pc.min_max(sums)
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    return least is not None and max(-least, most) >= _ALMOST * limit
