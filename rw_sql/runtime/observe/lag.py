"""Measures how far each job is behind its inputs, in records and in seconds."""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from rw_sql.connectors.registry import connector
from rw_sql.connectors.support.wide_offsets import MOST_COUNTED
from rw_sql.errors import SqlError
from rw_sql.metastore.records import DeltaTableRecord, MaterializedViewRecord
from rw_sql.model.job_ids import reader_fragment, rebuild_job, sink_job, view_job
from rw_sql.model.job_specs import named_splits
from rw_sql.model.pauses import direct_inputs
from rw_sql.model.rebuilds import rebuilt
from rw_sql.model.source_readers import is_read, readers_of
from rw_sql.model.split_status import OK, identity_status
from rw_sql.model.view_inputs import fed_by
from rw_sql.runtime.direct.positions import read_fragment_positions
from rw_sql.runtime.jobs.statuses import jobs_at_rest
from rw_sql.runtime.jobs.table_paths import table_path
from rw_sql.runtime.observe.cluster_looks import by_cluster, look_at_cluster
from rw_sql.runtime.observe.commit_numbers import LogReading
from rw_sql.runtime.observe.row_counts import CommitRows, RowSum
from rw_sql.runtime.positions.high_water import captured_table
from rw_sql.runtime.positions.progress import committed_versions
from rw_sql.runtime.positions.shared import read_positions
from rw_sql.runtime.support.background import KeyedWork, prepare, run_in_background

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rw_sql.connectors.base import Upstream
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SinkRecord, SourceRecord
    from rw_sql.model.source_readers import Reader
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.observe.cluster_looks import Looked

LOOK_SECONDS = 2.0
"""The time limit in seconds for requesting the ends of all upstreams. The lag of a slower upstream is unknown. The same
limit applies to reading the commits of tables."""

ONCE_SECONDS = 5.0
"""The time limit, in seconds, for reading the commits of tables in a process that may measure only once. This limit is
longer than LOOK_SECONDS, because no later measurement completes the numbers."""

_MOST_VERSIONS = 10_000
"""The maximum number of unread versions of a table for which the rows are counted. If there are more, the number of
unread rows is unknown, but the age of the oldest unread row is still measured."""

_MOST_TIMES = 200
"""The maximum number of splits per source for which the time of the oldest unread record is requested.

The limit is needed because each of these splits costs a request.
"""

