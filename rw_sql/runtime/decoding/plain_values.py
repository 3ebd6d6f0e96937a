"""Decodes records of FORMAT PLAIN to column values, according to the rules in ``docs/reference/formats.md``.

Most JSON values are read directly as their columns' types, which takes half the time of reading them as text. If Spark
may have missed or changed a value, the record is read again as text, according to the rules of the change formats. If a
value cannot be read exactly, the value's record becomes an error.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import partial, reduce
from operator import and_, or_
from typing import TYPE_CHECKING, cast

from pyspark.sql import functions as f

from rw_sql.runtime.decoding import csv_text
from rw_sql.runtime.decoding.change_formats import moments, numbers
from rw_sql.runtime.decoding.change_formats.rows import ROW
from rw_sql.runtime.decoding.change_formats.values import (
    FLOATING,
    TEMPORAL,
    ValueRules,
    misfit,
    precision_of,
    prepared,
    value_of,
)
from rw_sql.runtime.decoding.json_text import (
    CORRUPT,
    GOES_ON,
    NO_VALUE,
    NOT_UTF8,
    OPTIONS,
    SPACE,
    all_members,
    characters,
    exact,
    field_of,
    has_twins,
    is_changing,
    is_text,
    is_whole,
    joined,
    let,
    map_of,
    members,
    not_text,
    once,
    with_end,
    without_marks,
)
from rw_sql.syntax import exact_spark_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column

    from rw_sql.runtime.support.deferred_columns import StepsT
    from rw_sql.syntax.statements import ColumnDefinition, DataType

READ = "_rw_read"
FAULT = "_rw_fault"
_TEXT, _LINE, _LONG, _COUNTS, _VALUES = "_rw_text", "_rw_line", "_rw_long", "_rw_counts", "_rw_values"

_STRICT_LOCALE = {"locale": "de-CH"}
"""A locale in which ``"1,5"`` is not a decimal. In Spark's default locale, ``"1,5"`` would be read as 15, because the
comma is ignored."""

_WITH_EMPTY = ("CHARACTER VARYING", "BYTEA")
"""The types that have an empty value. CSV represents an empty value as two quotes."""

_AS_TEXT = (*TEMPORAL, "BYTEA")
"""The types whose values are always read as text, because JSON represents these values in several forms.

