"""Lowers UNDO OPERATION, which reverts an operation with a new operation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector
from rw_sql.errors import CANNOT_UNDO, SqlError
from rw_sql.metastore.codec import before_from_json, changes_back, changes_from_json
from rw_sql.metastore.records import (
    DISCOVERY,
    INJECT_CHECKPOINT,
    REWIND,
    UNDO,
    ConnectionRecord,
    MaterializedViewRecord,
    Operation,
    PauseRecord,
    PutObject,
    SinkRecord,
    SourceRecord,
    UnassignSplits,
)
from rw_sql.model.job_ids import fragment_source
from rw_sql.model.object_lookup import find_operation
from rw_sql.model.split_status import OTHER_CLUSTER, split_order
from rw_sql.plan.effects.impact_of_changes import (
    GONE,
    all_answers,
    connection_answers,
    connection_part,
    impacts_of,
    in_one,
    predictions,
    remedy_without_records,
    touched_sources,
)
from rw_sql.plan.effects.verdicts import UNTOLD_SPLIT
from rw_sql.plan.result.allow import unallowed_words
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.prediction import prediction_from_json
from rw_sql.plan.result.preview_text import render_preview
from rw_sql.plan.result.steps import after, steps_of
from rw_sql.plan.statements.checkpoint.checkpoint import lower_undo_checkpoint
from rw_sql.plan.statements.checkpoint.checkpoint_outcomes import changes_checkpoint, has_failed, may_lack_effect
from rw_sql.plan.statements.common import ALL_SOURCES
from rw_sql.plan.statements.move.restored import checked, put_records
from rw_sql.plan.statements.move.sink_impact import sink_impacts_of
from rw_sql.plan.statements.move.undo_rebuild import KINDS as UNDONE_REBUILDS
from rw_sql.plan.statements.move.undo_rebuild import lower_undo_rebuild
from rw_sql.plan.statements.move.undo_rename import lower_undo_rename, renaming_of
from rw_sql.plan.statements.move.undo_swap import lower_undo_swap, swapped_pair
from rw_sql.plan.statements.move.undone_positions import led_back, reading_again, selected_states, with_positions
from rw_sql.plan.statements.table.source_of_table import follows_source, without_tables
from rw_sql.syntax import parse_statement, render
from rw_sql.syntax.lexing.identifiers import literal, sql_name
from rw_sql.syntax.statements import UndoOperation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.codec import BeforeImage
    from rw_sql.metastore.records import Change, ObjectRecord, OperationRecord
    from rw_sql.plan.effects.impact_of_changes import SourceImpact
    from rw_sql.plan.ports.inspector import Inspector

_GROUPED = SourceRecord | MaterializedViewRecord | SinkRecord

Key = tuple[object, ...]
"""Identifies a part of the catalog that an operation changes: an object, the pause of a source, or the assignment or
position of a split. If two operations have a common key, the later operation depends on the earlier one."""


def undone_by(record: OperationRecord) -> int | None:
    """The epoch of the operation that the given operation undoes; None if the given operation is not an undo."""
    if record.kind != UNDO:
        return None
    statement = parse_statement(record.statement)
    return statement.operation if isinstance(statement, UndoOperation) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Determines which operations are in effect. ``undoes`` maps each undo to the operation that it undoes.

    An undone operation is not in effect, unless its undo was undone too. An undo that may have left a foreign
    checkpoint unchanged is ignored and can be repeated, because the checkpoint's files show whether the operation is
    already undone.
    """

    undoes: Mapping[int, int]

    @staticmethod
    def of(records: Sequence[OperationRecord]) -> History:
        """The history of the given operations."""
        found = {record.epoch: undone_by(record) for record in records if not may_lack_effect(record)}
        return History(undoes={epoch: target for epoch, target in found.items() if target is not None})

    def undo_of(self, epoch: int) -> int | None:
        """The epoch of the undo of the given operation, if an undo of it is in effect; otherwise None."""
        return next((undo for undo, target in self.undoes.items() if target == epoch and self.is_in_effect(undo)), None)

    def is_in_effect(self, epoch: int) -> bool:
        """True if the given operation is in effect."""
        return self.undo_of(epoch) is None


