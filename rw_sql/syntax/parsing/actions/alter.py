"""Actions for the ALTER statements that several kinds of objects share.

Each action returns a function. This function receives the object's kind and name, and returns the statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.errors import INVALID_OPTION, SYNTAX_ERROR, SqlError
from rw_sql.syntax.lexing.identifiers import quoted, sql_name
from rw_sql.syntax.parsing.actions.columns import one_of
from rw_sql.syntax.parsing.actions.parts import read_switches, refuse_twice
from rw_sql.syntax.statements.alter import (
    AlterAddColumn,
    AlterConnector,
    AlterFragment,
    AlterOwner,
    AlterRefreshSchema,
    AlterRename,
    AlterReset,
    AlterResetConfig,
    AlterSet,
    AlterSetConfig,
    AlterSetConnection,
    AlterSetSchema,
    AlterSourceFormat,
    AlterSourceReset,
    AlterSwap,
)
from rw_sql.syntax.statements.common import NumberValue, Statement, TextValue, WordValue
from rw_sql.syntax.statements.materialized_view import AlterMaterializedViewQuery
from rw_sql.syntax.statements.source import AlterSourceUnsafeSet
from rw_sql.syntax.statements.table import AlterTableUnsafeSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.lexing.tokens import Token
    from rw_sql.syntax.parsing.actions.columns import UntypedColumn
    from rw_sql.syntax.statements.common import ColumnDefinition, FormatEncode, Name, Option, OptionKey
    from rw_sql.syntax.statements.session import ParameterValue

Change = "Callable[[str, Name], Statement]"

_RATE_LIMITS = ("source_rate_limit", "backfill_rate_limit", "dml_rate_limit", "sink_rate_limit")
_PARALLELISM = ("parallelism", "backfill_parallelism")
_SETTABLE = {
    "SOURCE": (*_RATE_LIMITS, "barrier_interval_ms", *_PARALLELISM, "resource_group"),
    "TABLE": (*_RATE_LIMITS, *_PARALLELISM, "resource_group"),
    "SINK": (*_RATE_LIMITS, *_PARALLELISM, "resource_group"),
    "MATERIALIZED VIEW": (*_RATE_LIMITS, *_PARALLELISM, "resource_group", "streaming_enable_unaligned_join"),
    "FRAGMENT": ("rate_limit", "parallelism"),
}
_DEFERRABLE = (*_PARALLELISM, "resource_group")


def alter_source(name: Name, change: Callable[[str, Name], Statement]) -> Statement:
    return change("SOURCE", name)


def alter_table(_only: None, name: Name, change: Callable[[str, Name], Statement]) -> Statement:
    return change("TABLE", name)


def alter_sink(name: Name, change: Callable[[str, Name], Statement]) -> Statement:
    return change("SINK", name)


def alter_connection(name: Name, change: Callable[[str, Name], Statement]) -> Statement:
    return change("CONNECTION", name)


def alter_materialized_view(name: Name, change: Callable[[str, Name], Statement]) -> Statement:
    return change("MATERIALIZED VIEW", name)


def rename_to(new_name: Name) -> Callable[[str, Name], Statement]:
    return lambda kind, name: AlterRename(kind=kind, name=name, new_name=new_name)


def owner_to(owner: Token) -> Callable[[str, Name], Statement]:
    return lambda kind, name: AlterOwner(kind=kind, name=name, owner=owner.value)


def set_schema(schema: Name) -> Callable[[str, Name], Statement]:
    return lambda kind, name: AlterSetSchema(kind=kind, name=name, schema=schema)


def swap_with(other: Name) -> Callable[[str, Name], Statement]:
    return lambda kind, name: AlterSwap(kind=kind, name=name, other=other)


def add_column(
    _column: None, if_not_exists: bool | None, column: ColumnDefinition | UntypedColumn
) -> Callable[[str, Name], Statement]:
    from rw_sql.syntax.statements.common import ColumnDefinition

    if not isinstance(column, ColumnDefinition):
        raise SqlError(
            SYNTAX_ERROR,
            f'column "{column.token.value}" has no type',
            span=column.token.span,
            hint=f"write a type after the name: {quoted(column.token.value)} INT",
        )
    return lambda kind, name: AlterAddColumn(kind=kind, name=name, column=column, if_not_exists=bool(if_not_exists))


def alter_connector(options: tuple[Option, ...]) -> Callable[[str, Name], Statement]:
    return lambda kind, name: AlterConnector(kind=kind, name=name, options=options)


def refresh_schema() -> Callable[[str, Name], Statement]:
    return lambda kind, name: AlterRefreshSchema(kind=kind, name=name)


def alter_set(
    parameter: Token, _to: None, values: tuple[ParameterValue, ...] | None, is_deferred: bool | None
) -> Callable[[str, Name], Statement]:
    def change(kind: str, name: Name) -> Statement:
        known = _settable(kind, parameter, values, is_deferred)
        return AlterSet(
            kind=kind,
            name=name,
            parameter=known,
            values=values or (),
            is_deferred=bool(is_deferred),
            parameter_span=parameter.span,
        )

    return change


def _settable(kind: str, parameter: Token, values: tuple[ParameterValue, ...] | None, is_deferred: bool | None) -> str:
    settable = _SETTABLE.get(kind, ())
    try:
        known = one_of(parameter, settable, f"expected SCHEMA, CONFIG or {_upper(settable)} after SET")
    except SqlError as error:
        if kind == "SOURCE" and not (error.hint or "").startswith("did you mean"):
            error.message = f'"{parameter.value}" is not a parameter of SET'
            error.hint = _other_change(parameter, values)
        raise
    if known.endswith(("rate_limit", "interval_ms")) and values is not None:
        first = values[0]
        digits = first.text if isinstance(first, NumberValue) and first.text.isascii() else ""
        if len(values) > 1 or not digits.isdecimal() or len(digits) > 10 or int(digits) > 2**31 - 1:
            raise SqlError(
                SYNTAX_ERROR,
                "expected number or DEFAULT",
                span=first.span,
                hint="write a whole number such as 1000, or DEFAULT",
            )
    if values is not None and isinstance(values[-1], WordValue) and values[-1].text == "deferred":
        raise SqlError(
            SYNTAX_ERROR,
            "expected a value, found: DEFERRED",
            span=values[-1].span,
            hint="write a number or DEFAULT before DEFERRED",
        )
    if is_deferred and known not in _DEFERRABLE:
        raise SqlError(INVALID_OPTION, f"{known.upper()} cannot be deferred", span=parameter.span, hint="omit DEFERRED")
    return known


def _other_change(parameter: Token, values: tuple[ParameterValue, ...] | None) -> str:
    match parameter.value.lower():
        case "name":
            given = values[0].text if values and isinstance(values[0], WordValue | TextValue) else ""
            return f"write RENAME TO {sql_name(given) if given else 'another_name'} to change the name"
        case "owner":
            return "objects have no owners here: grant rights on the warehouse's folders"
    return (
        "SET takes SOURCE_RATE_LIMIT, BARRIER_INTERVAL_MS or RESOURCE_GROUP; to change a property of WITH, write "
        f"UNSAFE SET ({parameter.text} = …)"
    )


"""Hints for words that ALTER SOURCE does not accept after SET."""


def _upper(names: tuple[str, ...]) -> str:
    return ", ".join(name.upper() for name in names)


def alter_reset(parameter: Token, is_deferred: bool | None) -> Callable[[str, Name], Statement]:
    def change(kind: str, name: Name) -> Statement:
        known = ("resource_group",) if "resource_group" in _SETTABLE.get(kind, ()) else ()
        word = one_of(parameter, known, f"expected CONFIG{' or RESOURCE_GROUP' if known else ''} after RESET")
        return AlterReset(
            kind=kind, name=name, parameter=word, is_deferred=bool(is_deferred), parameter_span=parameter.span
        )

    return change


def set_config(options: tuple[Option, ...]) -> Callable[[str, Name], Statement]:
    return lambda kind, name: AlterSetConfig(kind=kind, name=name, options=options)


def reset_config(keys: tuple[OptionKey, ...]) -> Callable[[str, Name], Statement]:
    return lambda kind, name: AlterResetConfig(kind=kind, name=name, keys=keys)


UnsafeChanges = tuple[tuple["Option", ...], tuple["OptionKey", ...]]


def unsafe_options(options: tuple[Option, ...]) -> UnsafeChanges:
    return options, ()


def unsafe_keys(keys: tuple[OptionKey, ...]) -> UnsafeChanges:
    return (), keys


def unsafe_options_and_keys(options: tuple[Option, ...], keys: tuple[OptionKey, ...]) -> UnsafeChanges:
    refuse_twice("option", [(o.key, o.span) for o in options] + [(key.key, key.span) for key in keys])
    return options, keys


def unsafe_set(
    changes: UnsafeChanges, allow: tuple[str, ...], switches: tuple[Option, ...], reason: str | None
) -> Callable[[str, Name], Statement]:
    read = read_switches(switches, {"validate": True})

    def change(kind: str, name: Name) -> Statement:
        made = AlterSourceUnsafeSet if kind == "SOURCE" else AlterTableUnsafeSet
        return made(
            name=name,
            set_options=changes[0],
            unset_options=changes[1],
            allow=allow,
            is_validated=read["validate"],
            reason=reason,
        )

    return change


def set_connection(
    connection: Name | None, switches: tuple[Option, ...], reason: str | None
) -> Callable[[str, Name], Statement]:
    is_validated = read_switches(switches, {"validate": True})["validate"]
    return lambda kind, name: AlterSetConnection(
        kind=kind, name=name, connection=connection, is_validated=is_validated, reason=reason
    )


def unset_connection(switches: tuple[Option, ...], reason: str | None) -> Callable[[str, Name], Statement]:
    return set_connection(None, switches, reason)


def reset_position() -> Callable[[str, Name], Statement]:
    return lambda _, name: AlterSourceReset(name=name)


def alter_format(given: FormatEncode) -> Callable[[str, Name], Statement]:
    if given.key_encode is not None:
        raise SqlError(
            SYNTAX_ERROR,
            "key encode clause is not supported in source schema",
            span=given.span,
            hint="omit KEY ENCODE",
        )
    return lambda _, name: AlterSourceFormat(name=name, format=given)


def alter_query(text: Token) -> Callable[[str, Name], Statement]:
    from rw_sql.syntax.parsing.actions.parts import query

    checked = query(text)
    return lambda _, name: AlterMaterializedViewQuery(name=name, query=checked)


def alter_fragment(
    ids: tuple[int, ...], parameter: Token, _to: None, values: tuple[ParameterValue, ...] | None
) -> AlterFragment:
    known = _settable("FRAGMENT", parameter, values, None)
    return AlterFragment(ids=ids, parameter=known, values=values or (), parameter_span=parameter.span)


ALTER_RULES: dict[str, Callable[..., Any]] = {
    "alter_source": alter_source,
    "alter_table": alter_table,
    "alter_sink": alter_sink,
    "alter_connection": alter_connection,
    "alter_materialized_view": alter_materialized_view,
    "alter_fragment": alter_fragment,
    "rename_to": rename_to,
    "owner_to": owner_to,
    "set_schema": set_schema,
    "swap_with": swap_with,
    "add_column": add_column,
    "alter_connector": alter_connector,
    "refresh_schema": refresh_schema,
    "alter_set": alter_set,
    "alter_reset": alter_reset,
    "set_config": set_config,
    "reset_config": reset_config,
    "unsafe_options": unsafe_options,
    "unsafe_keys": unsafe_keys,
    "unsafe_options_and_keys": unsafe_options_and_keys,
    "unsafe_set": unsafe_set,
    "set_connection": set_connection,
    "unset_connection": unset_connection,
    "reset_position": reset_position,
    "alter_format": alter_format,
    "alter_query": alter_query,
}
