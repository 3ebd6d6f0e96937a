"""Checks a source's definition before anything is asked of its upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector
from rw_sql.connectors.spec import OptionError, check_format, check_include, check_option_values
from rw_sql.errors import DUPLICATE_CLAUSE, INVALID_DEFINITION, MISSING_PROPERTY, NOT_SUPPORTED, SqlError
from rw_sql.plan.definitions import connector_of, source_columns, upstream_options
from rw_sql.syntax import canonical_type
from rw_sql.syntax.statements import ConnectionValue, SecretValue

if TYPE_CHECKING:
    from rw_sql.syntax.statements import CreateSource

SUPPORTED_ENCODES = ("JSON", "BYTES", "CSV", "NATIVE")


def check_source(statement: CreateSource) -> str:
    """The connector's name, once columns, options and formats fit together. Raises SqlError at the first misfit."""
    _check_supported(statement)
    name = _connector_name(statement)
    kind = connector(name, statement.name.span)
    options = dict(upstream_options(statement))
    spans = {option.key: option.span for option in statement.options}
    values = {option.key: option.value.span for option in statement.options}
    for option in statement.options:
        if isinstance(option.value, SecretValue | ConnectionValue):
            raise SqlError(
                NOT_SUPPORTED,
                "secrets and connections are not supported yet",
                span=option.value.span,
                hint="write the property's value",
            )
    try:
        check_option_values(kind.spec, options, spans)
        kind.check_options(options)
    except OptionError as error:
        if error.span is None:
            error.span = values.get(error.key, statement.name.span)
        raise
    _check_format(statement, name)
    _check_columns(statement, name)
    try:
        kind.check_columns(options, {column.name: canonical_type(column.data_type) for column in statement.columns})
    except OptionError as error:
        if error.span is None:
            error.span = spans.get(error.key, statement.name.span)
        raise
    return name


def _connector_name(statement: CreateSource) -> str:
    if not statement.options:
        raise SqlError(
            MISSING_PROPERTY, "missing WITH clause", span=statement.name.span, hint="WITH (connector = 'kafka', …)"
        )
    name = connector_of(statement)
    if name is None:
        raise SqlError(
            MISSING_PROPERTY,
            "missing field 'connector'",
            span=statement.options[0].span,
            hint="WITH (connector = 'kafka', …)",
        )
    return name


def _check_format(statement: CreateSource, name: str) -> None:
    spec = connector(name).spec
    clause = statement.format
    if clause is None:
        if "NATIVE" not in spec.formats:
            raise SqlError(
                INVALID_DEFINITION,
                "a source of this connector needs FORMAT and ENCODE",
                span=statement.name.span,
                hint="end the statement with FORMAT PLAIN ENCODE JSON",
            )
        return
    check_format(spec, clause.format, clause.encode, clause.span)
    if clause.format not in ("PLAIN", "NATIVE") or clause.encode not in SUPPORTED_ENCODES:
        raise SqlError(
            NOT_SUPPORTED,
            f"FORMAT {clause.format} ENCODE {clause.encode} is not supported yet",
            span=clause.span,
            hint="use FORMAT PLAIN with ENCODE JSON, CSV or BYTES",
        )
    if clause.encode == "CSV":
        _check_csv(statement)


def _check_csv(statement: CreateSource) -> None:
    assert statement.format is not None
    for option in statement.format.options:
        text = getattr(option.value, "text", "")
        if option.key == "delimiter" and (len(text) == 1 or text in ("\\t", "tab")):
            continue
        if option.key == "without_header" and text.lower() == "true":
            continue
        if option.key == "without_header":
            raise SqlError(
                INVALID_DEFINITION,
                "records of a stream have no header line: without_header must be 'true'",
                span=option.value.span,
            )
        raise SqlError(
            INVALID_DEFINITION,
            f"ENCODE CSV does not take {option.key} = {text!r}",
            span=option.span,
            hint="it takes without_header = 'true' and delimiter = ','",
        )


def _check_supported(statement: CreateSource) -> None:
    """Raises SqlError NOT_SUPPORTED for what is understood but cannot be run yet, with what to do instead."""
    span = statement.name.span
    refused = (
        (statement.or_replace, span, "OR REPLACE", f"DROP SOURCE {statement.name} first, or ALTER SOURCE … UNSAFE SET"),
        (statement.is_temporary, span, "TEMPORARY", "leave it out; DROP SOURCE removes the source when you are done"),
        (statement.wildcard is not None, span, "* among the columns", "list the columns"),
        (bool(statement.constraints), span, "PRIMARY KEY of a source", "leave it out: a source only appends"),
        (bool(statement.watermarks), span, "WATERMARK FOR", "leave it out"),
    )
    for is_there, place, what, instead in refused:
        if is_there:
            raise SqlError(NOT_SUPPORTED, f"{what} is not supported yet in CREATE SOURCE", span=place, hint=instead)


def _check_columns(statement: CreateSource, name: str) -> None:
    if not statement.columns:
        raise SqlError(
            INVALID_DEFINITION,
            "a source needs columns",
            span=statement.name.span,
            hint=f"CREATE SOURCE {statement.name.last} (id INT, …) …",
        )
    for column in statement.columns:
        if column.generated or column.default or column.is_primary_key or column.is_not_null:
            raise SqlError(
                NOT_SUPPORTED,
                f'column "{column.name}": generated columns, defaults and constraints are not supported yet',
                span=column.span,
                hint="compute it in a materialized view",
            )
        if column.name.startswith("_rw_"):
            raise SqlError(
                INVALID_DEFINITION,
                f'column "{column.name}" cannot begin with _rw_, which names hidden columns',
                span=column.span,
            )
    for included in statement.include:
        check_include(connector(name).spec, included.kind, included.span)
    if statement.format is not None and statement.format.encode == "BYTES":
        _check_bytes(statement)
    names = [column.lower() for column, _ in source_columns(statement)]
    for column in statement.columns:
        if names.count(column.name.lower()) > 1:
            raise SqlError(DUPLICATE_CLAUSE, f'column "{column.name}" is defined more than once', span=column.span)
    hidden = {"_rw_split", "_rw_offset", "_rw_run", "_rw_error", "_rw_raw", "_rw_bucket"}
    for included in statement.include:
        if included.alias and included.alias.lower() in hidden:
            raise SqlError(
                INVALID_DEFINITION, f'column "{included.alias}" is the name of a hidden column', span=included.span
            )


def _check_bytes(statement: CreateSource) -> None:
    first = statement.columns[0]
    if len(statement.columns) != 1 or first.data_type.name != "BYTEA":
        raise SqlError(
            INVALID_DEFINITION,
            "ENCODE BYTES takes exactly one column, of type bytea",
            span=first.span,
            hint=f"CREATE SOURCE {statement.name.last} (data bytea) …",
        )
