"""Converts the values that test files contain in YAML, CSV and SQL to the types of columns."""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from dataclasses import dataclass
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
"""Floating-point numbers count as equal if they agree in this many significant digits, because the exact value of a sum
depends on the order of the rows."""


_EXACT = Context(prec=100)
"""A decimal context that does not round the values of NUMERIC columns, which have up to 38 digits. Python's default
context would round them to 28 digits."""


_PLAIN = re.compile(r"[\w .:+/@-]*")
"""Matches strings that need no quotes within the text of an array, a struct or a map."""


class MisfitError(Exception):
    """Raised for a value that does not fit its column."""


@dataclass(frozen=True, slots=True)
class Written:
    """A number, truth value or time in a YAML file, with its original text.

    The type of the column determines whether the value or the text is used. The text is needed because YAML reads
    ``007``, ``1.10``, ``NO`` and ``12:30`` as numbers and truth values, and rounds numbers with many digits.
    """

    value: Any
    text: str

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return repr(self.value)

    def for_type(self, kind: DataType) -> Any:
        """Returns the text for a string column, and the text of a floating-point number for a decimal column.
        Otherwise, returns the value. A whole number that begins with 0 is read as a decimal number."""
        match kind:
            case StringType():
                return self.text
            case DecimalType() if isinstance(self.value, float) and math.isfinite(self.value) and ":" not in self.text:
                return self.text
            case _ if re.fullmatch(r"[-+]?0[0-9]+", self.text):
                return int(self.text)  # YAML reads a number that begins with 0 as octal
            case _:
                return self.value


def fitted(value: Any, kind: DataType) -> Any:
    """Converts a value of a test file to a Spark type. Times with a zone are converted to UTC, and structs and maps
    become dicts. Raises MisfitError if the value does not fit the type."""
    if value is None:
        return None
    try:
        return _fitted(value.for_type(kind) if isinstance(value, Written) else value, kind)
    except (ValueError, TypeError, InvalidOperation, OverflowError) as error:
        raise MisfitError(f"{value!r} is not a value of type {kind.simpleString().upper()}") from error


def _fitted(value: Any, kind: DataType) -> Any:
    match kind:
        case BooleanType():
            if isinstance(value, str) and value.lower() in ("true", "false"):
                return value.lower() == "true"
            return _require(value, isinstance(value, bool))
        case ByteType() | ShortType() | IntegerType() | LongType():
            number = int(_number(value)) if isinstance(value, str) else _whole(value)
            return _require(number, -(1 << _BITS[type(kind)]) <= number < 1 << _BITS[type(kind)])
        case FloatType():
            return _single(float(_number(value)))
        case DoubleType():
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
            return _by_key({fitted(key, kind.keyType): fitted(inner, kind.valueType) for key, inner in value.items()})
        case _:
            return value


def _single(value: float) -> float:
    """Returns the nearest number of single precision, with the fewest digits that still identify this number."""
    if not math.isfinite(value):
        return value
    packed = struct.pack("f", value)
    exact: float = struct.unpack("f", packed)[0]
    shorter = (float(f"{exact:.{digits}g}") for digits in range(6, 9))
    return next((short for short in shorter if struct.pack("f", short) == packed), exact)


def _by_key(entries: dict[Any, Any]) -> dict[Any, Any]:
    """Returns the entries of a map sorted by key, because the order of a map's entries has no meaning."""
    return dict(sorted(entries.items(), key=lambda entry: text_of(entry[0])))


def _require(value: Any, holds: bool) -> Any:
    if not holds:
        raise ValueError
    return value


_NUMBER = re.compile(
    r"\s*[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]{1,3})?\s*|\s*[-+]?(nan|inf|infinity)\s*", re.I
)


def _number(value: Any) -> Any:
    """Returns the value if it is a number or a string with a number; otherwise raises ValueError. Underscores and
    non-ASCII digits in a string are refused, although Python accepts them."""
    if isinstance(value, str):
        return _require(value, _NUMBER.fullmatch(value) is not None)
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
            return value.astimezone(dt.UTC)  # a time without a zone is in the zone of this process
        case BinaryType():
            return bytes(value)
        case FloatType():
            return _single(value)
        case ArrayType():
            return [collected(inner, kind.elementType) for inner in value]
        case StructType():
            return {field.name: collected(value[field.name], field.dataType) for field in kind.fields}
        case MapType():
            entries = {collected(key, kind.keyType): collected(inner, kind.valueType) for key, inner in value.items()}
            return _by_key(entries)
        case _:
            return value


def text_of(value: Any) -> str:
    """Returns a value from :func:`fitted` as text for a table of rows. Two values of the same type have the same text
    only if they count as equal."""
    match value:
        case None:
            return "NULL"
        case "":
            return "(empty)"
        case "NULL" | "(empty)":
            return repr(value)
        case str() if value.startswith("'"):
            return repr(value)
        case bool():
            return str(value).lower()
        case float():
            return f"{value + 0.0:.{_DIGITS}g}" if math.isfinite(value) else str(value)  # without the sign of -0.0
        case bytes():
            return "\\x" + value.hex()
        case dt.datetime():
            return value.isoformat(" ").replace("+00:00", "Z")
        case list():
            return "[" + ", ".join(map(_inner_text, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{_inner_text(key)}: {_inner_text(inner)}" for key, inner in value.items()) + "}"
        case _:
            return str(value)


def _inner_text(value: Any) -> str:
    """The text of a value inside another value. Strings with special characters, such as commas or brackets, are
    quoted."""
    is_plain = not isinstance(value, str) or _PLAIN.fullmatch(value) is not None
    return text_of(value) if is_plain else repr(value)


def json_of(value: Any) -> Any:
    """A value from :func:`fitted` in the form that it has in the JSON record of a topic."""
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
    """Returns a value from :func:`fitted` in the form that Arrow accepts, in which the entries of a map are pairs."""
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
