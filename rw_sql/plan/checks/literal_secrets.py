"""Finds secrets that a statement contains as literals. The check needs no catalog, so it can run before the statement's
text is stored anywhere."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING

from rw_sql.connectors.connection_types import connection_spec, connection_types
from rw_sql.connectors.formats import LOCATION, SPECS
from rw_sql.connectors.registry import connector, connector_names, sink_connector, sink_connector_names
from rw_sql.connectors.spec import load_spec, plain_keys
from rw_sql.errors import INVALID_PROPERTY, UNKNOWN_PROPERTY, SqlError, near_names
from rw_sql.masking import SECRET_WORDS, contains_password, masked, names_server, password_parameter
from rw_sql.model.definitions import REFRESH_OPTIONS, option_text
from rw_sql.plan.checks.cdc_tables import OPTIONS
from rw_sql.plan.checks.sources import require_secret
from rw_sql.syntax.statements import AlterSecret, AlterSetConfig, ConnectionValue, CreateSecret, Option, SecretValue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.syntax.statements import Statement

_TELLING = re.compile(SECRET_WORDS, re.IGNORECASE)
_URL = "jdbc.url"
_WITHOUT_CONNECTOR_OPTIONS = (CreateSecret, AlterSecret, AlterSetConfig)


def refuse_literal_secrets(statement: Statement) -> None:
    """Raises SqlError in two cases: an option that is secret in any connector has a literal as its value, or an address
    contains a password. Also raises SqlError for a literal in an unknown option whose name is similar to a secret
    option's name.

    The statement is checked against the options of all connectors, because an ALTER statement does not name the
    connector. Only the catalog contains the connector's name. The result does not depend on the connector, because no
    option is secret in one connector and plain in another.
    """
    if not isinstance(statement, _WITHOUT_CONNECTOR_OPTIONS):
        for options in _lists(statement):
            _refuse(options)


def refuse_passwords(statement: Statement) -> None:
    """Raises SqlError for an option whose value contains a password. Also raises SqlError for a literal in an option
    that has no effect and whose name suggests a secret.

    Unlike :func:`refuse_literal_secrets`, this function loads the options of all connectors only in two cases: if a
    value in the statement resembles an address with a password, or if the name of an option suggests a secret.
    """
    if isinstance(statement, _WITHOUT_CONNECTOR_OPTIONS):
        return
    for options in _lists(statement):
        _refuse_without_effect(options)
        literals = (each for each in options if not isinstance(each.value, SecretValue | ConnectionValue))
        if doubtful := tuple(each for each in literals if contains_password(option_text(each.value))):
            _refuse(doubtful)


def hide_unknown(error: SqlError, statement: Statement) -> None:
    """Hides the values of unknown properties in the line of the statement that an error shows, because an unknown
    property may be a mistyped ``password``. The values of unknown properties that resemble only plain options stay
    visible."""
    if error.hides_literals or error.kind is UNKNOWN_PROPERTY or isinstance(statement, _WITHOUT_CONNECTOR_OPTIONS):
        return
    given = (option for options in _lists(statement) for option in options)
    keys = {option.key for option in given if not isinstance(option.value, SecretValue | ConnectionValue)}
    unknown = {key for key in keys if not (_knowing(key) or _is_of_format(key) or key in OPTIONS)}
    if hidden := {key for key in unknown if not _seems_plain(key)}:
        error.hides_literals = True
        error.plain_keys = frozenset(keys - hidden)


def _is_of_format(key: str) -> bool:
    return key in REFRESH_OPTIONS or any(spec.option(key) is not None for spec in SPECS.values())


@cache
def _seems_plain(key: str) -> bool:
    """True if the unknown key ``key`` resembles the key of a plain option and does not resemble the key of a secret
    option."""
    return _near(key) is None and any(plain_keys(spec, [key]) for spec in _specs())


def _knowing(key: str) -> list[ConnectorSpec]:
    """Returns the specifications of connectors and connection types that have an option with this key."""
    return [spec for spec in _specs() if spec.option(key) is not None]


def _lists(node: object) -> Iterator[tuple[Option, ...]]:
    """Yields each list of options in a statement."""
    if isinstance(node, tuple | list):
        if found := tuple(item for item in node if isinstance(item, Option)):
            yield found
        for item in node:
            yield from _lists(item)
    elif is_dataclass(node) and not isinstance(node, Option):
        for field in fields(node):
            yield from _lists(getattr(node, field.name))


def _refuse_without_effect(options: tuple[Option, ...]) -> None:
    """Raises SqlError for a literal in an option that has no effect and whose name suggests a secret. Only the options
    in the statement are checked. The options of stored definitions are not checked, because a stored option without
    effect must not prevent other changes."""
    for option in options:
        if isinstance(option.value, SecretValue | ConnectionValue) or not _TELLING.search(option.key):
            continue
        for spec in _specs():
            known = spec.option(option.key)
            if known is not None and known.is_ignored and known.is_pattern:
                raise SqlError(
                    INVALID_PROPERTY,
                    f'property "{option.key}" has no effect, and its value may be a secret',
                    span=option.key_place,
                    hint=f"omit {option.key}",
                    hides_literals=True,
                    plain_keys=plain_keys(spec, [each.key for each in options]),
                )


def _refuse(options: tuple[Option, ...]) -> None:
    _refuse_without_effect(options)
    for option in options:
        if isinstance(option.value, SecretValue | ConnectionValue):
            continue
        knowing = _knowing(option.key)
        for spec in knowing:
            require_secret((option,), spec)
        if not knowing and _seems_secret(option.key):
            raise SqlError(
                UNKNOWN_PROPERTY,
                f'no connector has a property "{option.key}"',
                span=option.key_place,
                hint=f'did you mean "{near}"?' if (near := _near(option.key)) else f"omit {option.key}",
            )
        text = option_text(option.value)
        is_address = not knowing or any(_is_address(option.key, spec, text) for spec in knowing)
        if contains_password(text, is_address=is_address):
            raise SqlError(
                INVALID_PROPERTY,
                f'property "{option.key}" must not contain a password',
                span=option.value_place,
                hint=_without_password(option.key, text),
                hides_literals=True,
            )


def _without_password(key: str, text: str) -> str:
    """Returns the hint for an address that contains a password."""
    if key == _URL:
        return "CREATE SECRET s WITH (backend = 'meta') AS '…'; then password = SECRET s"
    parameter = password_parameter(text)
    if parameter is None:
        return "write the address without user and password"
    if key == LOCATION:
        return f"the parameter {parameter} is a password: download the file, then {key} = 'file:///…'"
    return f"the parameter {parameter} is a password: write the address without it"


def _is_address(key: str, spec: ConnectorSpec, text: str) -> bool:
    """True if the value of an option is the address of a server. This is the case if the option is known to contain an
    address, or if the value is an HTTP or HTTPS URL."""
    known = spec.option(key)
    is_named = names_server(key) or (known is not None and known.is_address)
    return is_named or text.lower().startswith(("http://", "https://"))


def _seems_secret(key: str) -> bool:
    return masked(f"{key} = 'x'") != f"{key} = 'x'" or _near(key) is not None


@cache
def _near(key: str) -> str | None:
    """The secret option that the unknown key ``key`` resembles most. None if ``key`` resembles no secret option, or
    resembles a plain option more."""
    found = [(near[0], spec.option(near[0])) for spec in _specs() if (near := spec.near(key))]
    names = near_names(key, {name for name, _ in found}, most=1)
    # ``spec.near`` also compares ``key`` with the names of the option in other systems, so ``key`` need not resemble
    # the option's own name.
    return next(
        (name for name, known in found if known is not None and known.is_secret and name in (names or [name])), None
    )


@cache
def _specs() -> tuple[ConnectorSpec, ...]:
    """Returns the specifications of all connectors and connection types."""
    return (
        *(connector(name).spec for name in connector_names()),
        *(sink_connector(name).spec for name in sink_connector_names()),
        *(connection_spec(kind) for kind in connection_types()),
        load_spec("schema_registry"),
    )
