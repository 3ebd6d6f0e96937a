"""The change formats UPSERT and DEBEZIUM with Avro, for rows that have been read already.

The columns of values and keys are those that ``AvroReader`` adds.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from rw_sql.connectors.formats import IGNORE_KEY, PLACEHOLDER, encode_value, placeholder_text
from rw_sql.model.definitions import encode_options, primary_key, unchanged_path
from rw_sql.runtime.decoding.change_formats import unchanged
from rw_sql.runtime.decoding.change_formats.events import DELETE, NO_KEY, UPSERT
from rw_sql.runtime.decoding.change_formats.rows import OP, ROW, UNCHANGED
from rw_sql.runtime.decoding.json_text import NO_VALUE, once
from rw_sql.syntax import spark_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from rw_sql.runtime.decoding.registry.avro_rows import AvroReader
    from rw_sql.runtime.support.deferred_columns import StepsT
    from rw_sql.syntax.statements import ColumnDefinition, CreateSource

FAULT = "_rw_fault"
_CHANGES, _CHANGE = "_rw_changes", "_rw_change"


def row_type(columns: Sequence[ColumnDefinition]) -> str:
    """The Spark type of a row with these columns."""
    listed = ", ".join(f"`{column.name.replace('`', '``')}`: {spark_type(column.data_type)}" for column in columns)
    return f"STRUCT<{listed}>"


def typed(row: Column, columns: Sequence[ColumnDefinition], known: Sequence[str]) -> Column:
    """A row with the declared columns and types. Fields that are not in ``known`` are NULL."""
    values = [
        (row[column.name] if column.name in known else f.lit(None))
        .cast(spark_type(column.data_type))
        .alias(column.name)
        for column in columns
    ]
    return f.when(row.isNotNull(), f.struct(*values))


def upsert_rows(records: StepsT, statement: CreateSource, key: AvroReader | None) -> StepsT:
    """UPSERT: adds ``_rw_op`` and ``_rw_fault``.

    ``_rw_row`` contains the decoded value before the call, and the row of the change after it.

    ``key`` reads the records' keys; None if INCLUDE key is the primary key.
    """
    kind = row_type(statement.columns)
    nothing = f.lit(None).cast(kind)
    fault = f.when(f.col("key").isNull(), f.lit(NO_KEY))
    row = f.when(_has_no_value(), nothing).otherwise(f.col(ROW))
    if key is not None:
        names = primary_key(statement)
        fault = fault.when(f.col(key.fault).isNotNull(), f.concat(f.lit("the key: "), f.col(key.fault)))
        keyed = _with_keys(f.when(~_has_no_value(), f.col(ROW)), f.col(key.row), statement.columns, names)
        row = f.when(~_has_no_value() & f.col(ROW).isNull(), nothing).otherwise(keyed)
    fault = fault.when(~_has_no_value(), f.col(FAULT))
    records = records.withColumn(FAULT, once(fault)).withColumn(ROW, once(row))
    op = f.when(_has_no_value(), f.lit(DELETE)).otherwise(f.lit(UPSERT))
    if key is not None:
        missing = _missing_key(f.col(ROW), primary_key(statement))
        records = records.withColumn(FAULT, f.coalesce(FAULT, missing))
    return records.withColumn(OP, f.when(f.col(FAULT).isNull(), op).cast("long"))


def debezium_rows(records: StepsT, statement: CreateSource, value: AvroReader, key: AvroReader) -> StepsT:
    """DEBEZIUM: returns a row per change, with ``_rw_row``, ``_rw_op``, ``_rw_unchanged`` and ``_rw_fault``.

    Before the call, ``_rw_row`` contains the envelope: ``op`` and the rows ``before`` and ``after``, which have the
    declared columns.
    """
    options = encode_options(statement)
    ignore_key = encode_value("DEBEZIUM", "AVRO", options, IGNORE_KEY) == "true"
    placeholder = placeholder_text(encode_value("DEBEZIUM", "AVRO", options, PLACEHOLDER))
    columns, names = statement.columns, primary_key(statement)
    kind = row_type(columns)
    change = f"STRUCT<op: INT, error: STRING, row: {kind}>"

    def made(op: int, row: Column) -> Column:
        return f.struct(
            f.lit(op).alias("op"), f.lit(None).cast("string").alias("error"), row.cast(kind).alias("row")
        ).cast(change)

    def failed(message: Column | str) -> Column:
        said = f.lit(message) if isinstance(message, str) else message
        nothing = f.lit(None)
        return f.array(
            f.struct(nothing.cast("int").alias("op"), said.alias("error"), nothing.cast(kind).alias("row")).cast(change)
        )

    event, from_key = f.col(ROW), f.col(key.row)
    op, before, after = event["op"], event["before"], event["after"]
    of_key = _with_keys(f.lit(None).cast(kind), from_key, columns, names)
    after = _completed(after, before, columns, placeholder)
    is_row = op.isin("c", "r", "u")
    is_moved = reduce(or_, (f.coalesce(before[name] != after[name], f.lit(False)) for name in names), f.lit(False))
    old_row = f.struct(
        *(
            (before[c.name] if c.name in names else f.lit(None)).cast(spark_type(c.data_type)).alias(c.name)
            for c in columns
        )
    )
    if ignore_key:
        tombstone = f.array().cast(f"ARRAY<{change}>")
    else:
        tombstone = (
            f.when(f.col("key").isNull(), failed(NO_VALUE))
            .when(f.col(key.fault).isNotNull(), failed(f.concat(f.lit("the key: "), f.col(key.fault))))
            .otherwise(f.array(made(DELETE, of_key)))
        )
    told = f.when(op == "u", f.lit("after is missing for updating event")).otherwise(
        f.lit("after is missing for creating event")
    )
    changes = (
        f.when(_has_no_value(), tombstone)
        .when(f.col(FAULT).isNotNull(), failed(f.col(FAULT)))
        .when(op.isNull(), failed("op field not found in debezium avro"))
        .when(is_row & after.isNull(), failed(told))
        .when((op == "u") & before.isNotNull() & is_moved, f.array(made(DELETE, old_row), made(UPSERT, after)))
        .when(is_row, f.array(made(UPSERT, after)))
        .when((op == "d") & before.isNull(), failed("before is missing for delete event"))
        .when(op == "d", f.array(made(DELETE, old_row)))
        .otherwise(failed(f.concat(f.lit("unknown debezium op: "), op)))
    )
    records = records.withColumn(_CHANGES, once(changes)).withColumn(_CHANGE, f.explode(_CHANGES))
    found = f.col(_CHANGE)
    marks, values = [], []
    for column in columns:
        whole = found["row"][column.name]
        is_unchanged = _is_placeholder(whole, column, placeholder)
        if is_unchanged is None or column.name in names:
            values.append(whole.alias(column.name))
            continue
        marks.append((unchanged_path((column.name,)), is_unchanged))
        values.append(f.when(~is_unchanged, whole).alias(column.name))
    paths = f.when(found["op"] == UPSERT, unchanged.unchanged(marks, f.size(_CHANGES) > 1))
    records = records.withColumn(UNCHANGED, paths.cast("array<string>"))
    records = records.withColumn(ROW, f.when(found["row"].isNotNull(), f.struct(*values)))
    missing = f.when(found["error"].isNull(), _missing_key(f.col(ROW), names))
    records = records.withColumn(FAULT, f.coalesce(found["error"], missing))
    return records.withColumn(OP, f.when(f.col(FAULT).isNull(), found["op"]).cast("long"))


def _has_no_value() -> Column:
    return f.col("value").isNull() | (f.octet_length("value") == 0)


def _with_keys(row: Column, key: Column, columns: Sequence[ColumnDefinition], names: Sequence[str]) -> Column:
    """Replaces a row's primary key columns by those of the record's key."""
    return f.struct(
        *(
            (key[column.name] if column.name in names else row[column.name])
            .cast(spark_type(column.data_type))
            .alias(column.name)
            for column in columns
        )
    )


def _missing_key(row: Column, names: Sequence[str]) -> Column:
    return f.coalesce(
        *(f.when(row[name].isNull(), f.lit(f'the primary key column "{name}" is missing')) for name in names),
        f.lit(None).cast("string"),
    )


def _is_placeholder(value: Column, column: ColumnDefinition, placeholder: str) -> Column | None:
    """The condition that a value is Debezium's placeholder for an unchanged value; None for a column type without a
    placeholder."""
    kind = column.data_type
    if kind.name in ("CHARACTER VARYING", "JSONB"):
        return f.coalesce(value == f.lit(placeholder), f.lit(False))
    if kind.name == "BYTEA":
        return f.coalesce(value == f.lit(placeholder.encode()), f.lit(False))
    if kind.name == "ARRAY" and kind.element is not None and kind.element.name == "CHARACTER VARYING":
        return f.coalesce((f.size(value) == 1) & (f.get(value, f.lit(0)) == f.lit(placeholder)), f.lit(False))
    return None


def _completed(after: Column, before: Column, columns: Sequence[ColumnDefinition], placeholder: str) -> Column:
    """The new row; placeholders are replaced by the old row's values, where available."""
    values = []
    for column in columns:
        value = after[column.name]
        is_unchanged = _is_placeholder(value, column, placeholder)
        if is_unchanged is not None:
            value = f.when(is_unchanged & before[column.name].isNotNull(), before[column.name]).otherwise(value)
        values.append(value.alias(column.name))
    return f.when(after.isNotNull(), f.struct(*values))
