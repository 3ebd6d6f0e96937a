"""Parses the definitions in catalog records, and derives facts such as columns and options from these definitions.

The text of a record's definition is authoritative. The record's other fields are derived from this text.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from rw_sql.connectors.formats import KEY_SCHEMA, SCHEMA
from rw_sql.connectors.registry import captures_changes, connector, has_shared_offsets
from rw_sql.connectors.registry import has_wide_offsets as is_wide
from rw_sql.connectors.schemas.options import needs_schema
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
    from rw_sql.syntax.statements import ColumnDefinition, CreateTable, FormatEncode, IncludeColumn, OptionValue

GROUP_OPTION = "resource_group"
"""The option of a WITH list that names an object's resource group. No connector has an option with this name."""

PAUSED_AT_BIRTH = "paused"
"""The option of a WITH list that creates a source in the paused state (``paused = 'true'``). The option is not a
property of the source and is not stored."""

CHANGE_FORMATS = ("UPSERT", "DEBEZIUM", "MAXWELL", "CANAL")
"""The formats whose records describe changes to rows. Only a table with a primary key can have one of these formats."""

REFRESH_OPTIONS = ("refresh_mode", "refresh_interval_sec")
"""The options in a table's WITH list that configure the table's refreshes. They are not options of the table's
source."""

CHANGE_COLUMN = ("_rw_op", "BIGINT")
"""An additional column in the log of a source with a change format. Its value is 1 for an inserted or updated row, and
-1 for a deleted key.
"""

UNCHANGED_COLUMN = ("_rw_unchanged", "ARRAY<STRING>")
"""An additional column in the log of a source whose records may omit unchanged values. The column contains the paths of
the omitted values.

Each path names a column or a part of a struct, as :func:`unchanged_path` writes it. The path ``""`` marks a row whose
key changed. The column is NULL if the record has all values.
"""

CDC_COLUMNS = (
    ("table_name", "STRING"),
    ("op", "STRING"),
    ("key", "STRING"),
    ("row", "STRING"),
    ("timestamp", "TIMESTAMP"),
)
"""The visible columns of a change data capture source. The source has one row for each change to one of its upstream
tables.

``op`` is ``c`` (create), ``u`` (update), ``d`` (delete), ``r`` (snapshot row), ``t`` (truncate), ``b`` (beginning of a
repeated snapshot) or ``s`` (end of a repeated snapshot). ``key`` and ``row`` are JSON objects whose values are text as
the upstream writes it. ``key`` is the key before the change; it is set for a delete and for an update that changes the
key. ``row`` is the row after the change.
"""

SNAPSHOT = "snapshot"
"""An option of a table of a change data capture source. It determines whether the table begins with a snapshot of the
existing rows."""

INDEX_COLUMN = ("_rw_index", "BIGINT")
"""An additional column in the log of a source in which several records can have the same offset. The column contains
the order of these records.

Change data capture sources and sources that read files have this column. The column is NULL in rows that were written
before the column existed.
"""

UNKNOWN_COLUMN = ("_rw_unknown", "ARRAY<STRING>")
"""An additional column in a table whose records may omit unchanged values. The column contains the paths of the omitted
values that no earlier record contained."""

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
"""The hidden columns of every log, in order:

- the row's split and offset
- the run and the batch that wrote the row; the batch is NULL in rows that versions without this column wrote
- the epoch of the statement that set the position from which the run continued
- the error of a record that could not be decoded, and this record
- the hour (since 1970) of the write, by which the log is partitioned
"""

INCLUDE_TYPES = {
    "database_name": "STRING",
    "schema_name": "STRING",
    "table_name": "STRING",
    "key": "BINARY",
    "partition": "STRING",
    "offset": "STRING",
    "timestamp": "TIMESTAMP",
    "header": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "payload": "STRING",
    "file": "STRING",
    "subject": "STRING",
    "message_id_data": "BINARY",
    "topic": "STRING",
}
"""The columns that INCLUDE can add, with their Spark types."""


@lru_cache(maxsize=16_384)
def source_definition(definition: str) -> CreateSource:
    """Parses a source's canonical definition."""
    statement = parse_statement(definition)
    if not isinstance(statement, CreateSource):
        raise TypeError(f"the catalog holds {type(statement).__name__} as a source's definition")
    return statement


@lru_cache(maxsize=16_384)
def reader_definition(definition: str) -> str:
    """A source's canonical definition without its properties, except ``connector``.

    The result determines how records are converted to rows, but not where the records come from.
    """
    statement = source_definition(definition)
    return render(replace(statement, options=tuple(o for o in statement.options if o.key == "connector")))


@lru_cache(maxsize=4_096)
def sink_definition(definition: str) -> CreateSink:
    """Parses a sink's canonical definition."""
    statement = parse_statement(definition)
    if not isinstance(statement, CreateSink):
        raise TypeError(f"the catalog holds {type(statement).__name__} as a sink's definition")
    return statement


@lru_cache(maxsize=4_096)
def table_definition(definition: str) -> CreateTable:
    """Parses a table's canonical definition."""
    statement = parse_statement(definition)
    if not isinstance(statement, CreateTable):
        raise TypeError(f"the catalog holds {type(statement).__name__} as a table's definition")
    return statement


