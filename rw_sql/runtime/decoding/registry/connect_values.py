"""Converts values to the declared types of columns. The values have types that Kafka Connect and Debezium define. The
result is either exact or NULL.

Spark's reader of Avro returns such values as the plain numbers, strings and records that represent them
(:mod:`rw_sql.connectors.schemas.connect_types`). This module uses only Spark expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from rw_sql.connectors.schemas import avro, connect_types
from rw_sql.connectors.schemas.logical_types import decimal_of, logical_of
from rw_sql.runtime.decoding.change_formats import moments, numbers
from rw_sql.runtime.decoding.change_formats.values import misfit, precision_of
from rw_sql.syntax import canonical_type, exact_spark_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column

    from rw_sql.runtime.decoding.change_formats.unchanged import Placeholder
    from rw_sql.syntax.statements import ColumnDefinition, DataType

_TEXT, _DECIMAL, _TIMESTAMP, _TIMESTAMPTZ = "CHARACTER VARYING", "NUMERIC", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"
_NESTED = ("STRUCT", "ARRAY", "MAP")


@dataclass(frozen=True, slots=True)
class RowConversion:
    """Converts the rows of a schema to declared columns. ``fields`` maps the names of a row's fields to their types.
    ``named`` maps the names of the schema's named types to their definitions."""

    fields: Mapping[str, avro.Schema]
    named: Mapping[str, avro.Schema]

    @staticmethod
    def of(schema: avro.Schema, named: Mapping[str, avro.Schema] | None = None) -> RowConversion:
        """Returns the conversion of rows of the record type ``schema``. If ``named`` is None, the named types within
        ``schema`` are used."""
        types = {each["name"]: each["type"] for each in schema["fields"]}
        return RowConversion(types, avro.definitions(schema) if named is None else named)

    def part(self, column: ColumnDefinition) -> avro.Schema | None:
        """The Avro type of a column's values, without its ``null`` branch; None if the rows have no such field."""
        found = self.fields.get(column.name)
        return None if found is None else avro.only_branch(found, self.named)

    def plain(self, row: Column, column: ColumnDefinition) -> Column:
        """Returns a column's value as Spark reads it. If the rows have no such field, the result is a NULL of the
        declared type."""
        if column.name in self.fields:
            return row[column.name]
        return f.lit(None).cast(exact_spark_type(column.data_type))

    def value(self, plain: Column, column: ColumnDefinition) -> Column:
        """The value, converted to the declared type; NULL if the value does not fit."""
        convert = (
            None if column.name not in self.fields else self._conversion(self.fields[column.name], column.data_type)
        )
        return (plain if convert is None else convert(plain)).cast(exact_spark_type(column.data_type))

    def misfits(self, row: Column, columns: Sequence[ColumnDefinition]) -> Column:
        """Returns the reason why a value of the row does not fit its column; NULL if all values fit."""
        found = [self.misfit(row[column.name], column) for column in columns if column.name in self.fields]
        return f.coalesce(*(each for each in found if each is not None), f.lit(None).cast("string"))

    def misfit(self, plain: Column, column: ColumnDefinition) -> Column | None:
        """The expression for the reason why a value does not fit its column; it yields NULL if the value fits. The
        result is None if every value fits."""
        if column.name not in self.fields:
            return None
        schema, data_type = self.fields[column.name], column.data_type
        if self._conversion(schema, data_type) is None:
            return None
        is_other = self._is_other(plain, schema, data_type)
        text = plain.cast("string") if data_type.name not in _NESTED else f.to_json(plain)
        if connect_types.connect_name(avro.only_branch(schema, self.named)) == connect_types.VARIABLE_DECIMAL:
            text = _decimal_text(plain)
        # A decimal with too many digits to be written as text is shown as its parts.
        shown = f.coalesce(text, plain.cast("string"))
        return misfit(column, shown, f.when(~is_other, f.lit(True)))

    def is_placeholder(self, plain: Column, column: ColumnDefinition, placeholder: Placeholder) -> Column | None:
        """Returns the condition that a value, as Spark reads it, is Debezium's placeholder for an unchanged value; None
        for a type without a placeholder."""
        schema: Any = self.part(column)
        kind = schema.get("type") if isinstance(schema, dict) else schema
        raw = placeholder.text.encode()
        if kind == "string":
            found: Column = plain.isin(*placeholder.plain, placeholder.map)
        elif kind == "bytes" and decimal_of(schema) is None:
            found = plain == f.lit(raw)
        elif kind == "array":
            return self._is_array_placeholder(plain, schema["items"], placeholder)
        elif kind == "map" and avro.only_branch(schema["values"], self.named) == "string":
            is_map = column.data_type.name == "MAP"
            found = (f.to_json(plain) if is_map else plain) == f.lit(placeholder.map)
        else:
            return None
        return f.coalesce(found, f.lit(False))

    def _is_array_placeholder(self, plain: Column, items: avro.Schema, placeholder: Placeholder) -> Column | None:
        items = avro.only_branch(items, self.named)
        kind = items.get("type") if isinstance(items, dict) else items
        first = f.get(plain, f.lit(0))
        if kind == "string":
            known = (*placeholder.plain, placeholder.uuid)
            found = (f.size(plain) == 1) & first.isin(*known)
        elif kind == "bytes" and decimal_of(items) is None:
            found = (f.size(plain) == 1) & (first == f.lit(placeholder.text.encode()))
        elif kind in ("int", "long") and not logical_of(items):
            numbers_of = [byte - 256 if byte > 127 else byte for byte in placeholder.text.encode()]
            found = plain.cast("array<bigint>") == f.array(*(f.lit(each).cast("bigint") for each in numbers_of))
        else:
            return None
        return f.coalesce(found, f.lit(False))

    def _is_other(self, value: Column, schema: avro.Schema, data_type: DataType) -> Column:
        """True if the value, or a part of the value, does not fit the declared type."""
        convert = self._conversion(schema, data_type)
        if convert is None:
            return f.lit(False)
        schema = avro.only_branch(schema, self.named)
        if data_type.name == "ARRAY" and data_type.element is not None and isinstance(schema, dict):
            items, element = schema["items"], data_type.element
            return f.coalesce(f.exists(value, lambda item: self._is_other(item, items, element)), f.lit(False))
        if data_type.name == "MAP" and data_type.value is not None and isinstance(schema, dict):
            values, kind = schema["values"], data_type.value
            found = f.exists(f.map_values(value), lambda item: self._is_other(item, values, kind))
            return f.coalesce(found, f.lit(False))
        if data_type.name == "STRUCT" and isinstance(schema, dict):
            types = {each["name"]: each["type"] for each in schema["fields"]}
            parts = (self._is_other(value[part.name], types[part.name], part.data_type) for part in data_type.fields)
            return reduce(or_, parts, f.lit(False))
        return value.isNotNull() & convert(value).isNull()

    def _conversion(self, schema: avro.Schema, data_type: DataType) -> Callable[[Column], Column] | None:
        """Returns the conversion of values to the declared type; None if Spark already reads the values as that
        type."""
        schema = avro.only_branch(schema, self.named)
        if data_type.name == "ARRAY" and data_type.element is not None:
            return _of_items(self._conversion(schema["items"], data_type.element))
        if data_type.name == "MAP" and data_type.value is not None and isinstance(schema, dict):
            return _of_values(self._conversion(schema["values"], data_type.value))
        name = connect_types.connect_name(schema)
        if data_type.name == "STRUCT" and isinstance(schema, dict) and schema.get("type") == "record":
            return self._struct(schema, data_type)
        if name is not None and (convert := _of_name(name, data_type)) is not None:
            return convert
        if connect_types.is_small(schema) and data_type.name == "SMALLINT":
            return lambda value: value.try_cast("smallint")
        if connect_types.is_unnamed_text(schema) and (convert := _of_text(data_type)) is not None:
            return convert
        return (
            None if self._is_read_as(schema, data_type) else lambda value: value.try_cast(exact_spark_type(data_type))
        )

    def _is_read_as(self, schema: avro.Schema, data_type: DataType) -> bool:
        """Returns False if Spark reads the values as a type other than the declared type. For STRUCT, ARRAY, MAP and
        JSONB, the result is always True. A column for which the result is False exists only if an older version of
        rw_sql accepted its type."""
        kind = avro.plain_type(schema, self.named)
        if kind is None or data_type.name in (*_NESTED, "JSONB"):
            return True
        # Every accepted decimal type fits into NUMERIC without digits.
        is_any = data_type.name == "NUMERIC" and not data_type.arguments and kind.startswith("NUMERIC")
        return is_any or kind == canonical_type(data_type)

    def _struct(self, schema: avro.Schema, data_type: DataType) -> Callable[[Column], Column] | None:
        types = {each["name"]: each["type"] for each in schema["fields"]}
        inner = {part.name: self._conversion(types[part.name], part.data_type) for part in data_type.fields}
        if not any(inner.values()):
            return None

        def convert(value: Column) -> Column:
            parts = [(value[name] if each is None else each(value[name])).alias(name) for name, each in inner.items()]
            return f.when(value.isNotNull(), f.struct(*parts))

        return convert


