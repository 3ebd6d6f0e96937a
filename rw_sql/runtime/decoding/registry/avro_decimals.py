"""Detects values that their columns cannot represent: decimals with more digits than the schema's precision, dates and
timestamps outside the years 1 to 9999, and strings that are not UTF-8.

If the schema's precision is at most 18 digits, Spark reads only the lowest 64 bits of a decimal's bytes and ignores all
higher bits. Such decimals are therefore read with a greater precision, and each value is compared with the schema's
precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import functions as f
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from rw_sql.connectors.schemas import avro
from rw_sql.connectors.schemas.logical_types import decimal_of, logical_of, most_digits
from rw_sql.connectors.support.years import in_years

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_TIMES: Mapping[str, DataType] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
}
"""The logical types that Spark reads as dates and timestamps, with the Spark types."""

_LONG_DIGITS, _LONG_BYTES = 18, 8
_WIDEST = 38


def wide_decimal(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of the type ``schema``. If Spark would read a decimal of this type as 64 bits, the copy has the
    greatest precision that fits into the decimal's bytes."""
    return dict(schema) if _of_64_bits(schema) is None else {**schema, "precision": _most_digits(schema)}


def narrow_decimal(schema: avro.Schema) -> Callable[[Column], Column] | None:
    """Returns the function that converts a value of a :func:`wide_decimal` to the schema's precision; None for all
    other types."""
    found = _of_64_bits(schema)
    return None if found is None else lambda value: value.try_cast(_kind(found))


@dataclass(frozen=True, slots=True)
class FitCheck:
    """Makes the condition that checks the decimals, dates, timestamps and strings in a value. ``named`` are the
    schema's named types.

    ``within`` are the names of the enclosing types. If a type contains itself, values of the inner occurrence are not
    checked.
    """

    named: Mapping[str, avro.Schema]
    within: frozenset[str] = frozenset()

    def of(self, schema: avro.Schema) -> Callable[[Column], Column] | None:
        """Returns a function from a value to the condition that all parts of the value fit. Each :func:`wide_decimal`
        must fit the schema's precision, all dates and timestamps must be in the years 1 to 9999, and all strings must
        be UTF-8. The condition is never NULL.

        Returns None if the schema has no type whose values need a check.
        """
        if schema == "string":
            return _is_text
        if isinstance(schema, str):
            if schema in self.within or schema not in self.named:
                return None
            return FitCheck(self.named, self.within | {schema}).of(self.named[schema])
        if isinstance(schema, list):
            return self._union(schema)
        match schema["type"]:
            case "record":
                return _all([(each["name"], self.of(each["type"])) for each in schema["fields"]])
            case "array":
                return _of_all(self.of(schema["items"]), lambda value: value)
            case "map":
                return _of_map(self.of(schema["values"]))
            case "string":
                return _is_text
        found = _of_64_bits(schema)
        if found is not None:
            return lambda value: value.isNull() | value.try_cast(_kind(found)).isNotNull()
        kind = _TIMES.get(logical_of(schema) or "")
        return None if kind is None else lambda value: value.isNull() | cast("Column", in_years(value, kind))

    def _union(self, branches: Sequence[avro.Schema]) -> Callable[[Column], Column] | None:
        real = [branch for branch in branches if branch != "null"]
        if len(real) == 1:
            return self.of(real[0])
        if avro.is_widened(real):
            return None
        return _all([(f"member{at}", self.of(branch)) for at, branch in enumerate(real)])


def _all(parts: Sequence[tuple[str, Callable[[Column], Column] | None]]) -> Callable[[Column], Column] | None:
    """Returns a condition on a struct. This condition is true if the conditions on all fields of the struct are
    true."""
    checks = [(name, check) for name, check in parts if check is not None]
    if not checks:
        return None

    def fits(value: Column) -> Column:
        made = f.lit(True)
        for name, check in checks:
            made = made & check(value[name])
        return _or_null(value, made)

    return fits


def _of_all(
    check: Callable[[Column], Column] | None, items: Callable[[Column], Column]
) -> Callable[[Column], Column] | None:
    """The condition that all items of a value fit."""
    return None if check is None else lambda value: _or_null(value, f.forall(items(value), check))


def _of_map(check: Callable[[Column], Column] | None) -> Callable[[Column], Column]:
    """Returns the condition that all keys of a map are UTF-8 and that all values of the map fit."""

    def fits(value: Column) -> Column:
        keys = f.forall(f.map_keys(value), _is_text)
        return _or_null(value, keys if check is None else keys & f.forall(f.map_values(value), check))

    return fits


def _is_text(value: Column) -> Column:
    return _or_null(value, f.is_valid_utf8(value))


def _or_null(value: Column, fits: Column) -> Column:
    return value.isNull() | fits


def _of_64_bits(schema: avro.Schema) -> tuple[int, int] | None:
    """Returns the precision and the scale of a decimal type, if Spark may drop some bytes of its values; None for all
    other types."""
    found = decimal_of(schema)
    if found is None or found[0] > _LONG_DIGITS or schema.get("size", _WIDEST) <= _LONG_BYTES:
        return None
    return found


def _most_digits(schema: Mapping[str, Any]) -> int:
    """Returns the greatest precision, at most 38, that fits into the bytes of a decimal of the type ``schema``."""
    size = schema.get("size")
    return _WIDEST if size is None else min(_WIDEST, most_digits(size))


def _kind(decimal: tuple[int, int]) -> str:
    return f"decimal({decimal[0]}, {decimal[1]})"
