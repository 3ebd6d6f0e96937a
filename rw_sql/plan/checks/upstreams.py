"""Checks that an upstream or a target can be used, before a definition is committed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.connectors.base import missing_hint
from rw_sql.errors import (
    INVALID_PROPERTY,
    TARGET_UNFIT,
    UPSTREAM_MISSING,
    UPSTREAM_UNREACHABLE,
    Span,
    SqlError,
    first_names,
    near_names,
)
from rw_sql.model.definitions import definition_of, option_text, sink_definition
from rw_sql.plan.checks.login_hints import (
    ADDRESS,
    PROTOCOL_KEY,
    login_hint,
    missing_login,
    of_connection,
    parts_of_login,
    spec_of,
)
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.statements import ConnectionValue, SecretValue, TextValue

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rw_sql.connectors.base import Upstream
    from rw_sql.connectors.sink import SinkLook
    from rw_sql.metastore.records import SinkRecord, SourceRecord
    from rw_sql.syntax.statements import Option


_IN_FILES = ("path", "location", "root")
"""A property contains a path if the property's name ends with one of these words."""

_PROTOCOL = re.compile(r"^properties\.security\.protocol$")
_WRONG_PROTOCOL = f": check {PROTOCOL_KEY}"
_LOGIN = re.compile(
    r"authentication|authorization|unauthorized|not authorized|password|\blogin\b|access denied|access key|forbidden|"
    r"invalid credentials",
    re.IGNORECASE,
)
_UNKNOWN_HOST = re.compile(r"Failed to resolve|not known|no address associated", re.IGNORECASE)
_NO_CONNECTION = re.compile(r"(?P<address>\S+?)/(?P<broker>bootstrap|\d+): Connect to \S+ failed: (?P<why>.+)")
_NO_HOST = re.compile(r"(?P<address>\S+?)/(?P<broker>bootstrap|\d+): Failed to resolve '[^']*': (?P<why>.+)")
_NO_ENDPOINT = re.compile(r'(?:(?P<root>[\w.-]+): )?Could not connect to the endpoint URL: "(?P<url>[^"]+)"')
"""Matches the error that Amazon's client reports if it cannot connect to a server. The name of a bucket may precede the
error."""
_OF_ADDRESS = re.compile(r"(?:bucket|container|region)(?:_name)?$")
"""Matches the names of properties whose values are a part of the address that a client builds."""
_SILENT = re.compile(r"(?P<address>\S+): no answer within (?P<time>.+)")
STORED = "WITH (VALIDATE = false) stores the definition without this check"
"""The last part of a hint for a statement that accepts VALIDATE in a separate WITH clause."""

STORED_IN_LIST = "add VALIDATE = false to the WITH list to store the definition without this check"
"""The last part of a hint for a statement that accepts VALIDATE in the WITH list of the definition."""


def require_upstream(
    upstream: Upstream,
    name: str,
    span: Span,
    *,
    kind: str = "source",
    options: tuple[Option, ...] = (),
    stored: str = "",
    is_new: bool = False,
    definition: tuple[Option, ...] = (),
) -> None:
    """Raises SqlError in three cases: the upstream does not respond, the upstream lacks an object that the definition
    names, or the client refuses a property.

    ``kind`` is the kind of the defined object. ``is_new`` is True if the statement creates this object. In this case,
    no hint may refer to the object, because the catalog does not contain it.

    ``options`` are the options in the statement. The error points at the wrong option if ``options`` contains it.
    ``stored`` is STORED or STORED_IN_LIST if the statement accepts VALIDATE. ``definition`` are the options of the
    stored object, or of the connection that the statement names. These options come from the catalog and have no
    positions in the statement's text.
    """
    require_usable(upstream, f'the upstream of {kind} "{name}"', span, options, definition)
    if upstream.error is not None:
        raise no_answer(
            f'the upstream of {kind} "{name}"', upstream.error, span, options=options, stored=stored,
            otherwise="" if is_new else f"SHOW CREATE {kind.upper()} {sql_name(name)}", definition=definition,
        )  # fmt: skip
    if upstream.missing:
        topics = ", ".join(f'"{topic}"' for topic in upstream.missing)
        named = next((items for option in options if upstream.missing[0] in (items := _items(option))), [])
        raise SqlError(
            UPSTREAM_MISSING,
            f'the upstream of {kind} "{name}" has no {upstream.part} {topics}',
            span=value_place(options, upstream.missing[0]) or span,
            hint=_missing_hint(upstream, named).replace("HOST:PORT", _bootstrap(options)),
        )


