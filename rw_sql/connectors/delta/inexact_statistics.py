"""Keeps wrong minimum and maximum values out of the statistics of Delta tables. Because of wrong values, a reader would
skip files with rows that it needs.

- *Floating-point columns*: delta-rs computes the minimum and the maximum of a column without its NaN values. For Spark,
  NaN is greater than every number.
- *Decimals of more than 15 digits*: delta-rs writes their minimum and maximum as floating-point numbers of 64 bits,
  which store only the first 15 digits exactly. For decimals without decimal places, delta-rs writes integers of at most
  64 bits.
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


EXACT_DIGITS = 15
"""The number of decimal digits that a floating-point number of 64 bits stores exactly."""


@lru_cache(maxsize=256)
def without_inexact_min_max(schema: pa.Schema, *, is_compaction: bool = False) -> dict[str, Any]:
    """The arguments with which delta-rs omits the statistics of the columns whose statistics could be wrong. The result
    is empty if there are no such columns. If ``is_compaction`` is true, the arguments are for a compaction.

    delta-rs accepts settings only for columns that are not inside a structure. If a structure contains a column whose
    statistics could be wrong, the arguments therefore disable the statistics of all nested columns.
    """
    inexact = [field.name for field in schema if has_inexact_min_max(field.type)]
    is_nested = any(map(_contains_inexact, schema.types))
    if not inexact and not is_nested:
        return {}
    none, full = (deltalake.ColumnProperties(statistics_enabled=kind) for kind in ("NONE", "PAGE"))
    if is_nested:
        plain = [field.name for field in schema if not pa.types.is_nested(field.type) and field.name not in inexact]
        columns: dict[str, Any] = {"default_column_properties": none, "column_properties": dict.fromkeys(plain, full)}
    else:
        columns = {"column_properties": dict.fromkeys(inexact, none)}
    # These codecs are the codecs that delta-rs uses by default.
    if is_compaction:
        return {"writer_properties": deltalake.WriterProperties(compression="ZSTD", compression_level=4, **columns)}
    return {"writer_properties": deltalake.WriterProperties(compression="SNAPPY", **columns)}


def has_inexact_min_max(kind: pa.DataType) -> bool:
    """True for a scalar type whose minimum and maximum may be wrong in the statistics that delta-rs writes."""
    return bool(pa.types.is_floating(kind) or (pa.types.is_decimal(kind) and kind.precision > EXACT_DIGITS))


def _contains_inexact(kind: pa.DataType) -> bool:
    """True for a structure that contains, at any depth, a type for which :func:`has_inexact_min_max` returns True."""
    if not pa.types.is_struct(kind):
        return False
    # The loop iterates over the type itself, because PyArrow has the attribute "fields" only since version 18.
    return any(has_inexact_min_max(field.type) or _contains_inexact(field.type) for field in kind)
