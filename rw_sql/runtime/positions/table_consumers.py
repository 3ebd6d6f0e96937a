"""Determines the progress of a table's readers. Upkeep of the table must keep all rows that some reader has not read
yet.

The checkpoint of a view or sink determines the first version of the table that its query requests after a restart.
Usually, this is the version at which the last batch begins, because Spark requests the last batch again after a
restart. If the query has planned only one batch, the query requests the last version that the batch includes, because
Delta reads a first batch from a snapshot of that version. If the query with only one planned batch belongs to a sink
with an older start version, the query requests the start version. A recomputed view also needs the last version that
its last batch includes, because this batch reads all rows of the table as of that version.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.registry import sends_once
from rw_sql.metastore.records import (
    DEFAULT_GROUP,
    DIFF,
    MaterializedViewRecord,
    RebuildRecord,
    SinkRecord,
    SourceRecord,
    TableRecord,
)
from rw_sql.model.job_specs import SinkSpec, ViewSpec
from rw_sql.model.rebuilds import rebuilt_view
from rw_sql.model.relations import changes_rows
from rw_sql.runtime.delta.delta_log import (
    commit_versions,
    committed_ms,
    has_new_data,
    latest_version,
    read_actions,
    table_id,
    takes_data,
)
from rw_sql.runtime.positions.log_size import MILLISECONDS_PER_BUCKET
from rw_sql.runtime.positions.logged_ranges import read_ranges
from rw_sql.runtime.positions.progress import newest_planned
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.processes import now_ms
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.metastore import Snapshot
    from rw_sql.model.view_inputs import ViewInput
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.positions.logged_ranges import ReadRanges
    from rw_sql.runtime.support.warehouse import Warehouse

_LEAST_HOLD_MS = 30_000
"""Half of the least valid value of ``log.max_hold``, in milliseconds. For at least this time after the creation of a
view or sink, the log keeps all rows that this view or sink reads."""


_MOST_COMMITS = 1000
"""The maximum number of commits that are read to check one reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One reader of a table. ``needs`` is the first version that the reader still needs; None if the reader has not
    begun to read.

    ``waits_since_ms`` is the time from which on rows have been waiting for the reader, in milliseconds since 1970; None
    if the reader has read all rows. Commits without rows, such as fences, do not count. If a reader has not begun to
    read and no rows are waiting for the reader, ``waits_since_ms`` is the time of the reader's creation. ``group`` is
    the resource group whose owner runs the reader.
    """

    name: str
    kind: str
    needs: int | None
    waits_since_ms: int | None
    group: str = DEFAULT_GROUP


def readers_of(warehouse: Warehouse, snapshot: Snapshot, object_id: int, table: str, table_id: str) -> list[Reader]:
    """The views and sinks that read an object's table, each with its progress. ``table`` is the path of the table, and
    ``table_id`` is its Delta id."""
    is_feed = changes_rows(snapshot.get(object_id))
    found = []
    for record, checkpoint, began_ms in _queries_on(warehouse, snapshot, object_id):
        versions = planned_versions_of(warehouse, checkpoint, table_id)
        since = began_ms
        if versions:
            since = _first_rows_ms(warehouse, table, versions[-1], is_feed=is_feed)
        elif began_ms is not None:
            first_ms = _first_rows_ms(warehouse, table, _start_version(record, object_id), is_feed=is_feed)
            since = began_ms if first_ms is None else max(began_ms, first_ms)
        needs = needed_version(versions, record, object_id, is_first=newest_planned(warehouse, checkpoint) == 0)
        reader = Reader(
            name=record.name, kind=record.kind, needs=needs, waits_since_ms=since, group=record.resource_group
        )
        found.append(reader)
    return found


def _first_rows_ms(warehouse: Warehouse, table: str, first: int, *, is_feed: bool) -> int | None:
    """The time of the first commit from version ``first`` on that has rows for a reader, in milliseconds since 1970.

    Returns None if no commit has rows. If a commit was cleaned up or has no time, returns 0, which is older than any
    limit. Versions without rows must not count: a query completes no batch for such versions, and therefore requests
    them again even after it has read all rows. After _MOST_COMMITS versions without rows, this function assumes that no
    later version has rows.
    """
    for version in range(first, min(latest_version(warehouse, table), first + _MOST_COMMITS) + 1):
        try:
            actions = read_actions(warehouse, table, version)
        except FileNotFoundError:
            return 0
        if has_new_data(actions) or (is_feed and takes_data(actions)):
            return committed_ms(actions) or 0
    return None


def _start_version(record: MaterializedViewRecord | SinkRecord, input_id: int) -> int:
    """Returns the version of an input at which ``record``, a view or sink that has not begun to read, will begin."""
    starts = record.starts if isinstance(record, SinkRecord) else ()
    return next((version + 1 for id_, version in starts if id_ == input_id), 0)


def needed_version(
    versions: list[int],
    reader: MaterializedViewRecord | SinkRecord | ViewSpec | SinkSpec,
    input_id: int,
    *,
    is_first: bool,
) -> int | None:
    """The first version of an input that a query needs; None if ``versions``, the query's :func:`planned_versions_of`,
    is empty.

    ``is_first`` is true if the query has planned exactly one batch.
    """
    if not versions:
        return None
    needed = [*versions]
    if isinstance(reader, MaterializedViewRecord | ViewSpec) and reader.maintenance.is_recomputed:
        needed.append(versions[-1] - 1)
    if is_first:
        # A query's first batch has no start offset, so Delta reads it from the snapshot of the version before the
        # batch's end.
        needed.append(min(versions) - 1)
        if isinstance(reader, SinkRecord | SinkSpec):
            needed += [version for id_, version in reader.starts if id_ == input_id and version >= 0]
    return max(0, min(needed))


def _queries_on(
    warehouse: Warehouse, snapshot: Snapshot, object_id: int
) -> Iterator[tuple[MaterializedViewRecord | SinkRecord, str, int | None]]:
    """The readers of an object, each with its record, its checkpoint, and its creation time in milliseconds since 1970
    (None if it is unknown).

    A view that is being rebuilt may occur twice: with its present checkpoint, and with the checkpoint of the rebuild.
    """
    for record in (*snapshot.kept, *snapshot.all("sink")):
        if isinstance(record, MaterializedViewRecord) and object_id in record.inputs:
            yield record, warehouse.view_checkpoint(record.id, record.generation), record.created_at_ms
        elif isinstance(record, SinkRecord) and object_id in record.inputs:
            yield record, warehouse.sink_checkpoint(record.id, record.generation), record.created_at_ms
    for rebuild in snapshot.all("rebuild"):
        view = snapshot.get(rebuild.view_id) if isinstance(rebuild, RebuildRecord) else None
        if not isinstance(rebuild, RebuildRecord) or not isinstance(view, MaterializedViewRecord):
            continue
        if object_id in rebuilt_view(view, rebuild).inputs:
            yield view, warehouse.view_checkpoint(view.id, rebuild.generation), rebuild.created_at_ms or None


def planned_versions_of(warehouse: Warehouse, checkpoint: str, table_id: str) -> list[int]:
    """Returns one version of a table for each of the last two planned batches of the query with this checkpoint: the
    first version that the query reads after the batch. The list is empty before the first batch.

    After a restart, a query first requests the versions from the earliest of these versions on, and then continues with
    new rows at the last of them.
    """
    planned = sorted(int(name) for name in warehouse.list_names(f"{checkpoint}/offsets") if name.isdecimal())
    return [
        int(offset["reservoirVersion"])
        for batch in planned[-2:]
        for offset in _offsets(warehouse, checkpoint, batch)
        if offset.get("reservoirId") == table_id
    ]


def _offsets(warehouse: Warehouse, checkpoint: str, batch: int) -> list[dict[str, Any]]:
    try:
        lines = warehouse.read_text(f"{checkpoint}/offsets/{batch}").split("\n")[2:]
    except FileNotFoundError:  # Spark keeps a limited number of entries.
        return []
    return [json.loads(line) for line in lines if line.startswith("{")]


def require_versions(context: Context, spec: ViewSpec | SinkSpec, checkpoint: str) -> None:
    """Raises StalledError if a query with this checkpoint cannot continue, because rows or versions of an input that
    the query needs were removed, or because a user's own table that the query reads no longer exists."""
    warehouse = context.warehouse
    has_begun = bool(warehouse.list_names(f"{checkpoint}/offsets"))
    for given in spec.inputs:
        path = given.path or warehouse.data(given.id, given.generation)
        newest = latest_version(warehouse, path)
        if newest < 0:
            if given.path and has_begun:
                raise StalledError(f"the table {given.name} cannot be read: there is no Delta table at {given.path}")
            continue
        if not has_begun:
            _require_whole_log(context, spec, given)
            continue
        versions = planned_versions_of(warehouse, checkpoint, table_id(warehouse, path))
        needs = needed_version(versions, spec, given.id, is_first=newest_planned(warehouse, checkpoint) == 0)
        oldest = min(commit_versions(warehouse, path), default=0)
        if needs is not None and needs < oldest and needs <= newest:
            how_long = "for longer than log.max_hold, so" if given.kind == "source" else "for so long that"
            raise StalledError(
                f"EXPIRED {given.name}: {spec.name} has read to version {min(versions)} and has not read {how_long} "
                f"the first available version is now {oldest}: {remedy_of(context.metastore.snapshot(), spec)}",
                is_final=True,
            )


