"""Converts rows of a table to records of a source; values that do not fit their column become errors."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, MapType, StructType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

_HEADERS = "array<struct<key:string,value:binary>>"


def typed_records(frame: DataFrame, split: str, row: str, offset: Column) -> DataFrame:
    """Rows as records with ``_rw_row``, a struct of the columns, and ``_rw_fault``, the error of a value that does not
    fit."""
    wanted = StructType.fromDDL(row) if row else StructType()
    if not isinstance(wanted, StructType):
        raise TypeError("a list of columns is a struct")
    known = {field.name.lower(): field for field in frame.schema.fields}
    fields, faults = [], []
    for field in wanted.fields:
        has = known.get(field.name.lower())
        if has is None:
            raise OSError(f"{split} has no column {field.name}")
        value = f.col(quoted(has.name))
        fields.append(_fitted(value, has.dataType, field.dataType).alias(field.name))
        is_lost = _is_lost(value, has.dataType, field.dataType)
        faults.append(f.when(is_lost, f.lit(f"column {field.name}: the value does not fit it")))
    return frame.select(
        f.lit(split).alias("_rw_split"),
        offset.cast("long").alias("_rw_offset"),
        f.lit(None).cast("binary").alias("key"),
        f.lit(None).cast("binary").alias("value"),
        f.lit(split).alias("partition"),
        f.lit(None).cast("timestamp").alias("timestamp"),
        f.lit(None).cast(_HEADERS).alias("headers"),
        f.struct(*fields).alias("_rw_row"),
        f.coalesce(*faults, f.lit(None).cast("string")).alias("_rw_fault"),
    )


def cast_columns(frame: DataFrame, columns: Mapping[str, str]) -> list[Column]:
    """The columns of a table with these types; a value that does not fit is an error when the rows are read."""
    known = {field.name.lower(): field for field in frame.schema.fields}
    found = []
    for name, kind in columns.items():
        has, wanted = known.get(name.lower()), _type_of(kind)
        value = f.col(quoted(name))
        if has is None or not isinstance(wanted, StructType | ArrayType | MapType):
            found.append(value.cast(wanted).alias(name))
            continue
        told = f.raise_error(f.lit(f"column {name}: the value does not fit it")).cast(wanted)
        is_lost = _is_lost(value, has.dataType, wanted)
        found.append(f.when(is_lost, told).otherwise(_fitted(value, has.dataType, wanted)).alias(name))
    return found


def _type_of(kind: str) -> DataType:
    made = StructType.fromDDL(f"v {kind}")
    if not isinstance(made, StructType):
        raise TypeError("a list of columns is a struct")
    return made.fields[0].dataType


def quoted(name: str) -> str:
    """A name quoted for Spark."""
    return "`" + name.replace("`", "``") + "`"


def _fitted(value: Column, has: DataType, wanted: DataType) -> Column:
    """A value with the wanted type; NULL where a part of it does not fit.

    The fields of structs are matched by name: Spark's CAST takes them by place, and upstream tables may add and move
    them.
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
    if isinstance(has, MapType) and isinstance(wanted, MapType) and has.keyType == wanted.keyType:
        return f.transform_values(value, lambda _, item: _fitted(item, has.valueType, wanted.valueType))
    return value.try_cast(wanted)


def _is_lost(value: Column, has: DataType, wanted: DataType) -> Column:
    """True if a part of a value does not fit the wanted type."""
    if has.simpleString() == wanted.simpleString():
        return f.lit(False)
    if isinstance(has, StructType) and isinstance(wanted, StructType):
        lost = [
            _is_lost(value[there.name], there.dataType, field.dataType)
            for field, there in _pairs(has, wanted)
            if there is not None
        ]
        return reduce(or_, lost, f.lit(False))
    if isinstance(has, ArrayType) and isinstance(wanted, ArrayType):
        return f.exists(value, lambda item: _is_lost(item, has.elementType, wanted.elementType))
    if isinstance(has, MapType) and isinstance(wanted, MapType) and has.keyType == wanted.keyType:
        return f.exists(f.map_values(value), lambda item: _is_lost(item, has.valueType, wanted.valueType))
    return value.isNotNull() & value.try_cast(wanted).isNull()


def _pairs(has: StructType, wanted: StructType) -> list[tuple[StructField, StructField | None]]:
    """The wanted fields, each with the field of the same name, in upper or lower case, if there is one."""
    known = {field.name.lower(): field for field in has.fields} | {field.name: field for field in has.fields}
    return [(field, known.get(field.name) or known.get(field.name.lower())) for field in wanted.fields]
