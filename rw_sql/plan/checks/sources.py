"""Checks a source's definition before contacting its upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector
from rw_sql.connectors.spec import OptionError, check_include, plain_keys
from rw_sql.errors import (
    INVALID_DEFINITION,
    INVALID_PROPERTY,
    MISSING_PROPERTY,
    NOT_SUPPORTED,
    UNDEFINED_COLUMN,
    UNSUPPORTED_TYPE,
    SqlError,
    near_names,
)
from rw_sql.model.definitions import (
    CHANGE_COLUMN,
    HIDDEN_COLUMNS,
    INDEX_COLUMN,
    UNCHANGED_COLUMN,
    connector_of,
    has_changes,
    include_name,
    is_cdc,
)
from rw_sql.model.object_lookup import connections_of
from rw_sql.model.options import check_options, connection_of, connector_options, visible
from rw_sql.plan.checks.column_names import require_distinct, require_field_names, require_name
from rw_sql.plan.checks.formats import check_source_format
from rw_sql.syntax import canonical_type, spark_type
from rw_sql.syntax.dialect.to_spark import watermark_delay
from rw_sql.syntax.lexing.identifiers import quoted, sql_name
from rw_sql.syntax.parsing.actions.formats import require_no_slip
from rw_sql.syntax.statements import SecretValue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import Connector
    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.metastore import Snapshot
    from rw_sql.syntax.statements import CreateSource, CreateTable, DataType, IncludeColumn, Option


_FIELD_HINT = "ENCODE BYTES keeps the whole record; get_json_object in a materialized view extracts the field"


def check_source(snapshot: Snapshot, statement: CreateSource) -> str:
    """Checks columns, options and formats; returns the connector's name. Raises SqlError at the first error."""
    _check_supported(statement)
    name = _connector_name(statement)
    named = next((option.value.span for option in statement.options if option.key == "connector"), None)
    kind = connector(name, named or statement.name.span)
    check_connection(snapshot, statement, name)
    require_registry_connection(snapshot, statement.format.options if statement.format is not None else ())
    options = check_properties(snapshot, statement, kind)
    if is_cdc(statement):
        _check_cdc(statement)
        return name
    check_source_format(kind.spec, statement)
    _check_columns(statement, name)
    try:
        kind.check_columns(options, {column.name: canonical_type(column.data_type) for column in statement.columns})
    except SqlError as error:
        key = error.key if isinstance(error, OptionError) else ""
        spans = {option.key: option.key_place for option in statement.options}
        error.span = error.span or spans.get(key, statement.name.span)
        raise
    return name


def check_properties(snapshot: Snapshot, statement: CreateSource, kind: Connector) -> Mapping[str, str]:
    """Checks the properties of a source, but neither its columns nor its schema. Returns the properties without
    secrets.

    Raises SqlError at the first error.
    """
    options = visible(connector_options(snapshot, statement))
    require_secret(statement.options, kind.spec)
    _refuse_secrets(statement.options, kind.spec)
    check_options(kind, options, statement.options, statement.name.span)
    return options


def check_connection(snapshot: Snapshot, statement: CreateSource, name: str) -> None:
    """Raises SqlError if the source has a connection whose type does not fit the source's connector."""
    connection = connection_of(snapshot, statement.options)
    wanted = connector(name).spec.connection_kind or name
    if connection is not None and connection.connector != wanted:
        raise SqlError(
            INVALID_DEFINITION,
            f"connection \"{connection.name}\" is of type '{connection.connector}', not '{wanted}'",
            span=next(option.value_place for option in statement.options if option.key == "connection"),
            hint=connections_of(snapshot, wanted),
        )


def require_registry_connection(snapshot: Snapshot, given: tuple[Option, ...]) -> None:
    """Raises SqlError if the connection in FORMAT … ENCODE … is not a schema registry connection."""
    connection = connection_of(snapshot, given)
    if connection is not None and connection.connector != "schema_registry":
        raise SqlError(
            INVALID_DEFINITION,
            f"connection \"{connection.name}\" is of type '{connection.connector}', not 'schema_registry'",
            span=next(option.value_place for option in given if option.key == "connection"),
            hint=connections_of(snapshot, "schema_registry"),
        )


