"""Limits a merge to the files that may contain its keys."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

MOST_CHARACTERS = 256
"""The maximum length in characters of a string in the condition of a merge. The limit exists because the commit
contains the condition."""


def key_range(rows: pa.Table, key: str) -> str:
    """The condition on the table's rows (alias ``t``) that limits a merge to rows between the smallest and the largest
    value of a key; empty if such a condition is not safe.

    With this condition, the merge uses file statistics to skip the files without such rows.

    The condition is safe only for integers, dates and strings. For other types, writers of statistics differ in the
    order of the values.
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
