"""Functions for lowering statements on several kinds of objects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import captures_changes, connector, has_slot
from rw_sql.connectors.support.startup_mode import MODE, TIME
from rw_sql.errors import (
    CONCURRENT_CHANGE,
    DEPENDENTS_EXIST,
    DUPLICATE_CLAUSE,
    NOT_SUPPORTED,
    UNKNOWN_SPLIT,
    SqlError,
    first_names,
)
from rw_sql.metastore.records import (
    AssignSplits,
    DropObject,
    MaterializedViewRecord,
    Operation,
    PutObject,
    PutSplitStates,
    RebuildRecord,
    SourceRecord,
)
from rw_sql.model.definitions import listed_options
from rw_sql.model.job_ids import reader_fragment
from rw_sql.model.object_lookup import spoken
from rw_sql.model.options import sink_options, source_options, uses_of, visible
from rw_sql.model.rebuilds import rebuilt
from rw_sql.model.refresh_states import refresh_of
from rw_sql.model.relations import changes_rows
from rw_sql.model.resource_groups import in_group
from rw_sql.model.sink_shape import shape_of
from rw_sql.model.source_readers import is_read, readers_of
from rw_sql.plan.checks.upstreams import require_upstream_of
from rw_sql.plan.effects.discovery import discover
from rw_sql.plan.queries.delta_inputs import left_unread
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.prediction import predicted, prediction_to_json
from rw_sql.plan.result.preview_text import render_preview
from rw_sql.plan.result.steps import after, steps_of
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rw_sql.connectors.base import Connector, SplitState
    from rw_sql.connectors.sink import SinkLook, SinkShape
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change, ObjectRecord, SecretRecord, SinkRecord
    from rw_sql.model.source_readers import Reader
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.ports.positions import Positions
    from rw_sql.plan.result.plan import Preview
    from rw_sql.syntax.statements import CreateSink, CreateSource, SplitId, Statement

ALL_SOURCES = "all sources"

REBUILD_CANCELLED = "the running rebuild is cancelled; the view's rows and its query do not change"


def nothing(statement: Statement, name: str, detail: str) -> Plan:
    """A plan that changes nothing and whose result is a message."""
    return Plan(statement=statement, changes=(ResultRow(object=name, change="NOTHING", detail=detail),))


def states_change(fragment: str, kind_name: str, states: dict[str, SplitState], log_version: int) -> PutSplitStates:
    """The catalog change that sets positions of a fragment."""
    kind = connector(kind_name)
    return PutSplitStates(
        fragment=fragment,
        states={split: kind.encode_state(state) for split, state in states.items()},
        log_version=log_version,
    )


def begin_reading(
    snapshot: Snapshot,
    inspector: Inspector,
    source: SourceRecord,
    view: MaterializedViewRecord,
    startup: tuple[tuple[str, str], ...],
    span: Span,
) -> tuple[Change, ...]:
    """Returns the changes that assign splits and positions to a new view's direct reader. The positions are the current
    offsets that ``scan.startup.mode`` selects.

    ``startup`` are the view's own startup options, which override the source's.
    """
    kind = connector(source.connector)
    options = source_options(snapshot, source)
    if startup:
        options = (*(option for option in options if option[0] not in (MODE, TIME)), *startup)
    upstream = inspector.upstreams.look(source.connector, options)
    require_upstream_of(source, upstream, span)
    found = discover(inspector, kind, source.connector, options, upstream, {})
    fragment = reader_fragment(view.id, source.id)
    return (
        AssignSplits(fragment=fragment, splits=found.assigned),
        states_change(fragment, source.connector, dict(found.states), -1),
    )


def source_record(snapshot: Snapshot, source: SourceRecord, statement: CreateSource) -> SourceRecord:
    """Returns the source's record with a new definition, and with the fields that are derived from the definition."""
    made = replace(
        source,
        definition=render(statement),
        options=listed_options(statement),
        uses=uses_of(snapshot, statement),
    )
    return in_group(made, statement.options, snapshot)


_MOST_NAMED = 10
"""The maximum number of dependents that an error names."""


