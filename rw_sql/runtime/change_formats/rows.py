"""From the changes that records tell to rows of a source's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from rw_sql.connectors.formats import IGNORE_KEY, TIMESTAMP_MODE, TIMESTAMPTZ_MODE, encode_value
from rw_sql.plan.definitions import CHANGE_COLUMN, connector_of, encode_options, include_name, primary_key
from rw_sql.runtime.change_formats.events import (
    CHANGES,
    DELETE,
    TYPES,
    UPSERT,
    EventKey,
    canal_changes,
    debezium_changes,
    exact_decimal,
    field_of,
    maxwell_changes,
    upsert_changes,
)
from rw_sql.runtime.change_formats.values import Told, ValueRules, misfit, value_of
from rw_sql.syntax import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column

    from rw_sql.runtime.recipe import StepsT
    from rw_sql.syntax.statements import ColumnDefinition, CreateSource

OP = CHANGE_COLUMN[0]
ROW = "_rw_row"
_CHANGE = "_rw_change"
_TEXTS = "_rw_texts"
_TOLD = ("NUMERIC", "TIMESTAMP")


def change_rows(records: StepsT, statement: CreateSource) -> tuple[StepsT, Column]:
    """The changes of upstream records, a row each, and why a row is none (NULL where it is one).

    Adds ``_rw_row``, a struct of the declared columns, and ``_rw_op``; the records' own columns stay.
    """
    key = _event_key(statement)
    format = statement.format.format if statement.format else ""
    rules = _rules(statement, format)
    has_types = format == "DEBEZIUM" and any(column.data_type.name in _TOLD for column in statement.columns)
    match format:
        case "UPSERT":
            told = upsert_changes(records, key)
        case "DEBEZIUM":
            options = encode_options(statement)
            ignore_key = encode_value("DEBEZIUM", "JSON", options, IGNORE_KEY) == "true"
            told = debezium_changes(records, key, ignore_key=ignore_key, has_types=has_types)
        case "MAXWELL":
            told = maxwell_changes(records, key)
        case "CANAL":
            told = canal_changes(records, key)
        case other:
            raise ValueError(f"FORMAT {other} tells no changes")
    rows = told.withColumn(_CHANGE, f.explode(CHANGES))
    change = f.col(_CHANGE)
    texts = [_text(column, key).alias(column.name) for column in statement.columns]
    rows = rows.withColumn(_TEXTS, f.struct(*texts))
    values = [_value(column, rules, format, has_types=has_types).alias(column.name) for column in statement.columns]
    rows = rows.withColumn(ROW, f.struct(*values))
    error = f.coalesce(change["error"], *(_misfit(column, key) for column in statement.columns), f.lit(None))
    op = f.when(error.isNull(), change["op"]).cast("long")
    return rows.withColumn(OP, op), error


def _event_key(statement: CreateSource) -> EventKey:
    keys = primary_key(statement)
    included = [
        include_name(connector_of(statement) or "", column) for column in statement.include if column.kind == "key"
    ]
    return EventKey(columns=keys, is_record_key=len(keys) == 1 and keys[0] in included)


def _rules(statement: CreateSource, format: str) -> ValueRules:
    if format in ("MAXWELL", "CANAL"):
        return ValueRules(needs_zone=True, is_latin1=format == "CANAL")
    options = encode_options(statement)
    return ValueRules(
        timestamptz=encode_value(format, "JSON", options, TIMESTAMPTZ_MODE),
        timestamp=encode_value(format, "JSON", options, TIMESTAMP_MODE),
        needs_zone=True,
    )


def _text(column: ColumnDefinition, key: EventKey) -> Column:
    change = f.col(_CHANGE)
    found = field_of(change["fields"], column.name)
    if column.name in key.columns:
        return f.when(change["keys"].isNotNull(), field_of(change["keys"], column.name)).otherwise(found)
    return f.when(change["op"] == UPSERT, found)


def _value(column: ColumnDefinition, rules: ValueRules, format: str, *, has_types: bool) -> Column:
    told = None
    if has_types and column.data_type.name in _TOLD:
        found = field_of(f.col(TYPES), column.name)
        told = Told(type=found["type"], scale=found["scale"].try_cast("int"))
    exact = None
    if column.data_type.name == "NUMERIC":
        exact = exact_decimal(format, column.name, spark_type(column.data_type))
    return value_of(f.col(_TEXTS)[column.name], column.data_type, rules, told, exact)


def _misfit(column: ColumnDefinition, key: EventKey) -> Column:
    text = f.col(_TEXTS)[column.name]
    wrong = misfit(column, text, f.col(ROW)[column.name])
    if column.name not in key.columns:
        return wrong
    is_change = f.col(_CHANGE)["op"].isin(UPSERT, DELETE)
    missing = f.lit(f'the primary key column "{column.name}" is missing')
    return f.coalesce(wrong, f.when(is_change & text.isNull(), missing))
