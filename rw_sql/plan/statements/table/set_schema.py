"""Lowers ALTER … SET SCHEMA. The objects that read or use the object continue to do so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.metastore.records import ConnectionRecord, Operation, PutObject, SinkRecord, SourceRecord
from rw_sql.model.definitions import connection_definition, listed_options, sink_definition, source_definition
from rw_sql.model.names import (
    bare_name,
    find_connection,
    is_schema,
    object_name,
    require_free,
    require_free_of_kind,
    undefined_schema,
)
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import steps_of
from rw_sql.plan.statements.common import nothing
from rw_sql.plan.statements.table.new_names import renamed
from rw_sql.plan.statements.table.rename import find_named
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import PUBLIC
from rw_sql.syntax.statements import ConnectionValue, Name

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change, ObjectRecord
    from rw_sql.syntax.statements import AlterSetSchema, FormatEncode, Option


def lower_alter_set_schema(statement: AlterSetSchema, snapshot: Snapshot) -> Plan:
    """SET SCHEMA: keeps the object's rows, and the positions of the object and its readers."""
    is_connection = statement.kind == "CONNECTION"
    record: ObjectRecord
    if is_connection:
        record = find_connection(snapshot, statement.name)
    else:
        record = find_named(statement, statement.name, snapshot, "SET SCHEMA")
    schema = object_name(statement.schema)
    if not is_schema(snapshot, schema):
        raise undefined_schema(snapshot, schema, statement.schema.span)
    last = bare_name(snapshot, record.name)
    written = Name(parts=(last,) if schema == PUBLIC else (schema, last), span=statement.schema.span)
    new = object_name(written)
    if new == record.name:
        return nothing(statement, record.name, f'it is already in schema "{schema}"')
    if isinstance(record, ConnectionRecord):
        require_free_of_kind(snapshot, "connection", written)
        changes, readers = _connection(snapshot, record, new)
        word = "uses"
    else:
        require_free(snapshot, written)
        changes, found = renamed(snapshot, {record.id: new}, statement.name.span)
        readers, word = found, "reads"
    rows = [
        ResultRow(object=new, change="MOVED", detail=f"was {record.name}"),
        *(ResultRow(object=reader.name, change="ALTERED", detail=f"{word} {new}") for reader in readers),
    ]
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(
            kind=f"SET SCHEMA {statement.kind}",
            statement=render(statement),
            objects=(new, record.name, *(row.object for row in rows[1:])),
            changes=tuple(changes),
        ),
        changes=tuple(rows),
        affected=(record.id,),
    )


def _connection(
    snapshot: Snapshot, connection: ConnectionRecord, new: str
) -> tuple[list[Change], tuple[ObjectRecord, ...]]:
    """A connection under another name, with the definitions of the sources and sinks that name it."""
    written = replace(connection_definition(connection.definition), name=Name.of(new))
    changes: list[Change] = [PutObject(record=replace(connection, name=new, definition=render(written)))]
    users = snapshot.users_of(connection.id)
    for user in users:
        if isinstance(user, SourceRecord):
            source = source_definition(user.definition)
            source = replace(
                source,
                options=_naming(source.options, connection.name, new),
                format=_named_in_format(source.format, connection.name, new),
            )
            changes.append(PutObject(record=replace(user, definition=render(source), options=listed_options(source))))
        elif isinstance(user, SinkRecord):
            sink = sink_definition(user.definition)
            sink = replace(
                sink,
                options=_naming(sink.options, connection.name, new),
                format=_named_in_format(sink.format, connection.name, new),
            )
            changes.append(PutObject(record=replace(user, definition=render(sink), options=listed_options(sink))))
    return changes, users


def _named_in_format(clause: FormatEncode | None, old: str, new: str) -> FormatEncode | None:
    """FORMAT … ENCODE … with the connection of its schema registry renamed, if it has one."""
    return None if clause is None else replace(clause, options=_naming(clause.options, old, new))


def _naming(options: tuple[Option, ...], old: str, new: str) -> tuple[Option, ...]:
    return tuple(
        replace(option, value=replace(option.value, connection=Name.of(new)))
        if isinstance(option.value, ConnectionValue) and option.value.connection.key == old
        else option
        for option in options
    )
