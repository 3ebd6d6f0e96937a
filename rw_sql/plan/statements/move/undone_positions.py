"""Determines the positions that UNDO OPERATION restores, and the changes that make a source read its tables again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector
from rw_sql.metastore.codec import before_from_json, changes_from_json
from rw_sql.metastore.records import FORGOTTEN, ConnectionRecord, PutObject, SourceRecord, StoredState
from rw_sql.model.job_ids import fragment_source, ingest_fragment
from rw_sql.model.options import selection, shown, source_options
from rw_sql.plan.result.prediction import prediction_from_json
from rw_sql.plan.statements.move.restored import put_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.codec import BeforeImage
    from rw_sql.metastore.records import Change, OperationRecord
    from rw_sql.plan.ports.inspector import Inspector


def with_positions(record: OperationRecord, snapshot: Snapshot, inspector: Inspector) -> BeforeImage:
    """Returns the before-image of an operation, with the positions that the splits had reached before the operation.
    (The stored before-image has the positions that statements had last set.)"""
    before = _with_selected(record, snapshot)
    predicted = prediction_from_json(record.prediction)
    states: dict[str, dict[str, StoredState | None]] = {}
    for fragment, of_fragment in before.states.items():
        source_id = fragment_source(fragment)
        known = predicted.get(fragment)
        positions = inspector.positions.of(source_id, fragment)
        stood: dict[str, StoredState] = {}
        for split, row in of_fragment.items():
            if row is not None and row.state != FORGOTTEN:
                at = known.stood.get(split) if known is not None else None
                stood[split] = row if known is None or at is None else _stood(row, at, known.log_version)
        reached = inspector.positions.before(source_id, record.epoch, tuple(stood.values()), fragment)
        source = snapshot.get(source_id)
        kind = connector(source.connector) if isinstance(source, SourceRecord) else None
        states[fragment] = {
            split: row
            if row is None or kind is None or split not in reached
            else _stood(row, kind.encode_state(reached[split]), positions.log_version)
            for split, row in of_fragment.items()
        }
    return replace(before, states=states)


def reading_again(
    undone: OperationRecord, snapshot: Snapshot, then: Snapshot, inspector: Inspector, change: Change
) -> Change:
    """Returns ``change``, which restores a source to its state before the operation ``undone``. If necessary, the
    result also sets a different snapshot number, which makes the source read its tables again or keep its present
    snapshot. ``then`` is the catalog after the UNDO.

    There are three cases. In the first case, the operation caused a new snapshot of the source's tables, and the source
    has read records since then. The tables are then read once more: their present rows come from another position in
    the server's log, or from another server, and only a new snapshot shows which of them still exist. In the second
    case, the operation caused a new snapshot, but the source has read nothing since then. The tables then keep the
    snapshot from before the operation. In the third case, the operation itself caused no new snapshot. The source then
    keeps its present snapshot, unless the operation moved the source to another database. After such a move, a
    discovery has caused a new snapshot, so one of the first two cases applies.
    """
    record = change.record if isinstance(change, PutObject) else None
    present = snapshot.get(record.id) if isinstance(record, SourceRecord) else None
    if not (isinstance(record, SourceRecord) and isinstance(present, SourceRecord)):
        return change
    if record.snapshot == present.snapshot:
        return change
    put = put_records(changes_from_json(undone.changes)).get(record.id)
    is_same = _database(snapshot, present) == _database(then, record)
    if is_same and isinstance(put, SourceRecord) and put.snapshot == record.snapshot:
        return PutObject(record=replace(record, snapshot=present.snapshot))
    if record.snapshot < present.snapshot and _has_read_nothing(undone, inspector, record):
        return change
    return PutObject(record=replace(record, snapshot=snapshot.epoch + 1))


def led_back(
    undone: OperationRecord, snapshot: Snapshot, then: Snapshot, inspector: Inspector, changes: Sequence[Change]
) -> Iterator[Change]:
    """Yields the changes that make sources read their tables again because the UNDO moves these sources back to another
    database. The UNDO moves such a source by restoring the source's connection, which is one of ``changes``. A change
    is yielded only if the tables of the source were read again since the operation ``undone``, for example because a
    discovery found the other database. If the source has read nothing since that discovery, the change instead restores
    the snapshot number from before the operation. ``then`` is the catalog after the UNDO."""
    connections = [record for record in put_records(changes).values() if isinstance(record, ConnectionRecord)]
    users = {user.id: user for connection in connections for user in then.users_of(connection.id)}
    for user in users.values():
        present = snapshot.get(user.id)
        if not isinstance(user, SourceRecord) or not isinstance(present, SourceRecord):
            continue
        if user.snapshot != present.snapshot or present.snapshot <= undone.epoch:
            continue
        if _database(snapshot, present) != _database(then, user):
            former = _unread_since(undone, snapshot, inspector, present)
            yield PutObject(record=replace(user, snapshot=snapshot.epoch + 1 if former is None else former))


def _unread_since(
    undone: OperationRecord, snapshot: Snapshot, inspector: Inspector, source: SourceRecord
) -> int | None:
    """Returns the number of the tables' snapshot before the operation ``undone``, if a single later operation has set
    the present number and the source has read nothing since then. Otherwise, returns None."""
    fragment = ingest_fragment(source.id)
    version = inspector.positions.of(source.id, fragment).log_version
    rows = snapshot.states(fragment).values()
    if not any(row.epoch == source.snapshot and row.log_version == version for row in rows):
        return None
    later = inspector.operations(since=source.snapshot)
    setting = next((found for found in later if found.epoch == source.snapshot), None)
    old = before_from_json(setting.before).objects.get(source.id) if setting is not None else None
    return old.snapshot if isinstance(old, SourceRecord) and old.snapshot <= undone.epoch else None


def _database(snapshot: Snapshot, source: SourceRecord) -> tuple[str | None, ...]:
    """Returns the host, port and name of the database that a source captures, from the options of the source and of its
    connection."""
    spec, given = connector(source.connector).spec, shown(source_options(snapshot, source))
    return tuple(spec.value(given, key) for key in ("hostname", "port", "database.name"))


def _has_read_nothing(since: OperationRecord, inspector: Inspector, source: SourceRecord) -> bool:
    """True if the source's log has no commit since the operation was planned."""
    fragment = ingest_fragment(source.id)
    known = prediction_from_json(since.prediction).get(fragment)
    return known is not None and known.log_version == inspector.positions.of(source.id, fragment).log_version


