"""Lowers BEGIN UNSAFE … COMMIT. Each statement is planned on the catalog that results from the earlier statements, and
the plans are combined into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol

from rw_sql.connectors.registry import connector
from rw_sql.errors import NOT_IN_A_BLOCK, SqlError
from rw_sql.metastore.records import (
    FORGOTTEN,
    AssignSplits,
    ConnectionRecord,
    Operation,
    PauseRecord,
    PutObject,
    PutSplitStates,
    SourceRecord,
)
from rw_sql.metastore.snapshot import effect_of
from rw_sql.model.job_ids import fragment_source
from rw_sql.model.job_specs import named_splits
from rw_sql.model.pauses import pauses_of
from rw_sql.model.source_readers import readers_of
from rw_sql.plan.effects.impact_of_changes import (
    all_answers,
    connection_answers,
    connection_part,
    impacts_of,
    in_one,
    predictions,
    touched_sources,
)
from rw_sql.plan.effects.later_changes import NO_LATER_CHANGES, LaterChanges, all_unsettled, later_changes
from rw_sql.plan.result.allow import WORDS, predicted_words
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.preview_text import render_preview
from rw_sql.plan.result.steps import after, in_one_commit, steps_of
from rw_sql.plan.statements.common import ALL_SOURCES, take_up_for
from rw_sql.plan.statements.move.sink_impact import sink_impacts_of
from rw_sql.syntax import render
from rw_sql.syntax import statements as ast

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change, ObjectRecord
    from rw_sql.metastore.snapshot import Effect
    from rw_sql.plan.effects.impact_of_changes import SourceImpact
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.result.plan import SplitPreview

BLOCK = "BEGIN UNSAFE"
BEGIN_TO_COMMIT = "BEGIN UNSAFE … COMMIT"


class Lower(Protocol):
    """The function that returns the plan of a statement. ``later`` are the changes of the block's later statements."""

    def __call__(
        self, statement: ast.Statement, snapshot: Snapshot, inspector: Inspector, *, later: LaterChanges = ...
    ) -> Plan: ...


INSIDE = (
    ast.PauseSource,
    ast.PauseAllSources,
    ast.ResumeSource,
    ast.ResumeAllSources,
    ast.AlterSourceUnsafeSet,
    ast.AlterTableUnsafeSet,
    ast.ResetSourceSplits,
    ast.InjectSourceOffsets,
    ast.SkipRecord,
    ast.AlterConnectionOptions,
    ast.AlterSetConnection,
    ast.AlterConnector,
)
"""The kinds of statements that a block collects and runs at COMMIT."""

DEFINING = (
    ast.AlterSourceUnsafeSet,
    ast.AlterTableUnsafeSet,
    ast.AlterConnectionOptions,
    ast.AlterSetConnection,
    ast.AlterConnector,
)
"""The statements of a block that change properties. An upstream or target is only validated with the properties that
the object has at the end of the block."""

_ASSIGNING = (
    ast.AlterSourceUnsafeSet,
    ast.AlterTableUnsafeSet,
    ast.ResetSourceSplits,
    ast.ResumeSource,
    ast.ResumeAllSources,
)
"""The statements that assign new splits, unless a later statement of the block moves the source."""

SHOWN_INSIDE = (
    ast.ShowObjects,
    ast.ShowSourceSplits,
    ast.ShowSourceContinuity,
    ast.ShowUnsafeOperations,
    ast.ShowLineage,
    ast.ShowCreate,
    ast.Describe,
)
"""The kinds of statements that run immediately inside a block. They show the catalog that would result from the
statements collected so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The collected statements of a block. The fields are the plan of each statement, all changes in the order of the
    statements, and the catalog that results from these changes."""

    plans: tuple[Plan, ...]
    changes: tuple[Change, ...]
    then: Snapshot


def require_inside(statement: ast.Statement) -> None:
    """Raises SqlError NOT_IN_A_BLOCK for a statement that a block must not contain."""
    if not isinstance(statement, INSIDE):
        words = " ".join(takewhile(lambda word: word.isupper() and word != "IF", render(statement).split()))
        raise SqlError(
            NOT_IN_A_BLOCK,
            f"{words} cannot run inside a BEGIN UNSAFE block",
            span=statement.span,
            hint="a block may contain PAUSE, UNSAFE SET, RESET, INJECT, SKIP, ALTER CONNECTION, SET CONNECTION, "
            "CONNECTOR WITH, RESUME and SHOW; ROLLBACK ends the block",
        )