Spark, for example, would always read a numeric time as seconds.
"""

_CHANGED_NUMBER = r"^-?[0-9]+[.][0-9]+(E-?[0-9]+)?\z|^0\z"
"""Matches the text of a number that Spark may have formatted itself, so that the record may contain another spelling of
the number."""

_ESCAPED_NAME = rf'"[^"\\]*+(?:\\.[^"\\]*+)++"{SPACE}:'


def read_json(
    records: StepsT, columns: Sequence[ColumnDefinition], rules: ValueRules, shown: Mapping[str, str] | None = None
) -> tuple[StepsT, Column]:
    """Returns the records with their rows in ``_rw_row``, and a column with their errors. The error is NULL if the
    record was decoded.

    ``shown`` maps the name of a field to the column name that error messages show, if the two names differ.
    """
    shown = shown or {}
    raw, read = f.col("value"), f.col(READ)
    schema = ", ".join(f"{_quoted(column.name)} {_read_type(column.data_type)}" for column in columns)
    # The text is a separate column, because Spark compiles a column but interprets the argument of from_json for each
    # record.
    records = records.withColumn(_TEXT, once(f.when(is_text(raw), with_end(raw))))
    found = members(f.col(_TEXT), schema, _STRICT_LOCALE)
    kept = _kept_digits(columns)
    if kept is not None:
        # Such a record is read as text: Spark would round the number before its digits can be compared, or read a
        # string that is not a number as a number.
        is_other = numbers.has_long_number(f.col(_TEXT), kept) | numbers.has_other_number(f.col(_TEXT))
        records = records.withColumn(_LONG, once(is_other))
        found = f.when(~f.col(_LONG), found)
    records = records.withColumn(READ, once(found))
    values = {
        column.name: _converted(read[column.name], column.data_type, rules)
        for column in columns
        if _is_converted(column.data_type)
    }
    times = [column for column in columns if column.data_type.name in TEMPORAL]
    if times:
        counts = (moments.count(read[column.name]).alias(column.name) for column in times)
        records = records.withColumn(_COUNTS, once(f.struct(*counts)))
        for column in times:
            count = f.col(_COUNTS)[column.name]
            values[column.name] = value_of(read[column.name], column.data_type, rules, number=count)
    if values:
        made = f.struct(*(value.alias(name) for name, value in values.items()))
        records = records.withColumn(_VALUES, once(made))
        values = {name: f.col(_VALUES)[name] for name in values}
    fast = f.struct(
        *(values.get(column.name, read[column.name]).alias(column.name) for column in columns),
        f.lit(None).cast("string").alias(FAULT),
    )
    row_type = ", ".join(f"{_quoted(column.name)}: {exact_spark_type(column.data_type)}" for column in columns)
    slow = let(f.col(_TEXT), lambda text: _read_texts(raw, text, columns, rules, shown))
    slow = slow.cast(f"STRUCT<{row_type}, {FAULT}: STRING>")
    is_exact = f.coalesce(_is_exact(raw, read, values, columns, rules), f.lit(False))
    return records.withColumn(ROW, once(f.when(is_exact, fast).otherwise(slow))), f.col(ROW)[FAULT]


def read_csv(
    records: StepsT,
    columns: Sequence[ColumnDefinition],
    separator: str,
    widths: Sequence[int] = (),
    shown: Mapping[str, str] | None = None,
) -> tuple[StepsT, Column]:
    """Returns the records with their rows in ``_rw_row``, and a column with their errors. ``shown`` has the same
    meaning as in :func:`read_json`.

    ``widths`` are smaller numbers of fields that a record may also have. A record with fewer fields than columns has no
    fields for the last columns, which are then NULL.
    """
    names = [column.name for column in columns]
    records = records.withColumn(_TEXT, csv_text.one_line(f.col("value").cast("string")))
    records = records.withColumn(_LINE, csv_text.readable(f.col(_TEXT), separator))
    records, row = csv_text.read_fields(records, names, separator, READ, f.col(_LINE)), f.col(READ)
    for width in widths:
        # The text is parsed with these columns only if the record has none of the previous widths.
        into, before = f"{READ}_{width}", row
        text = f.when(before[CORRUPT].isNotNull(), f.col(_LINE))
        records = csv_text.read_fields(records, names[:width], separator, into, text)
        is_older = f.col("value").isNotNull() & f.col(into).isNotNull() & f.col(into)[CORRUPT].isNull()
        values = [f.col(into)[name].alias(name) for name in names[:width]]
        values += [f.lit(None).cast("string").alias(name) for name in names[width:]]
        padded = f.struct(*values, f.lit(None).cast("string").alias(CORRUPT))
        row = f.when(before[CORRUPT].isNotNull() & is_older, padded).otherwise(before)
    if widths:
        records, row = records.withColumn(_VALUES, row), f.col(_VALUES)
    error = (
        f.when(f.col("value").isNull(), f.lit(NO_VALUE))
        # Spark's reader of CSV would replace such bytes.
        .when(~f.is_valid_utf8(characters(f.col("value"))), f.lit(NOT_UTF8))
    )
    error = f.coalesce(
        error,
        csv_text.fault_of(f.col(_TEXT), separator),
        f.when(f.col(_LINE).isNull(), f.lit(csv_text.MORE_FIELDS)),
        f.when(row.isNull(), f.lit("the value is not CSV")),
        f.when(row[CORRUPT].isNotNull(), f.lit("the value is not CSV with the declared columns")),
    )
    rules = ValueRules(bytes_as="utf8")
    texts = {
        # A field of two quotes is an empty string, and NULL for types without an empty value.
        column.name: row[column.name] if column.data_type.name in _WITH_EMPTY else f.nullif(row[column.name], f.lit(""))
        for column in columns
    }
    values = [value_of(texts[column.name], column.data_type, rules).alias(column.name) for column in columns]
    misfits = [
        misfit(column, texts[column.name], f.col(ROW)[column.name], (shown or {}).get(column.name))
        for column in columns
    ]
    # Without the condition, Spark's compiled code for common subexpressions may give a record without a value the
    # columns of the previous record.
    read = f.when(f.col("value").isNotNull(), f.struct(*values))
    return records.withColumn(ROW, read), f.coalesce(error, *misfits)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _parts(data_type: DataType) -> Iterator[DataType]:
    """A type and all types nested inside it."""
    yield data_type
    inner = (data_type.element, data_type.key, data_type.value, *(field.data_type for field in data_type.fields))
    for part in inner:
        if part is not None:
            yield from _parts(part)


def _is_converted(data_type: DataType) -> bool:
    """True if a column's values must be converted after Spark has read them, because :func:`_read_type` returns a type
    other than the column's type."""
    return any(
        part.name in _AS_TEXT
        or precision_of(part) is not None
        or (part.key is not None and exact_spark_type(part.key) != "STRING")
        for part in _parts(data_type)
    )