def require_upstream_of(
    source: SourceRecord, upstream: Upstream, span: Span, *, options: tuple[Option, ...] = (), stored: str = ""
) -> None:
    """Does the same as :func:`require_upstream`, for a source in the catalog."""
    is_faulty = upstream.error is not None or upstream.refused_key is not None
    definition = definition_of(source).options if is_faulty else ()
    require_upstream(upstream, source.name, span, options=options, stored=stored, definition=definition)


def require_usable(
    look: Upstream | SinkLook,
    what: str,
    span: Span | None = None,
    options: Iterable[Option] = (),
    definition: Iterable[Option] = (),
) -> None:
    """Raises SqlError INVALID_PROPERTY if the client refused the value of a property before it sent a request.

    ``what`` is the upstream or target. ``options`` are the options in the statement, and ``definition`` are the options
    in the catalog.
    """
    if look.refused_key is not None:
        listed, stored = tuple(options), tuple(definition)
        fault, hint = look.error or "", look.hint
        given = next((option for option in listed if option.key == look.refused_key), None)
        known = given or next((option for option in stored if option.key == look.refused_key), None)
        shared = _connection((*listed, *stored))
        if known is not None and hint is not None and isinstance(known.value, SecretValue):
            hint = hint.replace(_A_SECRET, f"ALTER SECRET {sql_name(known.value.secret.key)}")
        if given is not None:
            span = given.value_place
        elif shared is not None:
            place = _connection(listed)
            span = span if place is None else place.span
            named, name = f'property "{look.refused_key}"', shared.connection.key
            fault = fault.replace(named, f'{named} of connection "{name}"')
            if hint is not None and _A_SECRET in hint:
                shown = f"SHOW CREATE CONNECTION {sql_name(name)} shows the secret's name"
                hint = f"{shown}; then {hint.replace(_A_SECRET, 'ALTER SECRET that_secret')}"
            elif known is None or not isinstance(known.value, SecretValue):
                shown = f"SHOW CREATE CONNECTION {sql_name(name)} shows the property"
                hint = f"{shown}; {hint}" if hint else shown
        raise SqlError(INVALID_PROPERTY, f"{what} cannot be used: {fault}", span=span, hint=hint)


_A_SECRET = "ALTER SECRET a_secret"
"""The first words of a client's hint if the value of a secret is wrong."""


def _missing_hint(upstream: Upstream, listed: Collection[str]) -> str:
    """The hint for the first name that the upstream lacks. ``listed`` are all names in the property that contains this
    name; empty if the statement does not contain the property. The hint does not suggest names that the statement
    already has."""
    wanted = upstream.missing[0]
    create = upstream.remedy.replace("{name}", wanted)
    others = [name for name in listed if name not in upstream.missing]
    near = near_names(wanted, upstream.present or others, most=1)
    if near and near[0] in others:
        known = first_names(sorted(upstream.present), _MOST_LISTED)
        told = f"; the {upstream.part}s are {known}" if known else ""
        return f"omit {wanted} ({near[0]} is already listed), or {create}{told}"
    if listed and not upstream.present:
        return f"correct the name, or {create}"
    return missing_hint(wanted, [name for name in upstream.present if name not in listed], upstream.remedy)


_MOST_LISTED = 3