def undo_statement(record: OperationRecord, history: History) -> str | None:
    """The statement that would undo an operation; None if the operation cannot be undone or is undone already."""
    return f"{UNDO} {record.epoch}" if _why_never(record) is None and history.is_in_effect(record.epoch) else None


def _why_never(record: OperationRecord) -> str | None:
    """The reason why an operation can never be undone. None if there is no such reason; the undo may still be refused
    because of the present catalog."""
    if record.kind == DISCOVERY:
        return "the splits would be discovered again"
    if record.kind == REWIND:
        rewind = f"{REWIND} {sql_name(record.objects[0])} TO OPERATION {record.epoch}"
        return f"{rewind} reverts it and removes the rows, if there is still a rewind point"
    if has_failed(record):
        return "it failed and changed nothing"
    if record.kind == UNDO and changes_checkpoint(record):
        return "it changed a checkpoint; to set the offsets again, use INJECT CHECKPOINT OFFSETS"
    if record.kind in UNDONE_REBUILDS or _changes_names(record):
        return None
    before = before_from_json(record.before)
    put = put_records(changes_from_json(record.changes))
    for id_, old in before.objects.items():
        new = put.get(id_)
        if isinstance(old, SourceRecord) and isinstance(new, SourceRecord) and old.added_columns != new.added_columns:
            return "it added columns, which the log contains and views may read"
        kinds = {found.kind for found in (old, new) if found is not None}
        if kinds <= {"pause"} or follows_source(old, new):
            continue
        if old is None or new is None or not kinds <= {"source", "connection", "sink"}:
            return "UNDO supports only operations that move, pause or alter sources, sinks and connections"
    return None


def _changes_names(record: OperationRecord) -> bool:
    return swapped_pair(record) is not None or renaming_of(record) is not None


def touched_keys(record: OperationRecord) -> frozenset[Key]:
    """The keys of all parts of the catalog that an operation changed."""
    before = before_from_json(record.before)
    put = put_records(changes_from_json(record.changes))
    keys: set[Key] = set()
    for id_, old in before.objects.items():
        found: ObjectRecord | None = old or put.get(id_)
        if follows_source(old, put.get(id_)) or _is_same_for_undo(old, put.get(id_)):
            continue
        # Every PAUSE creates a new object, so the key is the paused source.
        keys.add(("hold", found.source_id) if isinstance(found, PauseRecord) else ("object", id_))
    keys |= {("split", fragment, split) for fragment, splits in before.splits.items() for split in splits}
    keys |= {("state", fragment, split) for fragment, states in before.states.items() for split in states}
    keys |= {("state", fragment, split) for fragment, states in selected_states(record).items() for split in states}
    return frozenset(keys)


def _is_same_for_undo(old: ObjectRecord | None, new: ObjectRecord | None) -> bool:
    """True if two records of a source differ at most in the fields ``keeps_reader`` and ``snapshot``. UNDO does not
    restore ``keeps_reader``, and :func:`reading_again` determines ``snapshot`` at each UNDO."""
    if not isinstance(old, SourceRecord) or not isinstance(new, SourceRecord):
        return False
    return replace(old, keeps_reader=new.keeps_reader, snapshot=new.snapshot) == new


def _redirected_sources(record: OperationRecord, snapshot: Snapshot) -> frozenset[int]:
    """The sources whose unsafe properties the operation changed, in the source itself or in its connection. Since the
    operation, these sources may have read a different upstream."""
    put = put_records(changes_from_json(record.changes))
    found: set[int] = set()
    for id_, old in before_from_json(record.before).objects.items() if record.is_unsafe else ():
        new = put.get(id_)
        if isinstance(old, SourceRecord) and isinstance(new, SourceRecord) and old.definition != new.definition:
            found.add(id_)
        elif isinstance(old, ConnectionRecord) and isinstance(new, ConnectionRecord):
            found |= {user.id for user in snapshot.users_of(id_) if isinstance(user, SourceRecord)}
    return frozenset(found)