def _read_type(data_type: DataType) -> str:
    """The Spark type with which the values of a column are read.

    Decimals are read with as many digits after the point as possible. In this way, digits that do not fit the column
    are detected.
    """
    precision = precision_of(data_type)
    if data_type.name in _AS_TEXT:
        return "STRING"
    if precision is not None:
        return f"DECIMAL({numbers.WIDEST}, {numbers.wider_scale(*precision)})"
    if data_type.element is not None:
        return f"ARRAY<{_read_type(data_type.element)}>"
    if data_type.value is not None:
        return f"MAP<STRING, {_read_type(data_type.value)}>"
    if data_type.fields:
        fields = (f"{_quoted(field.name)}: {_read_type(field.data_type)}" for field in data_type.fields)
        return f"STRUCT<{', '.join(fields)}>"
    return exact_spark_type(data_type)


def _kept_digits(columns: Sequence[ColumnDefinition]) -> int | None:
    """The smallest scale with which any decimal in the columns is read; None if no column has decimals."""
    known = (precision_of(part) for column in columns for part in _parts(column.data_type))
    return min((numbers.wider_scale(*each) for each in known if each is not None), default=None)


def _converted(read: Column, data_type: DataType, rules: ValueRules) -> Column:
    """Converts a value that was read as the type that :func:`_read_type` returns.

    If the value does not fit the type, the result is NULL or contains NULL.
    """
    if not _is_converted(data_type):
        return read
    if data_type.name in _AS_TEXT:
        return value_of(read, data_type, rules)
    if data_type.element is not None:
        element = data_type.element
        return f.transform(read, lambda item: _converted(item, element, rules))
    if data_type.key is not None and data_type.value is not None:
        key, value = data_type.key, data_type.value
        keys = f.transform(f.map_keys(read), lambda text: value_of(text, key, rules))
        # Invalid keys and duplicate keys are detected in the value as read.
        return map_of(keys, f.transform(f.map_values(read), lambda item: _converted(item, value, rules)))
    if data_type.fields:
        fields = (_converted(read[field.name], field.data_type, rules).alias(field.name) for field in data_type.fields)
        return f.when(read.isNotNull(), f.struct(*fields))
    return read.try_cast(exact_spark_type(data_type))


def _is_exact(
    raw: Column, read: Column, values: dict[str, Column], columns: Sequence[ColumnDefinition], rules: ValueRules
) -> Column:
    """True if the values that Spark read are exactly the values in the record, and the names match exactly."""
    fitting = [_fits(read[column.name], values.get(column.name), column.data_type, rules) for column in columns]
    found = is_whole(read)
    if any(fits is not None for fits in fitting):
        found = found & joined(and_, [fits for fits in fitting if fits is not None])
    texts = [test for column in columns for test in _may_be_numbers(read[column.name], column.data_type)]
    if texts:
        found = found & ~(joined(or_, texts) & is_changing(characters(raw)))
    nulls = [test for column in columns for test in _has_nulls(read[column.name], column.data_type)]
    names = {column.name for column in columns}
    names |= {field.name for column in columns for part in _parts(column.data_type) for field in part.fields}
    return found & ~(joined(or_, nulls) & _has_other_case(characters(raw), sorted(names)))