def _of_items(convert: Callable[[Column], Column] | None) -> Callable[[Column], Column] | None:
    return None if convert is None else lambda value: f.transform(value, convert)


def _of_values(convert: Callable[[Column], Column] | None) -> Callable[[Column], Column] | None:
    return None if convert is None else lambda value: f.transform_values(value, lambda _, item: convert(item))


def _of_name(name: str, data_type: DataType) -> Callable[[Column], Column] | None:
    """The conversion from the type ``name`` of Kafka Connect or Debezium; None if the column has the type of the plain
    values."""
    kind = data_type.name
    nothing = f.lit(None)
    if name in connect_types.TIME_UNITS and kind == _TEXT:
        return lambda value: time_text(value, connect_types.TIME_UNITS[name])
    if name in connect_types.TIMESTAMP_UNITS and kind in (_TIMESTAMP, _TIMESTAMPTZ):
        return lambda value: _of_micros(_micros(value, connect_types.TIMESTAMP_UNITS[name]), kind)
    if name == connect_types.CONNECT_TIMESTAMP and kind == _TIMESTAMP:
        return lambda value: _of_micros(f.unix_micros(value), kind)
    if name == connect_types.DATE and kind == "DATE":
        return lambda value: moments.date(nothing.cast("string"), value.cast("bigint"))
    if name == connect_types.ISO_DATE and kind == "DATE":
        return lambda value: moments.date(value, nothing.cast("bigint"))
    if name == connect_types.ISO_TIME and kind == _TEXT:
        # Debezium writes the value of a column without a time zone as a time in UTC.
        return lambda value: f.regexp_replace(value, r"Z\z", "")
    if name == connect_types.ISO_TIMESTAMP and kind == _TIMESTAMP:
        return lambda value: moments.timestamp(value, nothing.cast("bigint"), "micro", None)
    if name == connect_types.ZONED_TIMESTAMP and kind == _TIMESTAMPTZ:
        return lambda value: moments.timestamptz(value, nothing.cast("bigint"), "utc_string", None, needs_zone=True)
    if name == connect_types.VARIABLE_DECIMAL and kind in (_DECIMAL, _TEXT):
        precision = precision_of(data_type)
        if precision is None:
            return _decimal_text
        return lambda value: numbers.decimal(_decimal_text(value), *precision)
    return None