def drop_with_dependents(
    snapshot: Snapshot, id_: int, kind: str, name: str, span: Span, is_cascade: bool
) -> list[Change]:
    """The changes that drop an object and, with CASCADE, all its dependents (dependents first).

    If a rebuild reads a dropped object, the rebuild is cancelled. The rebuild's view, unless it is dropped too, keeps
    its present rows and query.
    """
    dependents = snapshot.dependents_of(id_)
    if dependents and not is_cascade:
        named = [_as_dependent(record) for record in dependents if not _is_of_another(record, dependents)]
        users = first_names(named, _MOST_NAMED)
        raise SqlError(
            DEPENDENTS_EXIST,
            f'cannot drop {spoken(kind)} "{name}" because other objects depend on it: {users}',
            span=span,
            hint=f"drop them first, or use DROP {spoken(kind).upper()} {sql_name(name)} CASCADE",
        )
    dropped = [record.id for record in (*reversed(dependents), snapshot.get(id_)) if record is not None]
    rebuilds = [rebuild.id for rebuild in snapshot.all("rebuild") if rebuild.view_id in dropped]
    cancelled = _cancelled_rebuilds(snapshot, frozenset(dropped))
    ids = dict.fromkeys((*rebuilds, *(rebuild.id for rebuild in cancelled), *dropped))
    changes: list[Change] = [DropObject(id=found) for found in ids]
    for rebuild in cancelled:
        view = snapshot.get(rebuild.view_id)
        if isinstance(view, MaterializedViewRecord):
            # The folder of the cancelled generation contains rows of that generation, so the view's next table needs a
            # higher generation.
            last = max(view.last_generation, rebuild.generation)
            changes.append(PutObject(record=replace(view, last_generation=last)))
    return changes


def _as_dependent(record: ObjectRecord) -> str:
    if isinstance(record, RebuildRecord):
        return f'the rebuild of materialized view "{record.name}"'
    return f'{spoken(record.kind)} "{record.name}"'


def _is_of_another(record: ObjectRecord, dependents: Iterable[ObjectRecord]) -> bool:
    """True for the rebuild of a view that is among the dependents, and for the source of a table that is among the
    dependents."""
    if isinstance(record, RebuildRecord):
        return any(found.id == record.view_id for found in dependents)
    return record.kind == "source" and any(found.kind == "table" and found.name == record.name for found in dependents)


def _cancelled_rebuilds(snapshot: Snapshot, dropped: frozenset[int]) -> tuple[RebuildRecord, ...]:
    """Returns the rebuilds that must be cancelled although the rebuilt views remain. A rebuild must be cancelled if its
    new query reads a dropped object, or if its table would be swapped together with the table of a rebuild whose new
    query does."""
    left = [rebuild for rebuild in snapshot.all("rebuild") if rebuild.view_id not in dropped]
    heads = [rebuild for rebuild in left if rebuild.id in dropped]
    if not heads:
        return ()
    then = rebuilt(snapshot)
    after_them = {found.id for head in heads for found in then.dependents_of(head.view_id)}
    return tuple(rebuild for rebuild in left if rebuild in heads or rebuild.view_id in after_them)


def drop_plan(statement: Statement, snapshot: Snapshot, kind: str, changes: list[Change]) -> Plan:
    """The plan of a DROP: one row per dropped object."""
    ids = [change.id for change in changes if isinstance(change, DropObject)]
    dropped = [snapshot.get(id_) for id_ in ids]
    changes = [*changes, *(DropObject(id=id_) for id_ in left_unread(snapshot, ids))]
    changes = [*changes, *kept_readers(snapshot, after(snapshot, tuple(changes)))]
    gone = tuple(
        record
        for record in dropped
        if record is not None and record.kind not in ("pause", "rewind", "rebuild", "refresh")
    )
    kept = tuple(record.name for record in dropped if isinstance(record, RebuildRecord) and record.view_id not in ids)
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(
            kind=kind,
            statement=render(statement),
            objects=(*(r.name for r in gone), *kept),
            changes=tuple(changes),
        ),
        changes=(
            *(ResultRow(object=r.name, change="DROPPED", detail=spoken(r.kind)) for r in gone),
            *(ResultRow(object=name, change="NOTICE", detail=REBUILD_CANCELLED) for name in kept),
        ),
        affected=tuple(record.id for record in gone),
    )