def _fits(read: Column, value: Column | None, data_type: DataType, rules: ValueRules) -> Column | None:
    """A condition that is true if a value was read without loss; None for types whose values are always read without
    loss.

    Strings are not tested.
    """
    precision = precision_of(data_type)
    if data_type.name in _AS_TEXT:
        return read.isNull() | (_converted(read, data_type, rules) if value is None else value).isNotNull()
    if precision is not None:
        value = _converted(read, data_type, rules) if value is None else value
        return read.isNull() | f.coalesce(value.cast(_read_type(data_type)) == read, f.lit(False))
    if data_type.name in FLOATING:
        return ~f.coalesce(numbers.is_infinite(read), f.lit(False))
    if data_type.element is not None:
        return _all_fit(read, data_type.element, rules)
    parts: list[Column | None]
    if data_type.key is not None and data_type.value is not None:
        texts, key = f.map_keys(read), data_type.key
        keys = (
            texts if exact_spark_type(key) == "STRING" else f.transform(texts, lambda text: value_of(text, key, rules))
        )
        are_keys = read.isNull() | ~(has_twins(keys) | f.exists(keys, lambda each: each.isNull()))
        parts = [are_keys, _all_fit(f.map_values(read), data_type.value, rules)]
    else:
        parts = [_fits(read[field.name], None, field.data_type, rules) for field in data_type.fields]
    fitting = [part for part in parts if part is not None]
    return joined(and_, fitting) if fitting else None


def _all_fit(items: Column, data_type: DataType, rules: ValueRules) -> Column | None:
    if _fits(f.lit(None), None, data_type, rules) is None:
        return None
    return items.isNull() | f.forall(items, lambda item: cast("Column", _fits(item, None, data_type, rules)))


def _may_be_numbers(read: Column, data_type: DataType) -> list[Column]:
    """Returns conditions on the strings in a value that Spark read. A condition is true if a string may be or contain a
    number that is spelled differently in the record."""
    if data_type.element is not None:
        return _some(read, data_type.element, _may_be_numbers)
    if data_type.value is not None:
        return _some(f.map_values(read), data_type.value, _may_be_numbers)
    if data_type.fields:
        return [test for field in data_type.fields for test in _may_be_numbers(read[field.name], field.data_type)]
    if exact_spark_type(data_type) != "STRING":
        return []
    # Strings that begin with a digit or a minus sign sort between "-" and ":".
    is_other = f.contains(read, f.lit(".")) | f.contains(read, f.lit("E")) | (read == f.lit("0"))
    is_number = (read >= f.lit("-")) & (read < f.lit(":")) & is_other & read.rlike(_CHANGED_NUMBER)
    begins = reduce(or_, (f.startswith(read, f.lit(first)) for first in '{["'))
    return [f.coalesce(is_number | begins, f.lit(False))]


def _some(items: Column, data_type: DataType, tests: Callable[[Column, DataType], list[Column]]) -> list[Column]:
    """Returns a list with one condition. The condition is true if at least one test is true for at least one item. The
    list is empty if the item type has no tests."""
    if not tests(f.lit(None), data_type):
        return []
    return [f.coalesce(f.exists(items, lambda item: reduce(or_, tests(item, data_type))), f.lit(False))]


def _has_nulls(read: Column, data_type: DataType) -> list[Column]:
    """Returns the conditions under which a value or one of its fields is NULL."""
    tests = [read.isNull()]
    if data_type.fields:
        tests += [test for field in data_type.fields for test in _has_nulls(read[field.name], field.data_type)]
    if data_type.element is not None:
        tests += _some(read, data_type.element, _has_nulls_of_fields)
    if data_type.value is not None:
        tests += _some(f.map_values(read), data_type.value, _has_nulls_of_fields)
    return tests


