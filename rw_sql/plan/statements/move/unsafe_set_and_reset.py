"""Lowers UNSAFE SET and RESET SOURCE SPLITS, which move a source to another upstream or reset its positions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector
from rw_sql.connectors.spec import OptionError
from rw_sql.errors import CONNECTOR_IS_FIXED, DUPLICATE_CLAUSE, MISSING_PROPERTY, UNKNOWN_PROPERTY, SqlError
from rw_sql.metastore.records import (
    FORGOTTEN,
    AssignSplits,
    ForgetSplitStates,
    PutObject,
    PutSplitStates,
    UnassignSplits,
)
from rw_sql.model.definitions import PAUSED_AT_BIRTH, definition_of, listed_options
from rw_sql.model.job_specs import cdc_tables, named_splits
from rw_sql.model.object_lookup import find_source, find_source_of
from rw_sql.model.options import plan_options, source_options
from rw_sql.model.pauses import pauses_of
from rw_sql.model.sharing import refuse_sharing
from rw_sql.model.split_status import OK, identity_status
from rw_sql.plan.checks.sources import check_source
from rw_sql.plan.checks.upstreams import STORED, require_upstream_of
from rw_sql.plan.effects.capture_moves import notes_on_capture, tables_read_again
from rw_sql.plan.effects.connection_impact import may_be_elsewhere, selects_others, unselected_notice
from rw_sql.plan.effects.dependents import effects_on_dependents
from rw_sql.plan.effects.discovery import discover
from rw_sql.plan.effects.later_changes import NO_LATER_CHANGES, LaterChanges
from rw_sql.plan.effects.left_objects import notes_on_left_objects
from rw_sql.plan.effects.left_splits import stall_notice, unlisted, with_stored_ends
from rw_sql.plan.effects.per_reader import for_each_reader
from rw_sql.plan.effects.verdicts import (
    preview_splits,
    shown_offset,
    with_cuts,
    with_other_records,
    without_identity,
)
from rw_sql.plan.ports.positions import Positions
from rw_sql.plan.ports.upstreams import look_closely
from rw_sql.plan.result.allow import FORGOTTEN_SPLIT, unallowed_words
from rw_sql.plan.result.plan import Plan, Preview, ResultRow
from rw_sql.plan.result.steps import after
from rw_sql.plan.statements.common import (
    dependents_of,
    require_movable,
    resolve_splits,
    source_record,
    states_change,
    take_up_for,
    unsafe_plan,
)
from rw_sql.plan.statements.source.upstream_names import with_generated_names
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.rendering.merge import merge_options
from rw_sql.syntax.statements import AlterTableUnsafeSet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.connectors.base import SplitState
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change, SourceRecord
    from rw_sql.model.source_readers import Reader
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import (
        AlterSourceUnsafeSet,
        CreateSource,
        Option,
        OptionKey,
        ResetSourceSplits,
    )


def check_keys(statement: AlterSourceUnsafeSet | AlterTableUnsafeSet, current: CreateSource) -> None:
    """Raises SqlError if the statement contains an option twice, contains ``connector``, or unsets an option that is
    not set."""
    seen: set[str] = set()
    named: tuple[Option | OptionKey, ...] = (*statement.set_options, *statement.unset_options)
    refuse_sharing(statement.name.key, named)
    for option in named:
        if option.key == "connector":
            raise SqlError(
                CONNECTOR_IS_FIXED,
                f'the connector of source "{statement.name.key}" cannot change',
                span=option.key_place,
                hint=f"CREATE SOURCE {sql_name(statement.name.key + '_2')} (…) WITH (connector = …); views can "
                "read both sources",
            )
        if option.key == PAUSED_AT_BIRTH:
            raise SqlError(
                UNKNOWN_PROPERTY,
                "paused is an initial state, not a property",
                span=option.key_place,
                hint=f"use PAUSE SOURCE {sql_name(statement.name.key)} or RESUME SOURCE {sql_name(statement.name.key)}",
            )
        if option.key in seen:
            raise SqlError(
                DUPLICATE_CLAUSE,
                f'property "{option.key}" is given more than once',
                span=option.key_place,
                hint=f"omit one {option.key}",
            )
        seen.add(option.key)
    present = {option.key for option in current.options}
    for key in statement.unset_options:
        if key.key not in present:
            listed = ", ".join(sorted(present - {"connector"}))
            raise SqlError(
                UNKNOWN_PROPERTY,
                f'source "{statement.name.key}" has no property "{key.key}" to unset',
                span=key.span,
                hint=f"the properties that can be unset are {listed}",
            )


def _check_merged(
    statement: AlterSourceUnsafeSet | AlterTableUnsafeSet, snapshot: Snapshot, merged: CreateSource
) -> None:
    """Calls ``check_source`` for the changed definition. An error in a part that the statement does not change points
    at the entire statement."""
    try:
        check_source(snapshot, merged)
    except SqlError as error:
        written = [span for option in statement.set_options for span in option.places]
        if error.span not in written:
            unset = {key.key: key for key in statement.unset_options}
            removed = unset.get(error.key or "") if isinstance(error, OptionError) else None
            if removed is not None and error.kind is MISSING_PROPERTY:
                raise SqlError(
                    MISSING_PROPERTY,
                    f'property "{removed.key}" is required and cannot be unset',
                    span=removed.span,
                    hint=f"set another value: UNSAFE SET ({removed.key} = '…')",
                ) from error
            error.span = statement.name.span if removed is None else removed.span
        raise


def lower_alter_source_unsafe_set(
    statement: AlterSourceUnsafeSet | AlterTableUnsafeSet,
    snapshot: Snapshot,
    inspector: Inspector,
    later: LaterChanges = NO_LATER_CHANGES,
) -> Plan:
    """Lowers UNSAFE SET, which merges properties into the definition.

    The statement assigns the new splits with their positions, even if the source is paused. A running source restarts
    once; a paused source uses the new properties after RESUME.
    """
    is_of_table = isinstance(statement, AlterTableUnsafeSet)
    source = find_source_of(snapshot, "TABLE" if is_of_table else "SOURCE", statement.name)
    return for_each_reader(snapshot, source, lambda reader: _unsafe_set(statement, snapshot, inspector, reader, later))


def _unsafe_set(
    statement: AlterSourceUnsafeSet | AlterTableUnsafeSet,
    snapshot: Snapshot,
    inspector: Inspector,
    reader: Reader,
    later: LaterChanges,
) -> Plan:
    source, fragment = reader.source, reader.fragment
    current = definition_of(source)
    check_keys(statement, current)
    merged = merge_options(current, statement.set_options, tuple(key.key for key in statement.unset_options))
    _check_merged(statement, snapshot, merged)
    merged = with_generated_names(merged, snapshot, source.id, source.created_at_ms)
    kind = connector(source.connector)
    options = plan_options(snapshot, merged)
    record = source_record(snapshot, source, merged)
    moved = after(snapshot, (PutObject(record=record),))
    old, new = dict(listed_options(current)), dict(listed_options(merged))
    shown = tuple(
        (key, old.get(key, ""), new.get(key, "")) for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)
    )
    upstream = look_closely(inspector.upstreams, source.connector, options)
    if statement.is_validated and source.id not in later.changed:
        require_upstream_of(record, upstream, statement.name.span, options=statement.set_options, stored=STORED)
    positions = inspector.positions.of(source.id, fragment)
    positions = with_cuts(inspector, source.connector, options, upstream, positions)
    changes: list[Change] = []
    notes: list[str] = []
    if shown:
        changes.append(PutObject(record=record))
    if shown and source.id not in later.moved:
        # The new splits are assigned even if the source is paused. Otherwise, they would begin at the positions at the
        # time of RESUME, and not at the positions in the preview.
        taken, said = take_up_for(moved, inspector, replace(reader, source=record), snapshot.epoch + 1)
        changes += taken
        notes += said
    named = named_splits(moved, record, snapshot.splits(fragment))
    orphans = sorted(set(snapshot.splits(fragment)) - set(named))
    if shown and (visited := _visited_while_paused(snapshot, source, fragment, positions, orphans)):
        changes += [
            UnassignSplits(fragment=fragment, splits=visited),
            ForgetSplitStates(fragment=fragment, splits=visited),
        ]
        orphans = [split for split in orphans if split not in visited]
        kept = {split: state for split, state in positions.states.items() if split not in visited}
        positions = replace(positions, states=kept)
    if orphans:
        notes.append(
            f"no longer read: {', '.join(orphans[:8])} (RESET SOURCE SPLITS {sql_name(source.name)} discards them)"
        )
    found = discover(
        inspector, kind, source.connector, options, upstream, positions.states, forgotten=positions.forgotten
    )
    stalled = {
        split: state
        for split, state in positions.states.items()
        if split in upstream.splits and identity_status(state, upstream.splits[split]) != OK
    }
    if stalled:
        notes.append(
            "the new upstream's splits are not the splits that were read before, so the source stalls until RESET "
            f"SOURCE SPLITS {sql_name(source.name)}"
        )
    if shown and not stalled:
        both = (plan_options(snapshot, current), options)
        notes += notes_on_capture(inspector, kind, source, both, upstream, positions.states)
    notes += notes_on_left_objects(inspector, moved, source, plan_options(snapshot, current), options)
    lost = unlisted(kind, named, positions.states, upstream)
    left = None
    if orphans or lost:
        left = look_closely(inspector.upstreams, source.connector, plan_options(snapshot, current))
        if left.is_reachable:
            # Other lost splits were lost before this statement.
            lost = tuple(split for split in lost if split in left.splits)
        else:
            gone = positions.states.keys() & {*orphans, *lost}
            left = with_stored_ends(left, kind, {split: positions.states[split] for split in gone})
    if lost:
        notes.append(stall_notice(source.name, lost))
    target: dict[str, SplitState | None] = {**dict.fromkeys((*orphans, *lost)), **found.states, **stalled}
    rows = preview_splits(kind, upstream, positions, target, left=left)
    if may_be_elsewhere(kind.spec, plan_options(snapshot, current), options):
        rows = without_identity(rows, positions.states, target, upstream)
    if selects_others(kind.spec, plan_options(snapshot, current), options):
        rows, has_others = with_other_records(rows)
        notes += [unselected_notice(source)] if has_others else []
    preview = Preview(
        title=f"UNSAFE SET on source {source.name}",
        dependents=dependents_of(snapshot, reader),
        properties=shown,
        splits=rows,
        notices=(*notes, *effects_on_dependents(snapshot, inspector, reader, rows, options)),
    )
    return unsafe_plan(
        statement,
        snapshot,
        reader,
        kind="UNSAFE SET",
        changes=tuple(changes),
        preview=preview,
        answers=_answers(source, shown, notes),
        reason=statement.reason,
        positions=positions,
        unallowed=unallowed_words(rows, statement.allow),
    )


def _visited_while_paused(
    snapshot: Snapshot, source: SourceRecord, fragment: str, positions: Positions, splits: Iterable[str]
) -> tuple[str, ...]:
    """The splits that an earlier move has assigned since the source was paused, such as the splits of a mistyped topic.
    The source has read no record of these splits, so removing them in a further move does not change the source's
    rows."""
    pauses = pauses_of(snapshot, source.id)
    if not pauses:
        return ()
    since = min(snapshot.object_epoch(pause.id) for pause in pauses)
    assigned, stored = snapshot.splits(fragment), snapshot.states(fragment)
    return tuple(
        split
        for split in splits
        if split not in positions.read_splits
        and split in stored
        # An INJECT may have set the position of a split that was assigned before the pause.
        and min(assigned[split].epoch, stored[split].epoch) > since
    )


def _answers(
    source: SourceRecord, shown: tuple[tuple[str, str, str], ...], notes: Iterable[str]
) -> tuple[ResultRow, ...]:
    if not shown:
        return (ResultRow(object=source.name, change="NOTHING", detail="the properties already have these values"),)
    rows = [ResultRow(object=source.name, change="ALTERED", detail=_spell(*change)) for change in shown]
    return (*rows, *(ResultRow(object=source.name, change="NOTICE", detail=note) for note in notes))


def _spell(key: str, old: str, new: str) -> str:
    if not new:
        return f"{key} unset (was {old})"
    return f"{key} = {new} (was {old})" if old else f"{key} = {new} (new)"


def lower_reset_source_splits(
    statement: ResetSourceSplits, snapshot: Snapshot, inspector: Inspector, later: LaterChanges = NO_LATER_CHANGES
) -> Plan:
    """Lowers RESET SOURCE SPLITS, which discards the assignment of splits, and the positions of splits that the
    upstream no longer has. The statement then assigns the upstream's current splits."""
    source = find_source(snapshot, statement.name)
    require_movable(snapshot, source, statement.name.span)
    return for_each_reader(snapshot, source, lambda reader: _reset(statement, snapshot, inspector, reader, later))