def collect(
    statements: tuple[ast.Statement, ...],
    snapshot: Snapshot,
    inspector: Inspector,
    lower: Lower,
    *,
    is_complete: bool = True,
) -> Collected:
    """Lowers statements in order, each on the catalog that results from the statements before it.

    The upstream of a source and the target of a sink are validated once, by the last statement that changes their
    properties. If ``is_complete`` is False, the block may get further statements, and nothing is validated.
    """
    then = snapshot
    plans: list[Plan] = []
    changes: tuple[Change, ...] = ()
    waiting: frozenset[int] = frozenset()
    for statement, later in _with_later(statements, snapshot, inspector, lower):
        require_inside(statement)
        found = later if is_complete else replace(later, changed=all_unsettled(then).changed)
        plan = lower(statement, then, inspector.after(then), later=found)
        if isinstance(statement, ast.ResumeSource | ast.ResumeAllSources):
            plan = _without_splits(plan, later.moved)
        plans.append(plan)
        made = plan.operation.changes if plan.operation is not None else ()
        then = after(then, made) if made else then
        taken = _take_up(snapshot, then, inspector, waiting - later.moved)
        then = after(then, taken) if taken else then
        changes = (*changes, *made, *taken)
        waiting = later.moved & (waiting.union(plan.affected) if isinstance(statement, _ASSIGNING) else waiting)
    return Collected(plans=tuple(plans), changes=in_one_commit(snapshot, changes), then=then)


def _with_later(
    statements: tuple[ast.Statement, ...], snapshot: Snapshot, inspector: Inspector, lower: Lower
) -> list[tuple[ast.Statement, LaterChanges]]:
    """Returns each statement with the changes that the statements after it make. To find these changes, the function
    first lowers the statements that change properties, without validation."""
    last = max((at for at, statement in enumerate(statements) if isinstance(statement, DEFINING)), default=0)
    if not any(isinstance(statement, (*DEFINING, *_ASSIGNING)) for statement in statements[:last]):
        return [(statement, NO_LATER_CHANGES) for statement in statements]
    then, thens = snapshot, []
    for statement in statements:
        require_inside(statement)
        if isinstance(statement, DEFINING):
            plan = lower(statement, then, inspector.after(then), later=all_unsettled(then))
            then = then if plan.operation is None else after(then, plan.operation.changes)
        thens.append(then)
    following = (thens[at + 1 :] for at in range(len(thens)))
    return [
        (statement, later_changes(now, later) if later else NO_LATER_CHANGES)
        for statement, now, later in zip(statements, thens, following, strict=True)
    ]


def _without_splits(plan: Plan, sources: frozenset[int]) -> Plan:
    """Returns the plan of a RESUME without the splits that it assigns to ``sources``."""
    if plan.operation is None or not sources:
        return plan
    kept: list[Change] = []
    of: int | None
    for change in plan.operation.changes:
        match change:
            case AssignSplits(fragment=fragment) | PutSplitStates(fragment=fragment):
                of = fragment_source(fragment)
            case PutObject(record=record):
                of = record.id
            case _:
                of = None
        if of not in sources:
            kept.append(change)
    return replace(plan, operation=replace(plan.operation, changes=tuple(kept)), affected=(*plan.affected, *sources))


def _take_up(snapshot: Snapshot, then: Snapshot, inspector: Inspector, sources: frozenset[int]) -> tuple[Change, ...]:
    """Returns the changes that assign the splits of ``sources`` that exist in the upstream of the catalog ``then``. No
    earlier statement has assigned these splits, because the sources had another upstream then."""
    changes: list[Change] = []
    for source in (found for id_ in sorted(sources) if isinstance(found := then.get(id_), SourceRecord)):
        for reader in readers_of(then, source):
            taken, _ = take_up_for(then, inspector.after(then), reader, snapshot.epoch + 1)
            changes += taken
    return tuple(changes)