def kept_readers(snapshot: Snapshot, then: Snapshot) -> Iterator[Change]:
    """Finds the sources with a replication slot that some object reads in ``snapshot``, but no object reads in the
    catalog ``then``. Yields, for each of these sources, the change that keeps the source's shared reader running,
    because a slot without a reader would make the upstream keep its log without a limit."""
    for source in then.all("source"):
        if not has_slot(source.connector) or is_read(then, source):
            continue
        before = snapshot.get(source.id)
        if isinstance(before, SourceRecord) and is_read(snapshot, before):
            yield PutObject(record=replace(source, keeps_reader=True))


def take_up_new_topics(
    snapshot: Snapshot, inspector: Inspector, source: SourceRecord
) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Calls :func:`take_up_for` for every reader of the source, and joins the results without duplicate messages."""
    changes: tuple[Change, ...] = ()
    notes: dict[str, None] = {}
    for reader in readers_of(snapshot, source):
        taken, said = take_up_for(snapshot, inspector, reader)
        changes += taken
        notes |= dict.fromkeys(said)
    return changes, tuple(notes)


def take_up_for(
    snapshot: Snapshot, inspector: Inspector, reader: Reader, epoch: int | None = None
) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Returns the changes that assign new splits to the reader, and messages about these splits. A split of the
    source's topics is new if the reader does not read it yet.

    If the upstream does not respond, the statement assigns no new splits, and the owner assigns them later.
    """
    source, fragment = reader.source, reader.fragment
    kind = connector(source.connector)
    options = source_options(snapshot, source)
    assigned = set(snapshot.splits(fragment))
    upstream = inspector.upstreams.look(source.connector, options)
    if not upstream.is_reachable:
        return (), (f"the upstream does not answer yet: {upstream.error}",)
    if set(upstream.splits) <= assigned:
        return (), ()
    positions = inspector.positions.of(source.id, fragment)
    found = discover(
        inspector, kind, source.connector, options, upstream, positions.states, forgotten=positions.forgotten
    )
    new = tuple(split for split in found.assigned if split not in assigned)
    fresh = {split: state for split, state in found.fresh.items() if split in new}
    changes: list[Change] = [AssignSplits(fragment=fragment, splits=new)]
    if fresh:
        changes.append(states_change(fragment, source.connector, fresh, positions.log_version))
    if fresh and captures_changes(source.connector):
        # The source has moved to another database: only a new snapshot shows which rows of that database the tables
        # lack.
        changes.append(PutObject(record=replace(source, snapshot=epoch or snapshot.epoch + 1)))
    listed = ", ".join(f"{split} at {found.states[split].offset}" for split in new[:8])
    return tuple(changes), (f"{len(new)} new split{'s' if len(new) != 1 else ''}: {listed}",)


def require_movable(snapshot: Snapshot, source: SourceRecord, span: Span) -> None:
    """Raises SqlError NOT_SUPPORTED if the positions of a source cannot be moved. Positions cannot be moved if the
    connector does not support moves, or if the source belongs to a refreshable table, because each refresh reads the
    entire upstream."""
    name = sql_name(source.name)
    reason = getattr(connector(source.connector), "immovable", None)
    kind = "source"
    hint = f"to stop the source for a time without losing records: PAUSE SOURCE {name}, later RESUME SOURCE {name}"
    table = snapshot.table_of(source.id)
    if table is not None and refresh_of(snapshot, table.id) is not None:
        kind, reason = "table", "each refresh reads the whole upstream"
        hint = f"to read the upstream again: REFRESH TABLE {name}"
    if reason is not None:
        message = f'the positions of {kind} "{source.name}" cannot be moved: {reason}'
        raise SqlError(NOT_SUPPORTED, message, span=span, hint=hint)


def require_not_rebuilding(snapshot: Snapshot, inputs: Iterable[int], span: Span) -> None:
    """Raises SqlError CONCURRENT_CHANGE if an input is being rebuilt, because the input's table will soon be
    replaced."""
    given = set(inputs)
    for rebuild in snapshot.all("rebuild"):
        if rebuild.view_id in given:
            raise SqlError(
                CONCURRENT_CHANGE,
                f'materialized view "{rebuild.name}" is being rebuilt',
                span=span,
                hint="SHOW JOBS shows its progress; try again when it has caught up",
            )


