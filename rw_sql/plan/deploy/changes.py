"""Derives the changes that make the catalog match a folder. Each change contains the statements to execute. The changes
are in the order in which they must be executed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rw_sql.errors import DEPENDENTS_EXIST
from rw_sql.metastore.records import RebuildRecord, SecretRecord, SinkRecord, TableRecord
from rw_sql.model.definitions import connection_definition
from rw_sql.model.object_lookup import objects_in, spoken
from rw_sql.plan.deploy.change import ALTER, CREATE, DROP, REBUILD, RECREATE, UNSAFE, DeployChange
from rw_sql.plan.deploy.columns import WHY_OPTIONAL, in_the_way, optional_drops, rebuilt_users, without_used_drops
from rw_sql.plan.deploy.definitions import definition_of, dialects, find_object, record_to_be
from rw_sql.plan.deploy.fixed_secret import fixed_secret
from rw_sql.plan.deploy.folder import RELATIONS, DefinitionError
from rw_sql.plan.deploy.former_names import exchange_names, rename_object
from rw_sql.plan.deploy.moved_options import detour_of
from rw_sql.plan.deploy.order import in_order, named_by
from rw_sql.plan.deploy.renames import half_renamed, renames, with_own_schema
from rw_sql.plan.deploy.running_rebuilds import rebuilds_last, waiting_for
from rw_sql.plan.deploy.widening import columns_to_gain, why_wider, with_note
from rw_sql.plan.statements.replace.least_change import least_change
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.statements import (
    AlterConnectionOptions,
    AlterSetConnection,
    AlterSourceUnsafeSet,
    AlterTableDropColumn,
    AlterTableRenameColumn,
    AlterTableUnsafeSet,
    CreateConnection,
    CreateMaterializedView,
    CreateSchema,
    DropConnection,
    DropMaterializedView,
    DropSchema,
    DropSink,
    DropSource,
    DropTable,
    Name,
    Wait,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.plan.deploy.folder import FolderObject
    from rw_sql.syntax.statements import Statement

_DROPS = {
    "connection": DropConnection,
    "source": DropSource,
    "table": DropTable,
    "materialized_view": DropMaterializedView,
    "sink": DropSink,
    "schema": DropSchema,
}
_UNSAFE = (AlterSourceUnsafeSet, AlterTableUnsafeSet)
_WHY_LOST = "an object that it depends on is dropped"
MANAGED = ("connection", *RELATIONS)
"""The kinds of objects that a deployment drops if the folder does not define them.

