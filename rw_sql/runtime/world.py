"""Answers what lowering asks, from the real world."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, assert_never

from deltalake import DeltaTable

from rw_sql.connectors.registry import connector
from rw_sql.errors import FILE_UNREADABLE, SqlError
from rw_sql.metastore.records import SourceRecord
from rw_sql.plan.desired import ingest_fragment, view_job
from rw_sql.plan.requests import (
    AnalyzeQuery,
    FindOffsetsAt,
    LookAtUpstream,
    MeasureLags,
    OpenSecret,
    Positions,
    ReadClock,
    ReadFile,
    ReadJobStatuses,
    ReadOperations,
    ReadPositions,
    SealSecret,
)
from rw_sql.runtime.analyze import analyze
from rw_sql.runtime.delta_log import added_rows, commit_versions, read_actions
from rw_sql.runtime.lease import is_held, now_ms
from rw_sql.runtime.positions import read_positions
from rw_sql.runtime.progress import committed_versions
from rw_sql.runtime.secrets import read_secret, seal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import Upstream
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import JobStatus
    from rw_sql.plan.options import PlannedOptions
    from rw_sql.plan.requests import Asking, Request
    from rw_sql.runtime.context import Context

T = TypeVar("T")

_MOST_VERSIONS = 1000


class World:
    """Answers the requests of one lowering. A look at the same upstream is taken once."""

    def __init__(self, context: Context, snapshot: Snapshot) -> None:
        self._context = context
        self._snapshot = snapshot
        self._looks: dict[LookAtUpstream, Upstream] = {}

    def run(self, asking: Asking[T]) -> T:
        """Drives a lowering to its end. Errors of an answer are raised inside of the lowering."""
        try:
            request = next(asking)
            while True:
                try:
                    answer = self.answer(request)
                except SqlError as error:
                    request = asking.throw(error)
                else:
                    request = asking.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def answer(self, request: Request) -> object:
        """One answer."""
        context = self._context
        match request:
            case LookAtUpstream():
                return self._look(request)
            case SealSecret(name=name, value=value):
                return seal(name, value)
            case OpenSecret(secret=secret):
                return bool(read_secret(secret)) or True
            case FindOffsetsAt():
                options = context.resolve(request.options, self._snapshot)
                kind = connector(request.connector)
                return dict(kind.offsets_at(options, request.milliseconds, request.splits))
            case ReadPositions(source_id=source_id):
                return self.positions(source_id)
            case ReadFile(path=path):
                return _read_file(path)
            case ReadClock():
                return now_ms()
            case ReadJobStatuses():
                return self._job_statuses()
            case ReadOperations():
                return context.metastore.operations(is_unsafe=request.is_unsafe, object_name=request.object_name)
            case MeasureLags():
                return self._lags()
            case AnalyzeQuery():
                return analyze(context.sessions, request)
            case _:
                assert_never(request)

    def look(self, kind: str, options: PlannedOptions) -> Upstream:
        """What lowering sees where it looks at the same upstream: one look for both."""
        return self._look(LookAtUpstream(connector=kind, options=options))

    def _look(self, request: LookAtUpstream) -> Upstream:
        if request not in self._looks:
            options = self._context.resolve(request.options, self._snapshot, request.candidates)
            self._looks[request] = connector(request.connector).look(options)
        return self._looks[request]

    def positions(self, source_id: int) -> Positions:
        """Where a source's reader stands; nowhere where there is no such source."""
        source = self._snapshot.get(source_id)
        if not isinstance(source, SourceRecord):
            return Positions()
        return read_positions(self._context.warehouse, self._context.metastore, self._snapshot, source)

    def _job_statuses(self) -> dict[str, JobStatus]:
        """What the owner said of each job, as far as it still holds.

        Of an owner that is gone nothing runs. Of a source whose pause the owner has not applied yet it is not known
        that its reader has stopped, whatever was said before.
        """
        facts = self._context.metastore.runtime
        statuses = dict(facts.job_statuses())
        lease = facts.lease()
        if lease is None or not is_held(lease, is_local=self._context.warehouse.is_local, now_ms=now_ms()):
            return {job: replace(status, state="STOPPED", run=None) for job, status in statuses.items()}
        for pause in self._snapshot.all("pause"):
            epoch = self._snapshot.object_epoch(pause.id)
            if epoch <= lease.applied_epoch:
                continue
            for source in self._snapshot.all("source"):
                status = statuses.get(ingest_fragment(source.id))
                if status is None or pause.source_id not in (None, source.id):
                    continue
                if not self._context.applied.holds(epoch, [status.job]):
                    statuses[status.job] = replace(status, state="STOPPING")
        return statuses

    def _lags(self) -> dict[str, int | None]:
        """Records a source is behind its upstream; rows a view is behind its inputs."""
        context, snapshot = self._context, self._snapshot
        behind: dict[str, int | None] = {}
        for source in snapshot.all("source"):
            if not snapshot.readers_of(source.id):
                continue
            stands = read_positions(context.warehouse, context.metastore, snapshot, source)
            upstream = connector(source.connector).look(context.options_of(source, snapshot))
            known = [
                max(0, split.end - stands.states[split.split].offset)
                for split in upstream.splits.values()
                if split.split in stands.states and not split.is_endless
            ]
            behind[ingest_fragment(source.id)] = sum(known) if upstream.is_reachable else None
        for view in snapshot.all("materialized_view"):
            reached = committed_versions(context.warehouse, context.warehouse.view_checkpoint(view.id, view.generation))
            rows = [
                self._rows_after(context.warehouse.data(id_, getattr(snapshot.get(id_), "generation", 1)), reached)
                for id_ in view.inputs
            ]
            behind[view_job(view.id)] = None if None in rows else sum(row for row in rows if row is not None)
        return behind

    def _rows_after(self, table: str, reached: Mapping[str, int]) -> int | None:
        """How many rows a table got since the version a view has reached; None where nobody can tell cheaply."""
        warehouse = self._context.warehouse
        versions = commit_versions(warehouse, table)
        if not versions:
            return 0
        first = reached.get(str(DeltaTable(table).metadata().id)) if reached else None
        if first is None or versions[-1] - first > _MOST_VERSIONS:
            return None
        added = [added_rows(read_actions(warehouse, table, version)) for version in versions if version >= first]
        return None if None in added else sum(rows for rows in added if rows is not None)


def _read_file(path: str) -> str:
    import fsspec

    try:
        files, plain = fsspec.core.url_to_fs(path)
        return str(files.read_text(plain, encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SqlError(FILE_UNREADABLE, f"cannot read file {path!r}: {reason.lower()}") from error
