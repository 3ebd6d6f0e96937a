"""Lowers SET CONNECTION: swaps, attaches or detaches a source's connection without making the source again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.errors import INVALID_DEFINITION, SqlError
from rw_sql.metastore.records import Operation, PutObject
from rw_sql.plan.connection_effects import differences, effect_on, may_move, spell
from rw_sql.plan.definitions import connection_definition, definition_of
from rw_sql.plan.lower_source import nothing, source_record
from rw_sql.plan.names import find_altered_source, find_connection, spoken
from rw_sql.plan.options import connection_of, connection_options, own_options, plan_options, shown, source_options
from rw_sql.plan.plan import ObjectChange, Plan, Preview
from rw_sql.plan.preview import render_preview
from rw_sql.plan.source_checks import check_source
from rw_sql.plan.steps import after, steps_of
from rw_sql.syntax import render
from rw_sql.syntax.statements import ConnectionValue, Name, Option

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ConnectionRecord
    from rw_sql.plan.requests import Asking
    from rw_sql.syntax.statements import AlterSetConnection, CreateSource

_KEY = "connection"


def lower_alter_set_connection(statement: AlterSetConnection, snapshot: Snapshot) -> Asking[Plan]:
    """ALTER SOURCE s SET CONNECTION {c | NONE}: validated with the result before anything is stored.

    A property that stands in the source and in the new connection with one value is the connection's from now on.
    NONE writes the properties of the connection into the source: its job does not notice. Where the result may be
    another upstream, it is an unsafe operation with its gate and preview.
    """
    source = find_altered_source(snapshot, statement.kind, statement.name)
    current = definition_of(source)
    old = connection_of(snapshot, current.options)
    new = None if statement.connection is None else find_connection(snapshot, statement.connection)
    if (old.id if old else None) == (new.id if new else None):
        detail = f"its connection is {new.name} already" if new else "it has no connection"
        return nothing(statement, source.name, detail)
    if new is not None and new.connector != source.connector:
        raise SqlError(
            INVALID_DEFINITION,
            f"connection \"{new.name}\" is one of type '{new.connector}', not '{source.connector}'",
            span=statement.connection.span if statement.connection else statement.name.span,
            hint="SHOW CONNECTIONS lists all with their types",
        )
    merged = _detached(current, old) if new is None else _attached(statement, snapshot, current, new)
    _check(statement, snapshot, merged)
    differs = differences(source_options(snapshot, source), plan_options(snapshot, merged))
    record = source_record(snapshot, source, merged)
    change = PutObject(record=record)
    effect = yield from effect_on(
        after(snapshot, (change,)),
        record,
        statement.name.span,
        is_validated=statement.is_validated,
        may_move=may_move(source.connector, differs),
    )
    names = (old.name if old else "NONE", new.name if new else "NONE")
    preview = Preview(
        title=f"SET CONNECTION of source {source.name}",
        dependents=tuple(f"{spoken(d.kind)} {d.name}" for d in snapshot.dependents_of(source.id)),
        properties=((_KEY, *names), *differs),
        splits=effect.splits,
        notices=(effect.doubt,) if effect.doubt else (),
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
            ObjectChange(object=source.name, change="ALTERED", detail=spell(_KEY, names[0], names[1])),
            *(ObjectChange(object=source.name, change="ALTERED", detail=spell(*each)) for each in differs),
        ),
        preview=preview,
        is_unsafe=effect.doubt is not None,
        affected=(source.id, *(each.id for each in (old, new) if each is not None)),
    )


def _detached(current: CreateSource, old: ConnectionRecord | None) -> CreateSource:
    """The definition with the connection's own properties in the place of its name."""
    moved = connection_definition(old.definition).options if old is not None else ()
    options: list[Option] = []
    for option in current.options:
        options += [each for each in moved if each.key != "type"] if option.key == _KEY else [option]
    return replace(current, options=tuple(options))


def _attached(
    statement: AlterSetConnection, snapshot: Snapshot, current: CreateSource, new: ConnectionRecord
) -> CreateSource:
    """The definition with the connection's name. Raises SqlError where the two set one property differently."""
    given = dict(connection_options(snapshot, new))
    own = dict(own_options(snapshot, current))
    if other := [key for key in own if key in given and own[key] != given[key]]:
        wanted = shown(tuple((key, given[key]) for key in other))
        listed = ", ".join(f"{key} = {_written(value)}" for key, value in wanted.items())
        raise SqlError(
            INVALID_DEFINITION,
            f'source "{statement.name.last}" sets what connection "{new.name}" sets to another value: '
            + ", ".join(other),
            span=statement.connection.span if statement.connection else statement.name.span,
            hint=f"ALTER SOURCE {statement.name.last} UNSAFE SET ({listed}) first",
        )
    name = Name(parts=(new.name,))
    reference = Option(key=_KEY, value=ConnectionValue(connection=name))
    options = [option for option in current.options if option.key not in given and option.key != _KEY]
    at = next((place for place, option in enumerate(options) if option.key == "connector"), 0) + 1
    return replace(current, options=(*options[:at], reference, *options[at:]))


def _written(value: str) -> str:
    return value if value.startswith("SECRET ") else "'" + value.replace("'", "''") + "'"


def _check(statement: AlterSetConnection, snapshot: Snapshot, merged: CreateSource) -> None:
    """As check_source; the caret stays in this statement."""
    try:
        check_source(snapshot, merged)
    except SqlError as error:
        error.span = statement.connection.span if statement.connection else statement.name.span
        raise
