"""Converts the changes in records to rows that have the columns of a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from rw_sql.connectors.formats import (
    IGNORE_KEY,
    PLACEHOLDER,
    TIMESTAMP_MODE,
    TIMESTAMPTZ_MODE,
    encode_value,
    placeholder_text,
)
from rw_sql.model.definitions import (
    CHANGE_COLUMN,
    UNCHANGED_COLUMN,
    connector_of,
    encode_options,
    include_name,
    key_encode,
    primary_key,
)
from rw_sql.runtime.decoding.change_formats import moments, unchanged
from rw_sql.runtime.decoding.change_formats.events import (
    CHANGES,
    DELETE,
    TYPES,
    UPSERT,
    EventKey,
    canal_changes,
    debezium_changes,
    maxwell_changes,
    upsert_changes,
)
from rw_sql.runtime.decoding.change_formats.unchanged import Placeholder
from rw_sql.runtime.decoding.change_formats.values import (
    FLOATING,
    NESTED,
    TEMPORAL,
    Told,
    ValueRules,
    misfit,
    precision_of,
    prepared,
    value_of,
)
from rw_sql.runtime.decoding.json_text import field_of, in_lower_case, without_marks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from rw_sql.runtime.support.deferred_columns import StepsT
    from rw_sql.syntax.statements import ColumnDefinition, CreateSource

OP, UNCHANGED = CHANGE_COLUMN[0], UNCHANGED_COLUMN[0]
ROW, CHANGE = "_rw_row", "_rw_change"
_BARE = ("BOOLEAN", "SMALLINT", "INT", "BIGINT", "SERIAL", *FLOATING, *TEMPORAL)
"""The types whose values need not be quoted in JSON. Decimals need not be quoted either."""
_TEXTS, _PREPARED, _COUNTS, _MISFIT = "_rw_texts", "_rw_prepared", "_rw_counts", "_rw_misfit"
_TOLD = ("NUMERIC", "BIGINT", *FLOATING, "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
"""The types whose values Debezium encodes in several ways. Only the embedded schema of a record shows which encoding
the record uses."""


def change_rows(records: StepsT, statement: CreateSource) -> tuple[StepsT, Column]:
    """Returns the upstream records with one row per change, and a column with the error of each row (NULL if the row is
    valid).

    The rows have the columns of the records, ``_rw_row`` (a struct of the declared columns) and ``_rw_op``. With FORMAT
    DEBEZIUM, whose records may omit unchanged values, they also have ``_rw_unchanged``.
    """
    key = _event_key(statement)
    format = statement.format.format if statement.format else ""
    rules = _rules(statement, format)
    has_types = format == "DEBEZIUM" and any(_is_told(column) for column in statement.columns)
    placeholder = None
    match format:
        case "UPSERT":
            told = upsert_changes(records, key)
        case "DEBEZIUM":
            options = encode_options(statement)
            ignore_key = encode_value("DEBEZIUM", "JSON", options, IGNORE_KEY) == "true"
            placeholder = Placeholder(placeholder_text(encode_value("DEBEZIUM", "JSON", options, PLACEHOLDER)))
            told = debezium_changes(records, key, ignore_key=ignore_key, has_types=has_types)
        case "MAXWELL":
            told = maxwell_changes(records, key)
        case "CANAL":
            told = canal_changes(records, key)
        case other:
            raise ValueError(f"FORMAT {other} has no changes")
    changes = told.withColumn(CHANGE, f.explode(CHANGES))
    return rows_of(changes, statement, key, rules, placeholder, has_types=has_types)


def rows_of(
    rows: StepsT,
    statement: CreateSource,
    key: EventKey,
    rules: ValueRules,
    placeholder: Placeholder | None = None,
    *,
    has_types: bool = False,
) -> tuple[StepsT, Column]:
    """Does the same as :func:`change_rows` for ``rows``, the rows with the extracted changes. The column CHANGE
    contains the change of a row. The column CHANGES contains all changes of the row's record. If ``placeholder`` is
    None, records omit no values. If ``has_types`` is True, the column TYPES contains the types from the embedded
    schemas."""
    change = f.col(CHANGE)
    # The values are computed in steps. If a value is a separate column, Spark computes it only once, even if it is
    # referenced several times.
    names = [column.name for column in statement.columns]
    texts = [_text(column, key, names).alias(column.name) for column in statement.columns]
    rows = rows.withColumn(_TEXTS, f.struct(*texts))
    if placeholder is not None:
        rows = _with_unchanged(rows, statement, key, placeholder)
    rows = _prepared(rows, statement, has_types=has_types)
    values = [_value(column, rules, has_types=has_types).alias(column.name) for column in statement.columns]
    rows = rows.withColumn(ROW, f.struct(*values))
    error = f.coalesce(
        change["error"], *(_misfit(column, key, has_types=has_types) for column in statement.columns), f.lit(None)
    )
    rows = rows.withColumn(_MISFIT, error)
    op = f.when(f.col(_MISFIT).isNull(), change["op"]).cast("long")
    return rows.withColumn(OP, op), f.col(_MISFIT)


def _with_unchanged(rows: StepsT, statement: CreateSource, key: EventKey, placeholder: Placeholder) -> StepsT:
    """Removes the placeholders for unchanged values from the texts of the columns, and adds ``_rw_unchanged``."""
    texts, paths = [], []
    for column in statement.columns:
        text = f.col(_TEXTS)[column.name]
        if column.name in key.columns:
            known = f.when(~placeholder.is_in(text), text)
        else:
            known, found = unchanged.told(column, text, placeholder)
            paths.append(found)
        texts.append(known.alias(column.name))
    is_moved = f.size(CHANGES) > 1
    all_paths = f.when(f.col(CHANGE)["op"] == UPSERT, unchanged.unchanged(paths, is_moved))
    return rows.withColumn(UNCHANGED, all_paths).withColumn(_TEXTS, f.struct(*texts))


def _prepared(rows: StepsT, statement: CreateSource, *, has_types: bool) -> StepsT:
    """Adds ``_rw_prepared``, a struct with the text of each column in the form that ``value_of`` expects."""
    texts = []
    for column in statement.columns:
        told = None
        if has_types and _is_told(column):
            told = _told_of(column)
        texts.append(prepared(f.col(_TEXTS)[column.name], column.data_type, told).alias(column.name))
    rows = rows.withColumn(_PREPARED, f.struct(*texts))
    times = [column.name for column in statement.columns if column.data_type.name in TEMPORAL]
    if not times:
        return rows
    counts = (moments.count(f.col(_PREPARED)[name]).alias(name) for name in times)
    return rows.withColumn(_COUNTS, f.struct(*counts))


def _is_told(column: ColumnDefinition) -> bool:
    """True if Debezium encodes the values of a column, or the items of an array, in several ways."""
    element = column.data_type.element
    return column.data_type.name in _TOLD or (element is not None and element.name in _TOLD)


def _told_of(column: ColumnDefinition) -> Told:
    """Returns the type of a column, or of the items of an array, according to the record's embedded schema."""
    types, own = f.col(TYPES), f.lit(column.name)
    like = f.filter(f.map_keys(types), lambda key: in_lower_case(key) == f.lit(column.name.lower()))
    found = f.try_element_at(types, f.when(f.map_contains_key(types, own), own).otherwise(f.get(like, f.lit(0))))
    return Told(type=found["type"], scale=found["scale"].try_cast("int"))