def lower_inside(
    before: tuple[ast.Statement, ...], statement: ast.Statement, snapshot: Snapshot, inspector: Inspector, lower: Lower
) -> Plan:
    """The plan of one statement inside a block, on the catalog that results from the statements in ``before``.

    If the upstream or target does not fit the changed properties, a later statement of the block may change them again.
    The statement is therefore accepted, and its result contains a notice. COMMIT validates the final properties.
    """
    collected = collect(before, snapshot, inspector, lower, is_complete=False)
    then = collected.then
    if not isinstance(statement, (*DEFINING, ast.ResetSourceSplits)):
        return lower(statement, then, inspector.after(then))
    try:
        return lower(statement, then, inspector.after(then))
    except SqlError as error:
        plan = lower(statement, then, inspector.after(then), later=all_unsettled(then))
        detail = f"COMMIT refuses the block unless a later statement changes the properties again: {error.message}"
        return replace(plan, changes=(*plan.changes, ResultRow(object="", change="NOTICE", detail=detail)))


def lower_unsafe_block(statement: ast.UnsafeBlock, snapshot: Snapshot, inspector: Inspector, lower: Lower) -> Plan:
    """Returns the plan of the block, which is one operation. The preview shows the combined effect of the block's
    statements on the positions of each source."""
    collected = _located(statement, snapshot, inspector, lower)
    effect = effect_of(snapshot, snapshot.epoch + 1, "", collected.changes)
    affected = tuple(dict.fromkeys(id_ for plan in collected.plans for id_ in plan.affected))
    if not (effect.objects or effect.splits or effect.states):
        answer = ResultRow(object="", change="NOTHING", detail="the statements of the block change nothing")
        return Plan(statement=statement, changes=(answer,), affected=affected)
    then = after(snapshot, collected.changes)
    moves = impacts_of(snapshot, then, inspector, _moved(effect, snapshot, then))
    connections = [r for r in map(then.get, effect.objects) if isinstance(r, ConnectionRecord)]
    holds = _holds(effect, snapshot, {move.source.id for move in moves})
    parts = [connection_part(snapshot, then, connection) for connection in connections]
    parts += [move.preview for move in moves]
    sinks = sink_impacts_of(snapshot, then, inspector, effect.objects)
    parts += [sink.preview for sink in sinks]
    unallowed = _unallowed(collected, moves)
    title = f"{BEGIN_TO_COMMIT}, {len(statement.statements)} statements"
    told = tuple(f"{row.object}: {row.change.lower()}" for row in holds)
    preview = in_one(title, tuple(parts), told)
    touched: list[ObjectRecord] = [*connections, *(move.source for move in moves), *(move.sink for move in sinks)]
    names = dict.fromkeys(
        name for found in touched for name in (found.name, *(d.name for d in snapshot.dependents_of(found.id)))
    )
    for row in holds:
        names[row.object] = None
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, collected.changes),
        operation=Operation(
            kind=BLOCK,
            statement=render(statement),
            objects=tuple(names),
            changes=collected.changes,
            is_unsafe=True,
            reason=statement.reason,
            plan=render_preview(preview),
            prediction=predictions(moves),
        ),
        changes=(
            *(row for connection in connections for row in connection_answers(snapshot, then, connection)),
            *all_answers(moves),
            *(row for move in sinks for row in move.answers),
            *holds,
        ),
        preview=preview,
        is_unsafe=True,
        affected=affected,
        unallowed=tuple(word for word in WORDS if any(word in words for words in unallowed.values())),
        unallowed_sources=tuple(unallowed),
        fingerprint=_positions(snapshot, collected.changes),
    )


def _positions(snapshot: Snapshot, changes: Sequence[Change]) -> str:
    """The positions that a block sets for paused sources, as a string that becomes part of the confirmation token.

    Therefore, the token becomes invalid if these positions change. For example, TO LATEST may resolve to other offsets
    when the block is run again.

    The string does not contain positions of running sources. These positions change until the commit, so the token
    would never be valid.
    """
    put = (change for change in changes if isinstance(change, PutSplitStates))
    return ";".join(
        f"{each.fragment}: {sorted(each.states.items())}"
        for each in put
        if pauses_of(snapshot, fragment_source(each.fragment))
    )