def _has_nulls_of_fields(read: Column, data_type: DataType) -> list[Column]:
    """Does the same as :func:`_has_nulls` if the type contains a STRUCT. For any other type, the list is empty, because
    there are no names to compare."""
    return _has_nulls(read, data_type) if any(part.fields for part in _parts(data_type)) else []


def _has_other_case(text: Column, names: Sequence[str]) -> Column:
    """True if ``text`` may contain a member whose name differs from one of ``names`` only in case.

    If two of the names differ only in case (``userId`` in the row, ``userid`` in a STRUCT), the result is true for
    every spelling of these names. Only the place of a member shows which of the two names is meant.
    """
    # Characters of the names are escaped, first as in JSON and then as in a pattern.
    either = _any_of(names)
    alike = Counter(name.lower() for name in names)
    alone = [name for name in names if alike[name.lower()] == 1]
    is_exact = f'(?!(?:{_any_of(alone)})")' if alone else ""
    flags = "i" if either.isascii() else "iu"
    # The only other character whose lower case is an ASCII letter is the Kelvin sign, which the flag "i" does not fold.
    either = re.sub("[kK]", "[kK\u212a]", either)
    # Most names are in lower case. If the columns' names are in lower case too, a lower-case name can be skipped.
    other = '(?=[a-z0-9_]*+[^a-z0-9_"])' if all(re.fullmatch("[a-z0-9_]+", name) for name in names) else ""
    has_escape = f.contains(text, f.lit("\\")) & text.rlike(_ESCAPED_NAME)
    return has_escape | text.rlike(f'"{other}{is_exact}(?{flags}:{either})"{SPACE}:')


def _any_of(names: Iterable[str]) -> str:
    return "|".join(re.escape(json.dumps(name, ensure_ascii=False)[1:-1]) for name in names)


def _read_texts(
    raw: Column, text: Column, columns: Sequence[ColumnDefinition], rules: ValueRules, shown: Mapping[str, str]
) -> Column:
    """Reads the values of a record as text. Returns a struct with the row's columns and the record's error (NULL if
    there is none)."""
    names = [column.name for column in columns]

    def value(column: ColumnDefinition, text: Column) -> Column:
        bare = prepared(text, column.data_type)
        return let(
            value_of(bare, column.data_type, rules),
            lambda made: f.struct(
                made.alias("value"),
                misfit(column, without_marks(text), made, shown.get(column.name)).alias("fault"),
            ),
        )

    def row(fields: Column) -> Column:
        parts = f.struct(
            *(
                let(field_of(fields, column.name, names), partial(value, column)).alias(f"_{at}")
                for at, column in enumerate(columns)
            )
        )
        return let(parts, lambda made: put_together(fields, made))

    def put_together(fields: Column, parts: Column) -> Column:
        fault = f.coalesce(
            f.when(fields.isNull(), _no_object(raw)), *(parts[f"_{at}"]["fault"] for at in range(len(columns)))
        )
        values = (parts[f"_{at}"]["value"].alias(name) for at, name in enumerate(names))
        return f.struct(*values, fault.alias(FAULT))

    return let(all_members(exact(text)), row)


def _no_object(raw: Column) -> Column:
    """The reason why a value is not a single JSON object."""
    read = f.from_json(characters(raw), f"`{CORRUPT}` STRING", OPTIONS)
    return (
        f.when(raw.isNull(), f.lit(NO_VALUE))
        .when(~is_text(raw), not_text(raw))
        .when(let(read, lambda found: found.isNotNull() & found[CORRUPT].isNull()), f.lit(GOES_ON))
        .when(f.trim(characters(raw)) == "", f.lit("the value is not JSON"))
        .otherwise(f.lit("the value is not JSON with the declared columns"))
    )