def _require_whole_log(context: Context, spec: ViewSpec | SinkSpec, given: ViewInput) -> None:
    """Checks a query that has not begun to read. Raises StalledError if the query must read a log from the log's
    beginning, but the log has dropped rows since the query was created."""
    snapshot = context.metastore.snapshot()
    source = snapshot.get(given.id)
    if not isinstance(source, SourceRecord) or not _reads_whole_log(spec, given):
        return
    # A view without a history was planned on a log that had dropped no rows. Other queries may have been created later.
    is_of_whole = isinstance(spec, ViewSpec) and not spec.maintenance.is_recomputed and not sends_once(source.connector)
    began_ms = _began_ms(snapshot, spec)
    if not is_of_whole and 0 <= now_ms() - began_ms < _LEAST_HOLD_MS:
        return
    dropped = read_ranges(context.warehouse, source)
    if dropped.trimmed is not None and (is_of_whole or _has_dropped_since(dropped, given, began_ms)):
        raise StalledError(
            f"EXPIRED {given.name}: {spec.name} has not begun to read within log.max_hold, and the log of {given.name} "
            f"has dropped rows since: {remedy_of(snapshot, spec)}",
            is_final=True,
        )


def _reads_whole_log(spec: ViewSpec | SinkSpec, given: ViewInput) -> bool:
    """True if the content of a query depends on all rows of a source's log.

    The result is False for a view that each batch recomputes from all rows of the inputs, because the content of a
    recomputed view does not depend on the time when the view begins to read.
    """
    if isinstance(spec, SinkSpec):
        return all(id_ != given.id or version < 0 for id_, version in spec.starts)
    return not given.history and spec.reader_of(given.id) is None and spec.maintenance.strategy != DIFF


