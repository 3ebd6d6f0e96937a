"""Limits a merge to the table's files that may contain keys of the merge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_CHARACTERS = 256
"""The maximum total length in characters of the two strings in the condition of :func:`key_range`. The limit exists
because the commit of a merge contains the merge's condition."""


def same_keys(rows: pa.Table, keys: Sequence[str]) -> str:
    """Returns the condition, for a merge by delta-rs, that a row ``s`` of ``rows`` and a row ``t`` of the table have
    the same keys. Two NULL values count as equal, and two NaN values count as equal even if their bits differ.

    The result also contains the conditions of :func:`key_range`, which are true for all rows with these keys. Without
    these conditions, the merge would open every file of the table.
    """
    # The parentheses are needed, because DataFusion's parser binds AND tighter than IS NOT DISTINCT FROM.
    same = (f"({_compared('t', rows, key)} IS NOT DISTINCT FROM {_compared('s', rows, key)})" for key in keys)
    within = (key_range(rows, key) for key in keys)
    return " AND ".join([*same, *(condition for condition in within if condition)]) or "true"


def _compared(side: str, rows: pa.Table, key: str) -> str:
    """Returns the expression for a key on one side of the comparison. It replaces every NaN value with the same NaN,
    because DataFusion compares NaN values by their bits. (It compares zeros by their value.)"""
    kind = rows.schema.field(key).type
    if pa.types.is_float64(kind):
        return f"nanvl({side}.`{key}`, CAST('NaN' AS DOUBLE))"
    return f"nanvl({side}.`{key}`, CAST('NaN' AS FLOAT))" if pa.types.is_float32(kind) else f"{side}.`{key}`"


def key_range(rows: pa.Table, key: str) -> str:
    """The condition that limits a merge to the table's rows (alias ``t``) between the smallest and the largest value of
    the column ``key`` in ``rows``. The text is empty if the condition would be unsafe or too long, or if ``key`` has
    NULL values.

    With this condition, the merge uses the statistics of files to skip the files that have no such rows.

    The condition is safe only for integers, dates and strings. Values of other types are ordered differently by
    different writers of statistics.
    """
    values, kind = rows[key], rows.schema.field(key).type
    if values.null_count or not values.length():
        return ""
    try:
        return _range_of(values, kind, key)
    except (ValueError, OverflowError):  # A date after the year 9999, or a string that is not UTF-8.
        return ""


def _range_of(values: pa.ChunkedArray, kind: pa.DataType, key: str) -> str:
    if pa.types.is_integer(kind):
        low, high = (pc.min_max(values)[bound].as_py() for bound in ("min", "max"))
        return f"(t.`{key}` >= {low} AND t.`{key}` <= {high})"
    if pa.types.is_date(kind):
        low, high = (pc.min_max(values)[bound].as_py() for bound in ("min", "max"))
        return f"(t.`{key}` >= DATE '{low}' AND t.`{key}` <= DATE '{high}')"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        low, high = (pc.min_max(values)[bound].as_py().replace("'", "''") for bound in ("min", "max"))
        if len(low) + len(high) > MOST_CHARACTERS:
            return ""
        return f"(t.`{key}` >= '{low}' AND t.`{key}` <= '{high}')"
    return ""
