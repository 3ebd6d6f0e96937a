"""Checks a sink's definition before contacting its target."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.formats import EncodeFault, schema_option_fault
from rw_sql.connectors.registry import sink_connector
from rw_sql.connectors.schemas.options import is_of_schema, needs_schema, schema_fault
from rw_sql.connectors.sink import APPEND_ONLY, DEBEZIUM, UPSERT, SinkShape
from rw_sql.connectors.spec import check_format, load_spec
from rw_sql.errors import (
    INVALID_DEFINITION,
    INVALID_PROPERTY,
    MISSING_PROPERTY,
    NOT_SUPPORTED,
    SINK_CANNOT_FOLLOW,
    UNDEFINED_COLUMN,
    SqlError,
    near_names,
)
from rw_sql.model.definitions import connector_of, option_text
from rw_sql.model.object_lookup import connections_of
from rw_sql.model.options import check_options, connection_of, connector_options, visible
from rw_sql.model.sink_shape import FORCE_APPEND_ONLY, encode_options, key_encode
from rw_sql.plan.checks.sources import require_registry_connection, require_secret
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.parsing.actions.formats import require_no_slip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import DeltaTableRecord
    from rw_sql.syntax.statements import CreateSink, FormatEncode, Option

_TYPES = {"PLAIN": APPEND_ONLY, "UPSERT": UPSERT, "DEBEZIUM": DEBEZIUM}
_OF_SOURCES = ("map.handling.mode", "messages_as_jsonb", "key.message", "schema.location")
_CSV_OPTIONS = ("without_header", "delimiter")
_DELIMITER = re.compile(r"""[\x01-\x7f](?<![A-Za-z0-9"+\-.: \r\n])""")
"""Matches each CSV delimiter that the writer accepts and that cannot occur in an unquoted value."""

_KEY_TYPES = {"TEXT": ("string", "boolean", "byte", "short", "integer", "long"), "BYTES": ("binary",)}
"""Maps each value of KEY ENCODE to the types that a key column may have with this value. The types have Spark's names.

Without KEY ENCODE, keys have the encoding of the rows.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkInput:
    """The input of a sink. ``inputs`` are the ids of the objects that the sink reads, ``query`` is a query over these
    objects, and ``schema`` is the schema of the rows in Spark's JSON form. If ``query`` is empty, the sink writes the
    rows of a single object without changes.

    If rows are replaced, ``keys`` are the columns that identify a row. If rows are only appended, ``keys`` is empty.
    ``has_before`` is True if changes include the old rows. ``is_ordered`` is True if rows with the same key have a
    defined order. ``is_changing`` is True if rows may be replaced or deleted, but no key columns are known. ``new`` are
    the external tables that the statement adds to the catalog together with the sink.
    """

    name: str
    inputs: tuple[int, ...]
    schema: str
    query: str = ""
    keys: tuple[str, ...] = ()
    has_before: bool = False
    is_ordered: bool = True
    is_changing: bool = False
    new: tuple[DeltaTableRecord, ...] = ()


def check_sink_options(snapshot: Snapshot, statement: CreateSink) -> str:
    """Checks the WITH list; returns the connector's name. Raises SqlError at the first error."""
    _check_supported(statement)
    name = connector_of(statement)
    if name is None:
        require_no_slip(statement.options)
        missing, hint = "sink properties not provided", "add WITH (connector = 'kafka', …)"
        if statement.options:
            missing, hint = "missing field 'connector'", "add connector = 'kafka' or another connector to WITH"
        raise SqlError(MISSING_PROPERTY, missing, span=statement.name.span, hint=hint)
    named = next(option.value.span for option in statement.options if option.key == "connector")
    kind = sink_connector(name, named)
    connection = connection_of(snapshot, statement.options)
    wanted = kind.spec.connection_kind or name
    if connection is not None and connection.connector != wanted:
        raise SqlError(
            INVALID_DEFINITION,
            f"connection \"{connection.name}\" is of type '{connection.connector}', not '{wanted}'",
            span=next(option.value_place for option in statement.options if option.key == "connection"),
            hint=connections_of(snapshot, wanted),
        )
    options = visible(connector_options(snapshot, statement))
    given_type = _given(statement, "type")
    if given_type is not None:
        options["type"] = option_text(given_type.value)
    require_secret(statement.options, kind.spec)
    if statement.format is not None:
        require_registry_connection(snapshot, statement.format.options)
    check_options(kind, options, statement.options, statement.name.span)
    return name


def check_sink(snapshot: Snapshot, statement: CreateSink, given: SinkInput) -> tuple[str, SinkShape]:
    """Checks all parts of the statement. Returns the connector's name and the shape of the output. Raises SqlError at
    the first error."""
    name = check_sink_options(snapshot, statement)
    kind = sink_connector(name)
    type_, span = _type(statement, kind.spec)
    is_forced = _is_forced(statement)
    if is_forced and type_ != APPEND_ONLY:
        wanted = "FORMAT PLAIN" if statement.format else "type = 'append-only'"
        raise SqlError(
            INVALID_DEFINITION,
            f"cannot force the sink to be append-only without {wanted}",
            span=span,
            hint=f"write {wanted}, or omit force_append_only",
        )
    shape = SinkShape(
        name=statement.name.key,
        type=type_,
        schema=given.schema,
        encode=statement.format.encode if statement.format else ("JSON" if kind.spec.formats else None),
        encode_options=encode_options(statement),
    )
    _require_followed(statement, given, type_, span, is_forced=is_forced)
    keys = _keys(statement, given, shape, kind.spec, is_forced=is_forced)
    _check_key(statement, keys, shape.columns)
    shape = SinkShape(
        name=shape.name,
        type=type_,
        schema=given.schema,
        encode=shape.encode,
        keys=keys,
        encode_options=shape.encode_options,
        deletes=not given.query and (bool(given.keys) or given.is_changing),
        key_encode=key_encode(statement),
    )
    try:
        kind.check_shape(visible(connector_options(snapshot, statement)), shape)
    except SqlError as error:
        error.span = error.span or statement.name.span
        raise
    return name, shape


def _check_supported(statement: CreateSink) -> None:
    """Raises SqlError NOT_SUPPORTED for valid syntax that is not supported yet. The error states an alternative."""
    refused = (
        (statement.into is not None, "INTO", "write to a target with WITH (connector = …)"),
        (
            statement.is_emit_on_window_close and statement.query is None,
            "EMIT ON WINDOW CLOSE with FROM",
            "write it after a query: CREATE SINK … AS SELECT … EMIT ON WINDOW CLOSE",
        ),
    )
    span = statement.into.span if statement.into is not None else statement.name.span
    for is_there, what, instead in refused:
        if is_there:
            raise SqlError(NOT_SUPPORTED, f"{what} is not supported yet in CREATE SINK", span=span, hint=instead)


def _given(statement: CreateSink, key: str) -> Option | None:
    return next((option for option in statement.options if option.key == key), None)


def _type(statement: CreateSink, spec: ConnectorSpec) -> tuple[str, Span]:
    """Returns the type of the sink, such as ``append-only``, and the position of this type in the statement."""
    clause, option = statement.format, _given(statement, "type")
    said = option_text(option.value).strip().lower() if option is not None else None
    span = option.value.span if option is not None else statement.name.span
    if clause is None:
        default = spec.options["type"].default if "type" in spec.options else APPEND_ONLY
        if spec.formats and said is None:
            example = next(iter(spec.formats.items()))
            raise SqlError(
                INVALID_DEFINITION,
                "a sink of this connector needs FORMAT and ENCODE",
                span=statement.name.span,
                hint=f"end the statement with FORMAT {example[0]} ENCODE {example[1][0]}",
            )
        if said is None and default is None:
            raise SqlError(
                MISSING_PROPERTY,
                'missing property "type"',
                span=statement.name.span,
                hint="add type = 'upsert' (with primary_key) or type = 'append-only' to WITH",
            )
        return said or default or APPEND_ONLY, span
    if not spec.formats:
        raise SqlError(
            INVALID_DEFINITION,
            f'connector "{spec.name}" does not accept FORMAT',
            span=clause.span,
            hint="omit FORMAT … ENCODE …, and write type = 'append-only' or type = 'upsert' instead",
        )
    check_format(spec, clause.format, clause.encode, clause.span)
    _check_encode(clause)
    wanted = _TYPES[clause.format]
    if said is not None and said != wanted:
        raise SqlError(
            INVALID_DEFINITION,
            f"type = '{said}' contradicts FORMAT {clause.format}",
            span=span,
            hint=f"omit type, or write type = '{wanted}'",
        )
    return wanted, clause.span


def _check_encode(clause: FormatEncode) -> None:
    is_registered = clause.format != "DEBEZIUM" and needs_schema(
        clause.encode, {option.key: option_text(option.value) for option in clause.options}
    )
    if is_registered:
        _check_schema(clause)
    if clause.key_encode not in (None, clause.encode, *_KEY_TYPES):
        raise SqlError(
            NOT_SUPPORTED,
            f"KEY ENCODE {clause.key_encode} is not supported",
            span=clause.span,
            hint=f"omit KEY ENCODE to write keys as {clause.encode}, or write "
            f"{' or '.join(f'KEY ENCODE {kind}' for kind in _KEY_TYPES)}",
        )
    if clause.format == "DEBEZIUM" and clause.key_encode in _KEY_TYPES:
        raise SqlError(
            INVALID_DEFINITION,
            f"KEY ENCODE {clause.key_encode} contradicts FORMAT DEBEZIUM, whose keys are {clause.encode}",
            span=clause.span,
            hint=f"omit KEY ENCODE, or write FORMAT UPSERT … KEY ENCODE {clause.key_encode}",
        )
    for option in clause.options:
        if is_registered and is_of_schema(option.key):
            continue
        text = option_text(option.value)
        is_switch = option.key in (FORCE_APPEND_ONLY, "without_header")
        if option.key == FORCE_APPEND_ONLY or (clause.encode == "CSV" and option.key in _CSV_OPTIONS):
            if is_switch and text.lower() not in ("true", "false"):
                raise SqlError(
                    INVALID_DEFINITION,
                    f"{option.key} must be true or false, but is '{text}'",
                    span=option.value.span,
                    hint=f"{option.key} = 'true' or {option.key} = 'false'",
                )
            if not is_switch and text != "\\t" and _DELIMITER.fullmatch(text) is None:
                is_one = len(text) == 1
                raise SqlError(
                    INVALID_DEFINITION,
                    f"delimiter must be one{' ASCII' if is_one else ''} character"
                    f"{' that occurs in no number, time or quotation' if is_one else ''}, not '{text}'",
                    span=option.value.span,
                    hint="delimiter = ','",
                )
            continue
        takes = [FORCE_APPEND_ONLY, *(_CSV_OPTIONS if clause.encode == "CSV" else ())]
        raise SqlError(
            INVALID_DEFINITION,
            f"ENCODE {clause.encode} has no option {option.key}",
            span=option.key_place,
            hint=f"omit {option.key}; the options are " + ", ".join(takes),
        )


def _check_schema(clause: FormatEncode) -> None:
    """Raises SqlError if an option about a schema registry is invalid."""
    spec = load_spec("schema_registry")
    require_secret(clause.options, spec)
    given = {option.key: option_text(option.value) for option in clause.options if is_of_schema(option.key)}
    fault = next(filter(None, (schema_option_fault(key, value) for key, value in given.items())), None)
    fault = fault or schema_fault(clause.format, clause.encode, given, "kafka")
    if fault is None and (stray := next((key for key in given if key in _OF_SOURCES), None)) is not None:
        fault = EncodeFault(key=stray, message=f"a sink does not support {stray}", hint=f"omit {stray}")
    if fault is not None:
        places = {option.key: option.span for option in clause.options}
        raise SqlError(INVALID_DEFINITION, fault.message, span=places.get(fault.key, clause.span), hint=fault.hint)


def _check_key(statement: CreateSink, keys: tuple[str, ...], columns: Mapping[str, Any]) -> None:
    """Raises SqlError if the value of KEY ENCODE does not fit the primary key."""
    encode, clause = key_encode(statement), statement.format
    if encode is None or clause is None:
        return
    if len(keys) != 1:
        told = f"KEY ENCODE {encode} needs a primary key of one column, but got {', '.join(keys) or 'none'}"
    elif columns[keys[0]] not in _KEY_TYPES[encode]:
        told = f'KEY ENCODE {encode} does not fit column "{keys[0]}", whose type is {columns[keys[0]]}'
    else:
        return
    raise SqlError(
        INVALID_DEFINITION,
        told,
        span=clause.span,
        hint="TEXT takes VARCHAR, BOOLEAN and whole numbers, BYTES takes BYTEA; omit KEY ENCODE to write keys as "
        + clause.encode,
    )


def _is_forced(statement: CreateSink) -> bool:
    options = [*statement.options, *(statement.format.options if statement.format else ())]
    return any(option.key == FORCE_APPEND_ONLY and option_text(option.value).lower() == "true" for option in options)


def _require_followed(statement: CreateSink, given: SinkInput, type_: str, span: Span, *, is_forced: bool) -> None:
    """Raises SqlError SINK_CANNOT_FOLLOW if the sink could not write every change to the rows of its input."""
    if not given.keys and not given.is_changing:
        return
    if type_ == APPEND_ONLY and not is_forced:
        where = "the ENCODE options" if statement.format else "WITH"
        raise SqlError(
            SINK_CANNOT_FOLLOW,
            f"the sink cannot be append-only: {given.name} replaces its rows",
            span=span,
            hint=f"type = 'upsert' or FORMAT UPSERT writes replaced rows; force_append_only = 'true' in {where} "
            "appends each new state of a row and ignores deletions",
        )
    if type_ == DEBEZIUM and not given.has_before:
        raise SqlError(
            SINK_CANNOT_FOLLOW,
            "FORMAT DEBEZIUM needs the previous rows, which the sink's query does not keep",
            span=span,
            hint=f"CREATE MATERIALIZED VIEW v AS …; then CREATE SINK {sql_name(statement.name.key)} FROM v",
        )


def _keys(
    statement: CreateSink, given: SinkInput, shape: SinkShape, spec: ConnectorSpec, *, is_forced: bool
) -> tuple[str, ...]:
    option = _given(statement, "primary_key")
    columns = shape.columns
    is_keyed = shape.type != APPEND_ONLY
    if option is None:
        if is_keyed and not given.keys:
            raise SqlError(
                MISSING_PROPERTY,
                f"no primary key for the {shape.type} sink",
                span=statement.name.span,
                hint=f"add primary_key = '{next(iter(columns), 'id')}' to WITH: the columns that identify a row",
            )
        return given.keys if is_keyed else ()
    if not is_keyed and not spec.formats:
        raise SqlError(
            INVALID_PROPERTY,
            "property \"primary_key\" has no effect with type = 'append-only'",
            span=option.key_place,
            hint="type = 'upsert' replaces rows by their primary key",
        )
    keys = tuple(dict.fromkeys(part.strip() for part in option_text(option.value).split(",") if part.strip()))
    for key in keys:
        if key not in columns:
            near = near_names(key, columns)
            raise SqlError(
                UNDEFINED_COLUMN,
                f'column "{key}" of the primary key does not exist',
                span=option.value.span,
                hint=f'did you mean "{near[0]}"?' if near else "the sink's columns are " + ", ".join(columns),
            )
    if is_keyed and given.keys and set(keys) != set(given.keys):
        raise SqlError(
            SINK_CANNOT_FOLLOW,
            f"the rows of {given.name} have the key ({', '.join(given.keys)}), not ({', '.join(keys)})",
            span=option.value.span,
            hint=f"write primary_key = '{','.join(given.keys)}', or omit it",
        )
    return keys
