"""Lowers REWIND SOURCE, which restores a source and its dependents to the state that they had just before an operation.

The changes to the catalog (definition, assignments, positions) are the same as if the operation and all later
operations were undone. Rows and operator state come from the rewind point that the owner created for the operation. The
owner restores the rows and the operator state before any reader continues.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import captures_changes
from rw_sql.errors import CANNOT_REWIND, NOT_SUPPORTED, SqlError
from rw_sql.metastore.codec import BeforeImage, before_from_json, changes_back, changes_from_json
from rw_sql.metastore.records import (
    FORGOTTEN,
    REWIND,
    ConnectionRecord,
    MaterializedViewRecord,
    Operation,
    PutObject,
    RewindRecord,
    SinkRecord,
    SourceRecord,
    StoredState,
)
from rw_sql.model.job_ids import ingest_fragment, sink_job, view_job
from rw_sql.model.object_lookup import find_operation, find_source, spoken
from rw_sql.model.resource_groups import group_of
from rw_sql.model.source_readers import readers_of
from rw_sql.plan.effects.impact_of_changes import answers_of, impact_of, predictions, remedy_without_records
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.prediction import prediction_from_json
from rw_sql.plan.result.preview_text import render_preview
from rw_sql.plan.result.steps import Step, after, steps_of
from rw_sql.plan.statements.common import require_movable
from rw_sql.plan.statements.move.restored import checked, put_records
from rw_sql.plan.statements.move.rewind_losses import records_lost_by_rewind
from rw_sql.plan.statements.move.undo import History
from rw_sql.plan.statements.table.source_of_table import RESHAPING, without_tables
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import PointDependent, RewindPoint
    from rw_sql.metastore.records import Change, ObjectRecord, OperationRecord
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.ports.rewinds import RewindLook, TableBack
    from rw_sql.syntax.statements import RewindSource


_NAMING = ("RENAME ", "SET SCHEMA ", "SWAP ")
"""The kinds of operations that only change an object's name begin with one of these words."""


def rewind_statement(source: SourceRecord, operation: int) -> str:
    """The text of the statement that rewinds a source to its state just before an operation."""
    return f"{REWIND} {sql_name(source.name)} TO OPERATION {operation}"