def _of_text(data_type: DataType) -> Callable[[Column], Column] | None:
    """The conversion from a string type that has no name in ``connect.name``; None if no conversion is needed."""
    precision = precision_of(data_type)
    if precision is not None:
        return lambda value: numbers.decimal(value, *precision)
    if data_type.name == "BYTEA":
        return lambda value: f.try_to_binary(value, f.lit("base64"))
    return None


def _micros(value: Column, units: int) -> Column:
    """Converts a number of time units, of which one second has ``units``, to a number of microseconds. Returns NULL if
    the number of microseconds is too large or not a whole number."""
    if units <= 1_000_000:
        return f.try_multiply(value, f.lit(1_000_000 // units))
    each = units // 1_000_000
    return f.when(value % each == 0, f.call_function("div", value, f.lit(each)))


def _of_micros(micros: Column, kind: str) -> Column:
    nothing = f.lit(None).cast("string")
    if kind == _TIMESTAMP:
        return moments.timestamp(nothing, micros, "micro", None)
    return moments.timestamptz(nothing, micros, "micro", None, needs_zone=True)


def _decimal_text(value: Column) -> Column:
    """The text of a decimal whose scale is stored with its value (:data:`VARIABLE_DECIMAL
    <rw_sql.connectors.schemas.connect_types.VARIABLE_DECIMAL>`)."""
    return numbers.decimal_of_bytes(value["value"], value["scale"])


def time_text(value: Column, units: int) -> Column:
    """A time of day as text, such as ``01:02:03.004``, from the number of units since midnight.

    The fraction is omitted if it is zero. The result is NULL if the time has a fraction of a microsecond.
    """
    count = _micros(value.cast("long"), units)
    # Every intermediate number is between the count and 0. The product of the seconds and a million would overflow for
    # the smallest long.
    rest = f.pmod(count, f.lit(1_000_000))
    seconds = f.call_function("div", count, f.lit(1_000_000)) - f.when((count < 0) & (rest > 0), 1).otherwise(0)
    plain = f.format_string(
        "%02d:%02d:%02d", f.floor(seconds / 3600).cast("long"), f.floor(seconds / 60).cast("long") % 60, seconds % 60
    )
    fraction = f.concat(f.lit("."), f.rtrim(f.lpad(rest.cast("string"), 6, "0"), f.lit("0")))
    return f.when(count.isNotNull(), f.when(rest == 0, plain).otherwise(f.concat(plain, fraction)))
