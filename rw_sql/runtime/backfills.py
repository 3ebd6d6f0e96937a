"""Which views are still on their way through their history, as any process may ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.records import BackfillProgress, MaterializedViewRecord
from rw_sql.plan.desired import view_job
from rw_sql.plan.history import History

if TYPE_CHECKING:
    from rw_sql.metastore import Metastore, Snapshot

WAITING = "waiting to start"


def unfinished_backfills(metastore: Metastore, snapshot: Snapshot) -> dict[str, BackfillProgress]:
    """The views that have a history and are not live yet, by their jobs."""
    views = [view for view in snapshot.kept if isinstance(view, MaterializedViewRecord) and view.histories]
    if not views:
        return {}
    told = metastore.runtime.backfills()
    found = {}
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
