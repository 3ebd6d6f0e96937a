"""Converts rows of a table to records of a source; values that do not fit their column become errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HEADERS = "array<struct<key:string,value:binary>>"


def typed_records(frame: DataFrame, split: str, row: str, offset: Column) -> DataFrame:
    """Rows as records with ``_rw_row``, a struct of the columns, and ``_rw_fault``, the error of a value that does not
    fit."""
    wanted = StructType.fromDDL(row) if row else StructType()
    if not isinstance(wanted, StructType):
        raise TypeError("a list of columns is a struct")
    known = {field.name.lower(): field.name for field in frame.schema.fields}
    fields, faults = [], []
    for field in wanted.fields:
        name = known.get(field.name.lower())
        if name is None:
            raise OSError(f"{split} has no column {field.name}")
        cast = f.col(f"`{name}`").try_cast(field.dataType)
        fields.append(cast.alias(field.name))
        is_lost = f.col(f"`{name}`").isNotNull() & cast.isNull()
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
