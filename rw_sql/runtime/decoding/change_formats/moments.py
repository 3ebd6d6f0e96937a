"""Parses dates and times, which records contain as text or as a number (:func:`count`). The result is either exact or
NULL. This module uses only Spark expressions.

A column stores times in whole microseconds, in the years 1 to 9999. A time with a fraction of a microsecond, and a time
in another year, does not fit. ``docs/reference/formats.md`` lists the accepted forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column

_DATE = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6}0*)?)?"
_MIDNIGHT = r"[T ]00:00(:00([.]0+)?)?"
_OFFSET = r"(?<hours>[+-][0-9]{2})(:?(?<minutes>[0-9]{2})(:?[0-9]{2})?)?"
_UTC = r"(Z|UTC|GMT|(?<hours>[+-]00)(:?(?<minutes>00)(:?00)?)?)"
_ZONE = rf" ?(Z|UTC|GMT|{_OFFSET})"
_AFTER_NO_OFFSET = r"(?<=Z|UTC|GMT|[+-]00|[+-]00:?00|[+-]00:?00:?00)"
_AFTER_WHOLE_HOURS = r"(?<=[+-][0-9]{2}|[+-][0-9]{2}:?00|[+-][0-9]{2}:?00:?00)"
_GO_NAME = (
    rf"({_AFTER_NO_OFFSET} ?(UTC|GMT|UCT)| ?(?!(UTC|GMT|UCT)(?![A-Z]))[A-Z]{{3,5}}"
    rf"| \k<hours>\k<minutes>|{_AFTER_WHOLE_HOURS} \k<hours>)?( m=[+-][0-9.]+)?"
)
_UTC_NAME = r"(Etc/)?(Z|UTC|GMT|UCT|UT|Zulu|Universal|Greenwich|GMT[+-]?0)"
_JAVA_NAME = (
    rf"({_AFTER_NO_OFFSET}\[{_UTC_NAME}\]|\[(UTC|GMT|UT)?\k<hours>:?\k<minutes>\]"
    rf"|\[(?!({_UTC_NAME}|(UTC|GMT|UT)?[+-][0-9]*)\])[A-Za-z0-9_+/-]+\])"
)
_MORE = rf"(?<=[0-9]){_GO_NAME}|{_JAVA_NAME}"
"""Matches the text that may follow a time zone and is ignored. After a UTC offset, Go writes the zone's name; if the
zone has no name, Go repeats the offset. After any zone, Java writes the zone's name in brackets. If the name is an
offset or means UTC, it must agree with the zone that precedes it."""

_FIRST_MICROS, _LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896

_MILLIS = ("io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp")
_MICROS = ("io.debezium.time.MicroTimestamp",)
_NANOS = ("io.debezium.time.NanoTimestamp",)


def count(text: Column) -> Column:
    """Returns the whole number in ``text``; NULL if ``text`` is not a whole number or does not fit a BIGINT.

    The result's expression compares the text with a pattern before the cast. Without this comparison, Spark would
    internally throw and catch an exception for each string that is not a number; in a measurement, these exceptions
    took four fifths of the decoding time. Callers should store the result in a column of its own, because the
    expressions for times reference it several times.
    """
    return f.when(text.rlike(r"^\s*[+-]?[0-9]+\s*\z"), text.try_cast("bigint"))


def date(text: Column, days: Column) -> Column:
    """Returns a date. ``days`` is the number of days since 1970-01-01. If ``days`` is NULL, the date is read from
    ``text``. A text with a time of day other than midnight does not fit."""
    counted = f.when(
        days.between(_FIRST_DAY, _LAST_DAY), f.date_add(f.lit("1970-01-01").cast("date"), days.cast("int"))
    )
    is_day = text.rlike(rf"^{_DATE}({_MIDNIGHT})?({_ZONE}({_MORE})?)?\z")
    written = f.when(is_day, f.substring(text, 1, 10).try_cast("date"))
    return f.when(days.isNotNull(), counted).otherwise(written)


def timestamp(text: Column, number: Column, mode: str, type_name: Column | None) -> Column:
    """Returns a time without a zone (TIMESTAMP). If ``number`` is NULL, the time is read from ``text``, which must have
    no zone or be in UTC.

    ``mode`` and ``type_name`` determine the unit of ``number`` (see :func:`_micros_of`). ``type_name`` is the field's
    type in Debezium's schema; None if records contain no schema.
    """
    # The expression does not use TIMESTAMP, whose local time depends on the session's time zone.
    seconds = (_micros_of(number, mode, type_name).cast("decimal(20, 0)") / f.lit(1_000_000)).cast("decimal(18, 6)")
    counted = f.lit("1970-01-01 00:00:00").cast("timestamp_ntz") + f.make_dt_interval(secs=seconds)
    written = f.when(
        text.rlike(rf"^{_DATE}({_TIME}( ?{_UTC}({_MORE})?)?)?\z"), _as_spark_reads(text).try_cast("timestamp_ntz")
    )
    return f.when(number.isNotNull(), counted).otherwise(written)


def timestamptz(text: Column, number: Column, mode: str, type_name: Column | None, *, needs_zone: bool) -> Column:
    """Returns a point in time (TIMESTAMPTZ). If ``number`` is NULL, the point is read from ``text``.

    With the mode ``utc_without_suffix``, only text without a zone fits, and counts as UTC. With the mode
    ``utc_string``, only text with a zone fits. With any other mode, numbers and text with a zone fit. In this case,
    text without a zone counts as UTC if ``needs_zone`` is False, and does not fit if ``needs_zone`` is True.
    """
    if mode == "utc_without_suffix":
        return _in_range(f.when(text.rlike(rf"^{_DATE}{_TIME}\z"), _in_utc(text)))
    zoned = f.when(text.rlike(rf"^{_DATE}{_TIME}{_ZONE}({_MORE})?\z"), _as_spark_reads(text).try_cast("timestamp_ltz"))
    if mode == "utc_string":
        return _in_range(zoned)
    counted = f.timestamp_micros(_micros_of(number, mode, type_name))
    written = zoned
    if not needs_zone:
        bare = f.when(text.rlike(rf"^{_DATE}({_TIME})?\z"), _in_utc(text))
        written = f.coalesce(zoned, bare)
    return f.when(number.isNotNull(), counted).otherwise(_in_range(written))


def _in_utc(text: Column) -> Column:
    """Converts a text without a zone, which is a time in UTC, to a point in time."""
    rest = f.when(f.length(text) == 10, f.lit(" 00:00:00Z")).when(f.length(text) == 16, f.lit(":00Z"))
    return f.concat(text, rest.otherwise(f.lit("Z"))).try_cast("timestamp_ltz")


def _as_spark_reads(text: Column) -> Column:
    """Converts the text of a time to a form that Spark can read. Adds the seconds if they are missing, because Spark
    requires seconds before a zone. Also removes the text after the zone that ``_MORE`` matches."""
    bare = f.regexp_replace(text, f.lit(rf"^({_DATE}{_TIME}{_ZONE})({_MORE})\z"), f.lit("$1"))
    has_seconds = (f.length(text) < 17) | (f.substring(text, 17, 1) == ":")
    whole = f.concat(f.substring(bare, 1, 16), f.lit(":00"), f.substr(bare, f.lit(17)))
    return f.when(text.rlike(rf"^{_DATE}({_TIME}({_ZONE})?)?\z") & has_seconds, text).otherwise(
        f.when(has_seconds, bare).otherwise(whole)
    )


def _in_range(moment: Column) -> Column:
    # In UTC, the first and last hours of other zones are in the years 0 and 10000.
    return f.when(f.unix_micros(moment).between(_FIRST_MICROS, _LAST_MICROS), moment)


def _micros_of(number: Column, mode: str, type_name: Column | None) -> Column:
    """Converts a number to microseconds since 1970; NULL if the time is out of range, or is not a whole number of
    microseconds.

    The field's type determines the unit of the number. If the type is unknown or implies no unit, ``mode`` determines
    the unit.
    """
    found = _micros(number, mode)
    if type_name is not None:
        found = (
            f.when(type_name.isin(*_MILLIS), _micros(number, "milli"))
            .when(type_name.isin(*_MICROS), _micros(number, "micro"))
            .when(type_name.isin(*_NANOS), _of_nanos(number))
            .otherwise(found)
        )
    return f.when(found.between(_FIRST_MICROS, _LAST_MICROS), found)


def _micros(number: Column, mode: str) -> Column:
    match mode:
        case "micro":
            return number
        case "milli":
            return f.try_multiply(number, f.lit(1_000))
        case _:
            return (
                f.when(_is_below(number, 10**11), number * 1_000_000)
                .when(_is_below(number, 10**14), number * 1_000)
                .when(_is_below(number, 10**17), number)
                .otherwise(_of_nanos(number))
            )


def _of_nanos(number: Column) -> Column:
    return f.when(number % 1_000 == 0, f.call_function("div", number, f.lit(1_000)))


def _is_below(number: Column, limit: int) -> Column:
    return (number < limit) & (number > -limit)
