"""Provides the complete options of a source or sink for planning. These options include the options of the connection,
and contain references to secrets instead of the secrets' values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector, connector_names
from rw_sql.connectors.schemas.options import is_of_schema
from rw_sql.connectors.spec import OptionError, check_option_values, load_spec, plain_keys
from rw_sql.errors import INVALID_DEFINITION, UNDEFINED_COLUMN, SqlError
from rw_sql.model.definitions import (
    GROUP_OPTION,
    PAUSED_AT_BIRTH,
    connection_definition,
    connector_of,
    definition_of,
    option_text,
    sink_definition,
)
from rw_sql.model.object_lookup import find_connection, find_secret
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.statements import ConnectionValue, CreateSource, SecretValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rw_sql.connectors.base import Connector
    from rw_sql.connectors.sink import SinkConnector
    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ConnectionRecord, SinkRecord, SourceRecord
    from rw_sql.syntax.statements import CreateConnection, CreateSink, Option

HIDDEN = "[secret]"
"""The text that replaces a secret's value when options are shown, or when options are checked without their secrets."""

_OWN = frozenset({"connector", "connection", "type", PAUSED_AT_BIRTH, GROUP_OPTION})


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReference:
    """A reference to a secret as the value of an option. If ``is_file`` is true, the option's value is the path of a
    file that contains the secret's value.

    ``epoch`` is the epoch of the secret's last change. The references before and after a change therefore differ, which
    makes the jobs that use the secret restart.
    """

    id: int
    name: str
    epoch: int
    is_file: bool = False

    def __str__(self) -> str:
        """The reference as a statement writes it."""
        return f"SECRET {sql_name(self.name)}" + (" AS FILE" if self.is_file else "")


PlannedOptions = tuple[tuple[str, "str | SecretReference"], ...]


def plan_options(snapshot: Snapshot, statement: CreateSource | CreateSink) -> PlannedOptions:
    """Returns the options of a source or sink: first the options of its connection, then its own options, and last the
    options of its schema registry.

    Raises SqlError if the statement sets an option that the connection sets too.
    """
    return (*connector_options(snapshot, statement), *registry_options(snapshot, statement))


def connector_options(snapshot: Snapshot, statement: CreateSource | CreateSink) -> PlannedOptions:
    """The options of a source or sink without those of its schema registry. Raises the same errors as
    :func:`plan_options`."""
    return options_of(snapshot, statement.options, names_in_connection(statement))


def registry_options(snapshot: Snapshot, statement: CreateSource | CreateSink) -> PlannedOptions:
    """The options for the client of the statement's schema registry; empty if the statement has no schema registry."""
    if statement.format is None or not any(is_of_schema(option.key) for option in statement.format.options):
        return ()
    known = load_spec("schema_registry").options
    planned = options_of(snapshot, statement.format.options)
    return tuple((key, value) for key, value in planned if key in known and known[key].is_of_connection)


def options_of(snapshot: Snapshot, options: Sequence[Option], names: Mapping[str, str] | None = None) -> PlannedOptions:
    """The options of a WITH list.

    In the result, the options of the connection that the list references come first. ``names`` maps the names that
    these options have in the connection to their names in the result. Raises SqlError if the list sets an option that
    the connection sets too.
    """
    connection = connection_of(snapshot, options)
    shared = () if connection is None else options_given(snapshot, connection, names or {})
    taken = {key for key, _ in shared}
    called = {own: given for given, own in (names or {}).items()}  # The source's name → the connection's name.
    for option in options:
        if connection is not None and option.key in taken:
            theirs = called.get(option.key, option.key)
            raise SqlError(
                INVALID_DEFINITION,
                f'property "{option.key}" is set by connection "{connection.name}" too',
                span=option.key_place,
                hint=f"omit it here, or ALTER CONNECTION {sql_name(connection.name)} DROP ({theirs})",
            )
    return (*shared, *_planned(snapshot, options))


def own_options(snapshot: Snapshot, statement: CreateSource | CreateSink | CreateConnection) -> PlannedOptions:
    """The options that the WITH list of a source, sink or connection contains, without those of a referenced
    connection."""
    return tuple(_planned(snapshot, statement.options))


def source_options(snapshot: Snapshot, source: SourceRecord) -> PlannedOptions:
    """The options of a source in the catalog."""
    return plan_options(snapshot, definition_of(source))


def sink_options(snapshot: Snapshot, sink: SinkRecord) -> PlannedOptions:
    """The options of a sink in the catalog."""
    return plan_options(snapshot, sink_definition(sink.definition))


def connection_options(snapshot: Snapshot, connection: ConnectionRecord) -> PlannedOptions:
    """The options that a connection provides."""
    return tuple(_planned(snapshot, connection_definition(connection.definition).options))


def shared_definition(snapshot: Snapshot, options: Iterable[Option]) -> tuple[Option, ...]:
    """The WITH list of the connection that ``options`` references; empty if ``options`` references no connection.
    Raises SqlError if this connection does not exist."""
    connection = connection_of(snapshot, options)
    return () if connection is None else connection_definition(connection.definition).options


