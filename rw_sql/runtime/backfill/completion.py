"""Determines whether a view's backfill is complete. After a backfill, deletes its staging tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.facts import BackfillProgress
from rw_sql.model.backfill_ranges import History
from rw_sql.runtime.backfill.checks import history_path
from rw_sql.runtime.backfill.staging_table import is_there
from rw_sql.runtime.delta.delta_log import table_id
from rw_sql.runtime.positions.checkpoint_handover import stands_in
from rw_sql.runtime.support.processes import now_ms

if TYPE_CHECKING:
    from rw_sql.model.job_specs import ViewSpec
    from rw_sql.runtime.jobs.context import Context

LIVE = "live"
"""The phase of a backfill that is complete."""


def is_live(context: Context, spec: ViewSpec, checkpoint: str) -> bool:
    """True if a view needs no backfill, or if its backfill is complete. The backfill is complete if the view's
    checkpoint has entries, and these entries refer to the logs of the inputs and not to staging tables.

    This function opens no staging table. If a process was killed while it deleted a staging table, some files of the
    table may be missing.
    """
    paths = [history_path(context, spec, given) for given in spec.inputs if given.history]
    if not paths:
        return True
    there = [path for path in paths if is_there(context.warehouse, path)]
    return not stands_in(checkpoint, {table_id(context.warehouse, path) for path in there})


def leave_histories(context: Context, spec: ViewSpec) -> None:
    """Deletes the staging tables of a live view, and records that its backfill is complete."""
    if not any(given.history for given in spec.inputs):
        return
    for given in spec.inputs:
        if given.history:
            context.warehouse.remove(history_path(context, spec, given))
    known = context.metastore.jobs.backfills().get(spec.job)
    if known is not None and known.generation == spec.generation and known.is_over:
        return
    # A rebuilt view needs this record too: its progress so far is recorded under the name of the rebuild's job.
    of_all = sum(History.from_text(given.history).offsets for given in spec.inputs if given.history)
    now = now_ms()
    context.metastore.jobs.write_backfill(
        BackfillProgress(
            job=spec.job,
            object_id=spec.view_id,
            generation=spec.generation,
            phase=LIVE,
            done=of_all,
            total=of_all,
            started_ms=now,
            updated_ms=now,
            is_over=True,
        )
    )
