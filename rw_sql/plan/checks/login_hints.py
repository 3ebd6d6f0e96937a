"""Builds hints about the login to an upstream or target. The hints name the properties of the statement that contain
the login."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.connectors.connection_types import connection_spec, connection_types
from rw_sql.connectors.registry import connector, connector_names, sink_connector, sink_connector_names
from rw_sql.model.definitions import option_text
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.statements import SecretValue, TextValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.syntax.statements import ConnectionValue, Option

PROTOCOL_KEY = "properties.security.protocol"

ADDRESS = re.compile(
    r"^(?!.*(?:\bssl\.|\boauth|_pem_|schema\.location))(?:.*[._])?"
    r"(?:bootstrap\.servers?|schema\.registry|url|uri|hostname|host|endpoint|path|location|root)$"
)
"""Matches the properties that contain the address of an upstream or target. Does not match properties about
certificates or OAuth servers."""

_USER = re.compile(
    r"^(?!.*\bssl\.)(?:.*\.)?(?:user|username|password|jwt|nkey|token|principal|keytab|client_cert|client_key|"
    r"(?:access|secret)\.key|oauth\.\w+\.url|credentials?(?:\..+)?)$"
)
"""Matches the keys of properties that contain a part of the login to an upstream or target."""

_CERTIFICATE = re.compile(r"(?<!\benable\.)\bssl\.(?:certificate|keystore|key)\.")
_OF_REST = re.compile(r"catalog\.(?:token|credential)$")
_OF_CATALOG = re.compile(r"catalog\.")
"""``_OF_REST`` matches the properties that contain the login to an Iceberg REST catalog. ``_OF_CATALOG`` matches all
properties of an Iceberg catalog. For a catalog in a SQLite file, a hint names none of these properties, because such a
catalog has no login."""

_IDENTITY = re.compile(
    r"(?:^|\.)(?:user|username|principal|access\.key|credentials\.(?:access|access_key_id|account_name|role\..+))$"
)
"""Matches the properties of a login that contain the name of a user or role, and not a password or secret key."""


def parts_of_login(options: Iterable[Option]) -> list[Option]:
    """Returns the properties that contain a part of the login, and the addresses that contain a login. Properties about
    certificates come last: if a server requires a user, the user is more probably wrong than the certificate."""
    listed = tuple(options)
    users = [option for option in listed if _is_of_user(option)]
    return [*users, *(option for option in listed if option not in users and _CERTIFICATE.search(option.key))]


def _is_of_user(option: Option) -> bool:
    if ADDRESS.search(option.key) is not None and "@" in option_text(option.value):
        return True
    return _USER.search(option.key) is not None


def login_hint(
    login: Sequence[Option], connection: ConnectionValue | None, otherwise: str, shared: Sequence[Option]
) -> str | None:
    """Returns the hint for a server that refuses the login. ``login`` are the properties of the login in the statement.
    ``shared`` are the properties of the login in the connection; empty if they are not known. ``otherwise`` is a
    statement that shows the properties. Returns None if ``login`` and ``otherwise`` are empty and the statement names
    no connection."""
    if connection is not None and shared and not login:
        listed = ", ".join(f"{option.key} = '…'" for option in shared if not isinstance(option.value, SecretValue))
        name = sql_name(connection.connection.key)
        changes = f": ALTER CONNECTION {name} SET ({listed}) changes it" if listed else ""
        return f"correct the login of connection {name}{changes}{_secret_hint(shared)}"
    if login:
        hint = f"correct the login in {' and '.join(option.key for option in login)}{_secret_hint(login)}"
        return hint if connection is None else f"{hint}; {of_connection(connection, 'rest of it', '…')}"
    if connection is not None:
        return f"correct the login: {of_connection(connection, 'login', '…')}"
    return f"correct the login in the properties that {otherwise} shows" if otherwise else None


def _secret_hint(login: Sequence[Option]) -> str:
    """Returns the last part of a hint, which names the statement that changes the secret of a login. Returns the empty
    string if the login has no secret."""
    with_secret = [(option.key, option.value.secret) for option in login if isinstance(option.value, SecretValue)]
    if not with_secret:
        return ""
    _, secret = min(with_secret, key=lambda found: _IDENTITY.search(found[0]) is not None)
    return f"; ALTER SECRET {sql_name(secret.key)} AS '…' changes the secret"


def missing_login(options: Iterable[Option]) -> str:
    """The hint for a server that requires a login, if the statement has no login. The hint names the properties of a
    login."""
    listed = tuple(options)
    spec, given = spec_of(listed), {option.key: option_text(option.value).lower() for option in listed}
    if spec is None:
        return "add the login to the WITH list"
    unfit = _OF_REST if given.get("catalog.type") == "jdbc" else None
    unfit = _OF_CATALOG if given.get("catalog.uri", "").startswith("jdbc:sqlite:") else unfit
    known = [o for o in spec.options.values() if _USER.search(o.key) and not (unfit and unfit.match(o.key))]
    secret = next((option.key for option in known if option.is_secret), None)
    if secret is None:
        return f"give this process the rights that it needs: connector '{spec.name}' has no property for a login"
    before = [option.key for option in known[: [option.key for option in known].index(secret)]]
    users = [f"{user} = '…'" for user in [key for key in before if _IDENTITY.search(key)][-1:]]
    modes = {
        key: f"{key} = '{mode}'"
        for key, (mode, *without) in _MODES.items()
        if spec.option(key) is not None and given.get(key, "") in ("", *without)
    }
    verb = "write" if modes.keys() & given.keys() else "add"
    return f"{verb} {', '.join([*modes.values(), *users, f'{secret} = SECRET a_secret'])}"


_MODES = {
    PROTOCOL_KEY: ("sasl_ssl", "plaintext", "ssl"),
    "properties.sasl.mechanism": ("PLAIN",),
    "connect_mode": ("user_and_password", "plain"),
}
"""Maps each property that selects the kind of login to several values. The first value selects a login with user and
password. The other values select connections without a login."""


def spec_of(options: Iterable[Option]) -> ConnectorSpec | None:
    """Returns the spec of the connector or connection type that a WITH list names; None if the list names no known
    connector or type."""
    values = {option.key: option_text(option.value) for option in options if isinstance(option.value, TextValue)}
    name = values.get("connector", "")
    if name in connector_names():
        return connector(name).spec
    if name in sink_connector_names():
        return sink_connector(name).spec
    return connection_spec(values["type"]) if values.get("type") in connection_types() else None


def of_connection(connection: ConnectionValue, part: str, key: str) -> str:
    """Returns the part of a hint that names the statements with which a user can show and change a property of a
    connection. ``key`` is the property with its value, and ``part`` describes the property."""
    name = sql_name(connection.connection.key)
    return f"SHOW CREATE CONNECTION {name} shows the {part}, and ALTER CONNECTION {name} SET ({key}) changes it"
