"""The backfills and refreshes in progress, for any process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.facts import BackfillProgress
from rw_sql.metastore.records import MaterializedViewRecord
from rw_sql.metastore.refresh_records import IDLE, RefreshRecord
from rw_sql.model.backfill_ranges import History
from rw_sql.model.job_ids import view_job

if TYPE_CHECKING:
    from rw_sql.metastore import Metastore, Snapshot

WAITING = "waiting to start"


def unfinished_backfills(metastore: Metastore, snapshot: Snapshot) -> dict[str, BackfillProgress]:
    """The views with an unfinished backfill, the tables that are being refreshed, and those whose snapshot is being
    read, by job."""
    views = [view for view in snapshot.kept if isinstance(view, MaterializedViewRecord) and view.histories]
    refreshes = [record for record in snapshot.all("refresh") if record.status != IDLE]
    captured = [table for table in snapshot.all("table") if table.live_from is not None]
    if not views and not refreshes and not captured:
        return {}
    told = metastore.jobs.backfills()
    found = {_job(record): _of_refresh(record, told.get(_job(record))) for record in refreshes}
    for table in captured:
        # A snapshot that has not begun has no progress. The status of the source's job shows the reason.
        reading = told.get(view_job(table.id))
        if reading is not None and not reading.is_over:
            found[view_job(table.id)] = reading
    for view in views:
        job = view_job(view.id)
        progress = told.get(job)
        if progress is None or progress.generation != view.generation:
            of_all = sum(History.from_text(text).offsets for text in view.histories)
            found[job] = BackfillProgress(
                job=job,
                object_id=view.id,
                generation=view.generation,
                phase=WAITING,
                done=0,
                total=of_all,
                started_ms=view.created_at_ms,
                updated_ms=view.created_at_ms,
            )
        elif not progress.is_over:
            found[job] = progress
    return found


def _job(record: RefreshRecord) -> str:
    return view_job(record.table_id)


def _of_refresh(record: RefreshRecord, told: BackfillProgress | None) -> BackfillProgress:
    """The progress that the table's job reported for this refresh; zero progress if the job has not started it."""
    if told is not None and not told.is_over and told.started_ms >= (record.triggered_ms or 0):
        return told
    return BackfillProgress(
        job=_job(record),
        object_id=record.table_id,
        generation=record.refresh,
        phase=WAITING,
        done=0,
        total=0,
        started_ms=record.triggered_ms or 0,
        updated_ms=record.triggered_ms or 0,
    )
