"""From the text of a JSON value to a column's value, by RisingWave's rules. Spark expressions only.

Where RisingWave takes NULL for a value that does not fit its column, the value here is NULL too, and who asks tells it
from a NULL that was written: the text is then not NULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from rw_sql.connectors.formats import GUESS
from rw_sql.syntax import canonical_type, spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column

    from rw_sql.syntax.statements import ColumnDefinition, DataType

TEMPORAL = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
"""The types that JSON writes in several ways."""

_NESTED = ("STRUCT", "ARRAY", "MAP")
_DATE = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?"
_ZONE = r" ?(Z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)"
_DIGITS_OF_A_DOUBLE = 15
_FIRST_MICROS, _LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRules:
    """What encodings write differently.

    ``timestamptz`` and ``timestamp`` are modes of :mod:`rw_sql.connectors.formats`. ``needs_zone``: text without a zone
    is no point in time. ``is_latin1``: bytes are written as the characters of their numbers, not as base64.
    """

    timestamptz: str = GUESS
    timestamp: str = GUESS
    needs_zone: bool = False
    is_latin1: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a record's own schema says of a value: its type's name, a decimal's scale. Either may be NULL."""

    type: Column
    scale: Column


def value_of(
    text: Column, data_type: DataType, rules: ValueRules, told: Told | None = None, exact: Column | None = None
) -> Column:
    """The value of a column of a type, out of a JSON value's text (a string's content); NULL where it does not fit.

    ``exact`` is a decimal as the JSON has it: a number's text may be that of the nearest double.
    """
    kind = spark_type(data_type)
    name = data_type.name
    if name in _NESTED:
        return _nested(text, kind)
    match name:
        case "BOOLEAN":
            word = f.lower(text)
            return f.when(word.isin("true", "1"), f.lit(True)).when(word.isin("false", "0"), f.lit(False))
        case "BYTEA" if rules.is_latin1:
            return f.when(text.rlike("^[\\u0000-\\u00ff]*$"), f.encode(text, "ISO-8859-1"))
        case "BYTEA":
            return f.try_to_binary(text, f.lit("base64"))
        case "NUMERIC":
            return _decimal(text, kind, told, exact)
        case "DATE":
            return _date(text)
        case "TIMESTAMP":
            return _timestamp(text, rules, told)
        case "TIMESTAMP WITH TIME ZONE":
            return _timestamptz(text, rules)
        case _ if kind == "STRING":
            return text
        case _:
            return text.try_cast(kind)


def misfit(column: ColumnDefinition, text: Column, value: Column) -> Column:
    """Why a text that was written is no value of a column; NULL where it is one, or nothing was written."""
    kind = canonical_type(column.data_type)
    says = f.concat(f.lit(f'column "{column.name}": '), f.substring(text, 1, 60), f.lit(f" is not of type {kind}"))
    return f.when(text.isNotNull() & value.isNull(), says)


def _nested(text: Column, kind: str) -> Column:
    # Inside of an object, because only an object can say that a part of it did not fit.
    schema = f"v {kind}, c STRING"
    read = f.from_json(
        f.concat(f.lit('{"v":'), text, f.lit("}")),
        schema,
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "c"},
    )
    return f.when(read.getField("c").isNull(), read.getField("v"))


def _date(text: Column) -> Column:
    days = text.try_cast("int")
    counted = f.when(days.between(_FIRST_DAY, _LAST_DAY), f.date_add(f.lit("1970-01-01").cast("date"), days))
    written = f.when(text.rlike(f"^{_DATE}([T ].*)?$"), text.try_cast("date"))
    return f.when(days.isNotNull(), counted).otherwise(written)


def _timestamp(text: Column, rules: ValueRules, told: Told | None) -> Column:
    number = text.try_cast("bigint")
    micros = _micros(number, rules.timestamp)
    if told is not None:
        micros = _micros_as_told(number, told.type, micros)
    # Not through TIMESTAMP, whose wall clock is that of the session's zone.
    seconds = (micros.cast("decimal(20, 0)") / f.lit(1_000_000)).cast("decimal(18, 6)")
    counted = f.lit("1970-01-01 00:00:00").cast("timestamp_ntz") + f.make_dt_interval(secs=seconds)
    written = f.when(text.rlike(f"^{_DATE}({_TIME})?({_ZONE})?$"), text.try_cast("timestamp_ntz"))
    return f.when(number.isNotNull(), counted).otherwise(written)