def lower_rewind_source(statement: RewindSource, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers REWIND SOURCE, which restores the source's log, its views and their state as they were just before an
    operation.

    After the restoration, the source resumes reading.

    The statement is refused if there is no rewind point, or if the data of the rewind point no longer exist. It is also
    refused if the upstream has lost the next records that the source would read, or records whose rows the rewind would
    remove. Without ALLOW DUPLICATES, the statement is also refused if a sink has sent rows since the operation.
    """
    source = find_source(snapshot, statement.name)
    require_movable(snapshot, source, statement.name.span)
    if extra := [word for word in statement.allow if word != "DUPLICATES"]:
        raise SqlError(
            NOT_SUPPORTED,
            f"{REWIND} skips no records, so ALLOW {', '.join(extra)} has no effect",
            span=statement.span,
            hint=f"omit ALLOW {', '.join(extra)}",
        )
    if not source.is_shared:
        raise _refused(
            statement,
            "the source is not shared, and such sources have no rewind points",
            _undo_instead(statement),
        )
    records = inspector.operations(since=statement.operation)
    listed = f"SHOW UNSAFE OPERATIONS FOR {sql_name(source.name)}"
    record = find_operation(records, statement.operation, statement.operation_span, listed)
    if not record.is_unsafe or ingest_fragment(source.id) not in prediction_from_json(record.prediction):
        raise _refused(
            statement,
            "that operation did not move the source",
            f"{listed} lists the operations that did",
        )
    point = _the_point(statement, source, inspector.rewinds.points(source.id))
    look = inspector.rewinds.look(point)
    _require_there(statement, snapshot, look)
    before = _before(statement, snapshot, source, point, tuple(reversed(records)))
    base = checked(snapshot, without_tables(changes_back(before)), lambda why, hint: _refused(statement, why, hint))
    known = {dependent.id: dependent for dependent in point.dependents}
    readers = snapshot.dependents_of(source.id)
    _require_settled(statement, snapshot, readers)
    _require_known(statement, [record for record in readers if not _is_in(record, known)])
    _require_one_group(statement, snapshot, source, readers)
    sinks = tuple(record for record in readers if isinstance(record, SinkRecord))
    notices = _sink_notices(statement, sinks, look)
    return _plan(statement, snapshot, inspector, source, base, point, look, sinks, notices)


def _refused(statement: RewindSource, why: str, hint: str | None = None) -> SqlError:
    message = f'source "{statement.name.key}" cannot be rewound to operation {statement.operation}: {why}'
    return SqlError(CANNOT_REWIND, message, span=statement.span, hint=hint)


def _undo_instead(statement: RewindSource) -> str:
    return f"UNDO OPERATION {statement.operation} restores definition and positions, but does not remove rows"


def _is_in(record: ObjectRecord, known: Mapping[int, PointDependent]) -> bool:
    found = known.get(record.id)
    return found is not None and (
        isinstance(record, SinkRecord) or found.generation == getattr(record, "generation", 1)
    )


def _the_point(statement: RewindSource, source: SourceRecord, points: Sequence[RewindPoint]) -> RewindPoint:
    undo = _undo_instead(statement)
    there = [str(point.operation) for point in points if point.reason is None]
    hint = f"rewind points of {source.name}: operation {', '.join(there)}; {undo}" if there else undo
    point = next((found for found in points if found.operation == statement.operation), None)
    if point is None:
        raise _refused(
            statement,
            "there is no rewind point: rw_sql has not created it yet, the source had read nothing, the point was "
            "removed because of its age, or newer points have replaced it",
            hint,
        )
    if point.reason is not None:
        raise _refused(statement, f"there is no rewind point: {point.reason}", hint)
    return point


def _require_there(statement: RewindSource, snapshot: Snapshot, look: RewindLook) -> None:
    for table in look.tables:
        if table.lost is not None:
            record = snapshot.get(table.object_id)
            told = f'{spoken(record.kind)} "{record.name}"' if record is not None else f"object {table.object_id}"
            raise _refused(statement, f"{told} {table.lost}", _undo_instead(statement))


def _before(
    statement: RewindSource,
    snapshot: Snapshot,
    source: SourceRecord,
    point: RewindPoint,
    records: Sequence[OperationRecord],
) -> BeforeImage:
    """The state to restore: the source's record, splits and positions as they were just before the operation.

    For each split that had a position at that time, the result contains the position that the split had reached, even
    if no later operation has set the split's position.
    """
    fragment = ingest_fragment(source.id)
    objects: dict[int, ObjectRecord | None] = {}
    splits: dict[str, int | None] = {}
    states: dict[str, StoredState | None] = {}
    images = [before_from_json(record.before) for record in records]
    given_back = next((old for each in images if isinstance(old := each.objects.get(source.id), SourceRecord)), source)
    _require_same_connections(statement, snapshot, given_back, records, images)
    _require_same_name(statement, source, given_back, records, images)
    for record, image in zip(records, images, strict=True):
        is_reshaped = record.kind in RESHAPING and not record.kind.startswith(_NAMING)
        if is_reshaped and source.id in image.objects:
            raise _refused(statement, f"operation {record.epoch} ({record.kind}) has changed its columns since then")
        if source.id in image.objects:
            objects.setdefault(source.id, image.objects[source.id])
        for split, epoch in image.splits.get(fragment, {}).items():
            splits.setdefault(split, epoch)
        for split, state in image.states.get(fragment, {}).items():
            states.setdefault(split, state)
    for split, text in point.states.items():
        states[split] = StoredState(
            fragment=fragment, split=split, state=text, epoch=statement.operation, log_version=point.log_version
        )
    # A split without a position in the rewind point had no position at that time, or its position had been reset.
    states = {
        split: row for split, row in states.items() if row is None or row.state == FORGOTTEN or split in point.states
    }
    objects = {id_: old for id_, old in objects.items() if old != snapshot.get(id_)}
    return BeforeImage(objects=objects, splits={fragment: splits}, states={fragment: states})


def _require_same_name(
    statement: RewindSource,
    source: SourceRecord,
    given_back: SourceRecord,
    records: Sequence[OperationRecord],
    images: Sequence[BeforeImage],
) -> None:
    """Raises SqlError if the source had another name before the operation. The readers of the source use its present
    name, and another object may have the former name."""
    if given_back.name == source.name:
        return
    history = History.of(records)
    renamed = [
        record
        for record, image in zip(records, images, strict=True)
        if (old := image.objects.get(source.id)) is not None
        and (new := put_records(changes_from_json(record.changes)).get(source.id)) is not None
        and old.name != new.name
        and history.is_in_effect(record.epoch)
        and history.undoes.get(record.epoch, 0) < statement.operation
    ]
    undos = "; ".join(f"UNDO OPERATION {record.epoch}" for record in reversed(renamed))
    raise _refused(
        statement,
        f'it was called "{given_back.name}" at that time',
        f"{undos}; then {rewind_statement(given_back, statement.operation)}" if undos else None,
    )


def _require_same_connections(
    statement: RewindSource,
    snapshot: Snapshot,
    given_back: SourceRecord,
    records: Sequence[OperationRecord],
    images: Sequence[BeforeImage],
) -> None:
    """Raises SqlError if a connection that the restored source uses has changed since the operation.

    ``records`` are the operation to rewind and all later operations, oldest first. ``images`` are the before-images of
    these operations.
    """
    for id_ in given_back.uses:
        changed = [(record, image) for record, image in zip(records, images, strict=True) if id_ in image.objects]
        old, now = changed[0][1].objects[id_] if changed else None, snapshot.get(id_)
        if not isinstance(old, ConnectionRecord) or now is None or now == old:
            continue
        history = History.of(records)
        # Operations that were undone, and the undos themselves, are ignored.
        positions = [
            record
            for record, _ in reversed(changed)
            if history.is_in_effect(record.epoch) and history.undoes.get(record.epoch, 0) < statement.operation
        ]
        newest = positions[0] if positions else changed[-1][0]
        undos = "; ".join(f"UNDO OPERATION {record.epoch}" for record in positions or (newest,))
        raise _refused(
            statement,
            f'operation {newest.epoch} ({newest.kind}) altered connection "{old.name}", which other objects may use',
            f"{undos} restores the connection; then {rewind_statement(given_back, statement.operation)}",
        )


def _require_settled(statement: RewindSource, snapshot: Snapshot, readers: Sequence[ObjectRecord]) -> None:
    ids = {record.id for record in readers}
    names = [rebuild.name for rebuild in snapshot.all("rebuild") if not ids.isdisjoint((rebuild.view_id, rebuild.id))]
    if names:
        raise _refused(
            statement,
            f"materialized view {', '.join(names)} is being rebuilt",
            "SHOW JOBS shows its progress; try again when it has caught up",
        )


def _require_one_group(
    statement: RewindSource, snapshot: Snapshot, source: SourceRecord, readers: Sequence[ObjectRecord]
) -> None:
    """Raises SqlError if a dependent is in another resource group than the source.

    A REWIND stops all dependents at once, and an owner can stop only the jobs of its own group.
    """
    elsewhere = [r.name for r in readers if group_of(snapshot, r.id) != source.resource_group]
    if elsewhere:
        raise _refused(
            statement,
            f"{', '.join(elsewhere)}, which read it, are in other resource groups than {source.resource_group}",
            f"ALTER MATERIALIZED VIEW (or SINK) … SET RESOURCE_GROUP TO '{source.resource_group}'; then repeat this "
            "statement",
        )


def _require_known(statement: RewindSource, late: Sequence[ObjectRecord]) -> None:
    """Raises SqlError if a dependent was created after the operation, because there is no saved state for that
    dependent."""
    late = [record for record in late if isinstance(record, MaterializedViewRecord | SinkRecord)]
    if not late:
        return
    named = ", ".join(f'{spoken(record.kind)} "{record.name}"' for record in late)
    drops = "; ".join(f"DROP {spoken(record.kind).upper()} {sql_name(record.name)}" for record in reversed(late))
    raise _refused(
        statement,
        f"{named} was created after the operation",
        f"save the definition that SHOW CREATE shows; {drops}; then rewind, and create it again",
    )


def _sink_notices(statement: RewindSource, sinks: Sequence[SinkRecord], look: RewindLook) -> tuple[str, ...]:
    """Returns notices about sinks. Raises SqlError if a sink prevents the rewind."""
    emitted = {table.object_id for table in look.tables if table.has_emitted}
    out = [sink for sink in sinks if sink.id in emitted]
    if out and "DUPLICATES" not in statement.allow:
        named = ", ".join(f'sink "{sink.name}"' for sink in out)
        raise _refused(
            statement,
            f"{named} has sent rows since then, which cannot be removed from its target; rows of records that are read "
            "again are sent a second time",
            f"{render(replace(statement, allow=('DUPLICATES',), reason=None))}",
        )
    return tuple(
        f"the rows that sink {sink.name} has sent since then stay in its target; rows of records that are read again "
        "are sent a second time"
        for sink in out
    )


def _plan(
    statement: RewindSource,
    snapshot: Snapshot,
    inspector: Inspector,
    source: SourceRecord,
    base: tuple[Change, ...],
    point: RewindPoint,
    look: RewindLook,
    sinks: tuple[SinkRecord, ...],
    notices: tuple[str, ...],
) -> Plan:
    own = next((found for found in snapshot.all("rewind") if found.source_id == source.id), None)
    rewind = RewindRecord(
        id=own.id if own is not None else snapshot.next_id,
        name=source.name,
        source_id=source.id,
        operation=statement.operation,
        epoch=snapshot.epoch + 1,
    )
    changes: tuple[Change, ...] = (
        *base,
        # The restored sink continues with the batch number in its copied checkpoint, so some batch numbers occur a
        # second time. Because of the new generation, the target does not mistake these batches for batches that were
        # already sent.
        *(PutObject(record=replace(sink, generation=sink.generation + 1)) for sink in sinks),
        PutObject(record=rewind),
    )
    then = after(snapshot, changes)
    reader, moved = readers_of(snapshot, source)[0], then.get(source.id)
    if not isinstance(moved, SourceRecord):
        raise LookupError(f"source {source.id} is not in the catalog")
    move = impact_of(snapshot, then, inspector, reader, moved, is_taken_back=True)
    if move.unreadable:
        listed = ", ".join(found.describe() for found in move.unreadable[:8])
        raise _refused(
            statement,
            f"the upstream no longer has the records to continue with: {listed}",
            remedy_without_records(source, move.unreadable)
            if captures_changes(source.connector)
            else f"INJECT SOURCE OFFSETS {sql_name(source.name)} moves it to records that the upstream still has",
        )
    if lost := records_lost_by_rewind(snapshot, then, inspector, move, moved, point):
        listed = ", ".join(found.describe() for found in lost[:8])
        raise _refused(
            statement,
            f"it would remove the rows of records that the source cannot read again: {listed}",
            _undo_instead(statement),
        )
    told = (*_taken_back(snapshot, source, look), *notices)
    preview = replace(
        move.preview,
        title=f"{REWIND} {source.name} TO OPERATION {statement.operation}",
        notices=(*told, *move.preview.notices, _way_back(source, rewind)),
    )
    jobs = [view_job(r.id) for r in snapshot.dependents_of(source.id) if isinstance(r, MaterializedViewRecord)]
    jobs += [sink_job(sink.id) for sink in sinks]
    steps = steps_of(snapshot, changes)
    restarted = {step.subject for step in steps}
    version = f"version {point.log_version}"
    steps += (
        Step(action="RewindJob", subject=ingest_fragment(source.id), detail=f"log to {version}", is_catalog=False),
        *(
            Step(action="RewindJob", subject=job, detail="rows and checkpoint", is_catalog=False)
            for job in jobs
            if job not in restarted
        ),
    )
    names = (source.name, *(found.name for found in snapshot.dependents_of(source.id)))
    return Plan(
        statement=statement,
        steps=steps,
        operation=Operation(
            kind=REWIND,
            statement=render(statement),
            objects=names,
            changes=changes,
            is_unsafe=True,
            reason=statement.reason,
            plan=render_preview(preview),
            prediction=predictions((move,)),
        ),
        changes=(
            ResultRow(object=source.name, change="REWOUND", detail=f"to just before operation {rewind.operation}"),
            *answers_of(replace(move, preview=preview)),
        ),
        preview=preview,
        is_unsafe=True,
        affected=(source.id, *(found.id for found in snapshot.dependents_of(source.id))),
        fingerprint=f"{point.folder}@{point.made_ms}",
    )


def _taken_back(snapshot: Snapshot, source: SourceRecord, look: RewindLook) -> tuple[str, ...]:
    """Returns one notice per table: how many rows the rewind removes, and how many rows the table has afterwards."""
    rows = []
    for table in look.tables:
        record = snapshot.get(table.object_id)
        if record is None or isinstance(record, SinkRecord):
            continue
        name = f"the log of {source.name}" if record.id == source.id else record.name
        rows.append(f"{name}: {_spell(table, is_keyed=bool(getattr(record, 'keys', ())))}")
    return tuple(rows)


def _spell(table: TableBack, *, is_keyed: bool) -> str:
    if table.now is None or table.then is None:
        return "is restored; the number of rows was not counted"
    if is_keyed:
        return f"is restored from {table.now} to {table.then} rows, each with the values that it had at that time"
    gone = table.now - table.then
    return f"{gone} rows are removed, {table.then} stay" if gone >= 0 else f"is restored to {table.then} rows"


def _way_back(source: SourceRecord, rewind: RewindRecord) -> str:
    return (
        "UNDO OPERATION cannot revert a rewind; "
        f"{rewind_statement(source, rewind.epoch)} can revert it if all readers have caught up when this rewind begins"
    )