def _reset(
    statement: ResetSourceSplits, snapshot: Snapshot, inspector: Inspector, reader: Reader, later: LaterChanges
) -> Plan:
    source, fragment = reader.source, reader.fragment
    kind = connector(source.connector)
    options = source_options(snapshot, source)
    assigned = snapshot.splits(fragment)
    positions = inspector.positions.of(source.id, fragment)
    upstream = look_closely(inspector.upstreams, source.connector, options)
    positions = with_cuts(inspector, source.connector, options, upstream, positions)
    if statement.is_rediscovering and statement.is_validated and source.id not in later.changed:
        require_upstream_of(source, upstream, statement.name.span)
    chosen = set(
        resolve_splits(kind, snapshot, source, statement.splits, {*assigned, *upstream.splits})
        or {*assigned, *positions.states}
    )
    dropped = tuple(sorted(chosen & set(assigned)))
    changes: list[Change] = [UnassignSplits(fragment=fragment, splits=dropped)] if dropped else []
    # If a later statement of the block moves the source, the splits of the last upstream are assigned after the move.
    if statement.is_rediscovering and upstream.is_reachable and source.id not in later.moved:
        return _rediscovered(statement, snapshot, inspector, reader, chosen, positions, changes)
    forgotten = chosen if statement.is_forgetting_offsets else set()
    marked = sorted(forgotten & set(positions.states))
    if marked:
        # The positions are marked as forgotten and not removed. If they were removed, a reset split would be treated as
        # a new partition when it is discovered again.
        changes.append(PutSplitStates(fragment=fragment, states=dict.fromkeys(marked, FORGOTTEN)))
    gone = {} if not upstream.is_reachable else {s: positions.states[s] for s in marked if s not in upstream.splits}
    left = with_stored_ends(None, kind, gone)
    rows = preview_splits(kind, upstream, positions, {**positions.states, **dict.fromkeys(forgotten)}, left=left)
    # If the upstream does not respond, the splits that the upstream may still have are forgotten too.
    again = set(named_splits(snapshot, source, marked)) - gone.keys()
    rows = tuple(replace(row, verdict=FORGOTTEN_SPLIT) if row.split in again else row for row in rows)
    note = "the splits are unknown until RESUME or the next discovery finds them"
    return unsafe_plan(
        statement,
        snapshot,
        reader,
        kind="RESET SOURCE SPLITS",
        changes=tuple(changes),
        preview=Preview(
            title=f"RESET SOURCE SPLITS of source {source.name}",
            dependents=dependents_of(snapshot, reader),
            splits=rows,
            notices=(note,) if upstream.is_reachable else (note, f"the upstream does not answer: {upstream.error}"),
        ),
        answers=(
            *(ResultRow(object=source.name, change="FORGOTTEN", detail=split) for split in dropped),
            ResultRow(object=source.name, change="NOTICE", detail=note),
        ),
        reason=statement.reason,
        positions=positions,
        unallowed=unallowed_words(rows, statement.allow),
    )


