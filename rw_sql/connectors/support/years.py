"""Spark expressions that check whether dates and times are in the years 1 to 9999, the only years that columns can
contain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_FIRST_MICROS, _LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
_FIRST, _LAST = "TIMESTAMP_NTZ '0001-01-01 00:00:00'", "TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'"


def in_years(value: Column, kind: DataType) -> Column | None:
    """Returns the condition that a date or time is in the years 1 to 9999. The condition is NULL for NULL. Returns None
    for types other than dates and times.

    Few programs can read dates and times outside of these years. Not even Spark's own Python functions can.
    """
    match kind:
        case DateType():
            return f.unix_date(value).between(_FIRST_DAY, _LAST_DAY)
        case TimestampType():
            return f.unix_micros(value).between(_FIRST_MICROS, _LAST_MICROS)
        case TimestampNTZType():
            return value.between(f.expr(_FIRST), f.expr(_LAST))
    return None
