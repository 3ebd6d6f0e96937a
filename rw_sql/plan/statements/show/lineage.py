"""Lowers SHOW LINEAGE, which shows each object with its state, its lag, its inputs and its readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import UNDEFINED_OBJECT, SqlError, near_names
from rw_sql.metastore.records import MaterializedViewRecord, SinkRecord, SourceRecord
from rw_sql.model.job_ids import ingest_fragment, sink_job, view_job
from rw_sql.model.lineage import find_in_lineage, lineage_of
from rw_sql.model.object_lookup import object_name
from rw_sql.plan.result.graph import Graph, GraphNode
from rw_sql.plan.result.plan import Plan, Table
from rw_sql.plan.statements.show.job_states import sink_state, source_state, view_state

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.model.lineage import Lineage
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import ShowLineage


def lower_show_lineage(statement: ShowLineage, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers SHOW LINEAGE [OF n]. The rows are in the order in which the objects were created. ``n`` is a table,
    source, view, sink, connection or Delta table."""
    of = None
    if statement.name is not None:
        name = object_name(statement.name)
        record = find_in_lineage(snapshot, name)
        if record is None:
            near = near_names(name, (record.name for record in lineage_of(snapshot).objects))
            listing = "SHOW LINEAGE lists all objects"
            raise SqlError(
                UNDEFINED_OBJECT,
                f'"{name}" does not exist',
                span=statement.name.span,
                hint=f'did you mean "{near[0]}"? {listing}' if near else listing,
            )
        of = record.id
    lineage = lineage_of(snapshot, of)
    states = states_of(snapshot, inspector, lineage)
    names = {record.id: record.name for record in lineage.objects}
    inputs, readers = lineage.inputs_of(), lineage.readers_of()
    rows = [
        (
            record.name,
            record.kind,
            *states[record.id],
            ", ".join(names[id_] for id_ in inputs[record.id]),
            ", ".join(names[id_] for id_ in readers[record.id]),
        )
        for record in lineage.objects
    ]
    columns = (
        ("object", "STRING"),
        ("kind", "STRING"),
        ("state", "STRING"),
        ("lag", "BIGINT"),
        ("reads", "STRING"),
        ("read_by", "STRING"),
    )
    table = Table(columns=columns, rows=tuple(rows))
    return Plan(statement=statement, table=table, graph=_graph(lineage, states))


def lineage_graph(snapshot: Snapshot, inspector: Inspector, lineage: Lineage) -> Graph:
    """The lineage as a graph, including states and lags."""
    return _graph(lineage, states_of(snapshot, inspector, lineage))


def _graph(lineage: Lineage, states: dict[int, tuple[str | None, int | None]]) -> Graph:
    nodes = []
    for record in lineage.objects:
        state, lag = states[record.id]
        note = f"{lag:,} behind" if lag else ""
        nodes.append(GraphNode(id=record.id, name=record.name, kind=record.kind, state=state or "", note=note))
    return Graph(nodes=tuple(nodes), edges=lineage.edges)


def states_of(snapshot: Snapshot, inspector: Inspector, lineage: Lineage) -> dict[int, tuple[str | None, int | None]]:
    """The state and the lag of each object. The state is None for an object without a state, and the lag is None for an
    object without a lag."""
    statuses = inspector.jobs.statuses()
    behind = inspector.jobs.lags()
    made = inspector.jobs.backfills()

    def state_of(record: ObjectRecord) -> tuple[str | None, int | None]:
        job, state = None, None
        if isinstance(record, SourceRecord):
            job, state = ingest_fragment(record.id), source_state(snapshot, record, statuses)[0]
        elif isinstance(record, SinkRecord):
            job = sink_job(record.id)
            state = sink_state(record, statuses.get(job))[0]
        elif isinstance(record, MaterializedViewRecord):
            job = view_job(record.id)
            state = view_state(snapshot, record, statuses.get(job), made)[0]
        return state, None if job is None else behind.get(job)

    return {record.id: state_of(record) for record in lineage.objects}
