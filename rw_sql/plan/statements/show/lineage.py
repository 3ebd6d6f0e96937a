"""What SHOW LINEAGE shows: each object with its state, its lag, what it reads and what reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.records import MaterializedViewRecord, SinkRecord, SourceRecord
from rw_sql.model.job_ids import ingest_fragment, sink_job, view_job
from rw_sql.plan.requests.catalog import Asking, backfills, job_statuses, lags
from rw_sql.plan.result.graph import Graph, GraphNode
from rw_sql.plan.statements.show.objects import sink_state, source_state, view_state

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.model.lineage import Lineage


def lineage_graph(snapshot: Snapshot, lineage: Lineage) -> Asking[Graph]:
    """The lineage as a graph, states and lags included."""
    statuses = yield from job_statuses()
    behind = yield from lags()
    made = yield from backfills()

    def node(record: ObjectRecord) -> GraphNode:
        job, state = None, ""
        if isinstance(record, SourceRecord):
            job, state = ingest_fragment(record.id), source_state(snapshot, record, statuses)[0]
        elif isinstance(record, SinkRecord):
            job = sink_job(record.id)
            state = sink_state(record, statuses.get(job))[0]
        elif isinstance(record, MaterializedViewRecord):
            job = view_job(record.id)
            state = view_state(snapshot, record, statuses.get(job), made)[0]
        lag = None if job is None else behind.get(job)
        return GraphNode(
            id=record.id,
            name=record.name,
            kind=record.kind,
            state=state,
            note="" if lag is None else f"{lag} behind",
        )

    return Graph(nodes=tuple(map(node, lineage.objects)), edges=lineage.edges)