def require_secret(options: tuple[Option, ...], spec: ConnectorSpec) -> None:
    """Raises SqlError for a literal in a secret option, because everyone who can read the catalog could see the
    literal."""
    for option in options:
        known = spec.option(option.key)
        if known is not None and known.is_secret and not isinstance(option.value, SecretValue):
            raise SqlError(
                INVALID_PROPERTY,
                f'property "{option.key}" accepts only a secret, not a literal value',
                span=option.value.span,
                hint=f"CREATE SECRET s WITH (backend = 'meta') AS '…'; then {option.key} = SECRET s",
                hides_literals=True,
                plain_keys=plain_keys(spec, [each.key for each in options]),
            )


def _refuse_secrets(options: tuple[Option, ...], spec: ConnectorSpec) -> None:
    """Raises SqlError for a secret in an option that Spark itself reads, because Spark would show the secret in its
    plans and logs."""
    for option in options:
        known = spec.option(option.key)
        if known is not None and isinstance(option.value, SecretValue) and not (known.client or known.java):
            raise SqlError(
                INVALID_PROPERTY,
                f'property "{option.key}" cannot be a secret',
                span=option.value.span,
                hint=f"give its value: {option.key} = '…'",
            )


def _connector_name(statement: CreateSource) -> str:
    if not statement.options:
        raise SqlError(
            MISSING_PROPERTY, "missing WITH clause", span=statement.name.span, hint="add WITH (connector = 'kafka', …)"
        )
    name = connector_of(statement)
    if name is None:
        require_no_slip(statement.options)
        raise SqlError(
            MISSING_PROPERTY,
            "missing field 'connector'",
            span=statement.name.span,
            hint="add connector = 'kafka' or another connector to WITH",
        )
    return name


def _check_supported(statement: CreateSource) -> None:
    """Raises SqlError NOT_SUPPORTED for valid syntax that is not supported yet. The error states an alternative."""
    span = statement.name.span
    refused = (
        (
            statement.is_temporary,
            span,
            "TEMPORARY",
            "omit it; DROP SOURCE removes the source when you no longer need it",
        ),
        (statement.wildcard is not None, span, "* among the columns", "list the columns"),
        (
            bool(statement.constraints) and not has_changes(statement),
            span,
            "PRIMARY KEY of a source",
            "omit it: a source only appends rows",
        ),
    )
    for is_there, place, what, instead in refused:
        if is_there:
            raise SqlError(NOT_SUPPORTED, f"{what} is not supported yet in CREATE SOURCE", span=place, hint=instead)


def _check_cdc(statement: CreateSource) -> None:
    """Raises SqlError for clauses that are valid only for the tables of a change data capture source, not for the
    source itself."""
    for clause, parts in (("INCLUDE", statement.include), ("WATERMARK", statement.watermarks)):
        if parts:
            raise SqlError(
                NOT_SUPPORTED,
                f"{clause} is not supported in CREATE SOURCE of a change data capture connector",
                span=parts[0].span,
                hint=f"CREATE TABLE t (*) INCLUDE timestamp FROM {sql_name(statement.name.key)} TABLE 'schema.table'"
                if clause == "INCLUDE"
                else "omit it: the rows of the source's tables change",
            )