def _bootstrap(options: Iterable[Option]) -> str:
    """Returns the address of the brokers in a statement; ``HOST:PORT`` if the statement contains no address. A hint
    uses the address in a shell command."""
    found = (option_text(option.value) for option in options if option.key == "properties.bootstrap.server")
    return next(found, "HOST:PORT")


def _connection(options: Iterable[Option]) -> ConnectionValue | None:
    """The connection that the options name; None if the options name no connection."""
    return next((option.value for option in options if isinstance(option.value, ConnectionValue)), None)


def no_answer(
    what: str,
    reason: str,
    span: Span,
    *,
    options: tuple[Option, ...] = (),
    stored: str = "",
    otherwise: str = "",
    definition: tuple[Option, ...] = (),
) -> SqlError:
    """Returns the error for a server that cannot be used. The error contains the reason that the client reports.

    ``what`` is the upstream or target. ``options`` are the options in the statement. ``definition`` are the options in
    the catalog. ``otherwise`` is a statement that shows the options; empty if the statement creates the object.

    The hint names the option to correct, such as the address or the login. If ``options`` does not contain this option,
    the hint names the connection in ``options`` or ``definition``. If there is no connection, the hint names the
    statement ``otherwise``.
    """
    more = f"; {stored}" if stored else ""
    connection = _connection((*options, *definition))
    if (advertised := _advertised(reason, (*options, *definition))) is not None:
        message, hint = advertised
        return SqlError(
            UPSTREAM_UNREACHABLE, f"{what} {message}", span=address_place(options) or span, hint=hint + more
        )
    if _WRONG_PROTOCOL in reason:
        return _wrong_protocol(what, reason, span, options)
    if _LOGIN.search(reason):
        login = parts_of_login(options)
        shared = [] if _connection(definition) else parts_of_login(definition)
        hint = login_hint(login, connection, otherwise, shared) or missing_login(options)
        has_none = not (login or connection or otherwise)
        refused = "refuses access, and the statement has no login" if has_none else "refuses the login"
        message, place = f"{what} {refused}: {unreachable(reason)}", next((o.value_place for o in login), None)
    else:
        address = _address(options, reason)
        hint = _address_hint(
            address, (*options, *definition), connection, otherwise, is_known=_UNKNOWN_HOST.search(reason) is None
        )
        message = f"{what} does not answer: {unreachable(reason)}"
        place = None if address is None else address.value.span
    place = place or address_place(options) or _place_in_address(options, reason) or span
    return SqlError(UPSTREAM_UNREACHABLE, message, span=place, hint=hint + more)


def _wrong_protocol(what: str, reason: str, span: Span, options: tuple[Option, ...]) -> SqlError:
    """Returns the error for a wrong protocol, in two cases. In the first case, the client uses TLS but the brokers do
    not. In the second case, the brokers close every connection, probably because the client does not use TLS or does
    not log in."""
    place = _place(options, _PROTOCOL) or address_place(options) or span
    if "does not support SSL" in reason:
        message = f"{what} does not use TLS, but properties.security.protocol requires TLS"
        hint = f"set {PROTOCOL_KEY} = 'plaintext', or 'sasl_plaintext' with a login"
    else:
        message = f"{what} closes every connection at once: its listener probably needs another {PROTOCOL_KEY}"
        hint = f"set {PROTOCOL_KEY} to 'ssl' for TLS, 'sasl_plaintext' for a login, or 'sasl_ssl' for both"
    return SqlError(UPSTREAM_UNREACHABLE, message, span=place, hint=hint)


def unreachable(reason: str) -> str:
    """Rewords the client's reason why an upstream or target does not respond, as part of a sentence."""
    if silent := _SILENT.fullmatch(reason):
        return f"no answer from {silent['address']} within {silent['time']}"
    if made := _NO_ENDPOINT.fullmatch(reason):
        bucket = f" (bucket {made['root']})" if made["root"] and made["root"] in made["url"] else ""
        return f"cannot connect to {made['url']}{bucket}"
    found = _NO_CONNECTION.match(reason) or _NO_HOST.match(reason)
    return f"cannot connect to {found['address']} ({found['why'].lower()})" if found else reason


