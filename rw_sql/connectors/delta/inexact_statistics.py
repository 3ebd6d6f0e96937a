"""Keeps wrong minimum and maximum values of floating-point columns out of the statistics of Delta tables.

delta-rs computes the minimum and the maximum of a column without its NaN values. For Spark, NaN is greater than every
number: a reader that asks for the rows above a bound would skip a file whose greatest number is below it, and lose the
rows with NaN.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rw_sql.packages import deferred

if TYPE_CHECKING:
    import deltalake
    import pyarrow as pa
else:
    deltalake, pa = map(deferred, ("deltalake", "pyarrow"))


@lru_cache(maxsize=256)
def without_inexact_min_max(schema: pa.Schema, *, is_compaction: bool = False) -> dict[str, Any]:
    """The arguments with which delta-rs writes rows without statistics of their floating-point columns; empty if there
    are no such columns. ``is_compaction``: for the files that a compaction writes.

    delta-rs accepts settings only for columns that are not inside a structure. If a structure contains a floating-point
    number, no structure has statistics.
    """
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    is_nested = any(map(_has_floats, schema.types))
    if not floats and not is_nested:
        return {}
    none, full = (deltalake.ColumnProperties(statistics_enabled=kind) for kind in ("NONE", "PAGE"))
    if is_nested:
        plain = [field.name for field in schema if not pa.types.is_nested(field.type) and field.name not in floats]
        columns: dict[str, Any] = {"default_column_properties": none, "column_properties": dict.fromkeys(plain, full)}
    else:
        columns = {"column_properties": dict.fromkeys(floats, none)}
    # The codecs are those that delta-rs uses if it gets no settings.
    if is_compaction:
        return {"writer_properties": deltalake.WriterProperties(compression="ZSTD", compression_level=4, **columns)}
    return {"writer_properties": deltalake.WriterProperties(compression="SNAPPY", **columns)}


def _has_floats(kind: pa.DataType) -> bool:
    """True for a structure that contains a floating-point number, at any depth."""
    if not pa.types.is_struct(kind):
        return False
    # Iterated, because PyArrow has the attribute "fields" only since version 18.
    return any(pa.types.is_floating(field.type) or _has_floats(field.type) for field in kind)
