"""Lowers ALTER MATERIALIZED VIEW … AS, which replaces a view's query and rebuilds the view into a new table.

Queries on the view read its old rows until the new table has caught up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.support.wide_offsets import number_of_records
from rw_sql.errors import CANNOT_REPLACE, CONCURRENT_CHANGE, DEPENDENTS_EXIST, INVALID_QUERY, NOT_SUPPORTED, SqlError
from rw_sql.metastore.records import (
    MaterializedViewRecord,
    Operation,
    PutObject,
    RebuildRecord,
    SinkRecord,
    TableRecord,
)
from rw_sql.model.definitions import view_definition
from rw_sql.model.job_ids import rebuild_job
from rw_sql.model.lineage import in_reading_order
from rw_sql.model.object_lookup import find_view, spoken
from rw_sql.model.parameters import streaming_parallelism
from rw_sql.model.pauses import direct_inputs
from rw_sql.model.rebuilds import rebuilt
from rw_sql.model.relations import schema_columns
from rw_sql.plan.queries.maintenance import kept_as
from rw_sql.plan.queries.meaning import meaning
from rw_sql.plan.queries.unseen_columns import unseen_columns
from rw_sql.plan.queries.view_query import plan_query
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import after, steps_of
from rw_sql.plan.statements.common import nothing, require_not_rebuilding
from rw_sql.plan.statements.view.backfill_plan import plan_histories, startup_of, view_options
from rw_sql.plan.statements.view.rebuild import next_generation
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.queries.view_query import PlannedQuery
    from rw_sql.plan.statements.view.backfill_plan import PlannedHistories
    from rw_sql.syntax.statements import AlterMaterializedViewQuery, CreateMaterializedView, Statement

ALTER_QUERY = "ALTER MATERIALIZED VIEW AS"

_PASSING = (
    "UNREACHABLE",
    "FLAPPING",
    "WAITING",
    "DISCOVERING",
    "UNWRITABLE",
    "UNSHARED",
    "LIBRARIES",
    "REGISTRY",
    "SILENT",
    "SUSPENDED",
)
"""The first words of the stall reasons that end without a new rebuild. When the cause of such a stall is gone, the job
of the rebuild continues where it stopped. Therefore, repeating the statement does not start the rebuild again."""


def lower_alter_materialized_view_query(
    statement: AlterMaterializedViewQuery, snapshot: Snapshot, inspector: Inspector, query_dialect: str
) -> Plan:
    """Lowers ALTER MATERIALIZED VIEW v AS query. The other clauses of the view's definition stay unchanged."""
    view = find_view(snapshot, statement.name)
    definition = replace(view_definition(view.definition), name=statement.name, query=statement.query)
    return lower_new_definition(statement, snapshot, inspector, view, definition, query_dialect)


def lower_new_definition(
    statement: Statement,
    snapshot: Snapshot,
    inspector: Inspector,
    view: MaterializedViewRecord,
    definition: CreateMaterializedView,
    query_dialect: str,
) -> Plan:
    """Plans the rebuild of a view with the new definition ``definition``. Queries read the view's old rows until the
    rebuild is complete. The plan also rebuilds the views that read this view.

    The statement fails if one of these readers would not keep its columns and their types. The statement also fails if
    sinks depend on the view, because sinks cannot remove the rows that they have sent.
    """
    span = definition.name.span
    definition = replace(definition, or_replace=False, if_not_exists=False)
    given = view_options(definition)
    text = render(replace(definition, name=view_definition(view.definition).name))
    under_way = {rebuild.view_id: rebuild for rebuild in snapshot.all("rebuild")}
    to_be = rebuild.view or view if (rebuild := under_way.get(view.id)) is not None else view
    is_same = to_be.definition == text and _means_the_same(to_be, definition, query_dialect)
    if is_same and (why := _why_unchanged(snapshot, inspector, view, rebuild, to_be)) is not None:
        return nothing(statement, view.name, why)
    _require_same_group(view, given.group, span)
    dependents = tuple(found for found in snapshot.dependents_of(view.id) if not isinstance(found, RebuildRecord))
    _require_no_sinks(view, [found for found in dependents if isinstance(found, SinkRecord)], span)
    _require_alone(snapshot, view, under_way, span)
    readers = _readers(snapshot, view, under_way, span)
    found = plan_query(
        snapshot,
        inspector,
        definition.query,
        f'materialized view "{view.name}"',
        query_dialect,
        closes_windows=definition.is_emit_on_window_close,
        columns=definition.columns,
    )
    _require_no_circle(
        view, found, {record.id: record.name for record in (*dependents, *readers)}, definition.query.span
    )
    require_not_rebuilding(snapshot, [id_ for id_ in found.inputs if id_ != view.id], span)
    changes: list[Change] = [PutObject(record=table) for table in found.new]
    then = after(snapshot, tuple(changes))
    places, is_recomputed = startup_of(definition), found.maintenance.is_recomputed
    histories = plan_histories(
        then, inspector, found.inputs, given.startup, view.name, places, span, is_recomputed=is_recomputed
    )
    made = _made(then, view, found, histories, definition, text, query_dialect)
    made = replace(made, backfill_rate_limit=given.rate_limit)
    _require_shared(then, made, span)
    then = after(then, (PutObject(record=made),))
    remade: list[tuple[MaterializedViewRecord, MaterializedViewRecord, PlannedHistories]] = [(view, made, histories)]
    for reader in readers:
        carried, of_it = _carried_over(then, inspector, view, reader, span)
        then = after(then, (PutObject(record=carried),))
        remade.append((reader, carried, of_it))
    rebuilds = _rebuilds(then, remade, under_way, inspector.clock())
    changes += [PutObject(record=rebuild) for rebuild in rebuilds]
    answers = [row for old, new, of_it in remade for row in _answers(old, new, of_it)]
    changes += _feeds(snapshot, found)
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(
            kind=ALTER_QUERY,
            statement=render(statement),
            objects=tuple(old.name for old, _, _ in remade),
            changes=tuple(changes),
        ),
        changes=(
            *answers,
            *((ResultRow(object=view.name, change="NOTICE", detail=found.notice),) if found.notice else ()),
        ),
        affected=tuple(old.id for old, _, _ in remade),
        notes=(f"{view.name}: {kept_as(made)}",),
    )