def _unallowed(collected: Collected, moves: Sequence[SourceImpact]) -> dict[str, set[str]]:
    """Maps the names of sources to their missing ALLOW words. A word is missing if the predicted effect of the entire
    block on the source requires the word, but the statements that affect the source do not have it. The result omits
    sources without missing words.

    A statement that itself predicts the effect must have the word in its own ALLOW. If the effect is predicted only for
    the entire block, it is sufficient that one of the statements that affect the source has the word. Such an effect
    occurs, for example, if a RESET follows an ALTER CONNECTION. ALTER CONNECTION accepts no ALLOW, and the plan of the
    RESET does not show the records that the source leaves unread in the old upstream.
    """
    missing: dict[str, set[str]] = {}
    for move in moves:
        plans = [plan for plan in collected.plans if move.source.id in plan.affected]
        lacking = {word for plan in plans for word in plan.unallowed}
        allowed = {word for plan in plans for word in _allow(plan.statement)}
        rows = move.preview.splits
        # The rows also show effects of earlier operations on splits that the block does not move. Such splits are left
        # out here. A split that stays assigned although the upstream lacks it is left out too, because the source then
        # stalls and skips no records.
        stays = _still_read(collected.then, move)
        moved = [
            row
            for row in _without_skipped(rows, move, plans)
            if row.old != row.new and not (row.new is None and row.split in stays)
        ]
        words = {word for word in predicted_words(rows) if word in lacking}
        words |= {word for word in predicted_words(moved) if word not in allowed}
        if words:
            missing.setdefault(move.source.name, set()).update(words)
    return missing


def _still_read(then: Snapshot, move: SourceImpact) -> frozenset[str]:
    """Returns the splits that are assigned to a reader in the catalog ``then``."""
    source = then.get(move.source.id)
    if not isinstance(source, SourceRecord):
        return frozenset()
    return frozenset(named_splits(then, source, then.splits(move.reader.fragment)))


def _allow(statement: ast.Statement) -> tuple[str, ...]:
    match statement:
        case (
            ast.AlterSourceUnsafeSet() | ast.AlterTableUnsafeSet() | ast.ResetSourceSplits() | ast.InjectSourceOffsets()
        ):
            return statement.allow
        case _:
            return ()


def _without_skipped(
    rows: Sequence[SplitPreview], move: SourceImpact, plans: Sequence[Plan]
) -> tuple[SplitPreview, ...]:
    """Returns the rows without the effects of SKIP RECORD. SKIP RECORD needs no ALLOW, because the statement names the
    record to skip.

    If SKIP RECORD is the only statement that moves a split, the counts of the split are set to 0. The remaining records
    in these counts are effects of earlier operations.
    """
    kind = connector(move.source.connector)
    skipped: dict[str, int] = {}
    reached = {row.split: row.old for row in rows}
    others: set[str] = set()
    for plan in plans:
        for change in plan.operation.changes if plan.operation is not None else ():
            if not isinstance(change, PutSplitStates) or change.fragment != move.reader.fragment:
                continue
            for split, state in change.states.items():
                offset = None if state == FORGOTTEN else kind.decode_state(split, state).offset
                if isinstance(plan.statement, ast.SkipRecord) and offset is not None:
                    skipped[split] = skipped.get(split, 0) + offset - plan.statement.offset
                elif offset != reached.get(split):
                    others.add(split)
                reached[split] = offset
    return tuple(
        replace(row, gaps=0, duplicates=0)
        if row.split in skipped.keys() - others and row.new == reached[row.split]
        else replace(row, gaps=max(0, row.gaps - skipped.get(row.split, 0)))
        for row in rows
    )


def _located(statement: ast.UnsafeBlock, snapshot: Snapshot, inspector: Inspector, lower: Lower) -> Collected:
    try:
        return collect(statement.statements, snapshot, inspector, lower)
    except SqlError as error:
        # The error's position is in the text of an earlier statement, but the text of this call is COMMIT.
        error.span = statement.span
        raise


def _moved(effect: Effect, snapshot: Snapshot, then: Snapshot) -> tuple[int, ...]:
    """The sources that a block changes. Pausing or resuming a source does not count as a change."""
    ids = [id_ for id_, record in effect.objects.items() if record is not None and record.kind != "pause"]
    found = touched_sources((*effect.splits, *effect.states), ids, then)
    return tuple(id_ for id_ in found if snapshot.get(id_) is not None)


def _holds(effect: Effect, snapshot: Snapshot, told: set[int]) -> tuple[ResultRow, ...]:
    """Returns the result rows about the pauses that the block adds or removes. Sources that already have a result row
    are left out."""
    rows = []
    for id_, record in effect.objects.items():
        hold = record if record is not None else snapshot.get(id_)
        if isinstance(hold, PauseRecord) and hold.source_id not in told:
            name = hold.name if hold.source_id is not None else ALL_SOURCES
            rows.append(ResultRow(object=name, change="RESUMED" if record is None else "PAUSED"))
    return tuple(rows)
