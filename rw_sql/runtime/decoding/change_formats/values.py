"""Converts the text of a JSON value or CSV field to a column's value. The result is either exact or NULL; only a
floating-point number may be rounded. This module uses only Spark expressions.

All formats use the rules of this module, which ``docs/reference/formats.md`` lists. A text that does not fit its column
results in NULL. :func:`misfit` distinguishes this case from a text that is NULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from pyspark.sql import functions as f

from rw_sql.connectors.formats import GUESS
from rw_sql.runtime.decoding.change_formats import moments, numbers
from rw_sql.runtime.decoding.json_text import field_of, last_of_each, let, map_of, part, without_marks
from rw_sql.syntax import canonical_type, exact_spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column

    from rw_sql.syntax.statements import ColumnDefinition, DataType

TEMPORAL = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
"""The types whose values are written in JSON as strings in several forms, or as numbers."""

NESTED = ("STRUCT", "ARRAY", "MAP")
_WHOLE = ("SMALLINT", "INT", "BIGINT", "SERIAL")
_DECIMALS = ("NUMERIC", "RW_INT256", "RW_UINT256")
_OF_STRINGS = r'^\[(?:null, ?)*+"'
"""Matches an array whose first non-null element is a string. Such a string may contain the JSON of an array."""

FLOATING = ("REAL", "DOUBLE")
"""The floating-point types. If such a type cannot represent a number exactly, the column stores the nearest number that
the type can represent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRules:
    """The rules for values that differ between formats and encodings.

    ``timestamptz`` and ``timestamp`` are modes, which :mod:`rw_sql.connectors.formats` defines. If ``needs_zone`` is
    True, the text of a TIMESTAMPTZ must contain a zone. ``bytes_as`` is the text form of bytes: ``base64``, one
    character per byte (``latin1``), UTF-8 text (``utf8``), or PostgreSQL's hexadecimal digits (``hex``). ``booleans``
    are the words for true, and the words for false. If ``counts_dimensions`` is True, an array fits only an array type
    with the same number of dimensions. Otherwise, an element of type CHARACTER VARYING may be an array, and an element
    of an array type may be a string with the JSON of an array. An element of type JSONB may always be an array.
    """

    timestamptz: str = GUESS
    timestamp: str = GUESS
    needs_zone: bool = False
    bytes_as: str = "base64"
    booleans: tuple[tuple[str, ...], tuple[str, ...]] = (("true", "1"), ("false", "0"))
    counts_dimensions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The type of a value according to the record's embedded schema. ``type`` is the name of the type, and ``scale`` is
    the scale of a decimal.

    Each of the two may be NULL.
    """

    type: Column
    scale: Column


def precision_of(data_type: DataType) -> tuple[int, int] | None:
    """The precision and scale of a decimal type; None for other types."""
    if data_type.name not in _DECIMALS:
        return None
    precision, _, scale = exact_spark_type(data_type).removeprefix("DECIMAL(").removesuffix(")").partition(", ")
    return int(precision), int(scale)


def prepared(text: Column, data_type: DataType, told: Told | None = None) -> Column:
    """Converts the text of a JSON member to the form that :func:`value_of` expects. In this form, numbers have their
    original spelling, except inside nested types."""
    if data_type.name in NESTED:
        return text
    if told is not None and (precision_of(data_type) is not None or data_type.name in (*_WHOLE, *FLOATING)):
        return _as_told(text, told)
    return without_marks(text)


def value_of(
    text: Column,
    data_type: DataType,
    rules: ValueRules,
    told: Told | None = None,
    number: Column | None = None,
) -> Column:
    """Returns the value of the type ``data_type`` that ``text`` represents; NULL if the text does not fit the type.
    ``text`` is the text of a JSON value. For a JSON string, it is the content of the string.

    If the type is nested, the numbers inside ``text`` may be marked (:mod:`rw_sql.runtime.decoding.json_text`). Any
    other text must contain no marks. ``told`` is the type of the value, or of the items of an array, in the record's
    embedded schema; None if there is no schema. ``number`` is the result of :func:`moments.count` for ``text``; None if
    the caller has not computed it as a column. ``text`` should be a plain column, because the result references it many
    times.
    """
    name = data_type.name
    if name in NESTED:
        return _nested(text, data_type, rules, told)
    type_name = None if told is None else told.type
    kind = exact_spark_type(data_type)
    count = moments.count(text) if number is None else number
    match name:
        case "BOOLEAN":
            word, (yes, no) = f.lower(text), rules.booleans
            return f.when(word.isin(*yes), f.lit(True)).when(word.isin(*no), f.lit(False))
        case "BYTEA":
            return _bytes(text, rules)
        case "DATE":
            return moments.date(text, count)
        case "TIMESTAMP":
            return moments.timestamp(text, count, rules.timestamp, type_name)
        case "TIMESTAMP WITH TIME ZONE":
            return moments.timestamptz(text, count, rules.timestamptz, type_name, needs_zone=rules.needs_zone)
        case _ if name in _WHOLE:
            return numbers.whole(text, kind)
        case _ if name in FLOATING:
            return numbers.floating(text, kind)
        case _ if kind == "STRING":
            return text
        case _:
            precision = precision_of(data_type)
            if precision is None:
                return text.try_cast(kind)
            return numbers.decimal(text, *precision)


def misfit(column: ColumnDefinition, text: Column, value: Column, shown: str | None = None) -> Column:
    """The reason why ``text`` does not fit a column; NULL if ``text`` fits or is NULL.

    ``shown`` is the name of the column in the message. None means the column's own name.
    """
    kind = canonical_type(column.data_type)
    says = f.concat(
        f.lit(f'column "{shown or column.name}": '), f.substring(text, 1, 60), f.lit(f" is not of type {kind}")
    )
    return f.when(text.isNotNull() & value.isNull(), says)


def _bytes(text: Column, rules: ValueRules) -> Column:
    match rules.bytes_as:
        case "latin1":
            return f.when(text.rlike(r"^[\u0000-\u00ff]*+\z"), f.encode(text, "ISO-8859-1"))
        case "utf8":
            return text.cast("binary")
        case "hex":
            return f.when(text.startswith("\\x"), f.try_to_binary(f.substring(text, 3, 2**31 - 1), f.lit("hex")))
        case _:
            return f.try_to_binary(text, f.lit("base64"))


def _as_told(text: Column, told: Told) -> Column:
    """Returns the text of a number. Debezium's mode ``precise`` writes a decimal as base64, if the record's schema
    names the type Decimal, or as an object with a scale and base64. This function decodes both forms."""
    variable = f.from_json(text, "scale STRING, value STRING")
    own_scale = without_marks(variable.getField("scale")).try_cast("int")
    is_decimal = told.type == "org.apache.kafka.connect.data.Decimal"
    encoded = f.when(text.startswith("{"), variable.getField("value")).when(is_decimal, text)
    scale = f.when(text.startswith("{"), own_scale).otherwise(told.scale)
    decimal = numbers.plain_decimal(encoded, scale)
    return f.when(text.startswith("{") | is_decimal, decimal).otherwise(without_marks(text))


def _nested(text: Column, data_type: DataType, rules: ValueRules, items: Told | None) -> Column:
    """Returns the value of an array, struct or map. ``rules`` also apply to its parts. The result is NULL if one of its
    parts does not fit."""
    return let(_read(text, data_type, rules, items), lambda read: f.when(~read["is_misfit"], read["value"]))


def _read(text: Column, data_type: DataType, rules: ValueRules, told: Told | None = None) -> Column:
    """Returns a struct with two fields. ``value`` is the value that ``text`` represents. ``is_misfit`` is true if the
    text or a part of it does not fit its type. ``told`` is the type of the value, or of the items of an array, in the
    record's embedded schema."""
    if data_type.name not in NESTED:
        return let(
            prepared(text, data_type, told),
            lambda bare: let(
                value_of(bare, data_type, rules, told), lambda value: _result(value, text.isNotNull() & value.isNull())
            ),
        )
    if data_type.name == "ARRAY" and data_type.element is not None:
        return let(part(text, "ARRAY<STRING>"), partial(_read_array, text, data_type, rules, told))
    read = _read_map if data_type.name == "MAP" else _read_struct
    fields = let(part(text, "MAP<STRING, STRING>"), last_of_each)
    return let(fields, partial(read, text, data_type, rules))