def _why_unchanged(
    snapshot: Snapshot,
    inspector: Inspector,
    view: MaterializedViewRecord,
    under_way: RebuildRecord | None,
    to_be: MaterializedViewRecord,
) -> str | None:
    """Returns the reason why a statement with the same definition need not rebuild a view; None if the view must be
    rebuilt. ``under_way`` is the view's rebuild in progress; None if there is none. ``to_be`` is the record that the
    view will have after this rebuild. Without a rebuild in progress, ``to_be`` is the view's present record."""
    if gains_columns(snapshot, to_be):
        return None
    if under_way is None:
        return "it already has this definition"
    if is_rebuild_stalled(snapshot, inspector, view):
        return None
    return "a rebuild with this definition is already running, and queries read the old rows until it is complete"


def _means_the_same(view: MaterializedViewRecord, definition: CreateMaterializedView, dialect: str) -> bool:
    """True if the text of the view's query has the same meaning in the view's dialect and in ``dialect``."""
    return view.dialect == dialect or meaning(definition.query, view.dialect) == meaning(definition.query, dialect)


def gains_columns(snapshot: Snapshot, view: MaterializedViewRecord) -> bool:
    """True if a view that is created now with the definition of ``view`` would get more columns than ``view`` has,
    because its query selects columns by ``*``, and columns were added to an input after ``view`` was created."""
    return bool(unseen_columns(snapshot, view)) and not view_definition(view.definition).columns


def _require_same_group(view: MaterializedViewRecord, group: str, span: Span) -> None:
    if group != view.resource_group:
        raise SqlError(
            CANNOT_REPLACE,
            f'one statement cannot both rebuild the rows of "{view.name}" and change its resource group to {group}',
            span=span,
            hint=f"ALTER MATERIALIZED VIEW {sql_name(view.name)} SET RESOURCE_GROUP TO '{group}', then repeat this "
            "statement",
        )


def _rebuilds(
    then: Snapshot,
    remade: Sequence[tuple[MaterializedViewRecord, MaterializedViewRecord, PlannedHistories]],
    under_way: Mapping[int, RebuildRecord],
    now: int,
) -> list[RebuildRecord]:
    """The records of the rebuilds, each with the view's new definition and the histories that the rebuild reads. If a
    rebuild of the same view is in progress, the new record replaces the record of that rebuild."""
    found: list[RebuildRecord] = []
    next_id = then.next_id
    for old, new, histories in remade:
        before = under_way.get(old.id)
        has_feed = new.has_change_feed or bool(new.keys and then.readers_of(old.id))
        found.append(
            RebuildRecord(
                id=before.id if before is not None else next_id,
                name=old.name,
                view_id=old.id,
                generation=next_generation(old, before),
                histories=histories.texts,
                created_at_ms=now,
                view=replace(new, has_change_feed=has_feed),
            )
        )
        next_id += before is None
    return found


