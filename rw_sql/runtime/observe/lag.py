"""The lag of each job behind its inputs."""

from __future__ import annotations

from concurrent.futures import wait
from functools import partial
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError
from rw_sql.metastore.records import MaterializedViewRecord
from rw_sql.model.job_ids import reader_fragment, rebuild_job, sink_job, view_job
from rw_sql.model.job_specs import fed_by, named_splits, rebuilt
from rw_sql.model.pauses import direct_inputs
from rw_sql.model.source_readers import readers_of
from rw_sql.model.split_status import OK, identity_status
from rw_sql.runtime.delta.delta_log import added_rows, latest_version, read_actions
from rw_sql.runtime.direct.positions import read_fragment_positions
from rw_sql.runtime.jobs.table_paths import table_path
from rw_sql.runtime.positions.progress import committed_versions
from rw_sql.runtime.positions.shared import read_positions
from rw_sql.runtime.support.background import run_in_background

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import Upstream
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SinkRecord, SourceRecord
    from rw_sql.model.source_readers import Reader
    from rw_sql.runtime.jobs.context import Context

LOOK_SECONDS = 2.0
"""The time limit for looking at all upstreams, in seconds; lags of slower ones are unknown."""

_MOST_VERSIONS = 1000


def measure_lags(context: Context, snapshot: Snapshot) -> dict[str, int | None]:
    """Records that a source is behind its upstream, and rows that a view is behind its inputs; None if not known
    soon."""
    behind: dict[str, int | None] = {}
    own: dict[str, int | None] = {}
    sources = [source for source in snapshot.all("source") if snapshot.readers_of(source.id)]
    looks = _looks(context, snapshot, sources)
    for source in sources:
        upstream = looks.get(source.id)
        for reader in readers_of(snapshot, source):
            lag = None if upstream is None else _records_behind(context, snapshot, reader, upstream)
            own[reader.fragment] = lag
            if reader.view is None:
                behind[reader.job] = lag
    for view in snapshot.kept:
        checkpoint = context.warehouse.view_checkpoint(view.id, view.generation)
        read_itself = {source.id for source in direct_inputs(snapshot, view)}
        others = tuple(id_ for id_ in view.inputs if id_ not in read_itself)
        parts = [own.get(reader_fragment(view.id, source_id)) for source_id in read_itself]
        parts.append(rows_behind(context, snapshot, view, checkpoint, others))
        behind[view_job(view.id)] = None if None in parts else sum(part for part in parts if part is not None)
    then = rebuilt(snapshot)
    for rebuild in snapshot.all("rebuild"):
        making = then.get(rebuild.view_id)
        if isinstance(making, MaterializedViewRecord):
            checkpoint = context.warehouse.view_checkpoint(making.id, making.generation)
            behind[rebuild_job(rebuild)] = rows_behind(context, then, making, checkpoint)
    for sink in snapshot.all("sink"):
        checkpoint = context.warehouse.sink_checkpoint(sink.id, sink.generation)
        behind[sink_job(sink.id)] = rows_behind(context, snapshot, sink, checkpoint)
    return behind


def rows_behind(
    context: Context,
    snapshot: Snapshot,
    reader: MaterializedViewRecord | SinkRecord,
    checkpoint: str,
    inputs: tuple[int, ...] | None = None,
) -> int | None:
    """The number of rows of its inputs (None: all) that a reader has not read; None if not known soon."""
    ids = reader.inputs if inputs is None else inputs
    tables = {id_: table_path(context.warehouse, snapshot, id_) for id_ in ids}
    fed = (tables[id_] for id_ in fed_by(snapshot, reader))
    feeds = {str(DeltaTable(table).metadata().id) for table in fed if latest_version(context.warehouse, table) >= 0}
    reached = committed_versions(context.warehouse, checkpoint, feeds=feeds)
    rows = [_rows_after(context, table, reached) for table in tables.values()]
    return None if None in rows else sum(row for row in rows if row is not None)


def _looks(context: Context, snapshot: Snapshot, sources: list[SourceRecord]) -> dict[int, Upstream]:
    """Looks at all upstreams concurrently; returns the results available at the time limit."""
    found: dict[int, Upstream] = {}

    def look(source: SourceRecord, options: Mapping[str, str]) -> None:
        found[source.id] = connector(source.connector).look(options, timeout=LOOK_SECONDS)

    pending = []
    for source in sources:
        try:
            options = context.options_of(source, snapshot)
        except SqlError:  # A secret cannot be read: the job's own reason says so.
            continue
        pending.append(run_in_background(partial(look, source, options), f"lag-{source.id}"))
    wait(pending, LOOK_SECONDS)
    return dict(found)


def _records_behind(context: Context, snapshot: Snapshot, reader: Reader, upstream: Upstream) -> int | None:
    source = reader.source
    splits = named_splits(snapshot, source, snapshot.splits(reader.fragment))
    if not upstream.is_reachable or upstream.missing or not splits:
        return None
    if source.is_shared:
        states = read_positions(context.warehouse, context.metastore, snapshot, source).states
    else:
        states = read_fragment_positions(context.warehouse, snapshot, source, reader.fragment).states
    behind = 0
    for split in splits:
        state, seen = states.get(split), upstream.splits.get(split)
        if state is None or seen is None or identity_status(state, seen) != OK:
            return None
        if not seen.is_endless:
            behind += max(0, seen.end - state.offset)
    return behind


def _rows_after(context: Context, table: str, reached: Mapping[str, int]) -> int | None:
    """The rows added to a table since the version that a view has reached; None if that is expensive to determine."""
    newest = latest_version(context.warehouse, table)
    if newest < 0:
        return 0
    first = reached.get(str(DeltaTable(table).metadata().id)) if reached else None
    if first is None or newest - first > _MOST_VERSIONS:
        return None
    rows = 0
    for version in range(first, newest + 1):
        try:
            added = added_rows(read_actions(context.warehouse, table, version))
        except FileNotFoundError:  # Cleaned up: the view will not find it either.
            return None
        if added is None:
            return None
        rows += added
    return rows
