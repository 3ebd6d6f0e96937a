"""A source's or sink's whole WITH list as planned: its connection merged in, its secrets named but not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import INVALID_DEFINITION, SqlError
from rw_sql.plan.definitions import PAUSED_AT_BIRTH, connection_definition, definition_of, option_text, sink_definition
from rw_sql.plan.names import find_connection, find_secret
from rw_sql.syntax.statements import ConnectionValue, SecretValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ConnectionRecord, SinkRecord, SourceRecord
    from rw_sql.syntax.statements import CreateSink, CreateSource, Option

HIDDEN = "[secret]"
"""What stands for a secret's value wherever options are shown or checked without their secrets."""

_OWN = frozenset({"connector", "connection", "type", PAUSED_AT_BIRTH})


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReference:
    """A secret in an option's place. ``is_file``: the option wants the path of a file that holds the value.

    ``epoch`` is that of the secret's last change: another value makes another reference, and so restarts who uses it.
    """

    id: int
    name: str
    epoch: int
    is_file: bool = False


PlannedOptions = tuple[tuple[str, "str | SecretReference"], ...]


def plan_options(snapshot: Snapshot, statement: CreateSource | CreateSink) -> PlannedOptions:
    """The options of a source or sink: its connection's first, then its own. Raises SqlError where the two overlap."""
    return options_of(snapshot, statement.options)


def options_of(snapshot: Snapshot, options: Sequence[Option]) -> PlannedOptions:
    """A WITH list that is no source's, with its connection's options first. Raises SqlError where the two overlap."""
    connection = connection_of(snapshot, options)
    shared = () if connection is None else connection_options(snapshot, connection)
    taken = {key for key, _ in shared}
    for option in options:
        if connection is not None and option.key in taken:
            raise SqlError(
                INVALID_DEFINITION,
                f'property "{option.key}" is set by connection "{connection.name}" too',
                span=option.span,
                hint=f"leave it out here, or ALTER CONNECTION {connection.name} DROP ({option.key})",
            )
    return (*shared, *_planned(snapshot, options))


def own_options(snapshot: Snapshot, statement: CreateSource | CreateSink) -> PlannedOptions:
    """The options that a source or sink sets itself."""
    return tuple(_planned(snapshot, statement.options))


def source_options(snapshot: Snapshot, source: SourceRecord) -> PlannedOptions:
    """The options of a source of the catalog."""
    return plan_options(snapshot, definition_of(source))


def sink_options(snapshot: Snapshot, sink: SinkRecord) -> PlannedOptions:
    """The options of a sink of the catalog."""
    return plan_options(snapshot, sink_definition(sink.definition))


def connection_options(snapshot: Snapshot, connection: ConnectionRecord) -> PlannedOptions:
    """The options that a connection gives to whoever uses it."""
    return tuple(_planned(snapshot, connection_definition(connection.definition).options))


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
    """The connection that a WITH list names, if any. Raises SqlError where there is no such connection."""
    for option in options:
        if option.key == "connection" and isinstance(option.value, ConnectionValue):
            return find_connection(snapshot, option.value.connection)
    return None


def effective_options(spec: ConnectorSpec, options: PlannedOptions) -> PlannedOptions:
    """The options that a job heeds, sorted: two equal ones make the same job, wherever their parts were written.

    An option that the client ignores, and a connection's that says what holds anyway, are left out.
    """
    heeded = []
    for key, value in options:
        known = spec.option(key)
        if known is not None and known.is_ignored:
            continue
        if known is not None and known.is_of_connection and isinstance(value, str) and known.is_default(value):
            continue
        heeded.append((key, value))
    return tuple(sorted(heeded, key=lambda option: option[0]))


def visible(options: PlannedOptions) -> dict[str, str]:
    """The options with HIDDEN in the place of secrets: fit to be shown and checked."""
    return {key: HIDDEN if isinstance(value, SecretReference) else value for key, value in options}


def shown(options: PlannedOptions) -> dict[str, str]:
    """The options as a preview shows them: secrets by name."""
    return {key: f"SECRET {value.name}" if isinstance(value, SecretReference) else value for key, value in options}


def secrets_in(options: PlannedOptions) -> Mapping[str, SecretReference]:
    """The options whose value is a secret."""
    return {key: value for key, value in options if isinstance(value, SecretReference)}
