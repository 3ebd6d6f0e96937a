"""Lowers UNDO OPERATION for rebuilds of views.

A swap replaces the old table with the rebuilt table. Before the swap, UNDO cancels the rebuild; after the swap, UNDO
reactivates the old table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from rw_sql.errors import SqlError
from rw_sql.metastore.codec import before_from_json, changes_from_json
from rw_sql.metastore.records import REWIND, DropObject, MaterializedViewRecord, Operation, PutObject, RebuildRecord
from rw_sql.model.definitions import view_definition
from rw_sql.model.object_lookup import spoken
from rw_sql.model.rebuilds import kept_generation, rollback_window_ms
from rw_sql.model.relations import schema_columns
from rw_sql.model.resource_groups import as_grouped_now
from rw_sql.plan.queries.view_query import plan_query
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import after, steps_of
from rw_sql.plan.statements.common import REBUILD_CANCELLED
from rw_sql.plan.statements.view.alter_query import ALTER_QUERY
from rw_sql.plan.statements.view.rebuild import REBUILD, SWAP
from rw_sql.syntax import render
from rw_sql.syntax.statements import AlterMaterializedViewQuery, Name, RebuildMaterializedView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change, OperationRecord
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import UndoOperation

KINDS = (ALTER_QUERY, REBUILD, SWAP)
"""The kinds of operations that this module undoes. They are the operations that start a rebuild of a view (with a new
or an unchanged query), and the swap with which the owner completes a rebuild."""

Made = TypeVar("Made", MaterializedViewRecord, RebuildRecord)

Refused = Callable[[str, "str | None"], SqlError]


def lower_undo_rebuild(
    statement: UndoOperation,
    snapshot: Snapshot,
    inspector: Inspector,
    record: OperationRecord,
    records: Sequence[OperationRecord],
    kind: str,
    refused: Refused,
) -> Plan:
    """Returns the plan that cancels the rebuild (before the swap) or reactivates the table that the swap has replaced
    (after the swap).

    ``records`` are the operations since the operation to undo. ``refused`` builds an error from a reason. The function
    raises this error if it can neither cancel the rebuild nor reactivate the old table.
    """
    if record.kind == SWAP:
        return _back(statement, snapshot, inspector, record, records, kind, refused)
    begun = {made.view_id: made.generation for made in _put(record, RebuildRecord)}
    pending = {rebuild.view_id: rebuild for rebuild in snapshot.all("rebuild")}
    if all(id_ in pending and pending[id_].generation == generation for id_, generation in begun.items()):
        return _given_up(statement, snapshot, [pending[id_] for id_ in begun], kind)
    swap = next((found for found in records if found.epoch > record.epoch and _serves(found, begun)), None)
    if swap is None:
        raise refused("the rebuild that it started was restarted or cancelled since then", None)
    return _back(statement, snapshot, inspector, swap, records, kind, refused)


def _put(record: OperationRecord, wanted: type[Made]) -> list[Made]:
    changes = changes_from_json(record.changes)
    return [c.record for c in changes if isinstance(c, PutObject) and isinstance(c.record, wanted)]


def _serves(record: OperationRecord, begun: dict[int, int]) -> bool:
    """True if the operation is the swap after which each view in ``begun`` had the generation in ``begun``, which maps
    view ids to generations."""
    served = {view.id: view.generation for view in _put(record, MaterializedViewRecord)}
    return record.kind == SWAP and all(served.get(id_) == generation for id_, generation in begun.items())


def _given_up(statement: UndoOperation, snapshot: Snapshot, rebuilds: Sequence[RebuildRecord], kind: str) -> Plan:
    changes: list[Change] = []
    names: list[str] = []
    for rebuild in rebuilds:
        changes.append(DropObject(id=rebuild.id))
        view = snapshot.get(rebuild.view_id)
        if isinstance(view, MaterializedViewRecord):
            # The folder of the cancelled generation may contain rows, so the view's next table needs a higher
            # generation.
            last = max(view.last_generation, rebuild.generation)
            changes.append(PutObject(record=replace(view, last_generation=last)))
            names.append(view.name)
    return _plan(statement, snapshot, changes, names, kind, ("UNDONE", REBUILD_CANCELLED))


def _back(
    statement: UndoOperation,
    snapshot: Snapshot,
    inspector: Inspector,
    swap: OperationRecord,
    records: Sequence[OperationRecord],
    kind: str,
    refused: Refused,
) -> Plan:
    """The plan that reactivates the tables that a swap replaced. These tables are kept until the next swap, but no
    longer than ``rollback_window``."""
    before = before_from_json(swap.before).objects
    pairs: list[tuple[MaterializedViewRecord, MaterializedViewRecord]] = []
    for served in _put(swap, MaterializedViewRecord):
        old, now = before.get(served.id), snapshot.get(served.id)
        if not isinstance(old, MaterializedViewRecord) or not isinstance(now, MaterializedViewRecord):
            raise refused(f'materialized view "{served.name}" no longer exists', None)
        if (now.generation, kept_generation(now)) != (served.generation, old.generation):
            raise refused(f'the previous rows of materialized view "{now.name}" no longer exist', _anew(old, now))
        window = rollback_window_ms(snapshot)
        if window is not None and inspector.clock() - swap.at_ms > window:
            why = (
                f'the previous rows of materialized view "{now.name}" are EXPIRED: they are older than rollback_window'
            )
            raise refused(why, _anew(old, now))
        pairs.append((old, now))
    group = {now.id for _, now in pairs}
    later = [found for found in records if found.epoch > swap.epoch]
    for old, now in pairs:
        _require_free(snapshot, now, group, refused)
        _require_same_inputs(snapshot, old, now, group, later, refused)
    try:
        back = [as_grouped_now(snapshot, _as_before(old, now)) for old, now in pairs]
    except ValueError as error:
        raise refused(str(error), None) from error
    changes: list[Change] = [PutObject(record=view) for view in back]
    then = after(snapshot, tuple(changes))
    for view in back:
        _require_same_query(then, inspector, view, refused)
    detail = "queries read its previous rows again, and it continues from the position of these rows"
    return _plan(statement, snapshot, changes, [view.name for view in back], kind, ("RESTORED", detail))


def _anew(old: MaterializedViewRecord, now: MaterializedViewRecord) -> str:
    """The statement with which the user can recompute the former rows of a view."""
    name = Name(parts=(now.name,))
    if old.definition == now.definition:
        return render(RebuildMaterializedView(name=name))
    return render(AlterMaterializedViewQuery(name=name, query=view_definition(old.definition).query))


def _as_before(old: MaterializedViewRecord, now: MaterializedViewRecord) -> MaterializedViewRecord:
    definition = replace(view_definition(old.definition), name=Name.of(now.name))
    return replace(
        old,
        name=now.name,
        definition=render(definition),
        kept_generation=now.generation,
        last_generation=max(now.generation, now.last_generation),
    )


def _require_free(snapshot: Snapshot, view: MaterializedViewRecord, group: set[int], refused: Refused) -> None:
    if any(rebuild.view_id == view.id for rebuild in snapshot.all("rebuild")):
        raise refused(
            f'materialized view "{view.name}" is being rebuilt',
            "UNDO that operation first; SHOW JOBS shows its progress",
        )
    others = [reader for reader in snapshot.readers_of(view.id) if reader.id not in group]
    if others:
        named = ", ".join(f'{spoken(reader.kind)} "{reader.name}"' for reader in others)
        hint = "drop the objects that have read them, run UNDO, and create the objects again"
        raise refused(f"{named} has already read the new rows", hint)


def _require_same_inputs(
    snapshot: Snapshot,
    old: MaterializedViewRecord,
    now: MaterializedViewRecord,
    group: set[int],
    later: Sequence[OperationRecord],
    refused: Refused,
) -> None:
    """Raises the error from ``refused`` unless the old table can continue. For this, the inputs of the table must
    exist, and must still have the rows from which the table was computed."""
    for id_ in old.inputs:
        if snapshot.get(id_) is None:
            raise refused(f'materialized view "{now.name}" previously read an object that no longer exists', None)
    for record in later:
        touched = {view.id for view in _put(record, MaterializedViewRecord)} if record.kind == SWAP else set()
        if touched & (set(old.inputs) - group):
            raise refused(
                f'operation {record.epoch} rebuilt an object that the previous rows of materialized view "{now.name}" '
                "were computed from",
                None,
            )
        if record.kind == REWIND and now.name in record.objects:
            raise refused(
                f"operation {record.epoch} ({REWIND}) has removed rows since then, but not from the rows "
                "that UNDO would restore",
                None,
            )


def _require_same_query(then: Snapshot, inspector: Inspector, view: MaterializedViewRecord, refused: Refused) -> None:
    definition = view_definition(view.definition)
    try:
        found = plan_query(
            then,
            inspector,
            definition.query,
            f'materialized view "{view.name}"',
            view.dialect,
            closes_windows=definition.is_emit_on_window_close,
            columns=definition.columns,
        )
    except SqlError as error:
        raise refused(f"its previous query is no longer valid: {error.message}", None) from error
    # In views that an earlier version of rw_sql created, columns may be non-nullable or have other metadata. The
    # comparison ignores this.
    if found.inputs != view.inputs or schema_columns(found.schema) != schema_columns(view.schema):
        raise refused(
            f'a name in the previous query of materialized view "{view.name}" now refers to another object', None
        )


def _plan(
    statement: UndoOperation,
    snapshot: Snapshot,
    changes: list[Change],
    names: list[str],
    kind: str,
    answer: tuple[str, str],
) -> Plan:
    ids = [change.record.id for change in changes if isinstance(change, PutObject)]
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(
            kind=kind,
            statement=render(statement),
            objects=tuple(names),
            changes=tuple(changes),
            reason=statement.reason,
        ),
        changes=tuple(ResultRow(object=name, change=answer[0], detail=answer[1]) for name in names),
        affected=tuple(ids),
    )
