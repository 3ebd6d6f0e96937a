"""Lowers UNDO OPERATION for a SWAP WITH. The undo exchanges the two names again in the current catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.codec import before_from_json, changes_from_json
from rw_sql.metastore.records import MaterializedViewRecord, PutObject, SinkRecord, SourceRecord
from rw_sql.plan.statements.table.swap_with import swapped

if TYPE_CHECKING:
    from rw_sql.errors import SqlError
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import OperationRecord
    from rw_sql.plan.result.plan import Plan
    from rw_sql.syntax.statements import UndoOperation

_KINDS = ("table", "materialized_view", "source", "sink")


def swapped_pair(record: OperationRecord) -> tuple[tuple[int, str], tuple[int, str]] | None:
    """Returns the ids of the two objects whose names an operation (or its undo) exchanged. Each id comes with the name
    that the operation gave the object. Returns None for other operations."""
    if not record.kind.startswith(("SWAP ", "UNDO ")):
        return None
    put = {c.record.id: c.record for c in changes_from_json(record.changes) if isinstance(c, PutObject)}
    before = before_from_json(record.before).objects
    for kind in _KINDS:
        changed = [
            (id_, old.name, new.name)
            for id_, old in before.items()
            if old is not None and old.kind == kind and (new := put.get(id_)) is not None and new.name != old.name
        ]
        if len(changed) == 2 and changed[0][1:] == changed[1][:0:-1]:
            return (changed[0][0], changed[0][2]), (changed[1][0], changed[1][2])
    return None


def lower_undo_swap(
    statement: UndoOperation,
    snapshot: Snapshot,
    pair: tuple[tuple[int, str], tuple[int, str]],
    kind: str,
    refused: SqlError,
) -> Plan:
    """The plan that restores the former names of two objects.

    Raises the error that ``refused`` builds if one of the objects has been renamed or dropped since the exchange.
    """
    found = [snapshot.get(id_) for id_, _ in pair]
    one, other = found
    if (
        not isinstance(one, SourceRecord | MaterializedViewRecord | SinkRecord)
        or not isinstance(other, SourceRecord | MaterializedViewRecord | SinkRecord)
        or (one.name, other.name) != (pair[0][1], pair[1][1])
    ):
        raise refused
    return swapped(statement, snapshot, one, other, kind, statement.span)