def _result(value: Column, is_misfit: Column) -> Column:
    return f.struct(value.alias("value"), f.coalesce(is_misfit, f.lit(False)).alias("is_misfit"))


def _read_array(text: Column, data_type: DataType, rules: ValueRules, told: Told | None, parts: Column) -> Column:
    element = cast("DataType", data_type.element)

    def made(items: Column) -> Column:
        values = f.transform(items, lambda item: item["value"]).cast(exact_spark_type(data_type))
        is_misfit = _is_other(text, parts) | f.exists(items, lambda item: item["is_misfit"])
        if rules.counts_dimensions and element.name != "JSONB":
            has_others = text.rlike(_OF_STRINGS) if element.name == "ARRAY" else text.startswith("[[")
            is_misfit = is_misfit | has_others
        return _result(values, is_misfit)

    return let(f.transform(parts, lambda item: _read(item, element, rules, told)), made)


def _read_map(text: Column, data_type: DataType, rules: ValueRules, fields: Column) -> Column:
    key, value = cast("DataType", data_type.key), cast("DataType", data_type.value)

    def made(entries: Column) -> Column:
        keys = f.transform(entries, lambda entry: entry["key"]["value"])
        values = f.transform(entries, lambda entry: entry["value"]["value"])
        found = map_of(keys, values).cast(exact_spark_type(data_type))
        is_misfit = f.exists(entries, lambda entry: entry["key"]["is_misfit"] | entry["value"]["is_misfit"])
        return _result(found, _is_other(text, fields) | is_misfit)

    read = f.transform(
        f.map_entries(fields),
        lambda entry: f.struct(
            _read(entry["key"], key, rules).alias("key"), _read(entry["value"], value, rules).alias("value")
        ),
    )
    return let(read, made)


def _read_struct(text: Column, data_type: DataType, rules: ValueRules, fields: Column) -> Column:
    names = [field.name for field in data_type.fields]
    read = [
        _read(field_of(fields, field.name, names), field.data_type, rules).alias(f"_{at}")
        for at, field in enumerate(data_type.fields)
    ]

    def made(parts: Column) -> Column:
        values = f.struct(*(parts[f"_{at}"]["value"].alias(name) for at, name in enumerate(names)))
        is_misfit = _is_other(text, fields)
        for at in range(len(names)):
            is_misfit = is_misfit | parts[f"_{at}"]["is_misfit"]
        return _result(f.when(fields.isNotNull(), values).cast(exact_spark_type(data_type)), is_misfit)

    return let(f.struct(*read), made)


def _is_other(text: Column, read: Column) -> Column:
    return text.isNotNull() & read.isNull()
