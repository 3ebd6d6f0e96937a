"""Answers the requests of planning, from the catalog, the jobs and the upstreams."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from rw_sql.connectors.base import ColumnReader
from rw_sql.connectors.registry import connector, sink_connector
from rw_sql.metastore.records import MaterializedViewRecord, SourceRecord
from rw_sql.model.pauses import pauses_of
from rw_sql.model.source_readers import readers_of
from rw_sql.plan.requests.catalog import (
    AsIf,
    MeasureLags,
    OpenSecret,
    ReadBackfills,
    ReadCheckpoint,
    ReadClock,
    ReadFile,
    ReadJobStatuses,
    ReadMetrics,
    ReadOperations,
    SealSecret,
    run_plan,
)
from rw_sql.plan.requests.logs import MeasureLogs
from rw_sql.plan.requests.positions import (
    Positions,
    ReadCommittedRanges,
    ReadHistoryGround,
    ReadPositions,
    ReadPositionsBefore,
    ReadVersion,
    ReadWatermarks,
)
from rw_sql.plan.requests.queries import AnalyzeQuery
from rw_sql.plan.requests.rewind import LookAtRewind, ReadRewindPoints
from rw_sql.plan.requests.tables import LookAtTable
from rw_sql.plan.requests.upstream import (
    FindColumnMisfit,
    FindOffsetsAt,
    FindRecordTimes,
    FindSparseTopics,
    LookAtTarget,
    LookAtUpstream,
    ReadGroupOffsets,
)
from rw_sql.runtime.control.checkpoint_requests import answer_checkpoint, read_checkpoint_text
from rw_sql.runtime.control.outcomes import completed
from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.direct.positions import (
    read_fragment_positions,
    read_fragment_positions_before,
    read_fragment_ranges,
)
from rw_sql.runtime.jobs.statuses import present_statuses, with_unreported
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
from rw_sql.runtime.rewind.inspect import answer_rewind
from rw_sql.runtime.spark.query_analysis import analyze
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.secrets import read_secret, seal
from rw_sql.runtime.support.text_files import read_text_file

if TYPE_CHECKING:
    from rw_sql.connectors.base import SplitState, Upstream
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import JobStatus
    from rw_sql.model.options import PlannedOptions
    from rw_sql.plan.requests.catalog import Asking, Request
    from rw_sql.runtime.jobs.context import Context

T = TypeVar("T")


class Inspector:
    """Answers the requests of one lowering. It looks at each upstream only once.

    With ``as_if_after`` the snapshot is not committed: it is the state after statements on that inspector's snapshot.
    """

    def __init__(self, context: Context, snapshot: Snapshot, *, as_if_after: Inspector | None = None) -> None:
        self._context = context
        self._snapshot = snapshot
        self._real = as_if_after
        self._looks: dict[LookAtUpstream, Upstream] = as_if_after._looks if as_if_after is not None else {}

    def run(self, asking: Asking[T]) -> T:
        """Runs a lowering and returns its result. Errors of an answer are raised inside the lowering."""
        return run_plan(asking, self.answer)

    def answer(self, request: Request) -> object:
        """The answer to one request."""
        context = self._context
        match request:
            case LookAtUpstream():
                return self._look(request)
            case LookAtTarget():
                options = context.resolve(request.options, self._snapshot, request.candidates)
                return sink_connector(request.connector).look(options, request.shape)
            case ReadVersion(object_id=object_id):
                return latest_version(context.warehouse, table_path(context.warehouse, self._snapshot, object_id))
            case SealSecret(name=name, value=value):
                return seal(name, value)
            case OpenSecret(secret=secret):
                return bool(read_secret(secret)) or True
            case FindOffsetsAt():
                options = context.resolve(request.options, self._snapshot)
                kind = connector(request.connector)
                return dict(kind.offsets_at(options, request.milliseconds, request.splits))
            case FindColumnMisfit():
                options = context.resolve(request.options, self._snapshot)
                reader = connector(request.connector)
                if not isinstance(reader, ColumnReader):
                    return ()
                misfit = reader.column_misfit(options, dict(request.columns))
                return () if misfit is None else (misfit,)
            case FindSparseTopics():
                options = context.resolve(request.options, self._snapshot)
                return dict(connector(request.connector).sparse_topics(options))
            case FindRecordTimes():
                options = context.resolve(request.options, self._snapshot)
                return dict(connector(request.connector).record_times(options, dict(request.offsets)))
            case ReadWatermarks(view_ids=view_ids):
                return self._watermarks(view_ids)
            case ReadGroupOffsets():
                options = context.resolve(request.options, self._snapshot)
                return connector(request.connector).group_offsets(options, request.group, request.splits)
            case ReadCheckpoint(path=path):
                return read_checkpoint_text(path)
            case ReadPositions(source_id=source_id, fragment=fragment):
                return self.positions(source_id, fragment)
            case ReadHistoryGround(source_id=source_id):
                return self.history_ground(source_id)
            case ReadFile(path=path):
                return read_text_file(path)
            case ReadClock():
                return now_ms()
            case ReadJobStatuses():
                return self._job_statuses()
            case ReadBackfills():
                return unfinished_backfills(context.metastore, self._snapshot)
            case ReadOperations():
                records = context.metastore.operations(
                    is_unsafe=request.is_unsafe, object_name=request.object_name, since=request.since
                )
                lease = context.metastore.jobs.lease()
                return completed(records, lease.applied_epoch if lease is not None else -1)
            case ReadMetrics():
                return metrics_of(context).samples()
            case ReadCommittedRanges(source_id=source_id, fragment=fragment):
                source = self._snapshot.get(source_id)
                if not isinstance(source, SourceRecord):
                    return ()
                if fragment is not None and not source.is_shared:
                    return read_fragment_ranges(context.warehouse, self._snapshot, source, fragment)
                return read_committed_ranges(context.warehouse, source)
            case AsIf(snapshot=snapshot, request=inner):
                return Inspector(context, snapshot, as_if_after=self._real or self).answer(inner)
            case ReadPositionsBefore():
                return self._positions_before(request)
            case MeasureLags():
                return measure_lags(context, self._snapshot)
            case MeasureLogs(source_ids=source_ids):
                return measure_logs(context, self._snapshot, source_ids)
            case LookAtTable(name=name):
                return look_at_table(context.sessions, name)
            case AnalyzeQuery():
                return analyze(context.sessions, request)
            case ReadRewindPoints() | LookAtRewind():
                return answer_rewind(context, self._snapshot, request)
            case _:
                return answer_checkpoint(request, context.sessions.running_query)

    def look(self, kind: str, options: PlannedOptions) -> Upstream:
        """A look at an upstream, shared with the lowering."""
        return self._look(LookAtUpstream(connector=kind, options=options))

    def _look(self, request: LookAtUpstream) -> Upstream:
        if request not in self._looks:
            options = self._context.resolve(request.options, self._snapshot, request.candidates)
            self._looks[request] = connector(request.connector).look(options)
        return self._looks[request]

    def positions(self, source_id: int, fragment: str | None = None) -> Positions:
        """The positions of a source's reader; empty if there is no such source."""
        source = self._snapshot.get(source_id)
        if not isinstance(source, SourceRecord):
            return Positions()
        if fragment is not None and not source.is_shared:
            return read_fragment_positions(self._context.warehouse, self._snapshot, source, fragment)
        stands = read_positions(self._context.warehouse, self._context.metastore, self._snapshot, source)
        read = read_ranges(self._context.warehouse, source)
        return replace(stands, lives=read.lives, sparse=read.sparse, is_complete=read.is_complete)

    def history_ground(self, source_id: int) -> Positions:
        """The positions of a source's reader, and the ranges it has read, as far as the log still contains them."""
        source = self._snapshot.get(source_id)
        if not isinstance(source, SourceRecord):
            return Positions()
        warehouse = self._context.warehouse
        # Read before the positions: this includes a run that may still commit behind them, even if it ends meanwhile.
        reader_epoch = oldest_reader_epoch(warehouse, self._context.metastore, source)
        stands = self.positions(source_id)
        return replace(
            stands,
            pieces=held_pieces(warehouse, source),
            is_trimmed=read_ranges(warehouse, source).trimmed is not None,
            reader_epoch=reader_epoch,
        )

    def _watermarks(self, view_ids: tuple[int, ...]) -> dict[int, int]:
        warehouse, found = self._context.warehouse, {}
        for view in map(self._snapshot.get, view_ids):
            if isinstance(view, MaterializedViewRecord):
                mark = watermark_ms(warehouse, warehouse.view_checkpoint(view.id, view.generation))
                if mark is not None:
                    found[view.id] = mark
        return found

    def _positions_before(self, request: ReadPositionsBefore) -> dict[str, SplitState]:
        source = self._snapshot.get(request.source_id)
        if not isinstance(source, SourceRecord):
            return {}
        warehouse, fragment = self._context.warehouse, request.fragment
        if fragment is not None and not source.is_shared:
            return read_fragment_positions_before(
                warehouse, self._snapshot, source, fragment, request.epoch, request.stood
            )
        return read_positions_before(warehouse, source, request.epoch, request.stood)

    def _job_statuses(self) -> dict[str, JobStatus]:
        """The status that the owner reported for each job, if still valid; STARTING if it has not reported one.

        Without an owner no job runs. While the owner has not applied a pause, the readers of the paused source may
        still run, whatever was reported before.
        """
        statuses = present_statuses(self._context)
        lease = self._context.metastore.jobs.lease()
        if lease is None or not self._context.has_owner(lease):
            return statuses
        if self._real is not None:
            # If only statements of the block pause the source, its reader stops before they are committed.
            base = self._real._snapshot
            for source in self._snapshot.all("source"):
                if not pauses_of(self._snapshot, source.id) or pauses_of(base, source.id):
                    continue
                for job in _jobs_of(self._snapshot, source):
                    if job in statuses:
                        statuses[job] = replace(statuses[job], state="STOPPED", run=None)
            pauses = base.all("pause")
        else:
            pauses = self._snapshot.all("pause")
            statuses = with_unreported(statuses, self._snapshot)
        for pause in pauses:
            epoch = self._snapshot.object_epoch(pause.id)
            if epoch <= lease.applied_epoch:
                continue
            for source in self._snapshot.all("source"):
                if pause.source_id not in (None, source.id):
                    continue
                for job in _jobs_of(self._snapshot, source):
                    status = statuses.get(job)
                    if status is not None and not self._context.applied.has_applied(epoch, [job]):
                        statuses[job] = replace(status, state="STOPPING")
        return statuses


def _jobs_of(snapshot: Snapshot, source: SourceRecord) -> tuple[str, ...]:
    return tuple(reader.job for reader in readers_of(snapshot, source))