_APART = "lag-tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a job is behind. ``records`` is the number of unread records or rows, and ``since_ms`` is the arrival
    time of the oldest unread record. A value is None if it is unknown. ``since_ms`` may be known even if ``records`` is
    unknown."""

    records: int | None = None
    since_ms: int | None = None

    def seconds(self, at_ms: int) -> float | None:
        """The age of the oldest unread record; 0 if there is no unread record, None if the age is unknown.

        If a job has several inputs, only the inputs with a known age count.
        """
        if self.records == 0:
            return 0.0
        return None if self.since_ms is None else max(0, at_ms - self.since_ms) / 1000


def measure_lags(context: Context, snapshot: Snapshot) -> dict[str, int | None]:
    """Returns, for each job, the number of records or rows that the job has not read. For a source, these are records
    of the upstream. For a view or sink, these are rows of the inputs. The number is None if it cannot be determined
    within the time limits of :func:`measure_lag`."""
    found = measure_lag(context, snapshot, with_times=False, table_seconds=ONCE_SECONDS)
    return {job: lag.records for job, lag in found.items()}


def measure_lag(
    context: Context,
    snapshot: Snapshot,
    *,
    with_times: bool = True,
    seconds: float = LOOK_SECONDS,
    table_seconds: float | None = None,
) -> dict[str, Lag]:
    """Measures how far each job is behind.

    All upstreams together have ``seconds`` to report their ends. If ``with_times`` is true, the upstreams then have
    ``seconds`` once more to report the age of unread records. Commits of tables are read for at most ``table_seconds``
    (None: ``seconds``). Even after this time, at least one commit of each input is read, unless earlier measurements
    have read all of the input's commits. If a job reads a user's own table, measuring its lag may take at most
    ``table_seconds``, because the table's store may not respond. After this time, the lag of the job is unknown.
    """
    table_seconds = seconds if table_seconds is None else table_seconds
    readers = list(_table_readers(context, snapshot))
    elsewhere = [reader for reader in readers if reader.users_tables]
    apart = prepare(partial(_lags_of_users_tables, context, elsewhere, table_seconds), _APART) if elsewhere else None
    reading = LogReading(context, table_seconds)
    behind: dict[str, Lag] = {}
    own: dict[str, Lag] = {}
    sources = [source for source in snapshot.all("source") if is_read(snapshot, source)]
    looks = _looks(context, snapshot, sources, seconds)
    found = [
        (reader, _Behind() if upstream is None else _records_behind(context, snapshot, reader, upstream))
        for source in sources
        for upstream in [looks.get(source.id)]
        for reader in readers_of(snapshot, source)
    ]
    times = _times(context, snapshot, found, seconds) if with_times else {}
    for reader, lag in found:
        own[reader.fragment] = Lag(records=lag.records, since_ms=times.get(reader.fragment))
        if reader.view is None:
            behind[reader.job] = own[reader.fragment]
    at_rest = jobs_at_rest(context)
    of_users_tables = {} if apart is None else apart.result()
    for each in readers:
        if each.job in at_rest:
            behind[each.job] = Lag(records=0)
            continue
        parts = [own.get(fragment, Lag()) for fragment in each.fragments]
        parts.append(of_users_tables.get(each.job, Lag()) if each.users_tables else each.lag(context, reading))
        behind[each.job] = _sum(parts)
    return behind


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableReader:
    """A job that reads the tables of the objects ``ids``; ``record`` is the view or sink of the job in ``snapshot``.

    ``fragments`` are the fragments of the sources that a view reads directly from upstream.
    """

    job: str
    snapshot: Snapshot
    record: MaterializedViewRecord | SinkRecord
    checkpoint: str
    ids: tuple[int, ...]
    fragments: tuple[str, ...] = ()

    @property
    def users_tables(self) -> frozenset[str]:
        """The paths of the user's own tables among the inputs."""
        records = map(self.snapshot.get, self.ids)
        return frozenset(record.path for record in records if isinstance(record, DeltaTableRecord))

    def lag(self, context: Context, reading: LogReading) -> Lag:
        """Returns how far the job is behind these tables."""
        try:
            return _behind_tables(reading, context, self.snapshot, self.record, self.checkpoint, self.ids)
        except (OSError, DeltaError):
            if not self.users_tables:
                raise
            return Lag()  # The store of the user's own table does not respond. The status of the job shows this reason.


def _table_readers(context: Context, snapshot: Snapshot) -> Iterator[_TableReader]:
    """The jobs of the catalog's views, rebuilds and sinks, as readers of tables."""
    warehouse = context.warehouse
    for view in snapshot.kept:
        read_itself = {source.id for source in direct_inputs(snapshot, view)}
        yield _TableReader(
            job=view_job(view.id),
            snapshot=snapshot,
            record=view,
            checkpoint=warehouse.view_checkpoint(view.id, view.generation),
            ids=tuple(id_ for id_ in view.inputs if id_ not in read_itself),
            fragments=tuple(reader_fragment(view.id, source_id) for source_id in read_itself),
        )
    then = rebuilt(snapshot)
    for rebuild in snapshot.all("rebuild"):
        making = then.get(rebuild.view_id)
        if isinstance(making, MaterializedViewRecord):
            yield _TableReader(
                job=rebuild_job(rebuild),
                snapshot=then,
                record=making,
                checkpoint=warehouse.view_checkpoint(making.id, making.generation),
                ids=making.inputs,
            )
    for sink in snapshot.all("sink"):
        yield _TableReader(
            job=sink_job(sink.id),
            snapshot=snapshot,
            record=sink,
            checkpoint=warehouse.sink_checkpoint(sink.id, sink.generation),
            ids=sink.inputs,
        )


