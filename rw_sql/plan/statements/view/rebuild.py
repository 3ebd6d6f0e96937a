"""Lowers REBUILD MATERIALIZED VIEW, which builds a new table. Queries read the old rows until the new table has caught
up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.support.wide_offsets import number_of_records
from rw_sql.errors import CONCURRENT_CHANGE, DEPENDENTS_EXIST, NOT_SUPPORTED, SqlError
from rw_sql.metastore.records import DropObject, MaterializedViewRecord, Operation, PutObject, RebuildRecord, SinkRecord
from rw_sql.model.lineage import in_reading_order
from rw_sql.model.object_lookup import find_view, spoken
from rw_sql.model.parameters import streaming_parallelism
from rw_sql.model.pauses import direct_inputs
from rw_sql.model.rebuilds import rebuilt, rebuilt_view
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import after, steps_of
from rw_sql.plan.statements.common import kept_readers
from rw_sql.plan.statements.view.backfill_plan import ViewOptions, plan_histories, view_options
from rw_sql.syntax import parse_statement, render
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.statements import CreateMaterializedView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import RebuildMaterializedView

REBUILD = "REBUILD MATERIALIZED VIEW"
SWAP = "SWAP REBUILT"
"""The kind of the owner's operation that replaces a view's table with the rebuilt table."""


def lower_rebuild_materialized_view(
    statement: RebuildMaterializedView, snapshot: Snapshot, inspector: Inspector
) -> Plan:
    """Lowers REBUILD, which builds a new table for the view from the splits that the view's sources have now.

    With CASCADE, the statement also rebuilds the views that depend on this view. The statement fails if sinks depend on
    the view and, without CASCADE, if views depend on the view, because the dependents have read rows that the rebuilt
    view may not contain.
    """
    view = find_view(snapshot, statement.name)
    span = statement.name.span
    dependents = tuple(found for found in snapshot.dependents_of(view.id) if not isinstance(found, RebuildRecord))
    _require_alone(statement, view, dependents)
    views = (view, *(found for found in dependents if isinstance(found, MaterializedViewRecord)))
    known = {rebuild.view_id: rebuild for rebuild in snapshot.all("rebuild")}
    changes: list[Change] = []
    answers: list[ResultRow] = []
    next_id = snapshot.next_id
    now = inspector.clock()
    for found in views:
        if direct_inputs(snapshot, found):
            raise SqlError(
                NOT_SUPPORTED,
                f'materialized view "{found.name}" reads a source that is not shared: it cannot be rebuilt',
                span=span,
                hint="save the definition that SHOW CREATE shows; then DROP MATERIALIZED VIEW "
                f"{sql_name(found.name)}, and create it again",
            )
        before = known.get(found.id)
        if before is not None and before.view is not None:
            raise SqlError(
                CONCURRENT_CHANGE,
                f'materialized view "{found.name}" is being rebuilt with another query',
                span=span,
                hint=f"WAIT MATERIALIZED VIEW {sql_name(found.name)} waits until the new rows are complete; if its "
                "job is STALLED, run the statement with that query again; if the rebuild does not begin again, cancel "
                "it first: UNDO OPERATION n",
            )
        given = _options(found)
        is_recomputed = found.maintenance.is_recomputed
        history = plan_histories(
            snapshot, inspector, found.inputs, given.startup, found.name, {}, span, is_recomputed=is_recomputed
        )
        record = RebuildRecord(
            id=before.id if before is not None else next_id,
            name=found.name,
            view_id=found.id,
            generation=next_generation(found, before),
            histories=history.texts,
            created_at_ms=now,
            parallelism=given.parallelism or streaming_parallelism(snapshot),
        )
        next_id += before is None
        changes.append(PutObject(record=record))
        how = "queries read its old rows until the new ones have caught up"
        if history.offsets:
            how += f"; {number_of_records(history.offsets)} of history to read"
        answers.append(ResultRow(object=found.name, change="REBUILDING", detail=how))
        answers += [ResultRow(object=found.name, change="NOTICE", detail=notice) for notice in history.notices]
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(
            kind=REBUILD,
            statement=render(statement),
            objects=tuple(found.name for found in views),
            changes=tuple(changes),
            reason=statement.reason,
        ),
        changes=tuple(answers),
        affected=tuple(found.id for found in views),
    )


def next_generation(view: MaterializedViewRecord, before: RebuildRecord | None) -> int:
    """Returns the generation of a view's next table. No table of the view has had this generation.

    ``before`` is the view's unfinished rebuild; None if there is no unfinished rebuild.
    """
    return max(view.generation, view.last_generation, before.generation if before is not None else 0) + 1


def _options(view: MaterializedViewRecord) -> ViewOptions:
    """The options in the WITH list of the view."""
    made = parse_statement(view.definition)
    return view_options(made) if isinstance(made, CreateMaterializedView) else ViewOptions()


def _require_alone(
    statement: RebuildMaterializedView, view: MaterializedViewRecord, dependents: Iterable[object]
) -> None:
    sinks = [found for found in dependents if isinstance(found, SinkRecord)]
    views = [found for found in dependents if isinstance(found, MaterializedViewRecord)]
    if not sinks and (statement.is_cascade or not views):
        return
    stand = [*(() if statement.is_cascade else views), *sinks]
    named = ", ".join(f'{spoken(found.kind)} "{found.name}"' for found in stand)
    hint = "; ".join(f"DROP SINK {sql_name(sink.name)}" for sink in sinks)
    if views:
        cascade = render(replace(statement, is_cascade=True, reason=None))
        hint = f"{hint}; then {cascade}" if hint else f"{cascade} also rebuilds these objects"
    else:
        hint += ", rebuild, and create the sink again WITH (snapshot = 'false')"
    raise SqlError(
        DEPENDENTS_EXIST,
        f'cannot rebuild materialized view "{view.name}" because other objects depend on it: {named}',
        span=statement.name.span,
        hint=hint,
    )


def rebuild_groups(snapshot: Snapshot) -> tuple[tuple[RebuildRecord, ...], ...]:
    """Returns the rebuilds in progress, in groups. The tables of a group are swapped together. If one view reads
    another view, directly or through other views, the rebuilds of both are in the same group."""
    groups: list[tuple[RebuildRecord, ...]] = []
    then = rebuilt(snapshot)
    places = {view.id: at for at, view in enumerate(in_reading_order(then.all("materialized_view")))}
    # The rebuild of a view comes after the rebuilds of the views that it reads, so that the groups that this rebuild
    # joins already exist.
    for rebuild in sorted(snapshot.all("rebuild"), key=lambda found: places.get(found.view_id, 0)):
        joined = [
            group
            for group in groups
            if any(rebuild.view_id in {r.id for r in then.dependents_of(found.view_id)} for found in group)
        ]
        made = (*(found for group in joined for found in group), rebuild)
        groups = [*(group for group in groups if group not in joined), made]
    return tuple(groups)


def swap_operation(snapshot: Snapshot, rebuilds: Iterable[RebuildRecord], actor: str) -> Operation:
    """The operation that replaces the tables of views with the rebuilt tables. ``actor`` is the actor of the
    operation."""
    changes: list[Change] = []
    names = []
    for rebuild in rebuilds:
        view = snapshot.get(rebuild.view_id)
        changes.append(DropObject(id=rebuild.id))
        if isinstance(view, MaterializedViewRecord):
            changes.append(PutObject(record=rebuilt_view(view, rebuild)))
            names.append(view.name)
    changes += kept_readers(snapshot, after(snapshot, tuple(changes)))
    return Operation(
        kind=SWAP,
        statement=f"-- rebuilt, and current from now on: {', '.join(names)}",
        objects=tuple(names),
        changes=tuple(changes),
        actor=actor,
    )