Secrets are not dropped, because a folder may omit them.
"""


def compare(
    snapshot: Snapshot,
    folder: Sequence[FolderObject],
    allow: Sequence[str] = (),
    unable: Mapping[int, str] | None = None,
) -> tuple[DeployChange, ...]:
    """Returns the changes that make the catalog match the folder, in an order in which they can be executed. The result
    is empty if nothing differs.

    ``allow`` are the words for the ALLOW clause of unsafe statements. ``unable`` maps the id of each object that must
    be created again, although the definitions do not show this, to the reason why the object cannot be altered in
    place. Raises SqlError if no order is possible.
    """
    connections = {w.name: w.statement for w in folder if isinstance(w.statement, CreateConnection)}
    known = {c.name: connection_definition(c.definition) for c in snapshot.all("connection")} | connections

    def is_same(record: ObjectRecord, wanted: FolderObject) -> bool:
        if isinstance(wanted.statement, CreateSchema):
            return False
        to_be = record_to_be(snapshot, record)
        return least_change(definition_of(to_be), wanted.statement, known, dialects(to_be)).is_empty

    then = snapshot
    folder = with_own_schema(folder, partial(find_object, snapshot))
    # An existing object may move into a new schema, so schemas are created before objects are renamed.
    ordered = in_order(folder)
    schemas = [wanted for wanted in ordered if _is_new_schema(snapshot, wanted)]
    changes = [_created(snapshot, wanted) for wanted in schemas]
    for wanted in renames(folder, partial(find_object, snapshot), is_same):
        then, change = rename_object(then, wanted, folder)
        changes.append(change)
    for wanted in half_renamed(folder, partial(find_object, then), partial(_is_kept, then, known)):
        then, change = rename_object(then, wanted, folder)
        changes.append(change)

    def is_defined(now: Snapshot, wanted: FolderObject) -> bool:
        record = find_object(now, wanted.kind, wanted.name)
        return record is not None and is_same(record, wanted)

    then = exchange_names(then, folder, is_defined, changes)
    ordered = tuple(wanted for wanted in ordered if wanted not in schemas)
    altered, detached, again, running = _alterations(then, ordered, known, allow)
    altered = [left for change in altered if (left := without_used_drops(then, change)).statements]
    again |= {id_: why for id_, why in (unable or {}).items() if id_ not in again}
    rebuilt = {change.touches[0] for change in altered if change.action == REBUILD}
    kept = {(wanted.kind, wanted.name) for wanted in folder}
    for change in altered:
        table = then.get(change.touches[0])
        if isinstance(table, TableRecord):
            users = in_the_way(then, table, change.statements, rebuilt)
            again |= {user.id: why for user, why in users if (user.kind, user.name) in kept and user.id not in again}
    gone = _with_dependents(then, again)
    lost = {id_ for id_ in gone if (record := then.get(id_)) is not None and (record.kind, record.name) not in kept}
    unwanted = _unwanted(then, folder, gone)
    remade = gone | unwanted | _with_dependents(then, rebuilt)
    altered = [with_note(then, change, remade) for change in altered]
    # A reader of the folder may read an object of another kind under the same name.
    replaced = {other.id for wanted in folder if (other := _other(then, wanted)) is not None}
    _require_unread(then, folder, unwanted | (lost - replaced))
    # An object that may use a renamed or dropped column must be dropped before that column is changed. All other
    # objects are dropped last.
    reshaped = {id_ for change in altered if _reshapes(change) for id_ in _with_dependents(then, change.touches[:1])}
    early = {id_ for id_ in unwanted & reshaped if all(d.id in unwanted for d in then.dependents_of(id_))}
    changes += _drops(then, early, {}, lost=early)
    changes += _drops(then, gone, dict.fromkeys(lost, _WHY_LOST) | again, lost=lost)
    dropped = {record.kind for id_ in unwanted | lost if (record := then.get(id_)) is not None}
    now, late = _creations_and_alterations(then, ordered, altered, detached, again, gone, rebuilt, dropped)
    changes += (*rebuilds_last(now, ordered, running), *late)
    for rest in (unwanted - early, _unwanted_schemas(then, folder, unwanted | lost)):
        changes += _drops(then, rest, {}, lost=rest)
    return tuple(changes)


def _is_kept(
    snapshot: Snapshot, known: Mapping[str, CreateConnection], record: ObjectRecord, wanted: FolderObject
) -> bool:
    """True if a safe change in place gives the object ``record`` the definition ``wanted`` from the folder."""
    if isinstance(wanted.statement, CreateSchema):
        return False
    to_be = record_to_be(snapshot, record)
    leads = least_change(definition_of(to_be), wanted.statement, known, dialects(to_be))
    return not leads.refusal and not any(isinstance(each, _UNSAFE) for each in leads.statements)


def _is_new_schema(snapshot: Snapshot, wanted: FolderObject) -> bool:
    return isinstance(wanted.statement, CreateSchema) and find_object(snapshot, wanted.kind, wanted.name) is None


def _created(then: Snapshot, wanted: FolderObject, action: str = CREATE, reason: str = "") -> DeployChange:
    """The change that creates an object, or creates it again."""
    return DeployChange(
        action=action,
        kind=wanted.kind,
        name=wanted.name,
        statements=(wanted.statement,),
        place=wanted.place,
        reason=reason,
        touches=tuple(found.id for found in _read(then, wanted)),
    )


def _alterations(
    then: Snapshot, ordered: Sequence[FolderObject], known: Mapping[str, CreateConnection], allow: Sequence[str]
) -> tuple[list[DeployChange], dict[str, list[DeployChange]], dict[int, str], set[int]]:
    """Returns four values:

    - the changes that alter existing objects in place
    - for each connection, by its name: the changes that must precede the change of the connection
    - for each object that must be created again, by its id: the reason
    - the ids of the views for which a rebuild is already running, and whose change continues this rebuild
    """
    altered: list[DeployChange] = []
    detached: dict[str, list[DeployChange]] = {}
    again: dict[int, str] = {}
    running: set[int] = set()
    current = {c.name: connection_definition(c.definition) for c in then.all("connection")}
    reshaping: dict[int, DeployChange] = {}
    for wanted in ordered:
        record = find_object(then, wanted.kind, wanted.name)
        if record is None:
            other = _other(then, wanted)
            if other is not None:
                again[other.id] = f"its name is needed for {spoken(wanted.kind)} {wanted.name}"
            continue
        if isinstance(wanted.statement, CreateSchema):
            continue
        to_be = record_to_be(then, record)
        defined = definition_of(to_be)
        detour = detour_of(defined, wanted.statement, current, known, dialects(to_be))
        if detour is not None:
            first = tuple(_allowing(s, allow) for s in detour.first)
            detached.setdefault(detour.connection, []).append(_altered(then, wanted, record, first))
        leads = detour.rest if detour else least_change(defined, wanted.statement, known, dialects(to_be))
        if leads.statements:
            reshaping[record.id] = _altered(then, wanted, record, leads.statements)
        gained = columns_to_gain(then, to_be, reshaping)
        if leads.needs_rebuild and isinstance(wanted.statement, CreateMaterializedView):
            sinks = [found.name for found in then.dependents_of(record.id) if isinstance(found, SinkRecord)]
            if sinks:
                again[record.id] = f"sinks cannot remove the rows that they have sent: {', '.join(sinks)}"
                continue
            made = replace(wanted.statement, or_replace=True)
            statements = (*leads.statements, made, _wait(wanted))
            altered.append(_altered(then, wanted, record, statements, reason=leads.refusal))
        elif leads.refusal and isinstance(record, SecretRecord):
            raise fixed_secret(then, wanted, record, leads.refusal)
        elif leads.refusal:
            again[record.id] = leads.refusal
        elif gained and isinstance(wanted.statement, CreateMaterializedView):
            made = replace(wanted.statement, or_replace=True)
            statements = (*leads.statements, made, _wait(wanted))
            altered.append(_altered(then, wanted, record, statements, reason=why_wider(gained)))
        elif to_be is not record and isinstance(wanted.statement, CreateMaterializedView):
            waiting, why = waiting_for(then, record, to_be, wanted.statement)
            altered.append(_altered(then, wanted, record, (*leads.statements, *waiting), reason=why))
            running.add(record.id)
        elif leads.statements:
            altered.append(_altered(then, wanted, record, tuple(_allowing(s, allow) for s in leads.statements)))
    return altered, detached, again, running


def _creations_and_alterations(
    then: Snapshot,
    ordered: Sequence[FolderObject],
    altered: Sequence[DeployChange],
    detached: Mapping[str, Sequence[DeployChange]],
    again: Mapping[int, str],
    gone: set[int],
    rebuilt: set[int],
    dropped: set[str],
) -> tuple[list[DeployChange], list[DeployChange]]:
    """Returns two lists. The first list contains the changes that create objects or alter them in place, in the order
    of ``ordered``. The second list contains the changes to tables that must follow the rebuilds. ``dropped`` are the
    kinds of the objects that are dropped because the folder does not define them."""
    by_key = {(change.kind, change.name): change for change in altered}
    changes: list[DeployChange] = []
    late: list[DeployChange] = []
    for wanted in ordered:
        record = find_object(then, wanted.kind, wanted.name)
        if record is None or record.id in gone:
            if record is None:
                changes.append(_created(then, wanted, reason=_not_renamed(then, wanted, dropped)))
            else:
                why = again.get(record.id, "an object that it depends on is created again")
                changes.append(_created(then, wanted, RECREATE, why))
        elif (wanted.kind, wanted.name) in by_key:
            if wanted.kind == "connection":
                changes += [each for each in detached.get(wanted.name, ()) if each.touches[0] not in gone]
            change = by_key[wanted.kind, wanted.name]
            last = _after_rebuilds(then, change, rebuilt - gone)
            now = tuple(statement for statement in change.statements if statement not in last)
            changes += _parts(then, change, now)
            late += _parts(then, change, last)
    return changes, late


def _parts(then: Snapshot, change: DeployChange, statements: tuple[Statement, ...]) -> list[DeployChange]:
    """Limits a change to ``statements``. Returns up to two changes: one with the DROP COLUMN statements that may be
    omitted, and before it, one with all other statements."""
    optional = tuple(statement for statement in optional_drops(then, change) if statement in statements)
    rest = tuple(statement for statement in statements if statement not in optional)
    parts = [replace(change, statements=rest)] if rest else []
    return parts + ([replace(change, statements=optional, reason=WHY_OPTIONAL)] if optional else [])


def _not_renamed(then: Snapshot, wanted: FolderObject, dropped: set[str]) -> str:
    """Returns the note that nothing is renamed, or the empty string. The note is returned under three conditions: the
    comment of ``wanted`` states a former name, no object of this kind has that name, and an object of this kind is
    dropped."""
    if wanted.was is None or wanted.kind not in dropped or find_object(then, wanted.kind, wanted.was) is not None:
        return ""
    return f"nothing is renamed: no {spoken(wanted.kind)} is called {wanted.was}"


def _other(snapshot: Snapshot, wanted: FolderObject) -> ObjectRecord | None:
    """The relation that has the name of ``wanted`` but is of a different kind; None if there is no such relation."""
    if wanted.kind not in RELATIONS:
        return None
    found = (find_object(snapshot, kind, wanted.name) for kind in RELATIONS if kind != wanted.kind)
    return next((record for record in found if record is not None), None)


def _wait(wanted: FolderObject) -> Statement:
    return Wait(kind="MATERIALIZED VIEW", name=_name(wanted.name))


def _altered(
    snapshot: Snapshot,
    wanted: FolderObject,
    record: ObjectRecord,
    statements: tuple[Statement, ...],
    reason: str = "",
) -> DeployChange:
    action = ALTER
    if any(isinstance(s, Wait) for s in statements):
        action = REBUILD
    elif any(isinstance(s, AlterSourceUnsafeSet | AlterTableUnsafeSet) for s in statements):
        action = UNSAFE
    return DeployChange(
        action=action,
        kind=wanted.kind,
        name=wanted.name,
        statements=statements,
        place=wanted.place,
        reason=reason,
        touches=tuple(dict.fromkeys((record.id, *(found.id for found in _read(snapshot, wanted))))),
    )


def _reshapes(change: DeployChange) -> bool:
    return any(isinstance(s, AlterTableDropColumn | AlterTableRenameColumn) for s in change.statements)


def _after_rebuilds(snapshot: Snapshot, change: DeployChange, rebuilt: set[int]) -> tuple[Statement, ...]:
    """The DROP COLUMN statements in a table's change that must wait, because views that may use the columns are being
    rebuilt. The DROP COLUMN statements after the first waiting statement wait too. If they did not wait, a column could
    be dropped before the columns that are computed from it. If a rebuild that is already running reads the table, all
    DROP COLUMN statements wait for this rebuild."""
    table = snapshot.get(change.touches[0])
    if not isinstance(table, TableRecord):
        return ()
    drops = [statement for statement in change.statements if isinstance(statement, AlterTableDropColumn)]
    running = (found.view for found in snapshot.all("rebuild") if found.view_id in rebuilt)
    if any(view is not None and table.id in view.inputs for view in running):
        return tuple(drops)
    waiting = (at for at, drop in enumerate(drops) if rebuilt_users(snapshot, table, drop, rebuilt))
    return tuple(drops[next(waiting, len(drops)) :])


def may_ask(change: DeployChange) -> bool:
    """True if the user must confirm the change individually, because it may be unsafe or may have an unsafe effect."""
    kinds = (AlterSourceUnsafeSet, AlterTableUnsafeSet, AlterConnectionOptions, AlterSetConnection)
    return any(isinstance(statement, kinds) for statement in change.statements)


def _allowing(statement: Statement, allow: Sequence[str]) -> Statement:
    if allow and isinstance(statement, AlterSourceUnsafeSet | AlterTableUnsafeSet):
        return replace(statement, allow=tuple(allow))
    return statement


def _with_dependents(snapshot: Snapshot, ids: Iterable[int]) -> set[int]:
    """The objects and all their dependents. The dependents of a table include the dependents of its source. The
    dependents also include each view that is being rebuilt with a new query, if the new query reads one of the
    objects."""
    found: set[int] = set()
    waiting = list(ids)
    while waiting:
        id_ = waiting.pop()
        if id_ in found:
            continue
        found.add(id_)
        source = getattr(snapshot.get(id_), "source_id", None)
        for each in (*snapshot.dependents_of(id_), *(() if source is None else snapshot.dependents_of(source))):
            waiting.append(each.view_id if isinstance(each, RebuildRecord) else each.id)
    return {id_ for id_ in found if _is_own(snapshot, snapshot.get(id_))}


def _is_own(snapshot: Snapshot, record: ObjectRecord | None) -> bool:
    return record is not None and record.kind in MANAGED and find_object(snapshot, record.kind, record.name) == record


def _drops(
    snapshot: Snapshot, ids: Iterable[int], why: Mapping[int, str], *, lost: Collection[int]
) -> list[DeployChange]:
    """The changes that drop objects. Each object is dropped before the objects that it reads. (The reverse order of
    creation would be wrong, because an object may be older than an object that it reads.)

    ``why`` maps ids to the reasons for the drops. ``lost`` are the ids of the objects that are not created again.
    """
    found: list[DeployChange] = []
    left = {id_: snapshot.get(id_) for id_ in ids}
    while left:
        # The drop of a view ends its rebuild, which may depend on another object that is dropped.
        free = [
            id_
            for id_ in left
            if not any(
                each in left and each != id_
                for each in (d.view_id if isinstance(d, RebuildRecord) else d.id for d in snapshot.dependents_of(id_))
            )
        ]
        for id_ in sorted(free or left, reverse=True):
            record = left.pop(id_)
            if record is None:
                continue
            found.append(
                DeployChange(
                    action=DROP if id_ in lost else RECREATE,
                    kind=record.kind,
                    name=record.name,
                    statements=(_DROPS[record.kind](name=_name(record.name)),),
                    reason=why.get(id_, ""),
                    touches=(id_,),
                )
            )
    return found


def _unwanted(snapshot: Snapshot, folder: Sequence[FolderObject], gone: set[int]) -> set[int]:
    kept = {(wanted.kind, wanted.name) for wanted in folder}
    return {
        record.id
        for kind in MANAGED
        for record in snapshot.all(kind)
        if _is_own(snapshot, record) and (kind, record.name) not in kept and record.id not in gone
    }


def _unwanted_schemas(snapshot: Snapshot, folder: Sequence[FolderObject], unwanted: set[int]) -> set[int]:
    """Returns the schemas that the folder neither defines nor uses, and that are empty after the drop of the
    ``unwanted`` objects."""
    used = {wanted.statement.name.schema for wanted in folder}
    used |= {wanted.name for wanted in folder if wanted.kind == "schema"}
    return {
        schema.id
        for schema in snapshot.all("schema")
        if schema.name not in used and all(record.id in unwanted for record in objects_in(snapshot, schema.name))
    }


def _require_unread(snapshot: Snapshot, folder: Sequence[FolderObject], unwanted: set[int]) -> None:
    """Raises SqlError if an object of the folder refers to an object in ``unwanted``. ``unwanted`` are the ids of the
    objects that the folder does not define and that would therefore be dropped."""
    for wanted in folder:
        for record in _read(snapshot, wanted):
            if record.id in unwanted:
                raise DefinitionError(
                    wanted,
                    DEPENDENTS_EXIST,
                    f'{spoken(wanted.kind)} "{wanted.name}" at {wanted.place} reads {spoken(record.kind)} '
                    f'"{record.name}", which is not in the folder',
                    hint=f"SHOW CREATE {spoken(record.kind).upper()} {sql_name(record.name)} shows the statement to "
                    "add to the folder",
                )


def _read(snapshot: Snapshot, wanted: FolderObject) -> tuple[ObjectRecord, ...]:
    """Returns the objects of the catalog to which a definition refers."""
    found: list[ObjectRecord] = []
    for kind, name in named_by(wanted):
        kinds = RELATIONS[:3] if kind == "relation" else (kind,)
        record = next((r for k in kinds if (r := find_object(snapshot, k, name)) is not None), None)
        found += [record] if record is not None else []
    return tuple(found)


def _name(name: str) -> Name:
    return Name.of(name)