def _check_columns(statement: CreateSource, name: str) -> None:
    if not statement.columns:
        raise SqlError(
            INVALID_DEFINITION,
            "a source needs columns",
            span=statement.name.span,
            hint=f"CREATE SOURCE {sql_name(statement.name.key)} (id INT, …) …",
        )
    for column in statement.columns:
        if column.field is not None:
            raise SqlError(
                NOT_SUPPORTED,
                f'column "{column.name}": in a source, a column must have the same name as the field of the records',
                span=column.span,
                hint=f"{quoted(column.field)} AS {quoted(column.name)} in a materialized view; only a table supports "
                "FROM",
            )
        if column.is_primary_key:
            raise SqlError(
                NOT_SUPPORTED,
                f'column "{column.name}": a source has no PRIMARY KEY',
                span=column.span,
                hint=f"CREATE TABLE {sql_name(statement.name.key)} keeps the newest row of each key",
            )
        if column.generated or column.default or column.is_not_null:
            raise SqlError(
                NOT_SUPPORTED,
                f'column "{column.name}": generated columns, defaults and constraints are not supported yet',
                span=column.span,
                hint=f"declare {quoted(column.name)} with its type only; a materialized view can compute values and "
                "filter rows",
            )
        if column.name.startswith("_rw_"):
            raise SqlError(
                INVALID_DEFINITION,
                f'column "{column.name}" cannot begin with _rw_, which names hidden columns',
                span=column.span,
                hint=f"name the column {column.name.lstrip('_')}",
            )
        require_name(column.name, column.span, hint=_FIELD_HINT)
        require_field_names(column.name, column.data_type, column.span)
    for included in statement.include:
        check_include(connector(name).spec, included.kind, included.span)
        _check_header_type(included)
        if included.alias is not None:
            require_name(included.alias, included.span)
    if statement.format is not None and statement.format.encode == "BYTES":
        _check_bytes(statement)
    places = [(column.name, column.span) for column in statement.columns]
    places += [(include_name(name, column), column.span) for column in statement.include]
    hidden = (*HIDDEN_COLUMNS, CHANGE_COLUMN, UNCHANGED_COLUMN, INDEX_COLUMN)
    require_distinct([*((column, statement.name.span) for column, _ in hidden), *places])
    check_watermarks(statement)
    for column in statement.columns:
        refused = " has a type that cannot be stored: INTERVAL" if holds_interval(column.data_type) else None
        try:
            spark_type(column.data_type)
        except SqlError as error:
            refused = f": {error.message}"
        if refused is not None:
            raise SqlError(
                UNSUPPORTED_TYPE,
                f'column "{column.name}"{refused}',
                span=column.span,
                hint="declare it CHARACTER VARYING and CAST it in a materialized view",
            )


def _check_header_type(included: IncludeColumn) -> None:
    """Raises SqlError if the declared type of a header's value is not text, JSON as text, or bytes."""
    kind = included.inner_type
    if included.kind == "header" and kind is not None and kind.name not in ("CHARACTER VARYING", "JSONB", "BYTEA"):
        raise SqlError(
            UNSUPPORTED_TYPE,
            f"the value of header '{included.inner}' is bytes or text, not {canonical_type(kind)}",
            span=included.span,
            hint=f"INCLUDE header '{included.inner}' VARCHAR; a materialized view can CAST the text",
        )


def check_watermarks(statement: CreateSource | CreateTable) -> None:
    """Raises SqlError if Spark does not support a watermark of a source or table."""
    types = {column.name: column.data_type.name for column in statement.columns}
    for watermark in statement.watermarks:
        if watermark.is_with_ttl:
            raise SqlError(
                NOT_SUPPORTED,
                "WATERMARK … WITH TTL is not supported",
                span=watermark.span,
                hint="omit WITH TTL: Spark removes state by the watermark",
            )
        if watermark.column not in types:
            near = near_names(watermark.column, types)
            raise SqlError(
                UNDEFINED_COLUMN,
                f'column "{watermark.column}" of the watermark does not exist',
                span=watermark.span,
                hint=f'did you mean "{near[0]}"?'
                if near
                else f"the {'columns are' if len(types) > 1 else 'only column is'} {', '.join(types)}",
            )
        if types[watermark.column] != "TIMESTAMP WITH TIME ZONE":
            raise SqlError(
                INVALID_DEFINITION,
                f'a watermark needs a point in time, and column "{watermark.column}" is {types[watermark.column]}',
                span=watermark.span,
                hint=f"declare it {watermark.column} TIMESTAMPTZ",
            )
        watermark_delay(watermark)


def holds_interval(data_type: DataType) -> bool:
    """True if the type is INTERVAL, or if an element or field of the type is INTERVAL. A table cannot store values of
    such a type."""
    parts = [data_type.element, data_type.key, data_type.value, *(field.data_type for field in data_type.fields)]
    return data_type.name == "INTERVAL" or any(part is not None and holds_interval(part) for part in parts)


def _check_bytes(statement: CreateSource) -> None:
    first = statement.columns[0]
    if len(statement.columns) != 1 or first.data_type.name != "BYTEA":
        raise SqlError(
            INVALID_DEFINITION,
            "ENCODE BYTES only accepts one BYTEA type column",
            span=first.span,
            hint=f"CREATE SOURCE {sql_name(statement.name.key)} (data bytea) …",
        )