def _lags_of_users_tables(context: Context, readers: Iterable[_TableReader], seconds: float) -> dict[str, Lag]:
    """The lags of the jobs that read a user's own tables, by job. A lag that is not known after ``seconds`` is absent
    from the result.

    The store of a user's table may not respond for a long time. Jobs that read the same tables of the user are measured
    together, so that a store that does not respond gets only one request.
    """
    groups: dict[frozenset[str], list[_TableReader]] = {}
    for reader in readers:
        groups.setdefault(reader.users_tables, []).append(reader)

    def measure(group: list[_TableReader]) -> dict[str, Lag]:
        reading = LogReading(context, seconds)
        return {reader.job: reader.lag(context, reading) for reader in group}

    pending: KeyedWork[frozenset[str], dict[str, Lag]] = context.made.setdefault(_APART, KeyedWork(_APART))
    found = pending.results({key: partial(measure, group) for key, group in groups.items()}, seconds)
    return {job: lag for lags in found.values() for job, lag in lags.items()}


def _sum(parts: list[Lag]) -> Lag:
    """The total lag of several inputs. The total number of records is known only if the number is known for every
    input. The total age is the greatest known age."""
    known = [part.records for part in parts if part.records is not None]
    ages = [part.since_ms for part in parts if part.records != 0 and part.since_ms is not None]
    return Lag(records=sum(known) if len(known) == len(parts) else None, since_ms=min(ages, default=None))


def rows_behind(
    context: Context,
    snapshot: Snapshot,
    reader: MaterializedViewRecord | SinkRecord,
    checkpoint: str,
    inputs: tuple[int, ...] | None = None,
) -> int | None:
    """The number of rows that a view or sink has not read; None if this number cannot be found within the measurement's
    time limit. If ``inputs`` is given, only rows of these inputs count."""
    ids = reader.inputs if inputs is None else inputs
    measured = _TableReader(job="", snapshot=snapshot, record=reader, checkpoint=checkpoint, ids=ids)
    if measured.users_tables:
        return _lags_of_users_tables(context, [measured], LOOK_SECONDS).get("", Lag()).records
    return measured.lag(context, LogReading(context, LOOK_SECONDS)).records


def _behind_tables(
    reading: LogReading,
    context: Context,
    snapshot: Snapshot,
    reader: MaterializedViewRecord | SinkRecord,
    checkpoint: str,
    ids: tuple[int, ...],
) -> Lag:
    tables = {id_: table_path(context.warehouse, snapshot, id_) for id_ in ids}
    if any(isinstance(snapshot.get(id_), DeltaTableRecord) and reading.newest(tables[id_]) < 0 for id_ in ids):
        # The user's own table does not exist, or this process looks for it in another store.
        return Lag()
    fed = fed_by(snapshot, reader)
    feeds = {reading.id_of(table): table for id_, table in tables.items() if id_ in fed and reading.newest(table) >= 0}
    reached = committed_versions(context.warehouse, checkpoint, feeds=feeds)
    upstream = captured_table(reader)
    return _sum([_rows_after(reading, table, reached, upstream, is_feed=id_ in fed) for id_, table in tables.items()])


