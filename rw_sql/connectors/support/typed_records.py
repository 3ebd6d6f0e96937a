"""Converts the rows of a table to the types of a source's columns. A value that cannot be converted exactly becomes an
error.

Spark's casts are used only where they cannot change a value, such as INT to BIGINT. For all other conversions, such as
DOUBLE to NUMERIC, :mod:`rw_sql.connectors.support.fitting` converts the values through Arrow, in the same way as the
values of Parquet files.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
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
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from rw_sql.connectors.support import fitting as value_fitting
from rw_sql.connectors.support.arrow_schemas import arrow_type
from rw_sql.connectors.support.years import in_years

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_HEADERS = "array<struct<key:string,value:binary>>"
_OFFSET, _ROW, _FAULT = "_rw_offset", "_rw_row", "_rw_fault"

_DIGITS: Mapping[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
"""The integer types, from the narrowest to the widest, each with its maximum number of digits."""

_TIMES = (TimestampType, TimestampNTZType)
_NESTED = (StructType, ArrayType, MapType)
_EXACT_AS_DOUBLE = (FloatType, ByteType, ShortType, IntegerType)
_OF_ARROW: tuple[type[DataType], ...] = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    StringType,
    *_DIGITS,
    *_TIMES,
)
"""The types of columns that are converted through Arrow."""


def typed_records(frame: DataFrame, split: str, row: str, offset: Column) -> DataFrame:
    """Converts rows to records. Besides the columns of all records, the result has two more: ``_rw_row`` is a struct of
    the source's columns, and ``_rw_fault`` is the error of a value that does not fit, or NULL. Raises OSError if
    ``frame`` lacks a column of the source."""
    wanted = StructType.fromDDL(row) if row else StructType()
    if not isinstance(wanted, StructType):
        raise TypeError("a list of columns is a struct")
    known = {field.name.lower() for field in frame.schema.fields}
    for field in wanted.fields:
        if field.name.lower() not in known:
            raise OSError(f"{split} has no column {field.name}")
    made = _rows(frame, wanted.fields, [offset.cast("long").alias(_OFFSET)])
    return made.select(
        f.lit(split).alias("_rw_split"),
        f.col(_OFFSET),
        f.lit(None).cast("binary").alias("key"),
        f.lit(None).cast("binary").alias("value"),
        f.lit(split).alias("partition"),
        f.lit(None).cast("timestamp").alias("timestamp"),
        f.lit(None).cast(_HEADERS).alias("headers"),
        f.col(_ROW),
        f.col(_FAULT),
    )


def cast_columns(frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Returns a DataFrame with these columns and types. If a value does not fit its type, each action that reads the
    value raises an error."""
    wanted = [StructField(name, _type_of(kind)) for name, kind in columns.items()]
    made = _rows(frame, wanted, [])
    found = []
    for field in wanted:
        value = f.col(_ROW)[field.name]
        told = f.raise_error(f.col(_FAULT)).cast(field.dataType)
        found.append(f.when(f.col(_FAULT).isNotNull(), told).otherwise(value).alias(field.name))
    return made.select(*found)


def _type_of(kind: str) -> DataType:
    made = StructType.fromDDL(f"v {kind}")
    if not isinstance(made, StructType):
        raise TypeError("a list of columns is a struct")
    return made.fields[0].dataType


def quoted(name: str) -> str:
    """The name in the quotes that Spark SQL uses."""
    return "`" + name.replace("`", "``") + "`"