def is_rebuild_stalled(snapshot: Snapshot, inspector: Inspector, view: MaterializedViewRecord) -> bool:
    """True if the rebuild of the view, or of one of its dependents, is STALLED for a reason that does not end by
    itself, for example because records of the history have expired upstream. In this case, repeating the statement
    starts the rebuilds again."""
    ids, statuses = {view.id, *(found.id for found in snapshot.dependents_of(view.id))}, inspector.jobs.statuses()
    jobs = [rebuild_job(rebuild) for rebuild in snapshot.all("rebuild") if rebuild.view_id in ids]
    found = (statuses[job] for job in jobs if job in statuses)
    return any(each.state == "STALLED" and not (each.reason or "").startswith(_PASSING) for each in found)


def _made(
    snapshot: Snapshot,
    view: MaterializedViewRecord,
    found: PlannedQuery,
    histories: PlannedHistories,
    definition: CreateMaterializedView,
    text: str,
    dialect: str,
) -> MaterializedViewRecord:
    return replace(
        view,
        definition=text,
        query=found.text,
        inputs=found.inputs,
        schema=found.schema,
        keys=found.keys,
        dialect=dialect,
        maintenance=found.maintenance,
        histories=histories.texts,
        sees=snapshot.next_id,
        parallelism=view_options(definition).parallelism or streaming_parallelism(snapshot),
    )


def _carried_over(
    then: Snapshot, inspector: Inspector, view: MaterializedViewRecord, reader: MaterializedViewRecord, span: Span
) -> tuple[MaterializedViewRecord, PlannedHistories]:
    """The new record and the histories of ``reader``, a view that reads the altered view ``view``. Raises SqlError if
    ``reader`` would not keep its columns."""
    named = f'materialized view "{reader.name}"'
    definition = view_definition(reader.definition)
    try:
        found = plan_query(
            then,
            inspector,
            definition.query,
            named,
            reader.dialect,
            closes_windows=definition.is_emit_on_window_close,
            columns=definition.columns,
        )
    except SqlError as error:
        raise ReaderCannotFollowError(view, reader, error.message, span) from error
    columns = dict(schema_columns(found.schema))
    for name, kind in schema_columns(reader.schema):
        if name not in columns:
            raise ReaderCannotFollowError(view, reader, f'it would lose its column "{name}"', span)
        if columns[name] != kind:
            why = f'the type of its column "{name}" would change from {kind} to {columns[name]}'
            raise ReaderCannotFollowError(view, reader, why, span)
    _require_shared(then, reader, span)
    startup, is_recomputed = view_options(definition).startup, found.maintenance.is_recomputed
    histories = plan_histories(
        then, inspector, found.inputs, startup, reader.name, {}, span, is_recomputed=is_recomputed
    )
    return _made(then, reader, found, histories, definition, reader.definition, reader.dialect), histories


class ReaderCannotFollowError(SqlError):
    """Raised if the query of ``view`` cannot be replaced, because the view ``reader``, which reads ``view``, could not
    follow the change. For example, ``reader`` would lose a column.

    ``reader_id`` is the id of ``reader``, and ``why`` is the reason.
    """

    def __init__(self, view: MaterializedViewRecord, reader: MaterializedViewRecord, why: str, span: Span) -> None:
        super().__init__(
            DEPENDENTS_EXIST,
            f'cannot alter materialized view "{view.name}" because {spoken(reader.kind)} "{reader.name}" reads it: '
            f"{why}",
            span=span,
            hint="keep that column in the query; or save the definition that SHOW CREATE shows, DROP MATERIALIZED VIEW "
            f"{sql_name(reader.name)}, repeat this statement, and create that view again",
        )
        self.reader_id = reader.id
        self.why = f"{view.name} gets another query: {why}"


def _require_no_sinks(view: MaterializedViewRecord, sinks: list[SinkRecord], span: Span) -> None:
    if sinks:
        named = ", ".join(f'sink "{sink.name}"' for sink in sinks)
        dropped = "; ".join(f"DROP SINK {sql_name(sink.name)}" for sink in sinks)
        raise SqlError(
            DEPENDENTS_EXIST,
            f'cannot alter materialized view "{view.name}" because sinks have sent its rows: {named}',
            span=span,
            hint=f"{dropped}, repeat this statement, and create the sink again WITH (snapshot = 'false')",
        )


def _require_alone(
    snapshot: Snapshot, view: MaterializedViewRecord, under_way: dict[int, RebuildRecord], span: Span
) -> None:
    """Raises SqlError if the view reads, directly or through other views, a view that is being rebuilt. The tables of
    both views would have to be swapped together."""
    for rebuild in under_way.values():
        other = rebuild.view_id
        if other != view.id and view.id in {found.id for found in snapshot.dependents_of(other)}:
            raise SqlError(
                CONCURRENT_CHANGE,
                f'materialized view "{view.name}" reads "{rebuild.name}", which is being rebuilt',
                span=span,
                hint=f"WAIT MATERIALIZED VIEW {sql_name(rebuild.name)}, then repeat this statement",
            )


