"""Determines the states of jobs and of their objects for SHOW statements, the status page and the metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.metastore.records import SinkRecord, SourceRecord, TableRecord
from rw_sql.model.job_ids import ingest_fragment, rebuild_job, sink_job, view_job
from rw_sql.model.pauses import direct_inputs, is_suspended, is_view_paused, pauses_of
from rw_sql.model.rates import THROTTLED, is_throttled, throttled_reason
from rw_sql.model.refresh_states import refresh_of, refresh_state, source_of
from rw_sql.model.source_readers import is_read, readers_of
from rw_sql.plan.statements.view.backfill_plan import RATE_LIMIT
from rw_sql.plan.statements.view.set_rate_and_cancel import progress_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import BackfillProgress, JobStatus
    from rw_sql.metastore.records import MaterializedViewRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """A job with its state and the reason for this state. ``status`` is the status that the job's owner reported; None
    if the owner reported no status."""

    job: str
    kind: str
    object: str
    state: str
    reason: str
    status: JobStatus | None


def job_states(
    snapshot: Snapshot, statuses: Mapping[str, JobStatus], made: Mapping[str, BackfillProgress]
) -> Iterator[JobState]:
    """The states of all jobs: the jobs of shared sources, tables, views and sinks, and the jobs of rebuilds. ``made``
    contains the unfinished backfills."""
    records: tuple[SourceRecord | MaterializedViewRecord | SinkRecord, ...] = (
        *snapshot.all("source"),
        *snapshot.kept,
        *snapshot.all("sink"),
    )
    for record in records:
        if isinstance(record, SourceRecord):
            job = ingest_fragment(record.id)
            if not record.is_shared:  # If a source is not shared, the jobs of the source's views read the source.
                continue
            state, reason = source_state(snapshot, record, statuses)
        elif isinstance(record, SinkRecord):
            job = sink_job(record.id)
            state, reason = sink_state(record, statuses.get(job))
        else:
            job = view_job(record.id)
            state, reason = view_state(snapshot, record, statuses.get(job), made)
        yield JobState(
            job=job, kind=record.kind, object=record.name, state=state, reason=reason, status=statuses.get(job)
        )
    for rebuild in snapshot.all("rebuild"):
        status = statuses.get(rebuild_job(rebuild))
        yield JobState(
            job=rebuild_job(rebuild),
            kind="materialized_view",
            object=rebuild.name,
            state=status.state if status else "WAITING",
            reason=(status.reason if status else None)
            or "being rebuilt: queries read the old rows until the new rows have caught up",
            status=status,
        )


def source_state(snapshot: Snapshot, source: SourceRecord, statuses: Mapping[str, JobStatus]) -> tuple[str, str]:
    """A source's state and the reason for the state. The state is PAUSED, THROTTLED or IDLE (no job reads the source,
    or only REFRESH TABLE reads it) if one of these applies. Otherwise, the state is the state that the owner reported,
    or WAITING if the owner has reported no state.

    If the source has several readers, the result is the state of the first reader that is not RUNNING.
    """
    holds = pauses_of(snapshot, source.id)
    if holds:
        own = [hold.reason or "PAUSE SOURCE" for hold in holds if hold.source_id is not None]
        every = [hold.reason or "PAUSE ALL SOURCES" for hold in holds if hold.source_id is None]
        return "PAUSED", "; ".join(own + every)
    if is_throttled(source):
        return THROTTLED, throttled_reason(source)
    if not is_read(snapshot, source):
        table = snapshot.table_of(source.id)
        is_whole = table is not None and refresh_of(snapshot, table.id) is not None
        return "IDLE", "only REFRESH TABLE reads it" if is_whole else "nothing reads it"
    told = [status for reader in readers_of(snapshot, source) if (status := statuses.get(reader.job)) is not None]
    if not told:
        return "WAITING", "no process runs the jobs of this warehouse yet"
    worst = next((status for status in told if status.state != "RUNNING"), told[0])
    of = f"{worst.job}: " if not source.is_shared and worst.reason else ""
    return worst.state, of + (worst.reason or "")


def view_state(
    snapshot: Snapshot,
    view: MaterializedViewRecord,
    status: JobStatus | None,
    made: Mapping[str, BackfillProgress] | None = None,
) -> tuple[str, str]:
    """A view's state and the reason for the state. The state is PAUSED or THROTTLED if a source that the view reads
    directly has this state. Otherwise, the state is the state that the owner reported, or WAITING if the owner has
    reported no state.

    The state is BACKFILLING if the job is RUNNING and ``made`` contains the view's backfill. A table without a
    connector is IDLE, and a refreshable table has its own states.
    """
    refresh = refresh_of(snapshot, view.id) if isinstance(view, TableRecord) else None
    if refresh is not None and source_of(snapshot, refresh) is not None:
        return refresh_state(refresh, status, (made or {}).get(view_job(view.id)))
    if isinstance(view, TableRecord) and not view.inputs:
        return "IDLE", "it no longer has a connector, so it gets no new rows"
    if is_view_paused(snapshot, view):
        held = [source for source in direct_inputs(snapshot, view) if is_suspended(snapshot, source)]
        state = "PAUSED" if any(pauses_of(snapshot, source.id) for source in held) else THROTTLED
        return state, f"the view reads {', '.join(source.name for source in held)} directly"
    progress = (made or {}).get(view_job(view.id))
    if progress is not None and status is not None and status.state == "RUNNING":
        paused = f"; {RATE_LIMIT} is 0" if view.backfill_rate_limit == 0 else ""
        return "BACKFILLING", progress_text(progress) + paused
    return (status.state, status.reason or "") if status else ("WAITING", "")


def sink_state(sink: SinkRecord, status: JobStatus | None) -> tuple[str, str]:
    """A sink's state and the reason for the state. The state is PAUSED if the sink is paused. Otherwise, the state is
    the state that the owner reported, or WAITING if the owner has reported no state."""
    if sink.is_paused:
        return "PAUSED", sink.pause_reason or "PAUSE SINK"
    return (status.state, status.reason or "") if status else ("WAITING", "")