def _left_sources(record: OperationRecord) -> frozenset[int]:
    """The sources that lost splits in an operation, such as a RESET SOURCE SPLITS after a move to other topics. If the
    earlier move were undone, these sources would still lack the lost splits.
    """
    return frozenset(
        fragment_source(change.fragment)
        for change in changes_from_json(record.changes)
        if isinstance(change, UnassignSplits)
    )


def lower_undo_operation(statement: UndoOperation, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers UNDO OPERATION, which restores definitions, assignments, positions and pauses. An undo can be undone.

    The statement is refused if later operations depend on the operation, or if the upstream has lost the records at the
    restored positions.
    """
    records = inspector.operations(since=statement.operation)
    record = find_operation(records, statement.operation, statement.operation_span, "SHOW UNSAFE OPERATIONS")
    _require_undoable(statement, snapshot, record, records)
    if record.kind in UNDONE_REBUILDS:
        refused = partial(_refused, statement)
        return lower_undo_rebuild(statement, snapshot, inspector, record, records, UNDO, refused)
    pair = swapped_pair(record)
    if pair is not None:
        later = _refused(statement, "one of the two objects was renamed or dropped since then")
        return lower_undo_swap(statement, snapshot, pair, UNDO, later)
    renaming = renaming_of(record)
    if renaming is not None:
        return lower_undo_rename(statement, snapshot, inspector, renaming, UNDO, partial(_refused, statement))
    if record.kind == INJECT_CHECKPOINT:
        return lower_undo_checkpoint(statement, inspector, record.objects[0], of=record, reason=statement.reason)
    before = with_positions(record, snapshot, inspector)
    # A table's definition is derived from the definition of the table's source.
    back = checked(snapshot, without_tables(changes_back(before)), lambda why, hint: _refused(statement, why, hint))
    then = after(snapshot, back)
    back = tuple(reading_again(record, snapshot, then, inspector, change) for change in back)
    back = (*back, *led_back(record, snapshot, after(snapshot, back), inspector, back))
    return _plan(statement, snapshot, inspector, record, before, back)


def _refused(statement: UndoOperation, why: str, hint: str | None = None) -> SqlError:
    return SqlError(
        CANNOT_UNDO, f"operation {statement.operation} cannot be undone: {why}", span=statement.span, hint=hint
    )


def _require_undoable(
    statement: UndoOperation, snapshot: Snapshot, record: OperationRecord, records: Sequence[OperationRecord]
) -> None:
    never = _why_never(record)
    if never is not None:
        raise _refused(statement, f"it is a {record.kind}, and {never}", "SHOW UNSAFE OPERATIONS lists the operations")
    history = History.of(records)
    undo = history.undo_of(record.epoch)
    if undo is not None:
        again = f"{UNDO} {undo} restores it"
        if changes_checkpoint(record):
            again = "to set the offsets again, use INJECT CHECKPOINT OFFSETS"
        raise _refused(statement, f"operation {undo} has already undone it", again)
    if record.kind in UNDONE_REBUILDS or _changes_names(record):
        return  # whether these operations can be undone is checked with the current catalog
    keys, moved = touched_keys(record), _redirected_sources(record, snapshot)
    later = [
        found
        for found in records
        if found.epoch > record.epoch
        and found.kind != DISCOVERY
        and history.is_in_effect(found.epoch)
        # Leaves out the undo of an operation after ``record``, because such an undo only removed that operation's
        # effect. The undo of an operation before ``record`` counts, because this undo may have changed the same parts
        # of the catalog as ``record``.
        and history.undoes.get(found.epoch, 0) <= record.epoch
        and not _only_changes_group(found)
        and (keys & touched_keys(found) or moved & _left_sources(found))
    ]
    if later:
        named = ", ".join(f"{found.epoch} ({found.kind})" for found in later)
        never_undone = next((found for found in later if _why_never(found) is not None), None)
        hint = _in_order(later, record)
        if never_undone is not None:
            hint = f"operation {never_undone.epoch} cannot be undone; use a separate statement to get the wanted state"
        raise _refused(statement, f"later operations depend on it: {named}", hint)


def _in_order(later: Sequence[OperationRecord], record: OperationRecord) -> str:
    """Returns the statements that undo the operations ``later`` and finally ``record``."""
    return "; ".join(f"{UNDO} {found.epoch}" for found in later) + f"; then {UNDO} {record.epoch}"


def _only_changes_group(record: OperationRecord) -> bool:
    """True if an operation changed nothing but resource groups. Such an operation does not prevent the undo of an
    earlier operation: ``checked`` only requires that the object is in its former group again when the earlier operation
    is undone."""
    put = put_records(changes_from_json(record.changes))
    before = before_from_json(record.before)
    if before.splits or before.states or not before.objects:
        return False
    for id_, old in before.objects.items():
        new = put.get(id_)
        if follows_source(old, new):
            continue
        if not isinstance(old, _GROUPED) or not isinstance(new, _GROUPED) or old.resource_group == new.resource_group:
            return False
        as_new = replace(old, resource_group=new.resource_group, group_since=new.group_since, definition=new.definition)
        if as_new != new:
            return False
    return True


def _plan(
    statement: UndoOperation,
    snapshot: Snapshot,
    inspector: Inspector,
    record: OperationRecord,
    before: BeforeImage,
    changes: tuple[Change, ...],
) -> Plan:
    then = after(snapshot, changes)
    title = f"{UNDO} {record.epoch}, {record.kind}"
    fragments = {*before.splits, *before.states}
    ids = [change.record.id for change in changes if isinstance(change, PutObject)]
    is_moving = bool(fragments) or any(not isinstance(then.get(id_), PauseRecord) for id_ in ids)
    moves = impacts_of(
        snapshot, then, inspector, touched_sources(fragments, ids, then) if is_moving else (), before.states
    )
    stalls = _require_readable(statement, snapshot, inspector, record, moves)
    connections = [r for r in map(then.get, ids) if isinstance(r, ConnectionRecord)]
    parts = [connection_part(snapshot, then, connection) for connection in connections]
    parts += [move.preview for move in moves]
    sinks = sink_impacts_of(snapshot, then, inspector, ids)
    parts += [sink.preview for sink in sinks]
    holds = _hold_answers(snapshot, before)
    told = () if parts else tuple(f"{row.object}: {row.change.lower()}" for row in holds)
    preview = in_one(title, tuple(parts), (*told, *stalls))
    is_unsafe = (
        record.is_unsafe or bool(fragments) or any(move.doubt for move in moves) or any(move.doubt for move in sinks)
    )
    answers = (
        *(row for connection in connections for row in connection_answers(snapshot, then, connection)),
        *all_answers(moves),
        *(row for move in sinks for row in move.answers),
        *holds,
        *(ResultRow(object=", ".join(record.objects[:1]), change="NOTICE", detail=notice) for notice in stalls),
    )
    altered: list[ObjectRecord] = [*connections, *(move.source for move in moves), *(move.sink for move in sinks)]
    names = dict.fromkeys(name for found in altered for name in _names(snapshot, found))
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, changes),
        operation=Operation(
            kind=UNDO,
            statement=render(statement),
            objects=tuple(names) or record.objects,
            changes=changes,
            is_unsafe=is_unsafe,
            reason=statement.reason,
            plan=render_preview(preview),
            prediction=predictions(moves),
        ),
        changes=answers or (ResultRow(object=", ".join(record.objects), change="UNDONE", detail=record.kind),),
        preview=preview,
        is_unsafe=is_unsafe,
        affected=tuple(dict.fromkeys((*ids, *(record.id for record in altered)))),
        unallowed=unallowed_words((row for move in moves for row in move.preview.splits), statement.allow),
    )


def _names(snapshot: Snapshot, record: ObjectRecord) -> tuple[str, ...]:
    return (record.name, *(dependent.name for dependent in snapshot.dependents_of(record.id)))


def _require_readable(
    statement: UndoOperation,
    snapshot: Snapshot,
    inspector: Inspector,
    record: OperationRecord,
    moves: Sequence[SourceImpact],
) -> tuple[str, ...]:
    """Raises SqlError if a source could not continue at its restored positions.

    Returns notices about two kinds of sources: sources that cannot continue until an earlier operation, which moved
    them to another cluster, is undone too; and sources whose brokers do not report their cluster.
    """
    notices: list[str] = []
    for move in moves:
        if move.reader.view is None and any(row.verdict == UNTOLD_SPLIT for row in move.preview.splits):
            notices += _positions_before(record, move)
        if not move.unreadable:
            continue
        later = _later_moves(snapshot, inspector, record, move)
        redirect = _redirect_before(snapshot, inspector, record, move) if not later else None
        if redirect is None:
            listed = ", ".join(found.describe() for found in move.unreadable[:8])
            raise _refused(
                statement,
                f'the upstream of source "{move.source.name}" no longer has the records to continue with: {listed}',
                _in_order(later, record)
                if later and all(_why_never(found) is None for found in later)
                else remedy_without_records(move.source, move.unreadable),
            )
        notices.append(
            f"source {move.source.name} gets back positions in the cluster that it read before operation "
            f"{redirect.epoch} ({redirect.kind}), so the source stalls until {UNDO} {redirect.epoch}"
        )
    return tuple(notices)


def _positions_before(record: OperationRecord, move: SourceImpact) -> Iterator[str]:
    """A notice with the statement that restores the positions of a source before an operation, if the operation stored
    these positions."""
    known = prediction_from_json(record.prediction).get(move.reader.fragment)
    kind = connector(move.source.connector)
    stood = {} if known is None else {split: kind.decode_state(split, text) for split, text in known.stood.items()}
    pairs = [f"{literal(split)} = {stood[split].offset}" for split in sorted(stood, key=split_order)]
    if pairs:
        name = sql_name(move.source.name)
        yield (
            "if the source has read another cluster since, its positions are those of that cluster; to restore the "
            f"positions from before operation {record.epoch}: PAUSE SOURCE {name}; INJECT SOURCE OFFSETS {name} VALUES "
            f"({', '.join(pairs)}); RESUME SOURCE {name}"
        )


def _later_moves(
    snapshot: Snapshot, inspector: Inspector, record: OperationRecord, move: SourceImpact
) -> list[OperationRecord]:
    """The operations after ``record`` that moved a source, latest first.

    The source's present upstream or positions come from these operations. If only ``record`` were undone, the source
    could not continue.
    """
    records = inspector.operations(since=record.epoch)
    history = History.of(records)
    return [
        found
        for found in sorted(records, key=lambda found: -found.epoch)
        if found.epoch > record.epoch
        and found.kind != DISCOVERY
        and history.is_in_effect(found.epoch)
        and history.undoes.get(found.epoch, 0) <= record.epoch
        and (move.source.id in _redirected_sources(found, snapshot) or move.reader.fragment in _set_positions(found))
    ]


def _set_positions(record: OperationRecord) -> frozenset[str]:
    """Returns the fragments whose positions were set by an operation."""
    return frozenset(before_from_json(record.before).states)


def _redirect_before(
    snapshot: Snapshot, inspector: Inspector, record: OperationRecord, move: SourceImpact
) -> OperationRecord | None:
    """Returns the last operation before ``record`` that may have moved the source to another cluster. Returns None if
    there is none, or if positions are unreadable for a reason other than a different cluster."""
    statuses = {found.status for found in move.unreadable}
    # A partition may also be missing, because one cluster may have fewer partitions than the other.
    if OTHER_CLUSTER not in statuses or not statuses <= {OTHER_CLUSTER, GONE}:
        return None
    records = inspector.operations()
    history = History.of(records)
    earlier = sorted((found for found in records if found.epoch < record.epoch), key=lambda found: -found.epoch)
    return next(
        (
            found
            for found in earlier
            if history.is_in_effect(found.epoch)
            and _why_never(found) is None
            and move.source.id in _redirected_sources(found, snapshot)
        ),
        None,
    )


def _hold_answers(snapshot: Snapshot, before: BeforeImage) -> tuple[ResultRow, ...]:
    rows = []
    for id_, old in before.objects.items():
        now = snapshot.get(id_)
        held = old if isinstance(old, PauseRecord) else now
        if isinstance(held, PauseRecord) and old != now:
            source = snapshot.get(held.source_id) if held.source_id is not None else None
            name = ALL_SOURCES if held.source_id is None else held.name if source is None else source.name
            rows.append(ResultRow(object=name, change="RESUMED" if old is None else "PAUSED"))
    return tuple(rows)