def _readers(
    snapshot: Snapshot, view: MaterializedViewRecord, under_way: Mapping[int, RebuildRecord], span: Span
) -> tuple[MaterializedViewRecord, ...]:
    """Returns the views that read ``view``, or that will read it after their present rebuilds, in the order in which
    they read each other. A view that is being rebuilt with another definition has this definition in the result.
    Otherwise, the new rebuild would replace the present rebuild, and the other definition would be lost.

    Raises SqlError if a view reads ``view`` only until its present rebuild is complete. The rows of such a view and of
    ``view`` would have to be swapped at different times.
    """
    then = rebuilt(snapshot)
    now = [found for found in snapshot.dependents_of(view.id) if isinstance(found, MaterializedViewRecord)]
    later = {found.id for found in then.dependents_of(view.id) if isinstance(found, MaterializedViewRecord)}
    readers: list[MaterializedViewRecord] = []
    for reader in (*now, *(snapshot.get(id_) for id_ in sorted(later - {found.id for found in now}))):
        if not isinstance(reader, MaterializedViewRecord):
            continue
        rebuild = under_way.get(reader.id)
        if rebuild is None or rebuild.view is None or rebuild.view.definition == reader.definition:
            readers.append(reader)
        elif reader.id in later:
            readers.append(rebuild.view)
        else:
            raise SqlError(
                CONCURRENT_CHANGE,
                f'materialized view "{reader.name}" reads "{view.name}" until its rebuild with another definition is '
                "complete",
                span=span,
                hint=f"WAIT MATERIALIZED VIEW {sql_name(reader.name)}, then repeat this statement",
            )
    return in_reading_order(readers)


def _require_no_circle(
    view: MaterializedViewRecord, found: PlannedQuery, dependents: dict[int, str], span: Span
) -> None:
    for id_ in found.inputs:
        if id_ == view.id or id_ in dependents:
            name = view.name if id_ == view.id else dependents[id_]
            why = "itself" if id_ == view.id else f'"{name}", which reads it'
            raise SqlError(
                INVALID_QUERY,
                f'the query of materialized view "{view.name}" would read {why}',
                span=span,
                hint=f"remove {view.name if id_ == view.id else dependents[id_]} from the query",
            )


def _require_shared(snapshot: Snapshot, view: MaterializedViewRecord, span: Span) -> None:
    if not isinstance(view, TableRecord) and direct_inputs(snapshot, view):
        raise SqlError(
            NOT_SUPPORTED,
            f'materialized view "{view.name}" reads a source that is not shared, so it cannot be rebuilt',
            span=span,
            hint="save the definition that SHOW CREATE shows; then DROP MATERIALIZED VIEW "
            f"{sql_name(view.name)}, and create it again",
        )


def _feeds(snapshot: Snapshot, found: PlannedQuery) -> list[Change]:
    """The changes that enable the change feeds of those inputs whose rows can be replaced, because the new query needs
    these feeds."""
    inputs = [record for record in map(snapshot.get, found.inputs) if isinstance(record, MaterializedViewRecord)]
    return [
        PutObject(record=replace(record, has_change_feed=True))
        for record in inputs
        if record.keys and not record.has_change_feed
    ]


def _answers(old: MaterializedViewRecord, new: MaterializedViewRecord, histories: PlannedHistories) -> list[ResultRow]:
    how = "queries read its old rows until the new ones have caught up"
    if histories.offsets:
        how += f"; {number_of_records(histories.offsets)} of history to read"
    before, after_ = schema_columns(old.schema), schema_columns(new.schema)
    rows = [ResultRow(object=old.name, change="REBUILDING", detail=how)]
    if before != after_:
        gone = [name for name, _ in before if name not in dict(after_)]
        came = [name for name, _ in after_ if name not in dict(before)]
        other = [name for name, kind in after_ if dict(before).get(name, kind) != kind]
        said = [
            f"{word} {', '.join(names)}"
            for word, names in (("without", gone), ("with", came), ("of another type: ", other))
            if names
        ]
        rows.append(
            ResultRow(
                object=old.name,
                change="NOTICE",
                detail=f"columns after the change: {'; '.join(said) or 'in another order'}",
            )
        )
    rows += [ResultRow(object=old.name, change="NOTICE", detail=notice) for notice in histories.notices]
    return rows