def require_not_read_anew(snapshot: Snapshot, ids: Iterable[int], span: Span) -> None:
    """Raises SqlError CONCURRENT_CHANGE if a view is being rebuilt with a new query, and one of the given objects is
    that view or an input of the new query. The new query uses the current names of the objects, so statements must not
    change these names."""
    named = set(ids)
    for rebuild in snapshot.all("rebuild"):
        if rebuild.view is not None and not named.isdisjoint((rebuild.view_id, *rebuild.view.inputs)):
            raise SqlError(
                CONCURRENT_CHANGE,
                f'materialized view "{rebuild.name}" is being rebuilt with another query, which reads this object',
                span=span,
                hint=f"WAIT MATERIALIZED VIEW {sql_name(rebuild.name)}, then repeat this statement",
            )


def sink_record(snapshot: Snapshot, sink: SinkRecord, statement: CreateSink) -> SinkRecord:
    """Returns the sink's record with a new definition, and with the fields that are derived from the definition."""
    made = replace(
        sink,
        definition=render(statement),
        options=listed_options(statement),
        uses=uses_of(snapshot, statement),
    )
    return in_group(made, statement.options, snapshot)


def shape_in_catalog(sink: SinkRecord) -> SinkShape:
    """The shape (columns, keys and type) of a sink in the catalog."""
    return shape_of(sink)


def look_at_sink(
    snapshot: Snapshot, inspector: Inspector, sink: SinkRecord, candidates: tuple[SecretRecord, ...] = ()
) -> SinkLook:
    """Contacts and examines the target of a sink that is in the catalog."""
    deletes = not sink.query and any(changes_rows(snapshot.get(input_id)) for input_id in sink.inputs)
    shape = replace(shape_in_catalog(sink), deletes=deletes)
    return inspector.upstreams.look_at_target(sink.connector, sink_options(snapshot, sink), shape, candidates)


def unsafe_plan(
    statement: Statement,
    snapshot: Snapshot,
    reader: Reader,
    *,
    kind: str,
    changes: tuple[Change, ...],
    preview: Preview,
    answers: tuple[ResultRow, ...],
    reason: str | None,
    positions: Positions,
    unallowed: tuple[str, ...] = (),
    fingerprint: str = "",
) -> Plan:
    """The plan of an unsafe statement for one reader. The plan requires a confirmation, which is bound to the source's
    epoch.

    ``positions`` are the current positions, which are stored with the prediction.
    """
    source = reader.source
    preview = replace(preview, epoch=snapshot.epoch)
    names = (source.name, *(record.name for record in snapshot.dependents_of(source.id)))
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, changes),
        operation=Operation(
            kind=kind,
            statement=render(statement),
            objects=names,
            changes=changes,
            is_unsafe=True,
            reason=reason,
            plan=render_preview(preview),
            prediction=prediction_to_json({reader.fragment: predicted(source, positions, preview)}),
        )
        if changes
        else None,
        changes=answers,
        preview=preview,
        is_unsafe=True,
        affected=(source.id,),
        unallowed=unallowed,
        fingerprint=fingerprint,
    )


def dependents_of(snapshot: Snapshot, reader: Reader) -> tuple[str, ...]:
    """The dependents in the order of their creation, as in a preview."""
    return tuple(f"{spoken(record.kind)} {record.name}" for record in reader.dependents(snapshot))


VALID_SPLITS = "valid splits are: "
"""The beginning of the hint that lists the splits of a source; ``rw-sql check`` recognizes the hint by this
beginning."""


def resolve_splits(
    kind: Connector, snapshot: Snapshot, source: SourceRecord, written: tuple[SplitId, ...], known: Iterable[str]
) -> tuple[str, ...]:
    """The full ids of the splits that a statement names. Raises SqlError UNKNOWN_SPLIT, whose hint lists the valid
    splits."""
    options = visible(source_options(snapshot, source))
    valid = set(known)
    ids: dict[str, None] = {}
    for split in written:
        try:
            id_ = split.id if split.id in valid else kind.resolve_split(options, split.id)
        except SqlError as error:
            error.span = error.span or split.span
            raise
        if id_ not in valid:
            listed = ", ".join(sorted(valid)[:12]) or "none"
            raise SqlError(
                UNKNOWN_SPLIT,
                f'source "{source.name}" has no split "{split.id}"',
                span=split.span,
                hint=f"{VALID_SPLITS}{listed}",
            )
        if id_ in ids:
            raise SqlError(
                DUPLICATE_CLAUSE,
                f'split "{split.id}" is named more than once',
                span=split.span,
                hint="omit one of the two",
            )
        ids[id_] = None
    return tuple(ids)
