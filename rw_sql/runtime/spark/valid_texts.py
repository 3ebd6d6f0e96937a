"""Refuses strings that are not UTF-8 in the rows of the query of a view or table.

The library delta-rs cannot read a file with a string that is not UTF-8, so no later batch could be merged into the
table. The tables of rw_sql contain only valid strings, and Spark's functions make only valid strings from valid
strings. However, Spark does not check bytes that it casts to a string, as in ``CAST(key AS STRING)`` or
``concat_ws(',', key)``.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, MapType, StringType, StructType

from rw_sql.runtime.spark.jvm import analyzed_plan, java_class
from rw_sql.syntax.lexing.identifiers import quoted, quoted_for_spark, sql_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_PATTERNS = "org.apache.spark.sql.catalyst.trees.TreePattern"


def valid_texts(frame: DataFrame, name: str, *, is_table: bool = False, is_any: bool = False) -> DataFrame:
    """Returns the rows of the query of the view or table ``name``. If Spark computes a string that is not UTF-8, Spark
    raises an error that names the view or table, the column and a remedy.

    ``is_table`` is true if ``name`` is a table. ``is_any`` is true if the tables that the query reads may contain
    strings that are not UTF-8. If ``is_any`` is false and the query casts no bytes to strings, the function returns
    ``frame`` unchanged.
    """
    if not is_any and not _casts_bytes(frame):
        return frame
    columns: list[Column] = []
    for field in frame.schema.fields:
        value = f.col(quoted_for_spark(field.name))
        is_valid = _is_utf_8(value, field.dataType)
        if is_valid is not None:
            told = f.raise_error(f.lit(_refusal(name, field.name, is_table))).cast(field.dataType)
            value = f.when(is_valid, value).otherwise(told).alias(field.name)
        columns.append(value)
    return frame.select(*columns)


def _refusal(name: str, column: str, is_table: bool) -> str:
    kind, object_, field = "table" if is_table else "materialized view", sql_name(name), quoted(column)
    if is_table:
        alter = f"ALTER TABLE {object_}"
        remedy = f"{alter} DROP COLUMN {field}, then {alter} ADD COLUMN {field} VARCHAR AS make_valid_utf8(…)"
    else:
        remedy = f"ALTER MATERIALIZED VIEW {object_} AS SELECT … make_valid_utf8(…) AS {field} …"
    return f'column "{column}" of {kind} "{name}": a string is not UTF-8, and cannot be stored: {remedy}'


def _casts_bytes(frame: DataFrame) -> bool:
    """True if a query contains an explicit or implicit cast of bytes to strings. Casts in the plans of the registered
    views that the query reads do not count."""
    plan = analyzed_plan(frame)
    pattern = java_class(frame.sparkSession, _PATTERNS).CAST()
    nested = plan.subqueriesAll()
    return any(_has_cast(part, pattern) for part in (plan, *(nested.apply(at) for at in range(nested.size()))))


def _has_cast(plan: Any, pattern: Any) -> bool:
    if not plan.containsPattern(pattern) or str(plan.nodeName()) == "View":
        return False
    expressions, children = plan.expressions(), plan.children()
    return any(_is_cast(expressions.apply(at), pattern) for at in range(expressions.size())) or any(
        _has_cast(children.apply(at), pattern) for at in range(children.size())
    )


def _is_cast(expression: Any, pattern: Any) -> bool:
    """True if an expression, or a part of the expression, is a cast of bytes to a string."""
    if not expression.containsPattern(pattern):
        return False
    if expression.getClass().getSimpleName() == "Cast":
        given, made = expression.child().dataType().catalogString(), expression.dataType().catalogString()
        if "binary" in given and "string" in made:
            return True
    children = expression.children()
    return any(_is_cast(children.apply(at), pattern) for at in range(children.size()))


def _is_utf_8(value: Column, kind: DataType) -> Column | None:
    """Returns the condition that all strings in a value are UTF-8. The condition is true for NULL. Returns None if
    values of the type contain no strings."""
    match kind:
        case StringType():
            return value.isNull() | f.is_valid_utf8(value)
        case StructType():
            found = (_is_utf_8(value[field.name], field.dataType) for field in kind.fields)
            parts = [part for part in found if part is not None]
            return reduce(and_, parts) if parts else None
        case ArrayType():
            return _are_utf_8(value, kind.elementType)
        case MapType():
            keys = _are_utf_8(f.map_keys(value), kind.keyType)
            values = _are_utf_8(f.map_values(value), kind.valueType)
            return values if keys is None else keys if values is None else keys & values
    return None


def _are_utf_8(values: Column, kind: DataType) -> Column | None:
    if _is_utf_8(f.lit(None).cast(kind), kind) is None:
        return None
    return values.isNull() | f.forall(values, lambda item: cast("Column", _is_utf_8(item, kind)))