def _looks(context: Context, snapshot: Snapshot, sources: list[SourceRecord], seconds: float) -> dict[int, Upstream]:
    """Requests the ends of all upstreams in parallel, and returns the results that arrive in time.

    All sources of a cluster share one thread and its requests, so a thousand sources do not need a thousand threads.
    """
    found: dict[int, Upstream] = {}

    def look(source: SourceRecord, options: Mapping[str, str]) -> None:
        found[source.id] = connector(source.connector).look(options, timeout=seconds)

    def look_together(group: list[Looked]) -> None:
        try:
            found.update(look_at_cluster(group, seconds))
        except OSError:  # The upstream does not respond; the status of its jobs shows the reason.
            return

    clusters, apart = by_cluster(context, snapshot, sources)
    pending = [run_in_background(partial(look_together, group), f"lag-{group[0][0].id}") for group in clusters]
    pending += [run_in_background(partial(look, *each), f"lag-{each[0].id}") for each in apart]
    wait(pending, seconds)
    return dict(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Behind:
    """``records`` is the number of records that a reader has not read; None if it is unknown. ``waiting`` maps each
    split with unread records to the offset of the first unread record."""

    records: int | None = None
    waiting: Mapping[str, int] = field(default_factory=dict)


def _times(context: Context, snapshot: Snapshot, found: list[tuple[Reader, _Behind]], seconds: float) -> dict[str, int]:
    """For each fragment, the time at which its oldest unread record was written, if the upstream responds in time."""
    oldest: dict[str, int] = {}

    def ask(reader: Reader, options: Mapping[str, str], waiting: Mapping[str, int]) -> None:
        times = connector(reader.source.connector).record_times(options, waiting)
        if times:
            oldest[reader.fragment] = min(times.values())

    pending = []
    for reader, behind in found:
        if not behind.waiting:
            continue
        try:
            options = context.options_of(reader.source, snapshot)
        except SqlError:
            continue
        asked = dict(islice(behind.waiting.items(), _MOST_TIMES))
        pending.append(run_in_background(partial(ask, reader, options, asked), f"times-{reader.fragment}"))
    wait(pending, seconds)
    return dict(oldest)


def _records_behind(context: Context, snapshot: Snapshot, reader: Reader, upstream: Upstream) -> _Behind:
    source = reader.source
    splits = named_splits(snapshot, source, snapshot.splits(reader.fragment))
    if not upstream.is_reachable or upstream.missing or not splits:
        return _Behind()
    if source.is_shared:
        states = read_positions(context.warehouse, context.metastore, snapshot, source).states
    else:
        states = read_fragment_positions(context.warehouse, snapshot, source, reader.fragment).states
    behind = 0
    waiting: dict[str, int] = {}
    for split in splits:
        state, seen = states.get(split), upstream.splits.get(split)
        if state is None or seen is None or identity_status(state, seen) != OK:
            return _Behind()
        if not seen.is_endless and seen.end > state.offset:
            behind += seen.place(seen.end) - seen.place(state.offset)
            waiting[split] = state.offset
    return _Behind(records=behind if behind < MOST_COUNTED else None, waiting=waiting)


def _rows_after(
    reading: LogReading, table: str, reached: Mapping[str, int], upstream: str | None = None, *, is_feed: bool = False
) -> Lag:
    """Returns the number of rows in those commits of a table that a reader has not completely read, and the time of the
    first of these commits that has rows. Uses at most half of the measurement's remaining time, but reads at least one
    commit.

    ``reached`` maps the Delta id of each input to the first version that the reader has not completely read. If
    ``upstream`` is given, only the rows of this upstream table count. If ``is_feed`` is true, replaced and removed rows
    count too. The number is None if a commit does not contain its number of rows, if there are too many versions, or if
    the measurement is out of time.
    """
    newest = reading.newest(table)
    if newest < 0:
        return Lag(records=0)
    first = reached.get(reading.id_of(table)) if reached else None
    if first is None:
        return Lag()
    kind = (*reading.key_of(table), upstream, is_feed)
    cache, counts = reading.cache, reading.cache.counts
    # A table of a captured database may have to read many commits that contain no rows of the table. The next
    # measurement continues after these commits.
    start, passed = cache.without_rows.get(kind, (first, first))
    if not start <= first <= passed:
        start = passed = first
    is_counted = newest - passed <= _MOST_VERSIONS
    found = counts.sum_from(kind, passed, newest) if is_counted else RowSum(end=passed, passed=passed, rows=None)
    least = reading.left / 2  # A reader that is far behind leaves time for the others.
    is_complete, has_read = True, False
    while found.end <= newest and (found.rows is not None or found.since_ms is None):
        commit = counts.get(kind, found.end) if is_counted else None
        if commit is None:
            is_new = not reading.is_known(table, found.end)
            if is_new and has_read and reading.left <= least:
                is_complete = False
                break
            has_read = has_read or is_new
            if is_new and is_counted:
                reading.read_ahead(table, found.end, newest)
            try:
                numbers = reading.read(table, found.end)
            except FileNotFoundError:  # clean-up has removed the commit, so the reader will not find this commit either
                is_complete = False
                break
            has_rows = numbers.has_rows_for(upstream, is_feed=is_feed)
            rows = numbers.rows_for(upstream, is_feed=is_feed) if has_rows else 0
            commit = CommitRows(rows=rows, at_ms=numbers.at_ms)
            if is_counted and not counts.put(kind, found.end, commit) and is_new:
                is_complete = False  # The next measurement would have to read this commit again.
        found = found.plus(commit)
        if not is_complete:
            break
    cache.without_rows[kind] = (start, found.passed)
    if not is_complete:
        return Lag(since_ms=found.since_ms)
    return Lag(records=0) if found.passed > newest else Lag(records=found.rows, since_ms=found.since_ms)
