"""Functions for sources and sinks, which are the objects that can use a connection. The functions read and check a
definition, and create the changed record."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from rw_sql.connectors.registry import connector, sink_connector
from rw_sql.metastore.records import SinkRecord, SourceRecord
from rw_sql.model.definitions import definition_of, sink_definition
from rw_sql.model.object_lookup import find_sink, find_source_of, object_name, undefined
from rw_sql.model.options import plan_options
from rw_sql.plan.checks.sinks import check_sink_options
from rw_sql.plan.checks.sources import check_source
from rw_sql.plan.checks.upstreams import require_target_of
from rw_sql.plan.effects.connection_impact import Effect, another_target, differences, effect_on, may_move
from rw_sql.plan.result.steps import after
from rw_sql.plan.statements.common import look_at_sink, sink_record, source_record
from rw_sql.syntax.statements import CreateSink, CreateSource

if TYPE_CHECKING:
    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import PutObject
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import Name

Connected = SourceRecord | SinkRecord
Definition = CreateSource | CreateSink


def find_connected(snapshot: Snapshot, kind: str, name: Name) -> Connected:
    """Returns the source or sink in ``ALTER kind name``. For a table, returns the source of the table.

    Raises SqlError if there is no object of this kind with this name.
    """
    if kind == "SOURCE" or (kind == "TABLE" and snapshot.find("table", object_name(name))):
        return find_source_of(snapshot, kind, name)
    if kind == "SINK":
        return find_sink(snapshot, name)
    object_name(name)
    raise undefined(snapshot, "table", name)


def connected_definition(user: Connected) -> Definition:
    """The statement that defines the source or sink."""
    return definition_of(user) if isinstance(user, SourceRecord) else sink_definition(user.definition)


def connected_spec(user: Connected) -> ConnectorSpec:
    """The options that the source or sink accepts."""
    return connector(user.connector).spec if isinstance(user, SourceRecord) else sink_connector(user.connector).spec


def connection_type_of(user: Connected) -> str:
    """The type of the connections that the source or sink can use."""
    return connected_spec(user).connection_kind or user.connector


def check_connected(snapshot: Snapshot, statement: Definition) -> None:
    """Checks a changed definition. Raises SqlError at the first error."""
    match statement:
        case CreateSource():
            check_source(snapshot, statement)
        case CreateSink():
            check_sink_options(snapshot, statement)
        case _:
            assert_never(statement)


def changed_record(snapshot: Snapshot, user: Connected, statement: Definition) -> Connected:
    """Returns the record of the source or sink with a new definition."""
    if isinstance(user, SourceRecord) and isinstance(statement, CreateSource):
        return source_record(snapshot, user, statement)
    if isinstance(user, SinkRecord) and isinstance(statement, CreateSink):
        return sink_record(snapshot, user, statement)
    raise TypeError(f"{type(statement).__name__} is no definition of a {user.kind}")


def effect_of_change(
    snapshot: Snapshot,
    inspector: Inspector,
    user: Connected,
    change: PutObject,
    span: Span,
    *,
    is_validated: bool,
    is_switchable: bool = True,
) -> Effect:
    """Examines the upstream of a changed source, or the target of a changed sink. Raises SqlError if the upstream or
    target cannot be used."""
    moved = after(snapshot, (change,))
    record = change.record
    if isinstance(user, SourceRecord) and isinstance(record, SourceRecord):
        changed = differences(
            plan_options(snapshot, definition_of(user)), plan_options(snapshot, definition_of(record))
        )
        can_move = may_move(connected_spec(user), changed)
        return effect_on(
            snapshot,
            moved,
            inspector,
            record,
            span,
            is_validated=is_validated,
            may_move=can_move,
            is_switchable=is_switchable,
        )
    if isinstance(user, SinkRecord) and isinstance(record, SinkRecord):
        if is_validated:
            require_target_of(record, look_at_sink(moved, inspector, record), span)
        old = plan_options(snapshot, sink_definition(user.definition))
        new = plan_options(snapshot, sink_definition(record.definition))
        doubt = None
        if may_move(connected_spec(user), differences(old, new)):
            doubt = another_target(inspector, connection_type_of(user), old, new)
        return Effect(splits=(), doubt=doubt)
    raise TypeError(f"a {user.kind} became a {record.kind}")