@lru_cache(maxsize=4_096)
def view_definition(definition: str) -> CreateMaterializedView:
    """Parses a materialized view's canonical definition."""
    statement = parse_statement(definition)
    if not isinstance(statement, CreateMaterializedView):
        raise TypeError(f"the catalog holds {type(statement).__name__} as a materialized view's definition")
    return statement


@lru_cache(maxsize=4_096)
def connection_definition(definition: str) -> CreateConnection:
    """Parses a connection's canonical definition."""
    statement = parse_statement(definition)
    if not isinstance(statement, CreateConnection):
        raise TypeError(f"the catalog holds {type(statement).__name__} as a connection's definition")
    return statement


@lru_cache(maxsize=4_096)
def secret_definition(definition: str) -> CreateSecret:
    """Parses a secret's canonical definition, which does not contain the secret's value."""
    statement = parse_statement(definition)
    if not isinstance(statement, CreateSecret):
        raise TypeError(f"the catalog holds {type(statement).__name__} as a secret's definition")
    return statement


def secret_options(definition: str) -> Mapping[str, str]:
    """The options of a secret's definition. These options state where the secret's value is stored."""
    return {option.key: option_text(option.value) for option in secret_definition(definition).options}


def option_text(value: OptionValue) -> str:
    """Returns an option's value in the form that the catalog stores: a literal as its text, and a reference to a secret
    as ``SECRET name``."""
    match value:
        case TextValue(text=text) | NumberValue(text=text) | WordValue(text=text):
            return text
        case SecretValue(secret=secret, is_file=is_file):
            return f"SECRET {secret}" + (" AS FILE" if is_file else "")
        case ConnectionValue(connection=connection):
            return f"CONNECTION {connection}"


def listed_options(statement: CreateSource | CreateSink) -> tuple[tuple[str, str], ...]:
    """Returns the WITH list of a source or sink in the form that the ``rw_catalog`` views show: without ``connector``,
    and with the names of secrets instead of their values."""
    return tuple(
        (option.key, option_text(option.value))
        for option in statement.options
        if option.key not in ("connector", PAUSED_AT_BIRTH, GROUP_OPTION)
    )


def connector_of(statement: CreateSource | CreateSink | CreateTable) -> str | None:
    """The name of the connector in lower case; None if the WITH list names no connector."""
    for option in statement.options:
        if option.key == "connector":
            return option_text(option.value).lower()
    return None


def include_name(connector_name: str, column: IncludeColumn) -> str:
    """The name of an INCLUDE column. Without an alias, this is RisingWave's name
    ``_rw_<connector>_<kind>[_<inner>[_<type>]]``."""
    inner_type = canonical_type(column.inner_type) if column.inner_type else None
    return column.alias or connector(connector_name).spec.include_name(column.kind, column.inner, inner_type)


def include_type(column: IncludeColumn) -> str:
    """The Spark type of an INCLUDE column."""
    if column.kind == "header" and column.inner is not None:
        return spark_type(column.inner_type) if column.inner_type else "BINARY"
    return INCLUDE_TYPES[column.kind]


def source_columns(statement: CreateSource) -> tuple[tuple[str, str], ...]:
    """A source's visible columns with their Spark types. INCLUDE columns come last."""
    if is_cdc(statement):
        return CDC_COLUMNS
    name = connector_of(statement) or ""
    plain = tuple((column.name, spark_type(column.data_type)) for column in statement.columns)
    return plain + tuple((include_name(name, column), include_type(column)) for column in statement.include)


def source_watermark(statement: CreateSource | CreateTable) -> tuple[str, str] | None:
    """The watermark of a source or table, as the column and the delay in Spark's syntax; None if there is no
    watermark."""
    for watermark in statement.watermarks:
        return watermark.column, watermark_delay(watermark)
    return None


def definition_of(record: SourceRecord) -> CreateSource:
    """Parses the definition of a source's record."""
    return source_definition(record.definition)


def is_cdc(statement: CreateSource) -> bool:
    """True for a change data capture source.

    The records of such a source are changes to several upstream tables. Not the source, but its tables decode these
    changes.
    """
    return captures_changes(connector_of(statement) or "")


def has_changes(statement: CreateSource | CreateTable) -> bool:
    """True if the records describe changes to rows, not only new rows.

    The result is True for a table of a change data capture source. It is False for the source itself, whose rows are
    the change records.
    """
    if isinstance(statement, CreateTable) and statement.cdc_table is not None:
        return True
    return statement.format is not None and statement.format.format in CHANGE_FORMATS


def field_of(column: ColumnDefinition) -> str:
    """The name of the record's field from which a table's column is read.

    In the table's source, the corresponding column has the same name as this field.
    """
    return column.name if column.field is None else column.field


def named_fields(table: CreateTable) -> dict[str, str]:
    """Maps names of columns in a table's source to the columns' names in the table. The mapping has only the columns
    whose definitions name a field of the record."""
    return {column.field: column.name for column in table.columns if column.field is not None}


