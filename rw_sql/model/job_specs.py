"""Computes the specs of the jobs that a catalog requires. The functions have no side effects.

The reconciler compares the required jobs with the running jobs. EXPLAIN compares the jobs that the catalog requires
before and after a statement.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector, sink_connector
from rw_sql.metastore.records import (
    COMBINED,
    DEFAULT_GROUP,
    OVERWRITE,
    PARALLELISM,
    SIGNED,
    Maintenance,
    MaterializedViewRecord,
    SinkRecord,
    SourceRecord,
    TableRecord,
)
from rw_sql.model.definitions import (
    KEPT_TIME,
    field_of,
    has_snapshot,
    has_unchanged,
    include_name,
    option_text,
    reader_definition,
    table_definition,
    unchanged_path,
)
from rw_sql.model.job_ids import (
    ingest_fragment,
    reader_fragment,
    rebuild_job,
    sink_job,
    view_job,
)
from rw_sql.model.options import PlannedOptions, effective_options, sink_options, source_options, visible
from rw_sql.model.pauses import direct_inputs, is_suspended, is_view_paused
from rw_sql.model.rebuilds import rebuilt
from rw_sql.model.relations import (
    schema_columns,
    stored_name,
    table_schema,
)
from rw_sql.model.sink_shape import shape_of
from rw_sql.model.source_readers import CdcTableSpec, TableRead, is_read
from rw_sql.model.view_inputs import keyed_query, view_inputs
from rw_sql.syntax.query.signed_aggregates import SIGN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rw_sql.connectors.sink import SinkShape
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import LivePosition, ObjectRecord
    from rw_sql.model.view_inputs import ViewInput


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSpec:
    """The shared reader of a source. The reader restarts if its spec changes.

    ``definition`` is the source's definition with ``connector`` but no other properties. ``options`` are those options
    of the source and its connection that affect the reader, sorted by name. ``since`` is the epoch of the last
    statement that changed the reader's splits or positions. ``tables`` are the upstream tables that a change data
    capture source reads. ``group`` is the resource group whose owner runs the job. The source joined this group at the
    epoch ``group_since``.
    """

    job: str
    source_id: int
    name: str
    definition: str
    options: PlannedOptions
    generation: int
    splits: tuple[str, ...]
    since: int
    tables: tuple[CdcTableSpec, ...] = ()
    group: str = DEFAULT_GROUP
    group_since: int = 0

    @property
    def object_id(self) -> int:
        """The id of the object that the job belongs to."""
        return self.source_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSpec:
    """A view's direct reader of a source that is not shared. The fields have the same meaning as in
    :class:`IngestSpec`."""

    fragment: str
    source_id: int
    name: str
    connector: str
    definition: str
    options: PlannedOptions
    splits: tuple[str, ...]
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRows:
    """The settings with which the job of a table with a primary key applies records. Columns have the names that the
    table's files use.

    If records may omit unchanged values, ``paths`` has a pair (column, path of the field) for each column that is read
    from a record's field. ``is_computed`` is true if some columns are computed from other columns.
    """

    primary_key: tuple[str, ...]
    conflict: str
    version_columns: tuple[str, ...]
    is_append_only: bool
    paths: tuple[tuple[str, str], ...] = ()
    is_computed: bool = False

    @property
    def is_overwritten(self) -> bool:
        """True if a record always replaces the row with the same key, whatever values this row has."""
        return self.conflict == OVERWRITE and not self.version_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSpec:
    """The job of a materialized view or table. ``is_table`` is true for a table.

    ``query`` is the job's query. ``readers`` are the view's direct readers of sources. ``keyed`` is None for a view,
    and for a table without a primary key. ``stored_names`` has a pair (name in the query, name in the files) for each
    column whose two names differ. ``parallelism`` is the number of partitions of the query's state.
    """

    job: str
    view_id: int
    name: str
    query: str
    schema: str
    keys: tuple[str, ...]
    generation: int
    inputs: tuple[ViewInput, ...]
    has_change_feed: bool = False
    readers: tuple[ReaderSpec, ...] = ()
    maintenance: Maintenance = field(default_factory=Maintenance)
    keyed: KeyedRows | None = None
    stored_names: tuple[tuple[str, str], ...] = ()
    parallelism: int = PARALLELISM
    group: str = DEFAULT_GROUP
    group_since: int = 0
    is_table: bool = False

    @property
    def writer(self) -> str:
        """The job id under which the jobs of the view and of all its rebuilds claim run numbers.

        Because these jobs share one id, their run numbers form one sequence.
        """
        return view_job(self.view_id)

    @property
    def object_id(self) -> int:
        """The id of the object that the job belongs to."""
        return self.view_id

    @property
    def is_signed(self) -> bool:
        """True if the job's query reads signed rows. Signed rows are the changes to an input, with the sign of each
        change in the column SIGN."""
        strategy = self.maintenance.strategy
        follows = strategy == COMBINED and SIGN in self.query and any(given.is_changing for given in self.inputs)
        return strategy == SIGNED or follows

    def reader_of(self, source_id: int) -> ReaderSpec | None:
        """The view's direct reader of a source; None if the view reads the source through its log, or not at all."""
        return next((reader for reader in self.readers if reader.source_id == source_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec:
    """The job of a sink. ``identity`` is the unique name of the sink in a target that records its writers.

    ``replaces`` is true if a later row of the sink's query replaces an earlier row with the same key. ``starts`` has a
    pair (input id, version after which the sink begins) for each input that the sink does not read from the beginning.
    """

    job: str
    sink_id: int
    name: str
    connector: str
    options: PlannedOptions
    shape: SinkShape
    query: str
    replaces: bool
    inputs: tuple[ViewInput, ...]
    starts: tuple[tuple[int, int], ...]
    identity: str
    generation: int
    parallelism: int = PARALLELISM
    group: str = DEFAULT_GROUP
    group_since: int = 0

    @property
    def object_id(self) -> int:
        """The id of the object that the job belongs to."""
        return self.sink_id


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshSpec:
    """The job of a refreshable table.

    Only this job writes the table's rows. The table's refresh state in the catalog determines what the job does next.

    ``keys`` are the columns of the table's primary key. A change of the table's name or upstream does not restart the
    job. Therefore, comparisons of specs ignore ``name``, and the spec does not contain the upstream. The job reads both
    from the catalog when it needs them.
    """

    job: str
    table_id: int
    name: str = field(compare=False)
    schema: str
    keys: tuple[str, ...]
    generation: int
    group: str = DEFAULT_GROUP
    group_since: int = 0

    @property
    def object_id(self) -> int:
        """The id of the object that the job belongs to."""
        return self.table_id


SNAPSHOT_BATCH_SIZE = "snapshot.batch_size"
"""An option of a table of a change data capture source. It sets the number of rows that each query of the snapshot
reads."""

JobSpec = IngestSpec | ViewSpec | SinkSpec | RefreshSpec


def named_splits(snapshot: Snapshot, source: SourceRecord, splits: Iterable[str]) -> tuple[str, ...]:
    """The splits that belong to the topics (or similar objects) that the source's current properties name.

    The other splits that are assigned to the source are orphans.
    """
    kind = connector(source.connector)
    topics = set(kind.named_topics(visible(source_options(snapshot, source))))
    return tuple(sorted(split for split in splits if kind.split_topic(split) in topics))


def ingest_spec(snapshot: Snapshot, source: SourceRecord) -> IngestSpec | None:
    """The job of the shared reader that should run for a source. None if :func:`is_read` is false for the source, if
    the source is paused, if its rate is 0, or if it is not shared.
    """
    if not source.is_shared or not is_read(snapshot, source) or is_suspended(snapshot, source):
        return None
    job = ingest_fragment(source.id)
    return IngestSpec(
        job=job,
        source_id=source.id,
        name=source.name,
        definition=reader_definition(source.definition),
        options=effective_options(connector(source.connector).spec, source_options(snapshot, source)),
        generation=source.generation,
        splits=named_splits(snapshot, source, snapshot.splits(job)),
        since=snapshot.fragment_epoch(job),
        tables=cdc_tables(snapshot, source),
        group=source.resource_group,
        group_since=source.group_since,
    )


def cdc_tables(snapshot: Snapshot, source: SourceRecord) -> tuple[CdcTableSpec, ...]:
    """The upstream tables that a change data capture source reads, sorted by name; empty for any other source.

    Several tables that read one upstream table share one snapshot of it. The snapshot has the lowest rate limit and the
    smallest chunk size of all tables with a snapshot. The oldest table determines the set of key columns. The newest
    table that has a snapshot and the same set of key columns determines the order of these columns.
    """
    found: dict[str, CdcTableSpec] = {}
    for table in snapshot.users_of(source.id):
        if not isinstance(table, TableRecord) or table.live_from is None:
            continue
        written = table_definition(table.definition)
        upstream = written.cdc_table.table if written.cdc_table is not None else ""
        given = {option.key: option_text(option.value) for option in written.options}
        fields = {column.name: field_of(column) for column in written.columns}
        key = tuple(fields.get(name, name) for name in table.primary_key)
        columns = {field_of(column) for column in written.columns if column.generated is None}
        read = _table_read(source, table, has_snapshot(written))
        chunk_rows, rate, live_from = None, None, 0
        if read.has_snapshot:
            chunk_rows = int(given[SNAPSHOT_BATCH_SIZE]) if SNAPSHOT_BATCH_SIZE in given else None
            rate = table.backfill_rate_limit
        else:
            live_from = _live_from(snapshot, source, table.live_from)
        reads: tuple[TableRead, ...] = (read,)
        before = found.get(upstream)
        if before is not None:
            has_live_tables = any(not each.has_snapshot for each in before.reads)
            columns, reads = columns | {*before.columns}, (*before.reads, read)
            if not read.has_snapshot or set(before.key_columns) != set(key):
                key = before.key_columns
            chunk_rows, rate = _least(before.chunk_rows, chunk_rows), _least(before.rate, rate)
            if read.has_snapshot:
                live_from = before.live_from
            elif has_live_tables:
                live_from = min(before.live_from, live_from)
        found[upstream] = CdcTableSpec(
            upstream=upstream,
            reads=reads,
            columns=tuple(sorted(columns)),
            key_columns=key,
            chunk_rows=chunk_rows,
            rate=rate,
            live_from=live_from,
        )
    return tuple(found[name] for name in sorted(found))


def _live_from(snapshot: Snapshot, source: SourceRecord, place: LivePosition) -> int:
    """The position up to which a table without a snapshot needs no changes; 0 if a statement has set the source's
    position since the table's creation."""
    row = snapshot.states(ingest_fragment(source.id)).get(place.split)
    is_same = row is not None and row.epoch == place.since and named_splits(snapshot, source, (place.split,))
    return place.offset if is_same else 0


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _table_read(source: SourceRecord, table: TableRecord, needs_rows: bool) -> TableRead:
    reset = source.snapshot if table.live_from is not None and source.snapshot > table.live_from.since else 0
    if not table.added_columns:
        return TableRead(table=table.id, reset=reset, has_snapshot=needs_rows, last_id=table.id)
    # The upstream may have filled a new column of existing rows with the column's default, so the rows need a new
    # snapshot. The number of all columns, including dropped columns, changes only when a column is added.
    columns = len(schema_columns(table.schema)) + len(table.dropped_columns)
    last_id = max(since for _, since in table.added_columns)
    return TableRead(table=table.id, reset=reset, columns=columns, has_snapshot=needs_rows, last_id=last_id)


def reader_spec(snapshot: Snapshot, source: SourceRecord, fragment: str) -> ReaderSpec:
    """A view's direct reader of a source."""
    return ReaderSpec(
        fragment=fragment,
        source_id=source.id,
        name=source.name,
        connector=source.connector,
        definition=reader_definition(source.definition),
        options=effective_options(connector(source.connector).spec, source_options(snapshot, source)),
        splits=named_splits(snapshot, source, snapshot.splits(fragment)),
        since=snapshot.fragment_epoch(fragment),
    )


def view_spec(snapshot: Snapshot, view: MaterializedViewRecord) -> ViewSpec:
    """The job of a view. The caller must not run the job while :func:`is_view_paused` is true for the view."""
    keyed = _keyed(view)
    return ViewSpec(
        job=view_job(view.id),
        view_id=view.id,
        name=view.name,
        query=_query(view),
        schema=table_schema(view),
        keys=_stored_names(view, view.keys),
        generation=view.generation,
        inputs=view_inputs(snapshot, view),
        has_change_feed=view.has_change_feed,
        readers=tuple(
            reader_spec(snapshot, source, reader_fragment(view.id, source.id))
            for source in direct_inputs(snapshot, view)
        ),
        # The reason is only shown to users, so a new wording must not restart the job.
        maintenance=replace(view.maintenance, reason=""),
        keyed=keyed,
        stored_names=view.stored_names if isinstance(view, TableRecord) else (),
        parallelism=view.parallelism,
        group=view.resource_group,
        group_since=view.group_since,
        is_table=isinstance(view, TableRecord),
    )


def _query(view: MaterializedViewRecord) -> str:
    if isinstance(view, TableRecord) and view.primary_key:
        return keyed_query(view)
    return view.maintenance.query or view.query


def _keyed(view: MaterializedViewRecord) -> KeyedRows | None:
    if not isinstance(view, TableRecord) or not view.primary_key:
        return None
    written = table_definition(view.definition)
    paths = [
        (stored_name(view, column.name), unchanged_path([field_of(column)]))
        for column in (written.columns if has_unchanged(written) else ())
        if column.generated is None
    ]
    if written.cdc_table is not None:
        times = (include_name("", column) for column in written.include if column.kind == "timestamp")
        paths += [(stored_name(view, name), KEPT_TIME) for name in times]
    return KeyedRows(
        primary_key=_stored_names(view, view.primary_key),
        conflict=view.conflict,
        version_columns=_stored_names(view, view.version_columns),
        is_append_only=view.is_append_only,
        paths=tuple(paths),
        is_computed=has_unchanged(written) and any(column.generated is not None for column in written.columns),
    )


def _stored_names(view: MaterializedViewRecord, columns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(stored_name(view, column) for column in columns)


def sink_spec(snapshot: Snapshot, sink: SinkRecord) -> SinkSpec | None:
    """The job of a sink; None while the sink is paused."""
    if sink.is_paused:
        return None
    return SinkSpec(
        job=sink_job(sink.id),
        sink_id=sink.id,
        name=sink.name,
        connector=sink.connector,
        options=effective_options(sink_connector(sink.connector).spec, sink_options(snapshot, sink)),
        shape=shape_of(sink),
        query=sink.query,
        replaces=sink.replaces,
        inputs=view_inputs(snapshot, sink),
        starts=sink.starts,
        identity=f"rw_sql-{sink.id}-{sink.created_at_ms:x}",
        generation=sink.generation,
        parallelism=sink.parallelism,
        group=sink.resource_group,
        group_since=sink.group_since,
    )


def refresh_spec(table: TableRecord) -> RefreshSpec:
    """The job of a refreshable table."""
    return RefreshSpec(
        job=view_job(table.id),
        table_id=table.id,
        name=table.name,
        schema=table_schema(table),
        keys=table.primary_key,
        generation=table.generation,
        group=table.resource_group,
        group_since=table.group_since,
    )


def desired_jobs(snapshot: Snapshot, only: Collection[int] | None = None) -> dict[str, JobSpec]:
    """All jobs of sources, tables, views and sinks that should run, by job id. If ``only`` is given, the result has
    only the jobs of the objects with these ids."""
    wanted: dict[str, JobSpec] = {}
    for record in _records(snapshot, "source", only):
        if isinstance(record, SourceRecord) and (spec := ingest_spec(snapshot, record)) is not None:
            wanted[spec.job] = spec
    for kind in ("table", "materialized_view"):
        for record in _records(snapshot, kind, only):
            if isinstance(record, TableRecord) and not record.inputs:
                continue  # A table whose connector was dropped keeps its rows but has no job.
            if isinstance(record, MaterializedViewRecord) and not is_view_paused(snapshot, record):
                view = view_spec(snapshot, record)
                wanted[view.job] = view
    for refresh in snapshot.all("refresh"):
        table = snapshot.get(refresh.table_id)
        if isinstance(table, TableRecord) and (only is None or table.id in only):
            wanted[view_job(table.id)] = refresh_spec(table)
    then = rebuilt(snapshot)
    for rebuild in snapshot.all("rebuild"):
        making = then.get(rebuild.view_id)
        if isinstance(making, MaterializedViewRecord) and (only is None or making.id in only):
            job = rebuild_job(rebuild)
            wanted[job] = replace(view_spec(then, making), job=job)
    for record in _records(snapshot, "sink", only):
        if isinstance(record, SinkRecord) and (sink := sink_spec(snapshot, record)) is not None:
            wanted[sink.job] = sink
    return wanted


def _records(snapshot: Snapshot, kind: str, only: Collection[int] | None) -> Iterable[ObjectRecord]:
    if only is None:
        return snapshot.all(kind)
    found = (snapshot.get(id_) for id_ in sorted(only))
    return [record for record in found if record is not None and record.kind == kind]
