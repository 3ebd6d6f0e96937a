"""Plans the change of one object's name: by RENAME TO, by SET SCHEMA, or by UNDO OPERATION for one of these
statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.records import ConnectionRecord, Operation, SecretRecord
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import steps_of
from rw_sql.plan.statements.table.named_by_others import renamed_for_others
from rw_sql.plan.statements.table.new_names import renamed
from rw_sql.syntax import render

if TYPE_CHECKING:
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change, ObjectRecord
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.statements.table.new_names import Named
    from rw_sql.syntax.statements import Statement


def new_name_plan(
    statement: Statement,
    snapshot: Snapshot,
    inspector: Inspector,
    record: Named | ConnectionRecord | SecretRecord,
    new: str,
    *,
    kind: str,
    change: str,
    span: Span,
) -> Plan:
    """The plan that renames an object to ``new``.

    ``kind`` is the kind of the operation, such as RENAME TABLE. ``change`` is the word in the column ``change`` of the
    object's result row, such as RENAMED. ``span`` is the place in the statement to which errors point.
    """
    changes: list[Change]
    readers: tuple[ObjectRecord, ...]
    if isinstance(record, ConnectionRecord | SecretRecord):
        changes, readers = renamed_for_others(snapshot, record, new, inspector)
        word = "uses"
    else:
        changes, readers = renamed(snapshot, {record.id: new}, span)
        word = "reads"
    rows = [
        ResultRow(object=new, change=change, detail=f"was {record.name}"),
        *(ResultRow(object=reader.name, change="ALTERED", detail=f"{word} {new}") for reader in readers),
    ]
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(
            kind=kind,
            statement=render(statement),
            objects=(new, record.name, *(row.object for row in rows[1:])),
            changes=tuple(changes),
        ),
        changes=tuple(rows),
        affected=(record.id,),
    )