def source_of_table(table: CreateTable) -> CreateSource:
    """The definition of a table's source. This definition determines where the records come from and how they are
    converted to rows.

    If the table has a change format, the definition also contains the table's primary key, because decoding needs the
    key.
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
    """A table's definition with the current properties, INCLUDE columns and FORMAT clause of its source."""
    own = tuple(option for option in table.options if option.key in REFRESH_OPTIONS)
    return replace(table, options=(*source.options, *own), include=source.include, format=source.format)


def primary_key(statement: CreateSource | CreateTable) -> tuple[str, ...]:
    """The columns that identify a row; empty if there is no primary key."""
    for constraint in statement.constraints:
        if constraint.kind == "PRIMARY KEY":
            return constraint.columns
    return tuple(column.name for column in statement.columns if column.is_primary_key)


def encode_options(statement: CreateSource | CreateTable) -> dict[str, str]:
    """The options in the parentheses of FORMAT … ENCODE … (…), by key."""
    options = statement.format.options if statement.format else ()
    return {option.key: option_text(option.value) for option in options}


def has_schema(statement: CreateSource | CreateTable) -> bool:
    """True if a schema from a schema registry or from a file describes the records."""
    return statement.format is not None and needs_schema(statement.format.encode, encode_options(statement))


def stored_schema(statement: CreateSource | CreateTable, *, of_key: bool = False) -> str | None:
    """The schema of the records that was fixed when the object was created; None if no schema was fixed."""
    return encode_options(statement).get(KEY_SCHEMA if of_key else SCHEMA)


def without_schema(format: FormatEncode | None) -> FormatEncode | None:
    """The clause FORMAT … ENCODE … as the user wrote it, without the schema that the catalog adds."""
    if format is None:
        return None
    kept = tuple(option for option in format.options if option.key not in (SCHEMA, KEY_SCHEMA))
    return format if len(kept) == len(format.options) else replace(format, options=kept)


def has_unchanged(statement: CreateSource | CreateTable) -> bool:
    """True if the source's records may omit unchanged values."""
    if statement.cdc_table is not None or (isinstance(statement, CreateSource) and is_cdc(statement)):
        return True
    return statement.format is not None and statement.format.format == "DEBEZIUM"


def has_snapshot(statement: CreateSource | CreateTable) -> bool:
    """True if a table of a change data capture source begins with the existing rows of its upstream table.
    ``statement`` is the table's definition, or the result of :func:`cdc_rows` for the table."""
    return all(option_text(each.value).lower() != "false" for each in statement.options if each.key == SNAPSHOT)


def unchanged_path(names: Sequence[str]) -> str:
    """The path of a column, or of a part of a struct, as one string. A name that contains a dot or a backquote is
    quoted."""
    return ".".join(name if "." not in name and "`" not in name else quoted_for_spark(name) for name in names)


KEPT_TIME = ".timestamp"
"""The path that marks a missing time of the column INCLUDE timestamp in a row of a repeated snapshot. A snapshot does
not contain this time. If the table already has the row, the table therefore keeps the row's time. No other path begins
with a dot."""


def key_encode(statement: CreateSource | CreateTable) -> str:
    """The encoding of the records' keys, from KEY ENCODE; ``JSON`` if the statement does not specify it."""
    return (statement.format.key_encode if statement.format else None) or "JSON"


def log_columns(statement: CreateSource) -> tuple[tuple[str, str], ...]:
    """All columns of a source's log with their Spark types. The visible columns come first."""
    changes = (CHANGE_COLUMN,) if has_changes(statement) else ()
    unchanged = (UNCHANGED_COLUMN,) if has_unchanged(statement) else ()
    index = (INDEX_COLUMN,) if has_index(statement) else ()
    hidden: tuple[tuple[str, str], ...] = HIDDEN_COLUMNS
    if has_wide_offsets(statement):
        hidden = tuple((name, "STRING" if name == "_rw_offset" else kind) for name, kind in HIDDEN_COLUMNS)
    return (*source_columns(statement), *hidden, *unchanged, *changes, *index)


def has_index(statement: CreateSource) -> bool:
    """True if several records of the source can have the same offset. In this case, the source's log has
    INDEX_COLUMN."""
    return is_cdc(statement) or has_shared_offsets(connector_of(statement) or "")


def has_wide_offsets(statement: CreateSource) -> bool:
    """True if the source's offsets may need more than 64 bits. The log of such a source stores offsets as strings."""
    name = connector_of(statement)
    return name is not None and is_wide(name)


def cdc_rows(table: CreateTable) -> CreateSource:
    """A source definition that describes how a table's rows are decoded from the log of its change data capture source.
    The definition contains the columns that are read from fields, the primary key, the INCLUDE columns and, if the
    table has no snapshot, the option SNAPSHOT. Its name is the name of the change data capture source."""
    if table.cdc_table is None:
        raise TypeError("the table has a connector of its own")
    options = tuple(each for each in table.options if each.key == SNAPSHOT and not has_snapshot(table))
    return replace(source_of_table(table), name=table.cdc_table.source, options=options, cdc_table=table.cdc_table)
