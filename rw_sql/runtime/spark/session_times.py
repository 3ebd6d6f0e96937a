"""Converts the times in a query's rows to the time zone of the session.

The conversion is needed because PySpark returns a TIMESTAMP as a local time of the Python process, without a time zone.
Spark itself shows times, and computes with times, in the time zone of the session.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, MapType, Row, StructType, TimestampType

from rw_sql.syntax.dialect.time_zones import time_zone

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import tzinfo

    from pyspark.sql import DataFrame

_SETTING = "spark.sql.session.timeZone"


def with_session_zone(frame: DataFrame, rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Returns the rows from a frame's ``collect`` with every TIMESTAMP converted to the time zone of the frame's
    session. This includes TIMESTAMPs within structs, arrays and maps. A TIMESTAMP_NTZ remains without a zone.

    If Python does not know the session's time zone, the times have the time zone of this process instead.
    """
    kinds = [column.dataType for column in frame.schema.fields]
    if not any(map(_has_times, kinds)):
        return [tuple(row) for row in rows]
    zone = time_zone(frame.sparkSession.conf.get(_SETTING) or "")
    return [tuple(_zoned(value, kind, zone) for value, kind in zip(row, kinds, strict=True)) for row in rows]


def _has_times(kind: DataType) -> bool:
    match kind:
        case TimestampType():
            return True
        case ArrayType():
            return _has_times(kind.elementType)
        case MapType():
            return _has_times(kind.keyType) or _has_times(kind.valueType)
        case StructType():
            return any(_has_times(column.dataType) for column in kind.fields)
        case _:
            return False


def _zoned(value: Any, kind: DataType, zone: tzinfo | None) -> Any:
    if value is None or not _has_times(kind):
        return value
    match kind:
        case TimestampType():
            return _in_zone(value, zone)
        case ArrayType():
            return [_zoned(inner, kind.elementType, zone) for inner in value]
        case MapType():
            return {
                _zoned(key, kind.keyType, zone): _zoned(inner, kind.valueType, zone) for key, inner in value.items()
            }
        case StructType():
            kinds = [column.dataType for column in kind.fields]
            return Row(*kind.names)(*(_zoned(inner, each, zone) for inner, each in zip(value, kinds, strict=True)))
        case _:
            return value


def _in_zone(at: datetime, zone: tzinfo | None) -> datetime:
    """Converts a time that PySpark returned. The time's ``fold`` distinguishes the two hours at the end of summer time.
    A time remains in UTC if it would be after the year 9999 or before the year 1 in the zone."""
    try:
        return at.astimezone(zone)
    except (ValueError, OverflowError):  # Python looks at the days around a time, which may be outside these years.
        inside = at + timedelta(days=3 if at.year < MAXYEAR else -3)
    moment = at
    with suppress(ValueError, OverflowError):
        moment = (at - (inside.astimezone().utcoffset() or timedelta())).replace(tzinfo=UTC)
        return moment.astimezone(zone)
    return moment