def _event_key(statement: CreateSource) -> EventKey:
    keys = primary_key(statement)
    included = [
        include_name(connector_of(statement) or "", column) for column in statement.include if column.kind == "key"
    ]
    alone = next((column.data_type for column in statement.columns if keys == (column.name,)), None)
    return EventKey(
        columns=keys,
        is_record_key=len(keys) == 1 and keys[0] in included,
        encode=key_encode(statement),
        is_text=alone is not None and alone.name not in _BARE and precision_of(alone) is None,
    )


def _rules(statement: CreateSource, format: str) -> ValueRules:
    if format in ("MAXWELL", "CANAL"):
        return ValueRules(needs_zone=True, bytes_as="latin1" if format == "CANAL" else "base64")
    options = encode_options(statement)
    return ValueRules(
        timestamptz=encode_value(format, "JSON", options, TIMESTAMPTZ_MODE),
        timestamp=encode_value(format, "JSON", options, TIMESTAMP_MODE),
        needs_zone=True,
    )


def _text(column: ColumnDefinition, key: EventKey, names: Sequence[str]) -> Column:
    change = f.col(CHANGE)
    found = field_of(change["fields"], column.name, names)
    if column.name in key.columns:
        of_key = field_of(change["keys"], column.name, key.columns)
        return f.when(change["keys"].isNotNull(), of_key).otherwise(found)
    return f.when(change["op"] == UPSERT, found)


def _value(column: ColumnDefinition, rules: ValueRules, *, has_types: bool) -> Column:
    told = _told_of(column) if has_types and _is_told(column) else None
    count = f.col(_COUNTS)[column.name] if column.data_type.name in TEMPORAL else None
    return value_of(f.col(_PREPARED)[column.name], column.data_type, rules, told, count)


def _misfit(column: ColumnDefinition, key: EventKey, *, has_types: bool) -> Column:
    is_prepared = column.data_type.name not in NESTED and not (has_types and _is_told(column))
    text = f.col(_PREPARED)[column.name] if is_prepared else without_marks(f.col(_TEXTS)[column.name])
    wrong = misfit(column, text, f.col(ROW)[column.name])
    if column.name not in key.columns:
        return wrong
    is_change = f.col(CHANGE)["op"].isin(UPSERT, DELETE)
    missing = f.lit(f'the primary key column "{column.name}" is missing')
    return f.coalesce(wrong, f.when(is_change & text.isNull(), missing))