def _advertised(reason: str, options: Iterable[Option]) -> tuple[str, str] | None:
    """Explains a reason in which the Kafka brokers in the statement or its connection respond, but send clients to an
    address at which no server responds. Returns the last part of the message, and the hint. Returns None for any other
    reason."""
    found = _NO_CONNECTION.match(reason) or _NO_HOST.match(reason)
    if found is None or found["broker"] == "bootstrap":
        return None
    listed = tuple(options)
    address, given = found["address"].rpartition("//")[2], _bootstrap(listed)
    if given == "HOST:PORT":
        shared = _connection(listed)
        if shared is None:
            return None
        given = f'the brokers of connection "{shared.connection.key}" send'
    elif address in re.split(r"[\s,]+", given):
        return None
    else:
        given = f"{given} sends"
    message = f"cannot be used: {given} clients to {address}, which does not answer ({found['why'].lower()})"
    return message, f"start the broker at {address}, or correct its advertised.listeners"


def _address(options: Iterable[Option], reason: str) -> Option | None:
    """Returns the property with the address that does not respond. This is a property whose host occurs in the reason.
    If no property has such a host, the result is the first property with an address. Properties that contain servers
    take precedence over properties that contain paths. If the reason contains the hosts of several servers, the longest
    host takes precedence, because a host with a port is more specific than a host alone."""
    listed = sorted(
        (option for option in options if ADDRESS.search(option.key)),
        key=lambda option: option.key.endswith(_IN_FILES),
    )
    named = [(option, _longest_named(option_text(option.value), reason)) for option in listed]
    servers = [(option, length) for option, length in named if length and not option.key.endswith(_IN_FILES)]
    if servers:
        return max(servers, key=lambda server: server[1])[0]
    return next((option for option, length in named if length), next(iter(listed), None))


def _longest_named(address: str, reason: str) -> int:
    """Returns the length of the longest host of an address that occurs in the reason as a complete word. Returns 0 if
    no host of the address occurs.

    For example, ``iceberg`` does not occur as a complete word in ``http://iceberg-rest:8181``.
    """
    named = (
        host
        for host in _hosts(address)
        if re.search(rf"(?<![\w.-]){re.escape(host)}(?![\w-]|\.\w)", reason, re.IGNORECASE)
    )
    return max(map(len, named), default=0)


def _hosts(address: str) -> list[str]:
    """The hosts of an address or of a list of addresses, with their ports."""
    servers = (part.rpartition("//")[2].partition("/")[0].rpartition("@")[2] for part in re.split(r"[\s,]+", address))
    return [server for server in servers if server]


def _address_hint(
    address: Option | None,
    options: Iterable[Option],
    connection: ConnectionValue | None,
    otherwise: str,
    *,
    is_known: bool,
) -> str:
    """The hint for a server that does not respond. ``is_known`` is False if the host name cannot be resolved."""
    if address is not None:
        given = f"{address.key} = '…'"
        if address.key.endswith(_IN_FILES):
            return f"correct {given}, or give this process the right to read and write there"
        if not is_known:
            return f"correct the host: {given}"
        is_shown = isinstance(address.value, TextValue) and "@" not in address.value.text
        server = f"at {option_text(address.value)}" if is_shown else f"that {address.key} names"
        return f"start the server {server}, or correct the address: {given}"
    if connection is not None:
        is_of_kafka = any(option.key == "connector" and option_text(option.value) == "kafka" for option in options)
        key = "properties.bootstrap.server = '…'" if is_of_kafka else "…"
        return f"check that the server runs and its port is open; {of_connection(connection, 'address', key)}"
    if otherwise:
        return f"start the server at the address that {otherwise} shows, or change the address"
    if (elsewhere := _other_address(options)) is not None:
        return f"check that this process can reach the server; for a server elsewhere, add {elsewhere} = '…'"
    return "check that this process can reach the server, and that the properties in the WITH list are right"