def names_in_connection(statement: CreateSource | CreateSink) -> Mapping[str, str]:
    """Maps the names of options in a connection to the names of these options in a source. The mapping contains only
    the options whose two names differ. For a sink, the mapping is empty."""
    name = connector_of(statement)
    if not isinstance(statement, CreateSource) or name not in connector_names():
        return {}
    options = connector(name).spec.options.values()
    return {option.connection_key: option.key for option in options if option.connection_key is not None}


def options_given(snapshot: Snapshot, connection: ConnectionRecord, names: Mapping[str, str]) -> PlannedOptions:
    """The options that a connection provides, renamed according to ``names`` (see :func:`names_in_connection`)."""
    return tuple((names.get(key, key), value) for key, value in connection_options(snapshot, connection))


def _planned(snapshot: Snapshot, options: Iterable[Option]) -> Iterable[tuple[str, str | SecretReference]]:
    for option in options:
        if option.key in _OWN:
            continue
        if isinstance(option.value, SecretValue):
            secret = find_secret(snapshot, option.value.secret)
            yield (
                option.key,
                SecretReference(
                    id=secret.id,
                    name=secret.name,
                    epoch=snapshot.object_epoch(secret.id),
                    is_file=option.value.is_file,
                ),
            )
        else:
            yield option.key, option_text(option.value)


def connection_of(snapshot: Snapshot, options: Iterable[Option]) -> ConnectionRecord | None:
    """Returns the connection that a WITH list references; None if the list references no connection. Raises SqlError if
    this connection does not exist."""
    for option in options:
        if option.key == "connection" and isinstance(option.value, ConnectionValue):
            return find_connection(snapshot, option.value.connection)
    return None


def uses_of(snapshot: Snapshot, statement: CreateSource | CreateSink) -> tuple[int, ...]:
    """The ids of the connection and the secrets that a WITH list references. Each id occurs once."""
    listed = (statement.options, statement.format.options if statement.format is not None else ())
    connections = [connection_of(snapshot, options) for options in listed]
    secrets = [value.id for _, value in plan_options(snapshot, statement) if isinstance(value, SecretReference)]
    return tuple(dict.fromkeys((*(found.id for found in connections if found is not None), *secrets)))


def check_options(
    kind: Connector | SinkConnector, options: Mapping[str, str], written: Sequence[Option], otherwise: Span
) -> None:
    """Checks that the connector has the given options, and that their values are valid and consistent. Raises
    OptionError for the first wrong option.

    ``written`` are the options in the statement. If a connection sets the wrong option, the option is not in
    ``written``, and the error points at ``otherwise``.
    """
    try:
        keys = {option.key: option.key_place for option in written}
        check_option_values(kind.spec, options, keys, {option.key: option.value_place for option in written})
        kind.check_options(options)
    except OptionError as error:
        if error.span is None:
            error.span = next(
                (place_of_error(error, option) for option in written if option.key == error.key), otherwise
            )
        error.plain_keys = error.plain_keys or plain_keys(kind.spec, options)
        raise


def place_of_error(error: OptionError, option: Option) -> Span:
    """The place in the statement to which an error about an option points. This is the option's key if the option
    itself is wrong, and otherwise the option's value."""
    is_of_key = error.kind is UNDEFINED_COLUMN or "has no meaning" in error.message
    return option.key_place if is_of_key else option.value_place


def effective_options(spec: ConnectorSpec, options: PlannedOptions) -> PlannedOptions:
    """The options that affect a job, sorted by name. The result is the same whether the source or its connection sets
    an option.

    The result has no option that the client ignores, and no connection option whose value is the default. If an option
    accepts several spellings of a value, the result has the canonical spelling.
    """
    heeded = []
    for key, value in options:
        known = spec.option(key)
        if known is not None and known.is_ignored:
            continue
        if known is not None and known.is_of_connection and isinstance(value, str) and known.is_default(value):
            continue
        if known is not None and known.spellings and isinstance(value, str):
            value = known.canonical(value)
        heeded.append((key, value))
    return tuple(sorted(heeded, key=lambda option: option[0]))


def visible(options: PlannedOptions) -> dict[str, str]:
    """Returns the options with HIDDEN in place of secrets, so that they can be shown or checked without the secrets."""
    return {key: HIDDEN if isinstance(value, SecretReference) else value for key, value in options}


def selection(spec: ConnectorSpec, options: Mapping[str, str]) -> Mapping[str, frozenset[str]]:
    """The options that select records within a split. The result maps each option to the set of the comma-separated
    items of its value."""
    selecting = (option.key for option in spec.options.values() if option.selects)
    return {key: frozenset(map(str.strip, (spec.value(options, key) or "").split(","))) for key in selecting}


def shown(options: PlannedOptions) -> dict[str, str]:
    """Returns the options in the form that a preview shows, with the names of secrets in place of their values."""
    return {key: str(value) for key, value in options}


def secrets_in(options: PlannedOptions) -> Mapping[str, SecretReference]:
    """The options whose values are references to secrets."""
    return {key: value for key, value in options if isinstance(value, SecretReference)}