def _rediscovered(
    statement: ResetSourceSplits,
    snapshot: Snapshot,
    inspector: Inspector,
    reader: Reader,
    chosen: set[str],
    positions: Positions,
    changes: list[Change],
) -> Plan:
    source, fragment = reader.source, reader.fragment
    kind = connector(source.connector)
    options = source_options(snapshot, source)
    upstream = look_closely(inspector.upstreams, source.connector, options)
    found = discover(
        inspector,
        kind,
        source.connector,
        options,
        upstream,
        positions.states,
        forget=chosen if statement.is_forgetting_offsets else (),
        forgotten=positions.forgotten,
    )
    taken = tuple(split for split in found.assigned if not statement.splits or split in chosen)
    gone = sorted(split for split in chosen if split not in upstream.splits)
    is_taken = frozenset(taken)
    fresh = {split: state for split, state in found.fresh.items() if split in is_taken}
    if taken:
        changes.append(AssignSplits(fragment=fragment, splits=taken))
    known_gone = [split for split in gone if split in positions.states]
    if known_gone:
        changes.append(ForgetSplitStates(fragment=fragment, splits=tuple(known_gone)))
    if fresh:
        changes.append(states_change(fragment, source.connector, fresh, positions.log_version))
    again = cdc_tables(snapshot, source) if fresh else ()
    if again:
        # The tables lack the changes between the old and the new position; only a new snapshot shows which rows these
        # changes concern.
        changes.append(PutObject(record=replace(source, snapshot=snapshot.epoch + 1)))
    answers = [ResultRow(object=source.name, change="FORGOTTEN", detail=split) for split in gone]
    for split in taken:
        state = found.states[split]
        change = "STARTED" if split in fresh else "KEPT"
        answers.append(
            ResultRow(object=source.name, change=change, detail=f"{split} at {shown_offset(kind, state.offset)}")
        )
    if not gone and not fresh:
        answers.append(
            ResultRow(
                object=source.name,
                change="NOTHING",
                detail="every split still exists and keeps its position; WITH (FORGET_OFFSETS = true) discards the "
                "positions",
            )
        )
        if set(taken) <= set(snapshot.splits(fragment)):
            changes = []
    target: dict[str, SplitState | None] = {**positions.states, **dict.fromkeys(gone)}
    target |= {split: state for split, state in found.states.items() if split in is_taken}
    answers += [ResultRow(object=source.name, change="SNAPSHOT", detail=detail) for detail in tables_read_again(again)]
    left = with_stored_ends(None, kind, {split: positions.states[split] for split in known_gone})
    rows = preview_splits(kind, upstream, positions, target, left=left)
    restart = ("the source is running: it restarts once",) if changes and not pauses_of(snapshot, source.id) else ()
    preview = Preview(
        title=f"RESET SOURCE SPLITS of source {source.name}",
        dependents=dependents_of(snapshot, reader),
        splits=rows,
        notices=(*restart, *effects_on_dependents(snapshot, inspector, reader, rows)),
    )
    return unsafe_plan(
        statement,
        snapshot,
        reader,
        kind="RESET SOURCE SPLITS",
        changes=tuple(changes),
        preview=preview,
        answers=tuple(answers),
        reason=statement.reason,
        positions=positions,
        unallowed=unallowed_words(rows, statement.allow),
    )
