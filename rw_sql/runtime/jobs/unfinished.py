"""Determines the backfills and refreshes in progress. This module works in any process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.facts import BackfillProgress
from rw_sql.metastore.records import TableRecord
from rw_sql.metastore.refresh_records import IDLE, RefreshRecord
from rw_sql.model.backfill_ranges import History
from rw_sql.model.job_ids import generation_job, view_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.metastore import Metastore, Snapshot
    from rw_sql.metastore.records import MaterializedViewRecord

WAITING = "waiting to start"


def unfinished_backfills(
    metastore: Metastore, snapshot: Snapshot, of: Sequence[MaterializedViewRecord] | None = None
) -> dict[str, BackfillProgress]:
    """The progress, by job, of three kinds of objects: views with an unfinished backfill, tables whose refresh is in
    progress, and tables whose upstream snapshot is being read. If ``of`` is given, only the views and tables in ``of``
    are considered."""
    kept = snapshot.kept if of is None else of
    ids = None if of is None else {view.id for view in of}
    views = [view for view in kept if view.histories]
    refreshes = [one for one in snapshot.all("refresh") if one.status != IDLE and (ids is None or one.table_id in ids)]
    captured = [table for table in kept if isinstance(table, TableRecord) and table.live_from is not None]
    if not views and not refreshes and not captured:
        return {}
    told = metastore.jobs.backfills(None if of is None else [job for view in of for job in _jobs(view)])
    found = {_job(record): _of_refresh(record, told.get(_job(record))) for record in refreshes}
    for table in captured:
        # A snapshot that has not begun has no progress. The status of the source's job shows the reason.
        reading = told.get(view_job(table.id))
        if reading is not None and not reading.is_over:
            found[view_job(table.id)] = reading
    for view in views:
        job, made_by = _jobs(view)
        progress = told.get(job)
        if made_by in told and told[made_by].is_over:
            continue
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


def _jobs(view: MaterializedViewRecord) -> tuple[str, str]:
    """The jobs that may have read a view's history: the view's own job, or the job of the rebuild that made the view's
    table."""
    return view_job(view.id), generation_job(view.id, view.generation)


def _job(record: RefreshRecord) -> str:
    return view_job(record.table_id)


def _of_refresh(record: RefreshRecord, told: BackfillProgress | None) -> BackfillProgress:
    """Returns the progress that the table's job has reported for this refresh. If the job has not started the refresh
    yet, the result is a progress of 0 rows."""
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
