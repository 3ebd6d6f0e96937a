"""Reads the facts that planning needs from the catalog, from the jobs and from the upstreams."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rw_sql.metastore.records import MaterializedViewRecord, SourceRecord
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.plan.ports.positions import Positions
from rw_sql.plan.ports.queries import STREAM, AnalyzedQuery
from rw_sql.runtime.control.checkpoint_folders import CheckpointFolders
from rw_sql.runtime.control.outcomes import completed
from rw_sql.runtime.control.upstreams import Upstreams
from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.direct.positions import (
    read_fragment_positions,
    read_fragment_positions_before,
    read_fragment_ranges,
)
from rw_sql.runtime.jobs.groups import least_applied, owners_of
from rw_sql.runtime.jobs.lease import serve_command
from rw_sql.runtime.jobs.made_upstream import has_slot_to_drop
from rw_sql.runtime.jobs.statuses import shown_statuses
from rw_sql.runtime.jobs.table_paths import look_at_table, table_path
from rw_sql.runtime.jobs.unfinished import unfinished_backfills
from rw_sql.runtime.observe.lag import measure_lags
from rw_sql.runtime.observe.metrics import metrics_of
from rw_sql.runtime.positions.log_size import measure_logs
from rw_sql.runtime.positions.logged_ranges import held_pieces, read_ranges
from rw_sql.runtime.positions.progress import watermark_ms
from rw_sql.runtime.positions.shared import (
    oldest_reader_epoch,
    read_committed_ranges,
    read_positions,
    read_positions_before,
)
from rw_sql.runtime.rewind.inspect import RewindPoints
from rw_sql.runtime.spark.databases import in_current_database, is_users_database
from rw_sql.runtime.spark.query_analysis import analyze
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.secrets import read_secret, require_key_of, seal
from rw_sql.runtime.support.text_files import read_text_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import SplitState, Upstream
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import BackfillProgress, JobStatus
    from rw_sql.metastore.records import OperationRecord, SecretRecord, StoredState
    from rw_sql.model.options import PlannedOptions
    from rw_sql.model.relations import Relation
    from rw_sql.plan.ports.jobs import JobPort, Owner, Sample
    from rw_sql.plan.ports.positions import CommittedRanges
    from rw_sql.plan.ports.queries import QueryAnalysis
    from rw_sql.plan.ports.tables import LogSize, TableLook
    from rw_sql.runtime.control.upstreams import Look
    from rw_sql.runtime.jobs.context import Context


class WarehouseInspector:
    """Implements the inspector (see :mod:`rw_sql.plan.ports`) for statements on a warehouse.

    The method ``after`` creates an inspector for another snapshot. Both inspectors share the cached states of
    upstreams.

    If ``as_if_after`` is not None, the snapshot is hypothetical: it results from the snapshot of the inspector
    ``as_if_after`` by statements that have not been committed.
    """

    def __init__(self, context: Context, snapshot: Snapshot, *, as_if_after: WarehouseInspector | None = None) -> None:
        self._context = context
        self._snapshot = snapshot
        self._real = as_if_after
        self._looks: dict[Look, Upstream] = as_if_after._looks if as_if_after is not None else {}

    def after(self, snapshot: Snapshot) -> WarehouseInspector:
        return WarehouseInspector(self._context, snapshot, as_if_after=self._real or self)

    # Ports are created when used, because a command without Spark has no sessions.

    @property
    def upstreams(self) -> Upstreams:
        return Upstreams(self._resolve, self._looks, partial(has_slot_to_drop, self._context, self._snapshot))

    @property
    def positions(self) -> _ReaderPositions:
        return _ReaderPositions(self._context, self._snapshot)

    @property
    def jobs(self) -> JobPort:
        return _Jobs(self._context, self._snapshot, self._real._snapshot if self._real is not None else None)

    @property
    def tables(self) -> _Tables:
        return _Tables(self._context, self._snapshot)

    @property
    def queries(self) -> _SparkQueries:
        return _SparkQueries(self._context)

    @property
    def checkpoints(self) -> CheckpointFolders:
        return CheckpointFolders(self._context.sessions.running_query)

    @property
    def rewinds(self) -> RewindPoints:
        return RewindPoints(self._context, self._snapshot)

    @property
    def secrets(self) -> _Secrets:
        return _Secrets(self._snapshot)

    def clock(self) -> int:
        return now_ms()

    def file_text(self, path: str) -> str:
        return read_text_file(path)

    def operations(
        self, *, is_unsafe: bool | None = None, object_name: str | None = None, since: int | None = None
    ) -> tuple[OperationRecord, ...]:
        metastore = self._context.metastore
        records = metastore.operations(is_unsafe=is_unsafe, object_name=object_name, since=since)
        return completed(records, least_applied(self._context))

    def _resolve(self, options: PlannedOptions, candidates: tuple[SecretRecord, ...] = ()) -> dict[str, str]:
        return self._context.resolve(options, self._snapshot, candidates)


class _Secrets:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def seal(self, name: str, value: str, *, is_new_key: bool = False) -> str:
        if not is_new_key:
            require_key_of(self._snapshot.all("secret"), name)
        return seal(name, value)

    def reseal(self, secret: SecretRecord, name: str) -> str:
        return seal(name, read_secret(secret))

    def require_readable(self, secret: SecretRecord) -> None:
        read_secret(secret)


class _SparkQueries:
    def __init__(self, context: Context) -> None:
        self._context = context

    def analyze(
        self,
        query: str,
        relations: tuple[Relation, ...],
        *,
        closes_windows: bool = False,
        form: str = STREAM,
        same_as: str = "",
    ) -> QueryAnalysis:
        return analyze(
            self._context.sessions,
            AnalyzedQuery(query=query, relations=relations, closes_windows=closes_windows, form=form, same_as=same_as),
        )


class _Tables:
    def __init__(self, context: Context, snapshot: Snapshot) -> None:
        self._context = context
        self._snapshot = snapshot

    def look(self, name: str) -> TableLook:
        return look_at_table(self._context.warehouse, self._context.sessions, name)

    def is_users_database(self, name: str) -> bool:
        return is_users_database(self._context.sessions.spark, name, self._context.warehouse.uri)

    def in_current_database(self, name: str) -> str:
        return in_current_database(self._context.sessions.spark, name)

    def version(self, object_id: int) -> int:
        warehouse = self._context.warehouse
        return latest_version(warehouse, table_path(warehouse, self._snapshot, object_id))

    def log_sizes(self, source_ids: tuple[int, ...]) -> Mapping[int, LogSize]:
        return measure_logs(self._context, self._snapshot, source_ids)


class _ReaderPositions:
    """Reads the positions of readers. For a source that does not exist, every result is empty."""

    def __init__(self, context: Context, snapshot: Snapshot) -> None:
        self._context = context
        self._snapshot = snapshot

    def of(self, source_id: int, fragment: str | None = None) -> Positions:
        source = self._snapshot.get(source_id)
        if not isinstance(source, SourceRecord):
            return Positions()
        if fragment is not None and not source.is_shared:
            return read_fragment_positions(self._context.warehouse, self._snapshot, source, fragment)
        positions = read_positions(self._context.warehouse, self._context.metastore, self._snapshot, source)
        read = read_ranges(self._context.warehouse, source)
        return replace(
            positions,
            # If a statement has set a split's position, no commits need to be read to find this position.
            read_splits=positions.read_splits | read.lives.keys(),
            lives=read.lives,
            sparse=read.sparse,
            is_complete=read.is_complete,
        )

    def with_log(self, source_id: int) -> Positions:
        """The positions of a source's reader. The result also contains the ranges that the source's log still contains,
        and the ranges that the reader has read."""
        source = self._snapshot.get(source_id)
        if not isinstance(source, SourceRecord):
            return Positions()
        warehouse = self._context.warehouse
        # The epoch is read before the positions. In the other order, a run that commits after the positions were read
        # could end before the epoch is read, and would be missed.
        reader_epoch = oldest_reader_epoch(warehouse, self._context.metastore, source)
        positions = self.of(source_id)
        read = read_ranges(warehouse, source)
        return replace(
            positions,
            pieces=held_pieces(warehouse, source),
            is_trimmed=read.trimmed is not None,
            readings=read.pieces,
            reader_epoch=reader_epoch,
        )

    def before(
        self, source_id: int, epoch: int, stood: tuple[StoredState, ...], fragment: str | None = None
    ) -> Mapping[str, SplitState]:
        source = self._snapshot.get(source_id)
        if not isinstance(source, SourceRecord):
            return {}
        warehouse = self._context.warehouse
        if fragment is not None and not source.is_shared:
            return read_fragment_positions_before(warehouse, self._snapshot, source, fragment, epoch, stood)
        return read_positions_before(warehouse, source, epoch, stood)

    def newest_run(self, source_id: int) -> int:
        return max((run.run for run in self._context.metastore.jobs.runs(ingest_fragment(source_id))), default=0)

    def committed_ranges(
        self, source_id: int, fragment: str | None = None, *, down_to: int = 0
    ) -> tuple[CommittedRanges, ...]:
        source = self._snapshot.get(source_id)
        if not isinstance(source, SourceRecord):
            return ()
        if fragment is not None and not source.is_shared:
            return read_fragment_ranges(self._context.warehouse, self._snapshot, source, fragment)
        return read_committed_ranges(self._context.warehouse, source, down_to=down_to)

    def watermarks(self, view_ids: tuple[int, ...]) -> Mapping[int, int]:
        warehouse, found = self._context.warehouse, {}
        for view in map(self._snapshot.get, view_ids):
            if isinstance(view, MaterializedViewRecord):
                mark = watermark_ms(warehouse, warehouse.view_checkpoint(view.id, view.generation))
                if mark is not None:
                    found[view.id] = mark
        return found


class _Jobs:
    """Reads the state of the jobs. If ``snapshot`` is hypothetical, ``real`` is the committed snapshot; otherwise,
    ``real`` is None."""

    def __init__(self, context: Context, snapshot: Snapshot, real: Snapshot | None) -> None:
        self._context = context
        self._snapshot = snapshot
        self._real = real

    def serve_command(self, group: str) -> str:
        return serve_command(self._context.warehouse.uri, group)

    def owners(self) -> Mapping[str, Owner]:
        return owners_of(self._context)

    def backfills(self) -> Mapping[str, BackfillProgress]:
        return unfinished_backfills(self._context.metastore, self._snapshot)

    def being_backfilled(self) -> frozenset[str]:
        return frozenset(self.backfills())

    def lags(self) -> Mapping[str, int | None]:
        return measure_lags(self._context, self._snapshot)

    def metrics(self) -> tuple[Sample, ...]:
        return metrics_of(self._context).samples()

    def statuses(self) -> Mapping[str, JobStatus]:
        return shown_statuses(self._context, self._snapshot, self._real)
