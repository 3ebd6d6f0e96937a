"""Converts values of test files, from YAML, CSV and SQL, to the types of columns."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_BITS = {ByteType: 7, ShortType: 15, IntegerType: 31, LongType: 63}
_DIGITS = 12
"""Floating-point numbers count as equal if they agree in this many digits, because sums depend on the order of rows."""


_EXACT = Context(prec=100)
"""Python's own context rounds to 28 digits, and columns have up to 38."""


class MisfitError(Exception):
    """A value that does not fit its column."""


def fitted(value: Any, kind: DataType) -> Any:
    """A written value converted to a type: times with a zone in UTC, structs and maps as dicts. Raises MisfitError."""
    if value is None:
        return None
    try:
        return _fitted(value, kind)
    except (ValueError, TypeError, InvalidOperation, OverflowError) as error:
        raise MisfitError(f"{value!r} is not a value of type {kind.simpleString().upper()}") from error


def _fitted(value: Any, kind: DataType) -> Any:
    match kind:
        case BooleanType():
            if isinstance(value, str) and value.lower() in ("true", "false"):
                return value.lower() == "true"
            return _require(value, isinstance(value, bool))
        case ByteType() | ShortType() | IntegerType() | LongType():
            number = int(value) if isinstance(value, str) else _whole(value)
            return _require(number, -(1 << _BITS[type(kind)]) <= number < 1 << _BITS[type(kind)])
        case FloatType() | DoubleType():
            return float(_number(value))
        case DecimalType():
            _number(value)
            exact = Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
            return _require(exact, exact == Decimal(str(value)) and len(exact.as_tuple().digits) <= kind.precision)
        case StringType():
            return _text(value)
        case BinaryType():
            if isinstance(value, str):
                return bytes.fromhex(value[2:]) if value.startswith("\\x") else value.encode()
            return bytes(_require(value, isinstance(value, bytes | bytearray)))
        case DateType():
            if isinstance(value, str):
                return dt.date.fromisoformat(value)
            return _require(value, isinstance(value, dt.date) and not isinstance(value, dt.datetime))
        case TimestampType():
            at = _datetime(value)
            return at.replace(tzinfo=dt.UTC) if at.tzinfo is None else at.astimezone(dt.UTC)
        case TimestampNTZType():
            at = _datetime(value)
            return _require(at, at.tzinfo is None)
        case ArrayType():
            return [fitted(inner, kind.elementType) for inner in _require(value, isinstance(value, list | tuple))]
        case StructType():
            given = value.asDict() if hasattr(value, "asDict") else _require(value, isinstance(value, dict))
            unknown = set(given) - set(kind.names)
            _require(value, not unknown)
            return {field.name: fitted(given.get(field.name), field.dataType) for field in kind.fields}
        case MapType():
            _require(value, isinstance(value, dict))
            return {fitted(key, kind.keyType): fitted(inner, kind.valueType) for key, inner in value.items()}
        case _:
            return value


def _require(value: Any, holds: bool) -> Any:
    if not holds:
        raise ValueError
    return value


def _number(value: Any) -> Any:
    return _require(value, isinstance(value, int | float | Decimal | str) and not isinstance(value, bool))


def _whole(value: Any) -> int:
    _require(value, not isinstance(value, bool) and isinstance(value, int | float | Decimal))
    return int(_require(value, value == int(value)))


def _text(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return value
        case int() | float() | Decimal():
            return str(value)
        case dt.datetime() | dt.date():
            return value.isoformat()
        case _:
            raise TypeError


def _datetime(value: Any) -> dt.datetime:
    if isinstance(value, str):
        return dt.datetime.fromisoformat(value)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)
    at: dt.datetime = _require(value, isinstance(value, dt.datetime))
    return at


def collected(value: Any, kind: DataType) -> Any:
    """Converts a value returned by Spark's ``collect`` to the form of :func:`fitted`."""
    match kind:
        case _ if value is None:
            return None
        case TimestampType():
            return value.astimezone(dt.UTC)  # without a zone it is in the zone of this process
        case BinaryType():
            return bytes(value)
        case ArrayType():
            return [collected(inner, kind.elementType) for inner in value]
        case StructType():
            return {field.name: collected(value[field.name], field.dataType) for field in kind.fields}
        case MapType():
            return {collected(key, kind.keyType): collected(inner, kind.valueType) for key, inner in value.items()}
        case _:
            return value


def text_of(value: Any) -> str:
    """A fitted value as text for a table of rows. Equal values have equal texts."""
    match value:
        case None:
            return "NULL"
        case "":
            return "(empty)"
        case bool():
            return str(value).lower()
        case float():
            return str(value) if math.isnan(value) or math.isinf(value) else f"{value:.{_DIGITS}g}"
        case bytes():
            return "\\x" + value.hex()
        case dt.datetime():
            return value.isoformat(" ").replace("+00:00", "Z")
        case list():
            return "[" + ", ".join(map(text_of, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{text_of(key)}: {text_of(inner)}" for key, inner in value.items()) + "}"
        case _:
            return str(value)


def json_of(value: Any) -> Any:
    """A fitted value in the form of a topic's JSON record."""
    match value:
        case Decimal():
            return str(value)
        case bytes():
            return "\\x" + value.hex()
        case dt.datetime():
            return value.isoformat()
        case dt.date():
            return value.isoformat()
        case list():
            return [json_of(inner) for inner in value]
        case dict():
            return {str(key): json_of(inner) for key, inner in value.items()}
        case _:
            return value


def arrow_of(value: Any, kind: DataType) -> Any:
    """A fitted value in Arrow's form: the entries of a map as pairs."""
    if value is None:
        return None
    match kind:
        case ArrayType():
            return [arrow_of(inner, kind.elementType) for inner in value]
        case StructType():
            return {field.name: arrow_of(value[field.name], field.dataType) for field in kind.fields}
        case MapType():
            return [(arrow_of(key, kind.keyType), arrow_of(inner, kind.valueType)) for key, inner in value.items()]
        case _:
            return value
