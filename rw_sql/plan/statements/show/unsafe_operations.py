"""Lowers SHOW UNSAFE OPERATIONS, which returns rows and changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rw_sql.metastore.records import SourceRecord
from rw_sql.model.object_lookup import object_name
from rw_sql.plan.result.plan import Plan, Table
from rw_sql.plan.statements.move.rewind import rewind_statement
from rw_sql.plan.statements.move.undo import History, undo_statement
from rw_sql.plan.statements.show.operations_on import operations_on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import RewindPoint
    from rw_sql.metastore.records import ObjectRecord, OperationRecord
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import ShowUnsafeOperations


def _find(snapshot: Snapshot, name: str) -> ObjectRecord | None:
    """The object with the given name, if unsafe operations can change objects of its kind."""
    return (
        snapshot.find("table", name)
        or snapshot.find("source", name)
        or snapshot.find("materialized_view", name)
        or snapshot.find("sink", name)
        or snapshot.find("connection", name)
    )


def lower_show_unsafe_operations(statement: ShowUnsafeOperations, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers SHOW UNSAFE OPERATIONS [FOR n], which lists the unsafe operations, latest first. ``n`` may be the name of
    a dropped source.

    Operations on an existing object are listed under all names that the object has had.

    The column ``undo`` has the statement that would undo an operation. Only this UNDO statement checks, when it runs,
    whether the undo is possible. If there is a rewind point, the column ``rewind`` has the statement that also restores
    the rows.
    """
    name = object_name(statement.name) if statement.name else None
    known = None if name is None else _find(snapshot, name)
    records = inspector.operations(is_unsafe=True, object_name=name)
    if known is not None:
        both = {each.epoch: each for each in (*records, *operations_on(inspector, known, is_unsafe=True))}
        records = tuple(both[epoch] for epoch in sorted(both, reverse=True))
    history = History.of(records)
    points = inspector.rewinds.points()
    rows: list[tuple[object, ...]] = [
        (
            record.epoch,
            datetime.fromtimestamp(record.at_ms / 1000, UTC),
            record.actor,
            record.kind,
            record.statement,
            ", ".join(record.objects),
            record.reason,
            record.outcome,
            record.duration_ms,
            record.plan,
            undo_statement(record, history),
            _rewinds(snapshot, record, points),
        )
        for record in records
    ]
    columns = (
        ("operation", "BIGINT"),
        ("at", "TIMESTAMP"),
        ("actor", "STRING"),
        ("kind", "STRING"),
        ("statement", "STRING"),
        ("objects", "STRING"),
        ("reason", "STRING"),
        ("outcome", "STRING"),
        ("duration_ms", "BIGINT"),
        ("plan", "STRING"),
        ("undo", "STRING"),
        ("rewind", "STRING"),
    )
    return Plan(statement=statement, table=Table(columns=columns, rows=tuple(rows)))


def _rewinds(snapshot: Snapshot, record: OperationRecord, points: Iterable[RewindPoint]) -> str | None:
    """Returns the statements that restore the state just before an operation, including the rows. Returns None if there
    is no rewind point."""
    sources = [
        source
        for point in points
        if point.operation == record.epoch and point.reason is None
        if isinstance(source := snapshot.get(point.source_id), SourceRecord)
    ]
    return "; ".join(rewind_statement(source, record.epoch) for source in sources) or None
