"""Defines in which order records with the same key are applied, and which row results if a record is applied to an
existing row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.records import IF_NOT_NULL, IGNORE
from rw_sql.model.definitions import CHANGE_COLUMN, UNCHANGED_COLUMN, UNKNOWN_COLUMN
from rw_sql.runtime.positions.ordered_log import LOG_ORDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from rw_sql.model.job_specs import KeyedRows

OP = CHANGE_COLUMN[0]
UNCHANGED, UNKNOWN = UNCHANGED_COLUMN[0], UNKNOWN_COLUMN[0]
DELETE = -1
ORDER = LOG_ORDER
"""The columns by which the records of a table are sorted. The query of a table that an older version of rw_sql created
may lack some of these columns."""


def later(one: Column, other: Column) -> Column:
    from pyspark.sql import functions as f

    left, right = one.getField("at"), other.getField("at")
    return f.when(left < right, -1).when(left > right, 1).otherwise(0)


def then_of(known: Column, given: Column, columns: Sequence[str], rows: KeyedRows) -> Column:
    """The row that results if the record ``given`` is applied to the existing row ``known`` with the same key."""
    from pyspark.sql import functions as f

    if rows.conflict == IGNORE:
        return known
    come = given
    if rows.conflict == IF_NOT_NULL:
        values = (
            (given[name] if name == UNKNOWN else f.coalesce(given.getField(name), known.getField(name))).alias(name)
            for name in columns
        )
        come = f.struct(*values)
    return f.when(is_as_new(known, given, rows.version_columns), come).otherwise(known)


def is_as_new(known: Column, given: Column, version_columns: Sequence[str]) -> Column:
    """True if the new row ``given`` has the same version as the existing row ``known``, or a later version. The version
    columns are compared one after the other. NULL is older than all values."""
    from pyspark.sql import functions as f

    answer = f.lit(True)
    for name in reversed(version_columns):
        old, new = known.getField(name), given.getField(name)
        is_newer = f.coalesce(old.isNull() | (old < new), f.lit(False))
        answer = f.when(old.eqNullSafe(new), answer).otherwise(is_newer)
    return answer


def is_kept(frame: DataFrame) -> Column:
    from pyspark.sql import functions as f

    return f.col(OP) != DELETE if OP in frame.columns else f.lit(True)


def order(frame: DataFrame) -> list[str]:
    return order_of(frame.columns)


def order_of(columns: Sequence[str]) -> list[str]:
    """Returns the columns by which the records of a batch are sorted: those of ORDER and OP that are in ``columns``."""
    # A record that changes a row's key yields two rows with the same position: first the delete of the old key, then
    # the new row.
    return [name for name in (*ORDER, OP) if name in columns]


def visible(frame: DataFrame) -> list[str]:
    return [f"`{name}`" for name in frame.columns if name not in (*ORDER, OP, UNCHANGED)]


def nullable(kind: DataType) -> DataType:
    """The type ``kind`` with all fields and elements nullable, as in the rows of a table.

    The conversion is needed because Spark treats a column with a default value as non-nullable, and does not cast
    nullable values to the type of such a column.
    """
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    match kind:
        case StructType():
            return StructType([StructField(field.name, nullable(field.dataType)) for field in kind.fields])
        case ArrayType():
            return ArrayType(nullable(kind.elementType))
        case MapType():
            return MapType(kind.keyType, nullable(kind.valueType))
        case _:
            return kind
