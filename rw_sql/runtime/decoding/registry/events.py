"""Implements the change formats UPSERT (for Avro and Protobuf) and DEBEZIUM (for Avro). The records have already been
decoded.

The decoded keys are in the columns that ``AvroReader`` adds.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from rw_sql.connectors.formats import IGNORE_KEY, PLACEHOLDER, encode_value, placeholder_text
from rw_sql.model.definitions import encode_options, primary_key
from rw_sql.runtime.decoding.change_formats import unchanged
from rw_sql.runtime.decoding.change_formats.events import DELETE, NO_KEY, UPSERT
from rw_sql.runtime.decoding.change_formats.rows import OP, ROW, UNCHANGED
from rw_sql.runtime.decoding.change_formats.unchanged import Placeholder
from rw_sql.runtime.decoding.json_text import NO_VALUE, once
from rw_sql.syntax import exact_spark_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from rw_sql.runtime.decoding.registry.avro_rows import AvroReader
    from rw_sql.runtime.decoding.registry.connect_values import RowConversion
    from rw_sql.runtime.support.deferred_columns import StepsT
    from rw_sql.syntax.statements import ColumnDefinition, CreateSource

FAULT = "_rw_fault"
_CHANGES, _CHANGE = "_rw_changes", "_rw_change"


def row_type(columns: Sequence[ColumnDefinition]) -> str:
    """The Spark type of a row with the given columns."""
    listed = ", ".join(
        f"`{column.name.replace('`', '``')}`: {exact_spark_type(column.data_type)}" for column in columns
    )
    return f"STRUCT<{listed}>"


def typed(row: Column, columns: Sequence[ColumnDefinition], conversion: RowConversion) -> Column:
    """Returns a row with the declared columns and types. Missing fields, and values that do not fit, are NULL."""
    values = [conversion.value(conversion.plain(row, column), column).alias(column.name) for column in columns]
    return f.when(row.isNotNull(), f.struct(*values))


def plain_row(row: Column, columns: Sequence[ColumnDefinition], conversion: RowConversion) -> Column:
    """Returns a row with the declared columns. The values are those that Spark has read, without a conversion."""
    values = [conversion.plain(row, column).alias(column.name) for column in columns]
    return f.when(row.isNotNull(), f.struct(*values))


def upsert_rows(
    records: StepsT, statement: CreateSource, key: AvroReader | None, *, is_empty_value: bool = False
) -> StepsT:
    """Extracts the changes of FORMAT UPSERT: adds ``_rw_op`` and ``_rw_fault``. If ``is_empty_value`` is true, a record
    whose value has no bytes contains a row and is not a tombstone.

    Before the call, ``_rw_row`` contains the decoded value. After the call, ``_rw_row`` contains the row of the change.

    ``key`` is the reader that has decoded the records' keys; None if INCLUDE key is the primary key.
    """
    kind = row_type(statement.columns)
    nothing = f.lit(None).cast(kind)
    has_no_value = f.col("value").isNull() if is_empty_value else _has_no_value()
    fault = f.when(f.col("key").isNull(), f.lit(NO_KEY))
    row = f.when(has_no_value, nothing).otherwise(f.col(ROW))
    if key is not None:
        names = primary_key(statement)
        fault = fault.when(f.col(key.fault).isNotNull(), f.concat(f.lit("the key: "), f.col(key.fault)))
        keyed = _with_keys(f.when(~has_no_value, f.col(ROW)), f.col(key.row), statement.columns, names)
        row = f.when(~has_no_value & f.col(ROW).isNull(), nothing).otherwise(keyed)
    fault = fault.when(~has_no_value, f.col(FAULT))
    records = records.withColumn(FAULT, once(fault)).withColumn(ROW, once(row))
    op = f.when(has_no_value, f.lit(DELETE)).otherwise(f.lit(UPSERT))
    if key is not None:
        missing = _missing_key(f.col(ROW), primary_key(statement))
        records = records.withColumn(FAULT, f.coalesce(FAULT, missing))
    return records.withColumn(OP, f.when(f.col(FAULT).isNull(), op).cast("long"))


def debezium_rows(records: StepsT, statement: CreateSource, conversion: RowConversion, key: AvroReader) -> StepsT:
    """Extracts the changes of FORMAT DEBEZIUM: returns one row per change, with ``_rw_row``, ``_rw_op``,
    ``_rw_unchanged`` and ``_rw_fault``.

    Before the call, ``_rw_row`` contains the envelope with its fields ``op``, ``before`` and ``after``. The rows in
    ``before`` and ``after`` are results of :func:`plain_row`, so their values are not converted yet. ``after`` has the
    declared columns, and ``before`` has the columns of the primary key.
    """
    options = encode_options(statement)
    ignore_key = encode_value("DEBEZIUM", "AVRO", options, IGNORE_KEY) == "true"
    placeholder = Placeholder(placeholder_text(encode_value("DEBEZIUM", "AVRO", options, PLACEHOLDER)))
    columns, names = statement.columns, primary_key(statement)
    key_columns = [column for column in columns if column.name in names]
    event, from_key = f.col(ROW), f.col(key.row)
    op, before, after = event["op"], event["before"], event["after"]
    no_row, no_key = f.when(f.lit(False), after), f.lit(None).cast(row_type(key_columns))

    def change(op: Column, error: Column, row: Column, keys: Column) -> Column:
        parts = {"op": op.cast("int"), "error": error.cast("string"), "row": row, "keys": keys}
        return f.struct(*(part.alias(name) for name, part in parts.items()))

    def upserted(row: Column) -> Column:
        return change(f.lit(UPSERT), f.lit(None), row, no_key)

    def deleted(keys: Column) -> Column:
        return change(f.lit(DELETE), f.lit(None), no_row, keys)

    def failed(message: Column | str) -> Column:
        said = f.lit(message) if isinstance(message, str) else message
        return f.array(change(f.lit(None), said, no_row, no_key))

    is_row = op.isin("c", "r", "u")
    old_keys, new_keys = (typed(row, key_columns, conversion) for row in (before, after))
    is_moved = reduce(or_, (f.coalesce(old_keys[name] != new_keys[name], f.lit(False)) for name in names), f.lit(False))
    misfit = conversion.misfits(before, key_columns)
    gone = f.when(misfit.isNotNull(), failed(misfit)).otherwise(f.array(deleted(old_keys)))
    if ignore_key:
        tombstone = f.filter(f.array(upserted(no_row)), lambda _: f.lit(False))
    else:
        tombstone = (
            f.when(f.col("key").isNull(), failed(NO_VALUE))
            .when(f.col(key.fault).isNotNull(), failed(f.concat(f.lit("the key: "), f.col(key.fault))))
            .otherwise(f.array(deleted(from_key)))
        )
    told = f.when(op == "u", f.lit("after is missing for updating event")).otherwise(
        f.lit("after is missing for creating event")
    )
    changes = (
        f.when(_has_no_value(), tombstone)
        .when(f.col(FAULT).isNotNull(), failed(f.col(FAULT)))
        .when(op.isNull(), failed("op field not found in debezium avro"))
        .when(is_row & after.isNull(), failed(told))
        .when((op == "u") & before.isNotNull() & is_moved, f.array(deleted(old_keys), upserted(after)))
        .when(is_row, f.array(upserted(after)))
        .when((op == "d") & before.isNull(), failed("before is missing for delete event"))
        .when(op == "d", gone)
        .otherwise(failed(f.concat(f.lit("unknown debezium op: "), op)))
    )
    records = records.withColumn(_CHANGES, once(changes)).withColumn(_CHANGE, f.explode(_CHANGES))
    found = f.col(_CHANGE)
    unchanged_paths, values, misfits = [], [], []
    for column in columns:
        plain = found["row"][column.name]
        is_unchanged = conversion.is_placeholder(plain, column, placeholder)
        value, misfit_of = conversion.value(plain, column), conversion.misfit(plain, column)
        if column.name in names:
            value = f.when(found["keys"].isNotNull(), found["keys"][column.name]).otherwise(value)
        elif is_unchanged is not None:
            unchanged_paths.append(unchanged.path_of((column.name,), is_unchanged))
            value = f.when(~is_unchanged, value)
            misfit_of = None if misfit_of is None else f.when(~is_unchanged, misfit_of)
        values.append(value.alias(column.name))
        misfits.append(f.lit(None).cast("string") if misfit_of is None else misfit_of)
    paths = f.when(found["op"] == UPSERT, unchanged.unchanged(unchanged_paths, f.size(_CHANGES) > 1))
    records = records.withColumn(UNCHANGED, paths.cast("array<string>"))
    records = records.withColumn(ROW, f.when(found["op"].isNotNull(), f.struct(*values)))
    fault = f.coalesce(found["error"], *misfits)
    missing = f.when(found["error"].isNull(), _missing_key(f.col(ROW), names))
    records = records.withColumn(FAULT, f.coalesce(fault, missing))
    return records.withColumn(OP, f.when(f.col(FAULT).isNull(), found["op"]).cast("long"))


def _has_no_value() -> Column:
    return f.col("value").isNull() | (f.octet_length("value") == 0)


def _with_keys(row: Column, key: Column, columns: Sequence[ColumnDefinition], names: Sequence[str]) -> Column:
    """Replaces the primary key columns of a row with the columns of the record's key."""
    return f.struct(
        *(
            (key[column.name] if column.name in names else row[column.name])
            .cast(exact_spark_type(column.data_type))
            .alias(column.name)
            for column in columns
        )
    )


def _missing_key(row: Column, names: Sequence[str]) -> Column:
    return f.coalesce(
        *(f.when(row[name].isNull(), f.lit(f'the primary key column "{name}" is missing')) for name in names),
        f.lit(None).cast("string"),
    )
