"""Lowers SET CONNECTION, which replaces, attaches or detaches the connection of an existing source or sink."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.errors import INVALID_DEFINITION, SqlError
from rw_sql.metastore.records import Operation, PutObject
from rw_sql.model.definitions import connection_definition
from rw_sql.model.object_lookup import connections_of, find_connection, spoken
from rw_sql.model.options import connection_of, names_in_connection, options_given, own_options, plan_options, shown
from rw_sql.plan.effects.connection_impact import differences, spell
from rw_sql.plan.effects.later_changes import NO_LATER_CHANGES, LaterChanges
from rw_sql.plan.result.plan import Plan, Preview, ResultRow
from rw_sql.plan.result.preview_text import render_preview
from rw_sql.plan.result.steps import steps_of
from rw_sql.plan.statements.common import nothing
from rw_sql.plan.statements.connection.connected_object import (
    changed_record,
    check_connected,
    connected_definition,
    connection_type_of,
    effect_of_change,
    find_connected,
)
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.statements import ConnectionValue, Name, Option

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ConnectionRecord
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.statements.connection.connected_object import Definition
    from rw_sql.syntax.statements import AlterSetConnection

_KEY = "connection"


def lower_alter_set_connection(
    statement: AlterSetConnection, snapshot: Snapshot, inspector: Inspector, later: LaterChanges = NO_LATER_CHANGES
) -> Plan:
    """Lowers ALTER {SOURCE | SINK} s SET CONNECTION {c | NONE}. The resulting definition is validated before it is
    stored.

    A property that has the same value in the object and in the new connection is removed from the object. NONE copies
    the connection's properties to the object, and therefore does not change the object's job. If the change may lead to
    a different upstream, the statement is an unsafe operation: it shows a preview and needs a confirmation.
    """
    source = find_connected(snapshot, statement.kind, statement.name)
    current = connected_definition(source)
    wanted = connection_type_of(source)
    old = connection_of(snapshot, current.options)
    new = None if statement.connection is None else find_connection(snapshot, statement.connection)
    if (old.id if old else None) == (new.id if new else None):
        detail = f"its connection is already {new.name}" if new else "it has no connection"
        return nothing(statement, source.name, detail)
    if new is not None and new.connector != wanted:
        raise SqlError(
            INVALID_DEFINITION,
            f"connection \"{new.name}\" is of type '{new.connector}', not '{wanted}'",
            span=statement.connection.span if statement.connection else statement.name.span,
            hint=connections_of(snapshot, wanted),
        )
    merged = _detached(current, old) if new is None else _attached(statement, snapshot, current, new)
    _check(statement, snapshot, merged)
    differs = differences(plan_options(snapshot, current), plan_options(snapshot, merged))
    change = PutObject(record=changed_record(snapshot, source, merged))
    is_validated = statement.is_validated and source.id not in later.changed
    effect = effect_of_change(snapshot, inspector, source, change, statement.name.span, is_validated=is_validated)
    names = (old.name if old else "NONE", new.name if new else "NONE")
    preview = Preview(
        title=f"SET CONNECTION of {source.kind} {source.name}",
        dependents=tuple(f"{spoken(d.kind)} {d.name}" for d in snapshot.dependents_of(source.id)),
        properties=((_KEY, *names), *differs),
        splits=effect.splits,
        notices=(*((effect.doubt,) if effect.doubt else ()), *effect.notices),
    )
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, (change,)),
        operation=Operation(
            kind="SET CONNECTION",
            statement=render(statement),
            objects=(source.name, *(d.name for d in snapshot.dependents_of(source.id))),
            changes=(change,),
            is_unsafe=effect.doubt is not None,
            reason=statement.reason,
            plan=render_preview(preview),
        ),
        changes=(
            ResultRow(object=source.name, change="ALTERED", detail=spell(_KEY, names[0], names[1])),
            *(ResultRow(object=source.name, change="ALTERED", detail=spell(*each)) for each in differs),
        ),
        preview=preview,
        is_unsafe=effect.doubt is not None,
        affected=(source.id, *(each.id for each in (old, new) if each is not None)),
    )


def _detached(current: Definition, old: ConnectionRecord | None) -> Definition:
    """The definition with the connection's properties in place of the connection's name."""
    names = names_in_connection(current)
    given = connection_definition(old.definition).options if old is not None else ()
    moved = [replace(each, key=names.get(each.key, each.key)) for each in given]
    options: list[Option] = []
    for option in current.options:
        options += [each for each in moved if each.key != "type"] if option.key == _KEY else [option]
    return replace(current, options=tuple(options))


def _attached(
    statement: AlterSetConnection, snapshot: Snapshot, current: Definition, new: ConnectionRecord
) -> Definition:
    """The definition with the connection's name in place of the properties that the connection sets. Raises SqlError if
    the definition and the connection set a property to different values."""
    given = dict(options_given(snapshot, new, names_in_connection(current)))
    own = dict(own_options(snapshot, current))
    if other := [key for key in own if key in given and own[key] != given[key]]:
        kind, name = statement.kind, statement.name.key
        wanted = shown(tuple((key, given[key]) for key in other))
        listed = ", ".join(f"{key} = {_written(value)}" for key, value in wanted.items())
        raise SqlError(
            INVALID_DEFINITION,
            f'{kind.lower()} "{name}" and connection "{new.name}" set different values of {", ".join(other)}',
            span=statement.connection.span if statement.connection else statement.name.span,
            hint=f"ALTER {kind} {sql_name(name)} UNSAFE SET ({listed}) first"
            if kind != "SINK"
            else f"the connection has {listed}; if these values are right, DROP SINK {sql_name(name)} and create it "
            "with the connection",
        )
    reference = Option(key=_KEY, value=ConnectionValue(connection=Name.of(new.name)))
    options = [option for option in current.options if option.key not in given and option.key != _KEY]
    at = next((place for place, option in enumerate(options) if option.key == "connector"), 0) + 1
    return replace(current, options=(*options[:at], reference, *options[at:]))


def _written(value: str) -> str:
    return value if value.startswith("SECRET ") else "'" + value.replace("'", "''") + "'"


def _check(statement: AlterSetConnection, snapshot: Snapshot, merged: Definition) -> None:
    """Calls ``check_connected`` for the changed definition. Every error points at the entire statement."""
    try:
        check_connected(snapshot, merged)
    except SqlError as error:
        error.span = statement.connection.span if statement.connection else statement.name.span
        raise
