"""Actions for the statements about connections and secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.errors import DUPLICATE_CLAUSE, SYNTAX_ERROR, SqlError
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.parsing.actions.parts import dropped, read_switches, words
from rw_sql.syntax.statements.common import ConnectionValue, Name, NumberValue, SecretValue, TextValue, WordValue
from rw_sql.syntax.statements.connection import (
    AlterConnectionOptions,
    AlterSecret,
    ConnectionChange,
    CreateConnection,
    CreateSecret,
    DropConnection,
    DropSecret,
    Validate,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.statements.common import Option, OptionKey, OptionValue, Statement


def create_connection(
    or_replace: bool | None, if_not_exists: bool | None, name: Name, options: tuple[Option, ...]
) -> CreateConnection:
    if not options:
        raise SqlError(SYNTAX_ERROR, "connection properties not provided", hint="add WITH (type = 'kafka', ...)")
    for option in options:
        if isinstance(option.value, ConnectionValue):
            raise SqlError(
                SYNTAX_ERROR,
                "connection reference is not allowed in options in CREATE CONNECTION",
                span=option.key_place,
                hint="omit connection, and write the properties of the other connection here",
            )
    return CreateConnection(name=name, options=options, if_not_exists=bool(if_not_exists), or_replace=bool(or_replace))


def drop_connection(if_exists: bool | None, name: Name, is_cascade: bool | None) -> DropConnection:
    return DropConnection(name=dropped(name), if_exists=bool(if_exists), is_cascade=bool(is_cascade))


def set_options(listed: tuple[Option, ...]) -> ConnectionChange:
    return ConnectionChange(verb="SET", options=listed)


def drop_options(keys: tuple[OptionKey, ...]) -> ConnectionChange:
    return ConnectionChange(verb="DROP", keys=keys)


def reset_options(keys: tuple[OptionKey, ...]) -> ConnectionChange:
    return ConnectionChange(verb="RESET", keys=keys)


def option_changes(*changes: ConnectionChange) -> tuple[ConnectionChange, ...]:
    seen: dict[str, str] = {}
    for change in changes:
        named = [(option.key, option.key_place) for option in change.options]
        named += [(key.key, key.span) for key in change.keys]
        for key, span in named:
            before = seen.setdefault(key, change.verb)
            if before != change.verb and "SET" in (before, change.verb):
                raise SqlError(
                    DUPLICATE_CLAUSE,
                    f"cannot both SET and DROP/RESET options {key}",
                    span=span,
                    hint=f"remove {key} from one of the two",
                )
            if before != change.verb or change is not _first_with(changes, key):
                raise SqlError(DUPLICATE_CLAUSE, f"{key} specified more than once", span=span, hint=f"omit one {key}")
    return changes


def _first_with(changes: tuple[ConnectionChange, ...], key: str) -> ConnectionChange:
    return next(c for c in changes if any(o.key == key for o in c.options) or any(k.key == key for k in c.keys))


def alter_connection_options(
    name: Name,
    changes: tuple[ConnectionChange, ...],
    switches: tuple[Option, ...],
    reason: str | None,
    *,
    if_exists: bool = False,
) -> AlterConnectionOptions:
    read = read_switches(switches, {"validate": True})
    return AlterConnectionOptions(
        name=name, changes=changes, if_exists=if_exists, is_validated=read["validate"], reason=reason
    )


def alter_connection_if_exists(
    name: Name, changes: tuple[ConnectionChange, ...], switches: tuple[Option, ...], reason: str | None
) -> AlterConnectionOptions:
    return alter_connection_options(name, changes, switches, reason, if_exists=True)


Content = "OptionValue | Name | None"


def _content(value: OptionValue | Name) -> OptionValue:
    """A secret's content. Raises SqlError SYNTAX_ERROR if the content is not a literal."""
    if isinstance(value, Name) and len(value.parts) == 1 and value.span.end - value.span.start > len(value.last):
        return TextValue(text=value.last, span=value.span)
    if isinstance(value, SecretValue):
        raise SqlError(
            SYNTAX_ERROR,
            "expected a concrete value rather than a secret reference",
            span=value.span,
            hint="write the value in quotes: '…'",
        )
    if isinstance(value, (TextValue, NumberValue)):
        return value
    if isinstance(value, WordValue) and value.text in ("true", "false", "null"):
        return value
    raise SqlError(
        SYNTAX_ERROR, "secret value should be quoted by ' or \" ", span=value.span, hint="write AS 'the content'"
    )


def create_secret(
    if_not_exists: bool | None, name: Name, options: tuple[Option, ...], content: OptionValue | Name | None
) -> CreateSecret:
    if not options and content is None:
        raise SqlError(
            SYNTAX_ERROR,
            "secret backend is not specified in with clause. Supported backends are: meta,hashicorp_vault",
            hint=f"CREATE SECRET {sql_name(name.key)} WITH (backend = 'meta') AS 'the content'",
            span=name.span,
        )
    return CreateSecret(
        name=name,
        options=options,
        content=_content(content) if content is not None else None,
        if_not_exists=bool(if_not_exists),
    )


def drop_secret(if_exists: bool | None, name: Name, is_cascade: bool | None) -> DropSecret:
    return DropSecret(name=dropped(name), if_exists=bool(if_exists), is_cascade=bool(is_cascade))


def change_secret(options: tuple[Option, ...], content: OptionValue | Name) -> Callable[[str, Name], Statement]:
    checked = _content(content)
    return lambda _, name: AlterSecret(name=name, content=checked, options=options)


def alter_secret(name: Name, change: Callable[[str, Name], Statement]) -> Statement:
    return change("SECRET", name)


def validate(kind: str, name: Name) -> Validate:
    return Validate(kind=kind, name=name)


CONNECTION_RULES: dict[str, Callable[..., Any]] = {
    "create_connection": create_connection,
    "drop_connection": drop_connection,
    "set_options": set_options,
    "drop_options": drop_options,
    "reset_options": reset_options,
    "option_changes": option_changes,
    "alter_connection_options": alter_connection_options,
    "alter_connection_if_exists": alter_connection_if_exists,
    "create_secret": create_secret,
    "drop_secret": drop_secret,
    "change_secret": change_secret,
    "alter_secret": alter_secret,
    "validate": validate,
    "validated_kind": words,
}
