"""Lowers ALTER … CONNECTOR WITH, which changes properties that the connector's spec marks as alterable."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.connection_types import connection_spec
from rw_sql.connectors.spec import find_option_errors
from rw_sql.errors import (
    CONNECTOR_IS_FIXED,
    DUPLICATE_CLAUSE,
    INVALID_DEFINITION,
    NOT_ALTERABLE,
    UNKNOWN_PROPERTY,
    SqlError,
)
from rw_sql.metastore.records import Operation, PutObject
from rw_sql.model.object_lookup import find_connection, spoken
from rw_sql.model.options import connection_of, names_in_connection, options_given, plan_options
from rw_sql.plan.checks.sources import require_secret
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
    connected_spec,
    effect_of_change,
    find_connected,
)
from rw_sql.plan.statements.connection.connection import lower_alter_connection_options
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.rendering.merge import merge_options
from rw_sql.syntax.statements import (
    AlterConnectionOptions,
    AlterSourceUnsafeSet,
    AlterTableUnsafeSet,
    ConnectionChange,
    ConnectionValue,
    Name,
)

if TYPE_CHECKING:
    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.statements.connection.connected_object import Definition
    from rw_sql.syntax.statements import AlterConnector, Option, Statement


def lower_alter_connector(
    statement: AlterConnector, snapshot: Snapshot, inspector: Inspector, later: LaterChanges = NO_LATER_CHANGES
) -> Plan:
    """Lowers ALTER … CONNECTOR WITH (…), which changes only alterable properties.

    The changed definition is validated. The statement needs a confirmation only if a sink's new URL names another
    server or database, because the sink may then write to a different target.
    """
    if statement.kind == "CONNECTION":
        return _alter_connection(statement, snapshot, inspector, later)
    return _alter_connected(statement, snapshot, inspector, later)


def _alter_connected(statement: AlterConnector, snapshot: Snapshot, inspector: Inspector, later: LaterChanges) -> Plan:
    user = find_connected(snapshot, statement.kind, statement.name)
    current = connected_definition(user)
    spec = connected_spec(user)
    _check_options(statement, spec)
    _refuse_those_of_the_connection(statement, snapshot, current)
    of = f"sink: {spec.name}" if statement.kind == "SINK" else f"connector: {spec.name}"
    made = AlterTableUnsafeSet if statement.kind == "TABLE" else AlterSourceUnsafeSet
    instead = _one_line(made(name=statement.name, set_options=statement.options))
    if statement.kind == "SINK":
        dropped = f"DROP SINK {sql_name(statement.name.key)}"
        instead = f"{dropped}, and create it again with these options; the rows that it wrote stay in the target"
    _require_alterable(statement, spec, of, instead)
    replaced = {other for option in statement.options if (known := spec.option(option.key)) for other in known.instead}
    gone = tuple(replaced - {option.key for option in statement.options})
    merged: Definition = merge_options(current, statement.options, gone)
    _check_merged(statement, snapshot, merged)
    change = PutObject(record=changed_record(snapshot, user, merged))
    is_validated = user.id not in later.changed
    effect = effect_of_change(
        snapshot, inspector, user, change, statement.name.span, is_validated=is_validated, is_switchable=False
    )
    differs = differences(plan_options(snapshot, current), plan_options(snapshot, merged))
    if not differs:
        return nothing(statement, user.name, "the properties already have these values")
    is_unsafe = effect.doubt is not None
    dependents = snapshot.dependents_of(user.id)
    preview = Preview(
        title=f"CONNECTOR WITH of {user.kind} {user.name}",
        dependents=tuple(f"{spoken(record.kind)} {record.name}" for record in dependents),
        properties=differs,
        splits=effect.splits,
        notices=(*((effect.doubt,) if effect.doubt else ()), *effect.notices),
    )
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, (change,)),
        operation=Operation(
            kind="ALTER CONNECTOR",
            statement=render(statement),
            objects=(user.name, *(record.name for record in dependents)),
            changes=(change,),
            is_unsafe=is_unsafe,
            plan=render_preview(preview) if is_unsafe else "",
        ),
        changes=tuple(ResultRow(object=user.name, change="ALTERED", detail=spell(*each)) for each in differs),
        preview=preview if is_unsafe else None,
        is_unsafe=is_unsafe,
        affected=(user.id,),
    )


def _alter_connection(statement: AlterConnector, snapshot: Snapshot, inspector: Inspector, later: LaterChanges) -> Plan:
    """Lowers ALTER CONNECTION … CONNECTOR WITH, a statement of RisingWave. It acts like ALTER CONNECTION … SET, but
    accepts only alterable options."""
    record = find_connection(snapshot, statement.name)
    spec = connection_spec(record.connector)
    sets = AlterConnectionOptions(
        name=statement.name,
        changes=(ConnectionChange(verb="SET", options=statement.options),),
        span=statement.span,
    )
    _check_options(statement, spec)
    _require_alterable(statement, spec, f"connection: {spec.name}", _one_line(sets))
    return lower_alter_connection_options(sets, snapshot, inspector, later)


def _check_options(statement: AlterConnector, spec: ConnectorSpec) -> None:
    seen: set[str] = set()
    name = sql_name(statement.name.key)
    for option in statement.options:
        if option.key == "connector":
            raise SqlError(
                CONNECTOR_IS_FIXED,
                f'the connector of {statement.kind.lower()} "{statement.name.key}" cannot change',
                span=option.key_place,
                hint=f"CREATE {statement.kind} {sql_name(statement.name.key + '_2')} … WITH (connector = …); then "
                f"DROP {statement.kind} {name}",
            )
        if option.key == "connection" or isinstance(option.value, ConnectionValue):
            is_nested = statement.kind == "CONNECTION"
            raise SqlError(
                INVALID_DEFINITION,
                "ALTER CONNECTION CONNECTOR does not support nested CONNECTION references"
                if is_nested
                else f"ALTER {statement.kind} CONNECTOR does not support CONNECTION",
                span=option.key_place,
                hint="omit connection"
                if is_nested
                else f"ALTER {statement.kind} {name} SET CONNECTION {_connection(option)}",
            )
        if option.key in seen:
            raise SqlError(
                DUPLICATE_CLAUSE,
                f'property "{option.key}" is given more than once',
                span=option.key_place,
                hint=f"omit one {option.key}",
            )
        seen.add(option.key)
    spans = {option.key: option.key_place for option in statement.options}
    # Unknown options are refused here, before any hint can repeat the statement, because the value of an unknown option
    # may be a secret.
    for error in find_option_errors(spec, dict.fromkeys(seen, ""), spans):
        if error.kind is UNKNOWN_PROPERTY:
            raise error
    require_secret(statement.options, spec)


def _connection(option: Option) -> str:
    return sql_name(option.value.connection.key) if isinstance(option.value, ConnectionValue) else "c"


def _refuse_those_of_the_connection(statement: AlterConnector, snapshot: Snapshot, current: Definition) -> None:
    connection = connection_of(snapshot, current.options)
    names = names_in_connection(current)
    taken = {key for key, _ in options_given(snapshot, connection, names)} if connection is not None else set()
    called = {own: given for given, own in names.items()}
    for option in statement.options:
        if connection is not None and option.key in taken:
            options = tuple(replace(each, key=called.get(each.key, each.key)) for each in statement.options)
            changes = (ConnectionChange(verb="SET", options=options),)
            instead = AlterConnectionOptions(name=Name.of(connection.name), changes=changes)
            raise SqlError(
                INVALID_DEFINITION,
                f"cannot alter connector properties that are set by CONNECTION: {option.key}",
                span=option.key_place,
                hint=_one_line(instead),
            )


def _require_alterable(statement: AlterConnector, spec: ConnectorSpec, of: str, instead: str) -> None:
    """Raises SqlError NOT_ALTERABLE, with the hint ``instead``, if an option cannot be altered. Other checks report
    unknown options."""
    for option in statement.options:
        known = spec.option(option.key)
        if known is not None and not known.is_alterable:
            raise SqlError(
                NOT_ALTERABLE,
                f"Field '{option.key}' is not allowed to be altered on the fly for {of}",
                span=option.key_place,
                hint=instead,
            )


def _one_line(statement: Statement) -> str:
    return " ".join(render(statement).split())


def _check_merged(statement: AlterConnector, snapshot: Snapshot, merged: Definition) -> None:
    """Calls ``check_connected`` for the changed definition. An error in a part that the statement does not change
    points at the entire statement."""
    written = [span for option in statement.options for span in option.places]
    try:
        check_connected(snapshot, merged)
    except SqlError as error:
        if error.span not in written:
            error.span = statement.name.span
        raise
