"""Lowers CREATE OR REPLACE as one operation, which either creates the object or alters the object in place with the
least change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.errors import CANNOT_REPLACE, INVALID_DEFINITION, SqlError
from rw_sql.metastore.records import MaterializedViewRecord, Operation, PutObject
from rw_sql.model.definitions import (
    connection_definition,
    sink_definition,
    source_definition,
    table_definition,
    view_definition,
)
from rw_sql.model.object_lookup import object_name
from rw_sql.plan.effects.impact_of_changes import in_one
from rw_sql.plan.queries.meaning import dialect_of
from rw_sql.plan.result.plan import Plan
from rw_sql.plan.result.preview_text import render_preview
from rw_sql.plan.result.steps import after, in_one_commit, steps_of
from rw_sql.plan.statements.common import nothing
from rw_sql.plan.statements.replace.least_change import least_change
from rw_sql.plan.statements.table.source_of_table import RESHAPING
from rw_sql.plan.statements.view.alter_query import gains_columns, is_rebuild_stalled, lower_new_definition
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.statements import (
    CreateConnection,
    CreateMaterializedView,
    CreateSink,
    CreateSource,
    CreateTable,
)

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import Statement

Replaceable = CreateSource | CreateTable | CreateSink | CreateMaterializedView | CreateConnection

Lower = Callable[["Statement", "Snapshot", "Inspector"], "Plan"]

_KINDS: dict[type[Replaceable], tuple[str, Callable[[str], Replaceable]]] = {
    CreateSource: ("source", source_definition),
    CreateTable: ("table", table_definition),
    CreateSink: ("sink", sink_definition),
    CreateMaterializedView: ("materialized_view", view_definition),
    CreateConnection: ("connection", connection_definition),
}


def lower_create_or_replace(
    statement: Replaceable, snapshot: Snapshot, inspector: Inspector, lower: Lower, query_dialect: str
) -> Plan:
    """Lowers CREATE OR REPLACE. If the object does not exist, it is created as by CREATE. Otherwise, the statement
    changes the existing object as little as possible.

    ``lower`` lowers each statement of that change. The statement is refused if the existing object cannot be changed to
    this definition in place.
    """
    if statement.if_not_exists:
        raise SqlError(
            INVALID_DEFINITION,
            "OR REPLACE and IF NOT EXISTS exclude each other",
            span=statement.name.span,
            hint="omit IF NOT EXISTS to change the object if it exists; omit OR REPLACE to keep it",
        )
    name = object_name(statement.name)
    kind, definition_of = _KINDS[type(statement)]
    record = snapshot.find(kind, name)
    if record is None or (kind == "source" and snapshot.table_of(record.id) is not None):
        created = lower(replace(statement, or_replace=False), snapshot, inspector)
        return replace(created, statement=statement)
    # If a view is being rebuilt, its future definition is compared.
    to_be = next((r.view for r in snapshot.all("rebuild") if r.view_id == record.id and r.view is not None), record)
    current = definition_of(getattr(to_be, "definition"))  # noqa: B009 - every kind above has one
    connections = {found.name: connection_definition(found.definition) for found in snapshot.all("connection")}
    change = least_change(current, statement, connections, (dialect_of(to_be), query_dialect))
    if (
        change.needs_rebuild
        and isinstance(statement, CreateMaterializedView)
        and isinstance(record, MaterializedViewRecord)
    ):
        return lower_new_definition(statement, snapshot, inspector, record, statement, query_dialect)
    if change.refusal:
        words = kind.replace("_", " ")
        hint = (
            f"CREATE {words.upper()} under another name, then ALTER {words.upper()} {sql_name(name)} SWAP WITH it; or "
        )
        if kind == "connection":
            hint = "CREATE CONNECTION under another name, then ALTER SOURCE … SET CONNECTION; or "
        raise SqlError(
            CANNOT_REPLACE,
            f'{words} "{name}" cannot be replaced in place: {change.refusal}',
            span=statement.name.span,
            hint=f"{hint}DROP {words.upper()} {sql_name(name)}, and create it again",
        )
    if not change.statements:
        is_made = to_be is not record
        if (
            isinstance(statement, CreateMaterializedView)
            and isinstance(record, MaterializedViewRecord)
            and isinstance(to_be, MaterializedViewRecord)
            and (gains_columns(snapshot, to_be) or (is_made and is_rebuild_stalled(snapshot, inspector, record)))
        ):
            return lower_new_definition(statement, snapshot, inspector, record, statement, query_dialect)
        return nothing(
            statement,
            name,
            "a rebuild with this definition is already running" if is_made else "it already has this definition",
        )
    return _as_one(statement, snapshot, inspector, change.statements, lower)


def _as_one(
    statement: Replaceable, snapshot: Snapshot, inspector: Inspector, statements: tuple[Statement, ...], lower: Lower
) -> Plan:
    """Combines several statements into one operation.

    Each statement is lowered on the catalog that results from the statements before it.
    """
    then = snapshot
    plans: list[Plan] = []
    for each in statements:
        plan = lower(each, then, inspector.after(then) if plans else inspector)
        plans.append(plan)
        if plan.operation is not None:
            then = after(then, plan.operation.changes)
    operations = [plan.operation for plan in plans if plan.operation is not None]
    if len(operations) <= 1:
        # If only one statement changes the catalog, the operation gets that statement's kind, because rewinds and undos
        # depend on the kind.
        operation = replace(operations[0], statement=render(statement)) if operations else None
        (one,) = [plan for plan in plans if plan.operation is not None] or plans[:1]
        return replace(one, statement=statement, operation=operation)
    changes = in_one_commit(snapshot, _folded(change for operation in operations for change in operation.changes))
    previews = tuple(plan.preview for plan in plans if plan.preview is not None)
    preview = in_one(f"CREATE OR REPLACE of {statement.name}", previews) if previews else None
    is_unsafe = any(plan.is_unsafe for plan in plans)
    kinds = [operation.kind for operation in operations]
    unsafe = [operation.kind for operation in operations if operation.is_unsafe]
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, changes),
        operation=Operation(
            kind=next((kind for kind in kinds if kind in RESHAPING), (unsafe or kinds)[0]),
            statement=render(statement),
            objects=tuple(dict.fromkeys(name for operation in operations for name in operation.objects)),
            changes=changes,
            is_unsafe=is_unsafe,
            plan=render_preview(preview) if preview is not None else "",
            prediction=next((o.prediction for o in operations if o.prediction is not None), None),
        ),
        changes=tuple(row for plan in plans for row in plan.changes if row.change != "NOTHING"),
        preview=replace(preview, epoch=snapshot.epoch) if preview is not None else None,
        is_unsafe=is_unsafe,
        affected=tuple(dict.fromkeys(id_ for plan in plans for id_ in plan.affected)),
        unallowed=tuple(dict.fromkeys(word for plan in plans for word in plan.unallowed)),
        fingerprint=";".join(plan.fingerprint for plan in plans if plan.fingerprint),
    )


def _folded(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Merges changes. For each object, only the last record is kept, at the position of the object's first record."""
    found: list[Change] = []
    at: dict[int, int] = {}
    for change in changes:
        if isinstance(change, PutObject) and change.record.id in at:
            found[at[change.record.id]] = change
            continue
        if isinstance(change, PutObject):
            at[change.record.id] = len(found)
        found.append(change)
    return tuple(found)
