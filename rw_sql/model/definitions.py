"""From a catalog record back to its statement: the definition is the truth, everything else follows from it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector
from rw_sql.syntax import canonical_type, parse_statement, render, spark_type
from rw_sql.syntax.dialect.to_spark import watermark_delay
from rw_sql.syntax.lexing.identifiers import quoted_for_spark
from rw_sql.syntax.statements import (
    ConnectionValue,
    CreateConnection,
    CreateMaterializedView,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateTable,
    NumberValue,
    SecretValue,
    TableConstraint,
    TextValue,
    WordValue,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rw_sql.metastore.records import SourceRecord
    from rw_sql.syntax.statements import ColumnDefinition, CreateTable, IncludeColumn, OptionValue

PAUSED_AT_BIRTH = "paused"
"""A state at birth, not a property: ``WITH (paused = 'true')`` holds the new source and is not stored."""

CHANGE_FORMATS = ("UPSERT", "DEBEZIUM", "MAXWELL", "CANAL")
"""The formats whose records say what became of a row: only a table with a primary key can follow them."""

REFRESH_OPTIONS = ("refresh_mode", "refresh_interval_sec")
"""What a table's WITH list says of refreshing: it is the table's, and no property of its source."""

CHANGE_COLUMN = ("_rw_op", "BIGINT")
"""What the log of a source of such a format has besides: 1 with a row as it is from then on, -1 where its key goes."""

UNCHANGED_COLUMN = ("_rw_unchanged", "ARRAY<STRING>")
"""What the log of a source has besides whose records may leave out values that did not change: what of a row those are.

Each is the path of a column or of a part of a struct, as :func:`unchanged_path` writes it. Of a row that had another
key ``""`` is among them. NULL where the record tells all."""

UNKNOWN_COLUMN = ("_rw_unknown", "ARRAY<STRING>")
"""What such a source's table has besides: the paths in a row that did not change and whose values no record told."""

HIDDEN_COLUMNS = (
    ("_rw_split", "STRING"),
    ("_rw_offset", "BIGINT"),
    ("_rw_run", "BIGINT"),
    ("_rw_batch", "BIGINT"),
    ("_rw_since", "BIGINT"),
    ("_rw_error", "STRING"),
    ("_rw_raw", "BINARY"),
    ("_rw_bucket", "INT"),
)
"""What every log has beside the source's own columns: where a row came from, the run that wrote it and in which of its
batches (NULL in rows of before there was this column), the epoch of the statement whose position the run had gone on
from, why and what did not decode, and the hour (since 1970) it was written in, by which the log is partitioned."""

INCLUDE_TYPES = {
    "key": "BINARY",
    "partition": "STRING",
    "offset": "STRING",
    "timestamp": "TIMESTAMP",
    "header": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "payload": "STRING",
    "file": "STRING",
}
"""The columns that INCLUDE can add and their Spark types."""


@lru_cache(maxsize=16_384)
def source_definition(definition: str) -> CreateSource:
    """The statement of a source's canonical definition."""
    statement = parse_statement(definition)
    if not isinstance(statement, CreateSource):
        raise TypeError(f"the catalog holds {type(statement).__name__} as a source's definition")
    return statement


@lru_cache(maxsize=16_384)
def reader_definition(definition: str) -> str:
    """A source's canonical definition with its connector alone: what its rows look like, not where they come from."""
    statement = source_definition(definition)
    return render(replace(statement, options=tuple(o for o in statement.options if o.key == "connector")))


@lru_cache(maxsize=4_096)
def sink_definition(definition: str) -> CreateSink:
    """The statement of a sink's canonical definition."""
    statement = parse_statement(definition)
    if not isinstance(statement, CreateSink):
        raise TypeError(f"the catalog holds {type(statement).__name__} as a sink's definition")
    return statement


@lru_cache(maxsize=4_096)
def table_definition(definition: str) -> CreateTable:
    """The statement of a table's canonical definition."""
    statement = parse_statement(definition)
    if not isinstance(statement, CreateTable):
        raise TypeError(f"the catalog holds {type(statement).__name__} as a table's definition")
    return statement


@lru_cache(maxsize=4_096)
def view_definition(definition: str) -> CreateMaterializedView:
    """The statement of a materialized view's canonical definition."""
    statement = parse_statement(definition)
    if not isinstance(statement, CreateMaterializedView):
        raise TypeError(f"the catalog holds {type(statement).__name__} as a materialized view's definition")
    return statement


@lru_cache(maxsize=4_096)
def connection_definition(definition: str) -> CreateConnection:
    """The statement of a connection's canonical definition."""
    statement = parse_statement(definition)
    if not isinstance(statement, CreateConnection):
        raise TypeError(f"the catalog holds {type(statement).__name__} as a connection's definition")
    return statement


@lru_cache(maxsize=4_096)
def secret_options(definition: str) -> Mapping[str, str]:
    """The options of a secret's definition: where its value is kept."""
    statement = parse_statement(definition)
    if not isinstance(statement, CreateSecret):
        raise TypeError(f"the catalog holds {type(statement).__name__} as a secret's definition")
    return {option.key: option_text(option.value) for option in statement.options}


def option_text(value: OptionValue) -> str:
    """An option's value as the catalog stores it: literals plain, references as ``SECRET name``."""
    match value:
        case TextValue(text=text) | NumberValue(text=text) | WordValue(text=text):
            return text
        case SecretValue(secret=secret, is_file=is_file):
            return f"SECRET {secret}" + (" AS FILE" if is_file else "")
        case ConnectionValue(connection=connection):
            return f"CONNECTION {connection}"