def _rows(frame: DataFrame, wanted: Sequence[StructField], more: Sequence[Column]) -> DataFrame:
    """Returns a DataFrame with the columns ``more``, the struct ``_rw_row`` of the wanted columns, and the column
    ``_rw_fault``.

    Raises AnalysisException if the given DataFrame lacks a wanted column.
    """
    values: list[Column] = []
    faults: list[Column] = []
    is_arrow_needed = False
    for at, (field, there) in enumerate(_pairs(frame.schema, StructType(list(wanted)))):
        value = f.col(quoted(field.name if there is None else there.name))
        has = field.dataType if there is None else there.dataType
        if _is_lossless(has, field.dataType):
            is_fit = _is_fit(value, has, field.dataType)
            if is_fit is not None:
                told = _fault_of(field.name, is_text=isinstance(has, StringType))
                faults.append(f.when(value.isNotNull() & ~is_fit, f.lit(told)))
                value = f.when(is_fit, value)
            value = _fitted(value, has, field.dataType)
        elif _has_arrow(has):
            is_arrow_needed = True
        elif isinstance(has, _NESTED) and isinstance(field.dataType, StringType):
            faults.append(f.when(value.isNotNull(), f.lit(_fault_of(field.name))))
            value = f.lit(None).cast(field.dataType)
        else:
            made = value.try_cast(field.dataType)
            faults.append(f.when(value.isNotNull() & made.isNull(), f.lit(_fault_of(field.name))))
            value = made
        values.append(value.alias(f"_{at}"))
    fault = f.coalesce(*faults, f.lit(None).cast("string")).alias(_FAULT)
    given = frame.select(*more, *values, fault)
    names = given.columns[: len(more)]
    row = StructType([StructField(field.name, field.dataType) for field in wanted])
    if is_arrow_needed:
        kept = [given.schema[name] for name in names]
        return _through_arrow(
            given, row, StructType([*kept, StructField(_ROW, row), StructField(_FAULT, StringType())])
        )
    parts = (f.col(f"_{at}").alias(field.name) for at, field in enumerate(wanted))
    return given.select(*names, f.struct(*parts).alias(_ROW), _FAULT)


def _fault_of(column: str, *, is_text: bool = False) -> str:
    """Returns the error for a value that does not fit its column. ``is_text`` is true if both types are strings."""
    return f"column {column}: " + (value_fitting.NO_UTF_8 if is_text else "the value does not fit the column's type")


def _is_lossless(has: DataType, wanted: DataType) -> bool:
    """True if Spark's cast changes no value, in a session whose time zone is UTC. A cast of a struct, array or map
    to text loses information, because Spark's text, for example ``{1, x}``, does not describe the value completely."""
    if has.simpleString() == wanted.simpleString() or isinstance(has, NullType):
        return True
    match has, wanted:
        case StructType(), StructType():
            pairs = _pairs(has, wanted)
            return all(there is None or _is_lossless(there.dataType, field.dataType) for field, there in pairs)
        case ArrayType(), ArrayType():
            return _is_lossless(has.elementType, wanted.elementType)
        case MapType(), MapType():
            return has.keyType == wanted.keyType and _is_lossless(has.valueType, wanted.valueType)
        case _, StringType():
            return not isinstance(has, (BinaryType, *_NESTED))
        case DecimalType(), DecimalType():
            return wanted.precision - wanted.scale >= has.precision - has.scale and wanted.scale >= has.scale
        case _, DecimalType():
            return wanted.precision - wanted.scale >= _DIGITS.get(type(has), 99)
        case _, DoubleType():
            return isinstance(has, _EXACT_AS_DOUBLE)
        case _, TimestampType() | TimestampNTZType():
            return isinstance(has, (DateType, *_TIMES))
    digits = _DIGITS.get(type(wanted), 0)
    return digits > 0 and type(has) in _DIGITS and _DIGITS[type(has)] <= digits


def _is_fit(value: Column, has: DataType, wanted: DataType) -> Column | None:
    """Returns the condition that all dates and times in a value are in the years 1 to 9999, and that all of its strings
    are valid UTF-8. Fields that the wanted type lacks are not checked.

    Returns None if the type contains no dates, times or strings to check. The condition is true for NULL.
    """
    match has, wanted:
        case StructType(), StructType():
            found = [
                _is_fit(value[there.name], there.dataType, field.dataType)
                for field, there in _pairs(has, wanted)
                if there is not None
            ]
            parts = [part for part in found if part is not None]
            return reduce(lambda one, other: one & other, parts) if parts else None
        case ArrayType(), ArrayType():
            return _all_fit(value, has.elementType, wanted.elementType)
        case MapType(), MapType():
            keys = _all_fit(f.map_keys(value), has.keyType, wanted.keyType)
            values = _all_fit(f.map_values(value), has.valueType, wanted.valueType)
            return values if keys is None else keys if values is None else keys & values
        case _, DateType() | TimestampType() | TimestampNTZType():
            is_fit = in_years(value, has)
            return None if is_fit is None else value.isNull() | is_fit
        case StringType(), StringType():
            # delta-rs cannot read a file with a string that is not UTF-8, so no table may contain such a string.
            return value.isNull() | f.is_valid_utf8(value)
    return None