def _timestamptz(text: Column, rules: ValueRules) -> Column:
    mode = rules.timestamptz
    zoned = f.when(text.rlike(f"^{_DATE}{_TIME}{_ZONE}$"), text.try_cast("timestamp"))
    if mode == "utc_without_suffix":
        return f.when(text.rlike(f"^{_DATE}{_TIME}$"), f.concat(text, f.lit("Z")).try_cast("timestamp"))
    if mode == "utc_string":
        return zoned
    number = text.try_cast("bigint")
    zone_or_none = f.when(text.rlike(f"^{_DATE}({_TIME})?({_ZONE})?$"), text.try_cast("timestamp"))
    counted = f.timestamp_micros(_micros(number, mode))
    return f.when(number.isNotNull(), counted).otherwise(zoned if rules.needs_zone else zone_or_none)


def _micros(number: Column, mode: str) -> Column:
    """Microseconds since 1970; NULL outside of the years 1 to 9999, which is what all who read the rows can hold."""
    match mode:
        case "micro":
            micros = number
        case "milli":
            micros = f.try_multiply(number, f.lit(1_000))
        case _:
            micros = (
                f.when(_is_below(number, 10**11), number * 1_000_000)
                .when(_is_below(number, 10**14), number * 1_000)
                .when(_is_below(number, 10**17), number)
                .otherwise(f.call_function("div", number, f.lit(1_000)))
            )
    return f.when(micros.between(_FIRST_MICROS, _LAST_MICROS), micros)


def _micros_as_told(number: Column, type_name: Column, otherwise: Column) -> Column:
    """The unit that Debezium's or Connect's type of a field says."""
    millis = type_name.isin("io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp")
    return (
        f.when(millis, _micros(number, "milli"))
        .when(type_name == "io.debezium.time.MicroTimestamp", _micros(number, "micro"))
        .when(
            type_name == "io.debezium.time.NanoTimestamp",
            _micros(f.call_function("div", number, f.lit(1_000)), "micro"),
        )
        .otherwise(otherwise)
    )


def _is_below(number: Column, limit: int) -> Column:
    return (number < limit) & (number > -limit)


def _decimal(text: Column, kind: str, told: Told | None, exact: Column | None) -> Column:
    written = text.try_cast(kind)
    if exact is not None:
        is_long = f.length(f.regexp_replace(text, f.lit("[^0-9]"), f.lit(""))) > _DIGITS_OF_A_DOUBLE
        written = f.when(is_long, f.coalesce(exact, written)).otherwise(written)
    if told is None:
        return written
    variable = f.from_json(text, "scale INT, value STRING")
    return (
        f.when(text.startswith("{"), _scaled(variable.getField("value"), variable.getField("scale"), kind))
        .when(told.type == "org.apache.kafka.connect.data.Decimal", _scaled(text, told.scale, kind))
        .otherwise(written)
    )


def _scaled(encoded: Column, scale: Column, kind: str) -> Column:
    """A decimal out of the base64 of its unscaled value, big-endian in two's complement, and its scale.

    NULL for one of more than 14 bytes, 33 digits.
    """
    digits = f.hex(f.try_to_binary(encoded, f.lit("base64")))
    is_negative = f.substring(digits, 1, 1) >= "8"
    flipped = f.when(is_negative, f.translate(digits, "0123456789ABCDEF", "FEDCBA9876543210")).otherwise(digits)
    # Spark's sums of decimals are right up to 34 digits: 14 bytes.
    padded = f.when(f.length(digits).between(1, 28), f.lpad(flipped, 28, "0"))
    shift = f.lit(2**48).cast("decimal(38, 0)")
    found = _number(padded, 1, 4)
    for start in (5, 17):
        found = f.try_add(f.try_multiply(found, shift), _number(padded, start, 12)).cast("decimal(38, 0)")
    signed = f.when(is_negative, f.try_subtract(-found, f.lit(1))).otherwise(found)
    return f.concat(signed.cast("string"), f.lit("E"), (-scale).cast("string")).try_cast(kind)


def _number(digits: Column, start: int, length: int) -> Column:
    return f.conv(f.substring(digits, start, length), 16, 10).cast("decimal(38, 0)")