def _other_address(options: Iterable[Option]) -> str | None:
    """The optional property that sets the address of the server; None if the connector has no such property."""
    spec = spec_of(options)
    keys = () if spec is None else (option.key for option in spec.options.values() if not option.is_required)
    return next((key for key in keys if ADDRESS.search(key) and not key.endswith(_IN_FILES)), None)


def address_place(options: Iterable[Option]) -> Span | None:
    """The position of the address in a statement's properties. If no property contains an address, the result is the
    position of the property ``connection``, or None without a connection."""
    listed = tuple(options)
    address = _address(listed, "")
    if address is not None:
        return address.value.span
    return next((option.value.span for option in listed if option.key == "connection"), None)


def _place_in_address(options: Iterable[Option], reason: str) -> Span | None:
    """The position of the first property that is part of the address in the reason, such as a bucket or region."""
    for option in options:
        word = re.escape(option_text(option.value))
        if _OF_ADDRESS.search(option.key) and re.search(rf"(?<![\w-]){word}(?![\w-])", reason):
            return option.value.span
    return None


def _place(options: Iterable[Option], key: re.Pattern[str]) -> Span | None:
    return next((option.value_place for option in options if key.search(option.key)), None)


def value_place(options: Iterable[Option], wanted: str) -> Span | None:
    """Returns the position of the first property that has the value ``wanted``. If the value of a property is a list,
    returns the position of the item ``wanted`` in the list. Returns None if no property matches."""
    for option in options:
        items, place = _items(option), option.value.span
        if wanted not in items:
            continue
        text = option_text(option.value)
        if len(items) == 1 or place.end - place.start != len(text) + 2:
            return place
        found = re.search(rf"(?<![^,\s]){re.escape(wanted)}(?![^,\s])", text)
        at = 1 + (found.start() if found is not None else 0)
        return Span(place.start + at, place.start + at + len(wanted), place.line, place.column + at)
    return None


def _items(option: Option) -> list[str]:
    return [item.strip() for item in option_text(option.value).split(",")]


def require_target(
    target: SinkLook,
    name: str,
    span: Span,
    *,
    is_stored: bool = False,
    options: tuple[Option, ...] = (),
    stored: str = "",
    is_new: bool = False,
    definition: tuple[Option, ...] = (),
) -> None:
    """Raises SqlError in four cases: the target does not respond, does not exist, or cannot store the sink's rows, or
    the client refuses a property.

    If ``is_stored`` is True, the catalog already contains the sink. An existing sink continues to run, so the function
    then also accepts a target that may refuse rows because of their types. ``stored``, ``is_new`` and ``definition``
    have the same meaning as in :func:`require_upstream`.
    """
    require_usable(target, f'the target of sink "{name}"', span, options, definition)
    if target.error is not None:
        raise no_answer(
            f'the target of sink "{name}"', target.error, span, options=options, stored=stored,
            otherwise="" if is_new else f"SHOW CREATE SINK {sql_name(name)}", definition=definition,
        )  # fmt: skip
    if target.missing is not None:
        raise SqlError(
            UPSTREAM_MISSING,
            f'the target of sink "{name}" has no {target.missing}',
            span=value_place(options, target.named) or span,
            hint=target.hint,
        )
    if target.misfit is not None:
        raise SqlError(TARGET_UNFIT, f'sink "{name}" cannot be written: {target.misfit}', span=span, hint=target.hint)
    if target.doubt is not None and not is_stored:
        raise SqlError(TARGET_UNFIT, f'sink "{name}" cannot be written: {target.doubt}', span=span, hint=target.hint)


def require_target_of(sink: SinkRecord, target: SinkLook, span: Span, *, is_stored: bool = True) -> None:
    """Does the same as :func:`require_target`, for a sink in the catalog."""
    is_faulty = target.error is not None or target.refused_key is not None
    definition = sink_definition(sink.definition).options if is_faulty else ()
    require_target(target, sink.name, span, is_stored=is_stored, definition=definition)
