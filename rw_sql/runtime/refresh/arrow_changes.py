"""Uses Arrow to compare all rows of an upstream with a table in this process's memory. The result equals the result of
``changes.changed_rows``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_HERE, _THERE = "_rw_fresh_row", "_rw_table_row"


def changed_rows_in_memory(fresh: pa.Table, table: pa.Table, keys: Sequence[str]) -> pa.Table | None:
    """The differences between two tables with the same columns; see
    :func:`rw_sql.runtime.refresh.changes.changed_rows`.

    Returns None if one of the tables contains a key more than once, or if a key is NULL or has a type for which
    :func:`is_inexact` is true. Arrow matches such keys differently from Spark.
    """
    if any(is_inexact(side[key].type) or side[key].null_count for side in (fresh, table) for key in keys):
        return None
    place = _places(fresh, table, keys)
    known = place >= 0
    met = np.bincount(place[known], minlength=table.num_rows)
    new = fresh.take(np.flatnonzero(~known))
    if (met > 1).any() or new.group_by(list(keys), use_threads=False).aggregate([]).num_rows < new.num_rows:
        return None
    old_rows = np.flatnonzero(known)
    differs = np.zeros(len(old_rows), dtype=bool)
    for name in fresh.column_names:
        if name not in keys:
            differs |= _differs(fresh[name].take(old_rows), table[name].take(place[known]))
    kept = pa.concat_tables([fresh.take(old_rows[differs]), new])
    gone = table.take(np.flatnonzero(met == 0))
    if (_places(fresh, gone, keys) >= 0).any():
        return None  # The table has this key twice, so one of its rows was not matched.
    deleted = pa.table(
        {
            name: gone[name] if name in keys else pa.nulls(gone.num_rows, fresh.schema.field(name).type)
            for name in fresh.column_names
        }
    )
    return pa.concat_tables([_marked(kept, is_kept=True), _marked(deleted.cast(kept.schema), is_kept=False)])


def is_inexact(kind: pa.DataType) -> bool:
    """True for floating-point numbers, because Arrow matches the values NaN, 0.0 and -0.0 differently from Spark."""
    return bool(pa.types.is_floating(kind))


def _places(fresh: pa.Table, table: pa.Table, keys: Sequence[str]) -> NDArray[np.int64]:
    """Returns, for each row of ``fresh``, the index of the row of ``table`` that has the same key; -1 if no row has
    this key."""
    if len(keys) == 1:
        found = pc.index_in(fresh[keys[0]], value_set=table[keys[0]].combine_chunks())
        return np.asarray(pc.fill_null(found, -1).to_numpy(), dtype=np.int64)
    sides = [
        side.select(list(keys)).append_column(name, pa.array(np.arange(side.num_rows)))
        for side, name in ((fresh, _HERE), (table, _THERE))
    ]
    joined = sides[0].join(sides[1], keys=list(keys), join_type="inner")
    place = np.full(fresh.num_rows, -1, dtype=np.int64)
    place[joined[_HERE].to_numpy()] = joined[_THERE].to_numpy()
    return place


def _differs(first: pa.ChunkedArray[Any], second: pa.ChunkedArray[Any]) -> NDArray[np.bool_]:
    """Returns, for each row, whether the values in the two columns differ. Two NULLs count as equal, and so do two NaN
    values, as in Spark's hashes."""
    differ = pc.fill_null(pc.not_equal(first, second), False)
    if pa.types.is_floating(first.type):
        both_nan = pc.fill_null(pc.and_(pc.is_nan(first), pc.is_nan(second)), False)
        differ = pc.and_not(differ, both_nan)
    if first.null_count or second.null_count:
        differ = pc.or_(differ, pc.xor(pc.is_null(first), pc.is_null(second)))
    return np.asarray(differ.to_numpy(), dtype=bool)


def _marked(rows: pa.Table, *, is_kept: bool) -> pa.Table:
    return rows.append_column(KEEP, pa.array(np.full(rows.num_rows, is_kept)))
