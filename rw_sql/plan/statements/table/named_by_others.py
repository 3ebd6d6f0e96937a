"""Renames a connection or secret. The module changes the record of the connection or secret, and the definitions of the
objects whose options contain its name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.metastore.records import ConnectionRecord, PutObject, SecretRecord, SinkRecord, SourceRecord
from rw_sql.model.definitions import (
    connection_definition,
    listed_options,
    secret_definition,
    sink_definition,
    source_definition,
)
from rw_sql.syntax import render
from rw_sql.syntax.statements import ConnectionValue, Name, SecretValue

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change, ObjectRecord
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import FormatEncode, Option


def renamed_for_others(
    snapshot: Snapshot, record: ConnectionRecord | SecretRecord, new: str, inspector: Inspector
) -> tuple[list[Change], tuple[ObjectRecord, ...]]:
    """Returns the changes that give a connection or secret a new name, and the objects that use the connection or
    secret."""
    if isinstance(record, ConnectionRecord):
        connection = replace(connection_definition(record.definition), name=Name.of(new))
        changes: list[Change] = [PutObject(record=replace(record, name=new, definition=render(connection)))]
    else:
        secret = replace(secret_definition(record.definition), name=Name.of(new))
        # The encryption of a value depends on the name of its secret.
        sealed = None if record.sealed is None else inspector.secrets.reseal(record, new)
        changes = [PutObject(record=replace(record, name=new, definition=render(secret), sealed=sealed))]
    users = snapshot.users_of(record.id)
    for user in users:
        if isinstance(user, SourceRecord):
            source = source_definition(user.definition)
            options = _naming(source.options, record, new)
            source = replace(source, options=options, format=_in_format(source.format, record, new))
            changes.append(PutObject(record=replace(user, definition=render(source), options=listed_options(source))))
        elif isinstance(user, SinkRecord):
            sink = sink_definition(user.definition)
            options = _naming(sink.options, record, new)
            sink = replace(sink, options=options, format=_in_format(sink.format, record, new))
            changes.append(PutObject(record=replace(user, definition=render(sink), options=listed_options(sink))))
        elif isinstance(user, ConnectionRecord):
            written = connection_definition(user.definition)
            written = replace(written, options=_naming(written.options, record, new))
            changes.append(PutObject(record=replace(user, definition=render(written))))
    return changes, users


def _in_format(clause: FormatEncode | None, record: ConnectionRecord | SecretRecord, new: str) -> FormatEncode | None:
    """Renames a connection or secret in the options of FORMAT … ENCODE …. These options may name a secret, or the
    connection of a schema registry."""
    return None if clause is None else replace(clause, options=_naming(clause.options, record, new))


def _naming(options: tuple[Option, ...], record: ConnectionRecord | SecretRecord, new: str) -> tuple[Option, ...]:
    return tuple(_option(option, record, new) for option in options)


def _option(option: Option, record: ConnectionRecord | SecretRecord, new: str) -> Option:
    match option.value:
        case ConnectionValue(connection=name) if isinstance(record, ConnectionRecord) and name.key == record.name:
            return replace(option, value=replace(option.value, connection=Name.of(new)))
        case SecretValue(secret=name) if isinstance(record, SecretRecord) and name.key == record.name:
            return replace(option, value=replace(option.value, secret=Name.of(new)))
        case _:
            return option