def listed_options(statement: CreateSource | CreateSink) -> tuple[tuple[str, str], ...]:
    """A source's or sink's own WITH list without ``connector``, references by name, as the catalog's views show it."""
    return tuple(
        (option.key, option_text(option.value))
        for option in statement.options
        if option.key not in ("connector", PAUSED_AT_BIRTH)
    )


def connector_of(statement: CreateSource | CreateSink | CreateTable) -> str | None:
    """The name of the connector, lower case, or None where the WITH list has none."""
    for option in statement.options:
        if option.key == "connector":
            return option_text(option.value).lower()
    return None


def include_name(connector_name: str, column: IncludeColumn) -> str:
    """The name an INCLUDE column gets: its alias, or RisingWave's ``_rw_<connector>_<kind>[_<inner>[_<type>]]``."""
    inner_type = canonical_type(column.inner_type) if column.inner_type else None
    return column.alias or connector(connector_name).spec.include_name(column.kind, column.inner, inner_type)


def include_type(column: IncludeColumn) -> str:
    """The Spark type of an INCLUDE column."""
    if column.kind == "header" and column.inner is not None:
        return spark_type(column.inner_type) if column.inner_type else "BINARY"
    return INCLUDE_TYPES[column.kind]


def source_columns(statement: CreateSource) -> tuple[tuple[str, str], ...]:
    """A source's visible columns with their Spark types, INCLUDE columns last."""
    name = connector_of(statement) or ""
    plain = tuple((column.name, spark_type(column.data_type)) for column in statement.columns)
    return plain + tuple((include_name(name, column), include_type(column)) for column in statement.include)


def source_watermark(statement: CreateSource | CreateTable) -> tuple[str, str] | None:
    """A source's or table's watermark as Spark takes it: the column and how far behind it lags."""
    for watermark in statement.watermarks:
        return watermark.column, watermark_delay(watermark)
    return None


def definition_of(record: SourceRecord) -> CreateSource:
    """The statement behind a source's record."""
    return source_definition(record.definition)


def has_changes(statement: CreateSource | CreateTable) -> bool:
    """Whether the records of a source say what became of rows, and not only which there are."""
    return statement.format is not None and statement.format.format in CHANGE_FORMATS


def field_of(column: ColumnDefinition) -> str:
    """The field of a record that a column is read from: the column of the table's source."""
    return column.name if column.field is None else column.field


def named_fields(table: CreateTable) -> dict[str, str]:
    """The columns of a table's source that the table calls otherwise, each with the table's name for it."""
    return {column.field: column.name for column in table.columns if column.field is not None}


def source_of_table(table: CreateTable) -> CreateSource:
    """The source that a table is associated with: what its records look like and where they come from.

    Where those say what became of rows it has the table's primary key too: by that they are read.
    """
    fields = {column.name: field_of(column) for column in table.columns}
    key = tuple(fields.get(name, name) for name in primary_key(table)) if has_changes(table) else ()
    columns = tuple(
        replace(column, name=field_of(column), field=None, default=None, is_primary_key=False)
        for column in table.columns
        if column.generated is None
    )
    return CreateSource(
        name=table.name,
        columns=columns,
        constraints=(TableConstraint(kind="PRIMARY KEY", columns=key),) if key else (),
        include=table.include,
        options=tuple(option for option in table.options if option.key not in REFRESH_OPTIONS),
        format=table.format,
        span=table.span,
    )


def with_source(table: CreateTable, source: CreateSource) -> CreateTable:
    """A table's definition with the properties, INCLUDE and FORMAT of its source as that is now."""
    own = tuple(option for option in table.options if option.key in REFRESH_OPTIONS)
    return replace(table, options=(*source.options, *own), include=source.include, format=source.format)


def primary_key(statement: CreateSource | CreateTable) -> tuple[str, ...]:
    """The columns that identify a row; none where there is no primary key."""
    for constraint in statement.constraints:
        if constraint.kind == "PRIMARY KEY":
            return constraint.columns
    return tuple(column.name for column in statement.columns if column.is_primary_key)


def encode_options(statement: CreateSource | CreateTable) -> dict[str, str]:
    """The options of FORMAT … ENCODE … (…), by key."""
    options = statement.format.options if statement.format else ()
    return {option.key: option_text(option.value) for option in options}


def has_unchanged(statement: CreateSource | CreateTable) -> bool:
    """Whether records of a source may leave out values that did not change."""
    return statement.format is not None and statement.format.format == "DEBEZIUM"


def unchanged_path(names: Sequence[str]) -> str:
    """A column or a part of a struct as one text, in which no name holds a bare point."""
    return ".".join(name if "." not in name and "`" not in name else quoted_for_spark(name) for name in names)


def key_encode(statement: CreateSource | CreateTable) -> str:
    """How the records' keys are written, by KEY ENCODE."""
    return (statement.format.key_encode if statement.format else None) or "JSON"


def log_columns(statement: CreateSource) -> tuple[tuple[str, str], ...]:
    """All columns of a source's log with their Spark types, the hidden ones last."""
    changes = (CHANGE_COLUMN,) if has_changes(statement) else ()
    unchanged = (UNCHANGED_COLUMN,) if has_unchanged(statement) else ()
    return (*source_columns(statement), *HIDDEN_COLUMNS, *unchanged, *changes)
