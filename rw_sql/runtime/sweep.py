"""Removes what dropped objects left behind: their tables and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.runtime.context import Context


def sweep(context: Context, applied_epoch: int) -> None:
    """Removes data and checkpoints of ids that the catalog of ``applied_epoch`` does not have.

    Only the owner may, once the jobs of that epoch's dropped objects have stopped; nothing where the catalog moved on.
    """
    warehouse, snapshot = context.warehouse, context.metastore.snapshot()
    if snapshot.epoch != applied_epoch:
        return
    for name in warehouse.list_names(f"{warehouse.uri}/data"):
        if name.isdigit() and int(name) < snapshot.next_id and snapshot.get(int(name)) is None:
            warehouse.remove(f"{warehouse.uri}/data/{name}")
    for name in warehouse.list_names(f"{warehouse.uri}/checkpoints"):
        id_ = name.rpartition("-")[2]
        if id_.isdigit() and int(id_) < snapshot.next_id and snapshot.get(int(id_)) is None:
            warehouse.remove(f"{warehouse.uri}/checkpoints/{name}")
    gone = [
        job
        for job, status in context.metastore.runtime.job_statuses().items()
        if snapshot.get(status.object_id) is None
    ]
    if gone:
        context.metastore.runtime.drop_jobs(gone)
