"""FLUSH: waits until every record there was at the call is in the logs, and these logs in the running views."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from rw_sql.connectors.registry import connector
from rw_sql.errors import NOT_APPLIED_YET, SqlError
from rw_sql.metastore.records import SourceRecord
from rw_sql.plan.desired import holds_of, ingest_fragment, named_splits, view_job
from rw_sql.plan.plan import ObjectChange
from rw_sql.runtime.delta_log import commit_versions, has_new_data, read_actions
from rw_sql.runtime.positions import read_positions
from rw_sql.runtime.progress import committed_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import JobStatus, MaterializedViewRecord
    from rw_sql.runtime.context import Context

_LOOK_SECONDS = 0.05


def flush(context: Context, timeout: float) -> tuple[ObjectChange, ...]:
    """Waits; paused and stalled jobs are named, not waited for. Raises SqlError NOT_APPLIED_YET after ``timeout``."""
    deadline = time.monotonic() + timeout
    snapshot = context.metastore.snapshot()
    answers: list[ObjectChange] = []
    for source in snapshot.all("source"):
        if snapshot.readers_of(source.id):
            answers.append(_flush_source(context, snapshot, source, deadline))
    for view in snapshot.all("materialized_view"):
        answers.append(_flush_view(context, snapshot, view, deadline))
    return tuple(answers) or (ObjectChange(object="", change="NOTHING", detail="no view reads any source"),)


def _wait(context: Context, is_done: Callable[[], bool], deadline: float, what: str) -> None:
    while not is_done():
        context.sessions.require_alive()
        if time.monotonic() > deadline:
            raise SqlError(
                NOT_APPLIED_YET, f"{what} within the time allowed", hint="SHOW JOBS tells what each job does"
            )
        time.sleep(_LOOK_SECONDS)


def _stalled(context: Context, job: str) -> JobStatus | None:
    status = context.metastore.runtime.job_statuses().get(job)
    return status if status is not None and status.state == "STALLED" else None


def _flush_source(context: Context, snapshot: Snapshot, source: SourceRecord, deadline: float) -> ObjectChange:
    if holds_of(snapshot, source.id):
        return ObjectChange(object=source.name, change="NOTICE", detail="paused, not waited for")
    job = ingest_fragment(source.id)
    kind = connector(source.connector)
    upstream = kind.look(context.options_of(source, snapshot))
    if not upstream.is_reachable:
        return ObjectChange(object=source.name, change="NOTICE", detail=f"not waited for: {upstream.error}")
    wanted = named_splits(snapshot, source, snapshot.splits(job))
    ends = {
        split: upstream.splits[split].end
        for split in wanted
        if split in upstream.splits and not upstream.splits[split].is_endless
    }
    stall: list[JobStatus] = []

    def has_arrived() -> bool:
        states = read_positions(context.warehouse, context.metastore, snapshot, source).states
        if all(split in states and states[split].offset >= end for split, end in ends.items()):
            return True
        stall[:] = [status] if (status := _stalled(context, job)) else []
        return bool(stall)

    _wait(context, has_arrived, deadline, f'source "{source.name}" did not read to {_spell(ends)}')
    if stall:
        return ObjectChange(object=source.name, change="NOTICE", detail=f"stalled, not waited for: {stall[0].reason}")
    return ObjectChange(object=source.name, change="FLUSHED", detail=f"read to {_spell(ends)}")


def _spell(ends: Mapping[str, int]) -> str:
    listed = [f"{split}={end}" for split, end in sorted(ends.items())[:8]]
    return ", ".join(listed) + (" …" if len(ends) > len(listed) else "")


def _last_data_version(context: Context, table: str) -> int:
    """The newest version that adds rows, -1 where none does."""
    for version in reversed(commit_versions(context.warehouse, table)):
        if has_new_data(read_actions(context.warehouse, table, version)):
            return version
    return -1


def _flush_view(context: Context, snapshot: Snapshot, view: MaterializedViewRecord, deadline: float) -> ObjectChange:
    wanted: dict[str, int] = {}
    for input_id in view.inputs:
        record = snapshot.get(input_id)
        table = context.warehouse.data(input_id, getattr(record, "generation", 1))
        last = _last_data_version(context, table)
        if last >= 0:
            wanted[str(DeltaTable(table).metadata().id)] = last
    checkpoint = context.warehouse.view_checkpoint(view.id, view.generation)
    stall: list[JobStatus] = []

    def has_arrived() -> bool:
        reached = committed_versions(context.warehouse, checkpoint)
        if all(reached.get(table, -1) > version for table, version in wanted.items()):
            return True
        stall[:] = [status] if (status := _stalled(context, view_job(view.id))) else []
        return bool(stall)

    _wait(context, has_arrived, deadline, f'materialized view "{view.name}" did not reach its inputs')
    if stall:
        return ObjectChange(object=view.name, change="NOTICE", detail=f"stalled, not waited for: {stall[0].reason}")
    return ObjectChange(object=view.name, change="FLUSHED")