def selected_states(record: OperationRecord) -> dict[str, dict[str, StoredState]]:
    """Maps each fragment to the positions at which an operation began to select different records within splits, such
    as the messages of different subjects. After these positions, the source has read nothing with its former
    properties."""
    put = put_records(changes_from_json(record.changes))
    sources = {
        id_
        for id_, old in before_from_json(record.before).objects.items()
        if isinstance(old, SourceRecord) and isinstance(new := put.get(id_), SourceRecord) and _selects_others(old, new)
    }
    if not sources:
        return {}
    return {
        fragment: {
            split: StoredState(
                fragment=fragment, split=split, state=text, epoch=record.epoch, log_version=known.log_version
            )
            for split, text in known.stood.items()
        }
        for fragment, known in prediction_from_json(record.prediction).items()
        if fragment_source(fragment) in sources
    }


def _selects_others(old: SourceRecord, new: SourceRecord) -> bool:
    if old.options == new.options:
        return False
    spec = connector(old.connector).spec
    return selection(spec, dict(old.options)) != selection(spec, dict(new.options))


def _with_selected(record: OperationRecord, snapshot: Snapshot) -> BeforeImage:
    """The before-image, in which the splits that the source still reads have the positions of
    :func:`selected_states`."""
    before = before_from_json(record.before)
    states = dict(before.states)
    for fragment, selected in selected_states(record).items():
        assigned = snapshot.splits(fragment)
        kept = {split: row for split, row in selected.items() if split in assigned}
        states[fragment] = {**kept, **states.get(fragment, {})}
    return replace(before, states=states)


def _stood(row: StoredState, state: str, log_version: int) -> StoredState:
    return StoredState(fragment=row.fragment, split=row.split, state=state, epoch=row.epoch, log_version=log_version)