def _has_dropped_since(dropped: ReadRanges, given: ViewInput, began_ms: int) -> bool:
    """True if a log has dropped rows that the log still had at ``began_ms``, the time when the query with the input
    ``given`` was created (0 if it is unknown).

    If the input has ``live_from``, the hour in ``live_from`` counts instead of ``began_ms``. If the input has no
    ``live_from`` and ``began_ms`` is 0, the result is False.
    """
    if dropped.trimmed is None:
        return False
    if given.live_from is not None:
        return dropped.trimmed >= given.live_from.hour
    if not began_ms:
        return False
    if dropped.trimmed_ms is None:
        return dropped.trimmed >= began_ms // MILLISECONDS_PER_BUCKET
    # The clocks of two processes may differ. Until log.max_hold has passed, the log keeps the rows for the new query.
    return dropped.trimmed_ms - began_ms >= _LEAST_HOLD_MS


def _began_ms(snapshot: Snapshot, spec: ViewSpec | SinkSpec) -> int:
    """The time when a job's view, rebuild or sink was created, in milliseconds since 1970; 0 if it is unknown."""
    record = snapshot.get(spec.object_id)
    rebuilds = (found for found in snapshot.all("rebuild") if found.view_id == spec.object_id)
    rebuild = next((found for found in rebuilds if found.generation == spec.generation), None)
    if rebuild is not None:
        return rebuild.created_at_ms
    return record.created_at_ms if isinstance(record, MaterializedViewRecord | SinkRecord) else 0


def remedy_of(snapshot: Snapshot, spec: ViewSpec | SinkSpec) -> str:
    """The statements that make a view or sink read its inputs again."""
    name = sql_name(spec.name)
    if isinstance(spec, SinkSpec):
        return f"DROP SINK {name} and create it again"
    if isinstance(snapshot.get(spec.view_id), TableRecord):
        return f"DROP TABLE {name} and create it again"
    return f"REBUILD MATERIALIZED VIEW {name}"
