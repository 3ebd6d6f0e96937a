"""Provides hints for errors that have no hint of their own. Each hint states how to solve the problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector, connector_names, sink_connector, sink_connector_names
from rw_sql.connectors.spec import OptionError, number_text
from rw_sql.errors import (
    DUPLICATE_CLAUSE,
    DUPLICATE_OBJECT,
    INVALID_DEFINITION,
    INVALID_EXPRESSION,
    INVALID_PARAMETER,
    INVALID_PROPERTY,
    MISSING_PROPERTY,
    UNSUPPORTED_TYPE,
    UNTERMINATED,
)
from rw_sql.model.definitions import connector_of
from rw_sql.model.parameters import SESSION_PARAMETERS, SYSTEM_PARAMETERS
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.statements import CreateSink, CreateSource, CreateTable

if TYPE_CHECKING:
    from rw_sql.connectors.spec import OptionSpec
    from rw_sql.errors import SqlError
    from rw_sql.syntax.statements import Statement

_LANGUAGE = "docs/reference/language.md shows each statement with an example"
_EXAMPLES = {"duration": "10s", "boolean": "true", "timestamp": "2026-01-31 08:00:00Z", "text": "…"}


def hint_for(error: SqlError, statement: Statement | None) -> str:
    """Returns a hint for an error that has no hint of its own."""
    match error.kind:
        case kind if kind is UNTERMINATED:
            return "close it with the sign that opened it: ' with ', \" with \", /* with */"
        case kind if kind is INVALID_EXPRESSION:
            return "run the query or expression alone: EXPLAIN SELECT …"
        case kind if kind is DUPLICATE_OBJECT:
            return _of_taken_name(statement)
        case kind if kind is DUPLICATE_CLAUSE:
            return "omit one of the two, or give it another name"
        case kind if kind is INVALID_PROPERTY and isinstance(error, OptionError):
            return _of_option(error, statement)
        case kind if kind in (INVALID_PROPERTY, MISSING_PROPERTY, INVALID_DEFINITION):
            return "omit the property to use its default"
        case kind if kind is UNSUPPORTED_TYPE:
            return (
                "valid types are BOOLEAN, INT, BIGINT, NUMERIC(p, s), DOUBLE PRECISION, VARCHAR, DATE, TIMESTAMPTZ, …"
            )
        case kind if kind is INVALID_PARAMETER:
            known = {**SESSION_PARAMETERS, **SYSTEM_PARAMETERS}
            name = next((name for name in known if f'"{name}"' in error.message), None)
            return f"{name} = '{known[name].default}' is the default" if name is not None else _LANGUAGE
        case _:
            return _LANGUAGE


def _of_taken_name(statement: Statement | None) -> str:
    name = getattr(statement, "name", None)
    word = type(statement).__name__
    if name is None or not word.startswith("Create"):
        return "use another name"
    kind = "MATERIALIZED VIEW" if word == "CreateMaterializedView" else word.removeprefix("Create").upper()
    return f"CREATE {kind} IF NOT EXISTS {sql_name(name.key)} keeps the existing object; or choose another name"


def _of_option(error: OptionError, statement: Statement | None) -> str:
    option = _option(error.key, statement)
    if option is None:
        return f"omit {error.key} to use its default"
    if option.key.endswith("bootstrap.server"):
        return f"{error.key} = 'host:9092'"
    if option.choices:
        return " or ".join(f"{error.key} = '{choice}'" for choice in option.choices[:3])
    value = option.default or _EXAMPLES.get(option.type)
    if value is None:
        value = number_text(option.minimum if option.minimum is not None else 1)
    return f"{error.key} = '{value}'"


def _option(key: str, statement: Statement | None) -> OptionSpec | None:
    if not isinstance(statement, CreateSource | CreateTable | CreateSink):
        return None
    name = connector_of(statement)
    if isinstance(statement, CreateSink):
        return sink_connector(name).spec.option(key) if name in sink_connector_names() else None
    return connector(name).spec.option(key) if name in connector_names() else None