def _all_fit(values: Column, has: DataType, wanted: DataType) -> Column | None:
    if _is_fit(f.lit(None).cast(has), has, wanted) is None:
        return None
    return values.isNull() | f.forall(values, lambda item: cast("Column", _is_fit(item, has, wanted)))


def _has_arrow(kind: DataType) -> bool:
    match kind:
        case StructType():
            return all(_has_arrow(field.dataType) for field in kind.fields)
        case ArrayType():
            return _has_arrow(kind.elementType)
        case MapType():
            return _has_arrow(kind.keyType) and _has_arrow(kind.valueType)
    return isinstance(kind, AtomicType) and isinstance(kind, _OF_ARROW)


def _fitted(value: Column, has: DataType, wanted: DataType) -> Column:
    """Casts a value to the wanted type. The caller ensures that the cast is lossless (:func:`_is_lossless`).

    Matches the fields of structs by name. Spark's CAST would match them by position, which changes if a field is added
    or moved in the upstream table.
    """
    if has.simpleString() == wanted.simpleString():
        return value
    if isinstance(has, StructType) and isinstance(wanted, StructType):
        parts = [
            (f.lit(None) if there is None else _fitted(value[there.name], there.dataType, field.dataType))
            .cast(field.dataType)
            .alias(field.name)
            for field, there in _pairs(has, wanted)
        ]
        return f.when(value.isNotNull(), f.struct(*parts))
    if isinstance(has, ArrayType) and isinstance(wanted, ArrayType):
        return f.transform(value, lambda item: _fitted(item, has.elementType, wanted.elementType))
    if isinstance(has, MapType) and isinstance(wanted, MapType):
        return f.transform_values(value, lambda _, item: _fitted(item, has.valueType, wanted.valueType))
    return value.cast(wanted)


def _pairs(has: StructType, wanted: StructType) -> list[tuple[StructField, StructField | None]]:
    """Pairs each wanted field with the given field of the same name. An exactly equal name takes precedence over one
    that differs in case. None if there is no such field."""
    known = {field.name.lower(): field for field in has.fields} | {field.name: field for field in has.fields}
    return [(field, known.get(field.name) or known.get(field.name.lower())) for field in wanted.fields]


def _through_arrow(given: DataFrame, row: StructType, schema: StructType) -> DataFrame:
    """Converts the columns ``_0``, ``_1`` … to the types of the fields of ``row``. Spark's Python processes do this
    with Arrow."""
    import sys

    from pyspark import cloudpickle

    wanted: Any = arrow_type(row)

    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _converted(batch, wanted)

    by_value: Any = cloudpickle.register_pickle_by_value
    for module in (value_fitting, sys.modules[__name__]):
        by_value(module)
    return given.mapInArrow(convert, schema)


def _converted(batch: pa.RecordBatch, wanted: pa.StructType) -> pa.RecordBatch:
    count, names = len(wanted), batch.schema.names
    first = batch.num_columns - count - 1
    faults = batch.column(batch.num_columns - 1)
    columns = []
    for at, field in enumerate(wanted):
        values, is_misfit = value_fitting.fitted(_in_utc(batch.column(first + at)), field.type)
        columns.append(values)
        if is_misfit.any():
            told = pc.if_else(pa.array(is_misfit), _fault_of(field.name), pa.scalar(None, pa.string()))
            faults = pc.coalesce(faults, told)
    rows = pa.StructArray.from_arrays(columns, fields=list(wanted))
    arrays = [*batch.columns[:first], rows, faults]
    return pa.RecordBatch.from_arrays(arrays, names=[*names[:first], _ROW, _FAULT])


def _in_utc(values: pa.Array) -> pa.Array:
    """Converts times to UTC, so that their dates do not depend on the session's time zone."""
    kind = values.type
    is_zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    return values.cast(pa.timestamp(kind.unit, tz="UTC")) if is_zoned else values
