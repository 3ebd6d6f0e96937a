"""Checks that the table and the checkpoint of a view or sink belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.model.job_specs import SinkSpec
from rw_sql.runtime.delta.delta_log import last_batch, latest_version
from rw_sql.runtime.positions.progress import is_just_rewound, newest_planned
from rw_sql.runtime.positions.table_consumers import remedy_of
from rw_sql.runtime.support.failures import StalledError

if TYPE_CHECKING:
    from rw_sql.model.job_specs import ViewSpec
    from rw_sql.runtime.jobs.context import Context


def require_whole(context: Context, spec: ViewSpec | SinkSpec, checkpoint: str) -> None:
    """Raises StalledError if the checkpoint of a view or sink lacks batches that the table contains, or if the table is
    lost.

    With a checkpoint that lacks batches, Spark would give new batches numbers that are already in the table, and the
    job would silently skip these new batches. If a new table replaced a lost table, the new table would lack the rows
    of the batches in the checkpoint.
    """
    warehouse = context.warehouse
    table = warehouse.data(spec.sink_id if isinstance(spec, SinkSpec) else spec.view_id, spec.generation)
    # A job creates its table, then plans a batch in its checkpoint, and then commits the batch to the table. Another
    # process may do these steps during the check, so the result of a later step is read before the result of an earlier
    # step.
    done = last_batch(warehouse, table, spec.generation)
    planned = newest_planned(warehouse, checkpoint)
    if done > planned:
        raise StalledError(
            f"CHECKPOINT lost: {spec.name} has written batch {done}, but its checkpoint "
            f"{'ends at ' + str(planned) if planned >= 0 else 'is empty'}: "
            f"restore the checkpoint, or {remedy_of(context.metastore.snapshot(), spec)}"
        )
    if planned >= 0 and latest_version(warehouse, table) < 0:
        if isinstance(spec, SinkSpec) and is_just_rewound(warehouse, checkpoint, planned):
            return
        raise StalledError(
            f"TABLE lost: the checkpoint of {spec.name} has batch {planned}, but its table {table} no longer exists: "
            f"restore the table, or {remedy_of(context.metastore.snapshot(), spec)}",
            is_lasting=True,
        )
