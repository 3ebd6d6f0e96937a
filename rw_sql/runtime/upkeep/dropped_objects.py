"""Deletes the tables and checkpoints of dropped objects, and of old generations of existing objects."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from rw_sql.metastore.records import UNDO, MaterializedViewRecord, SinkRecord
from rw_sql.model.job_ids import sink_job, view_job
from rw_sql.model.rebuilds import kept_generation, rollback_window_ms, serves_since_ms
from rw_sql.plan.statements.view.rebuild import SWAP
from rw_sql.runtime.jobs.made_upstream import release_upstream
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.upkeep.known_commits import forget_commits

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.jobs.context import Context

_BESIDE = re.compile(r"history-([0-9]+)-[0-9]+|rejected-([0-9]+)")
"""Matches the name of a backfill's staging table (:meth:`rw_sql.runtime.support.warehouse.Warehouse.history`) or of a
sink's table of rejected rows. One of the two regex groups contains the generation to which the table belongs."""

_SINCE: dict[tuple[str, int, int], int | None] = {}
"""A cache of the times (in milliseconds since 1970) at which the current tables of rebuilt views replaced earlier
tables, by (warehouse, view, generation). None if no operation records the time.

The times are cached because they never change, and because determining a time requires reading operations from the
catalog.
"""


def sweep(context: Context, applied_epoch: int) -> bool:
    """Deletes the data, checkpoints, statuses and rewind points of dropped objects, and old generations of existing
    objects. The catalog of ``applied_epoch`` determines which objects were dropped.

    Only the owner may call this function, and only after the jobs of the dropped objects have stopped. Does nothing if
    the catalog has advanced beyond ``applied_epoch``. Returns False if the call must be repeated: an upstream still has
    a replication slot of a dropped source and does not respond.
    """
    warehouse, snapshot = context.warehouse, context.metastore.snapshot()
    is_complete = True
    if snapshot.epoch != applied_epoch:
        return is_complete
    for name in warehouse.list_names(f"{warehouse.uri}/data"):
        if name.isdecimal() and _was_dropped(snapshot, int(name)):
            warehouse.remove(f"{warehouse.uri}/data/{name}")
            forget_commits(context, int(name))
    for name in warehouse.list_names(f"{warehouse.uri}/checkpoints"):
        id_ = name.rpartition("-")[2]
        if id_.isdecimal() and _was_dropped(snapshot, int(id_)):
            if name.startswith("ranges-") and not release_upstream(context, context.metastore.snapshot, int(id_)):
                is_complete = False
                continue  # The next sweep tries again.
            warehouse.remove(f"{warehouse.uri}/checkpoints/{name}")
    _sweep_generations(context, snapshot)
    jobs = context.metastore.jobs
    # The owner of another group may report jobs of objects that are newer than ``snapshot``.
    statuses, present = jobs.job_statuses(), context.metastore.snapshot()
    objects = {job: status.object_id for job, status in statuses.items()}
    gone = [job for job, id_ in objects.items() if snapshot.get(id_) is None and present.get(id_) is None]
    if gone:
        jobs.drop_jobs(gone)
    jobs.forget_dropped(partial(_was_dropped, snapshot))
    points = [point for point in jobs.rewind_points() if _was_dropped(snapshot, point.source_id)]
    if points:
        jobs.drop_rewind_points(points)
    return is_complete


def _was_dropped(snapshot: Snapshot, id_: int) -> bool:
    """True if the object with this id existed and was dropped before ``snapshot``. False for an object that was created
    later."""
    return id_ < snapshot.next_id and snapshot.get(id_) is None


def _sweep_generations(context: Context, snapshot: Snapshot) -> None:
    """Deletes old generations of rebuilt views and of sinks: tables, checkpoints, staging tables and tables of rejected
    rows. A generation is deleted only if no job writes it and no rewind point needs it for a sink.

    Keeps the previous generation of a sink. Also keeps the previous generation of a rebuilt view, which UNDO can
    restore, until ``rollback_window`` has passed.
    """
    warehouse = context.warehouse
    records: list[MaterializedViewRecord | SinkRecord] = [*snapshot.kept, *snapshot.all("sink")]
    for record in records:
        last = record.last_generation if isinstance(record, MaterializedViewRecord) else 0
        if record.generation == 1 and not last and not _used_elsewhere(context, snapshot, record.id):
            continue
        job = view_job(record.id) if isinstance(record, MaterializedViewRecord) else sink_job(record.id)
        folders = (f"{warehouse.uri}/data/{record.id}", f"{warehouse.uri}/checkpoints/{job}")
        found = [(folder, name) for folder in folders for name in warehouse.list_names(folder)]
        # The catalog is read again after the listing, because a statement may have begun a rebuild, for which the owner
        # of another resource group has created folders. All folders that one of the two catalogs needs are kept.
        needed = _needed(context, snapshot, record.id) | _needed(context, context.metastore.snapshot(), record.id)
        for folder, name in found:
            generation = _generation_of(name)
            if generation is not None and generation not in needed:
                warehouse.remove(f"{folder}/{name}")
                forget_commits(context, record.id, (generation,))


def _generation_of(name: str) -> int | None:
    """The generation of a view or sink to which a folder belongs, according to the folder's name; None if it belongs to
    no generation."""
    if name.isdecimal():
        return int(name)
    beside = _BESIDE.fullmatch(name)
    return None if beside is None else int(beside[1] or beside[2])


def _needed(context: Context, snapshot: Snapshot, id_: int) -> set[int]:
    """The generations of a view or sink whose folders must not be deleted, according to the catalog ``snapshot``."""
    record = snapshot.get(id_)
    if not isinstance(record, MaterializedViewRecord | SinkRecord):
        return set()
    return {record.generation, _kept(context, snapshot, record)} | _used_elsewhere(context, snapshot, id_)


def _used_elsewhere(context: Context, snapshot: Snapshot, id_: int) -> set[int]:
    """The generations of a view that running rebuilds create, or the generations of a sink that rewind points need.

    A REWIND copies the rejected rows from the generation that a sink had at the rewind point. A REWIND never restores
    the table of an earlier generation of a view.
    """
    if not isinstance(snapshot.get(id_), SinkRecord):
        return {rebuild.generation for rebuild in snapshot.all("rebuild") if rebuild.view_id == id_}
    points = context.metastore.jobs.rewind_points()
    return {found.generation for point in points for found in point.dependents if found.id == id_}


def _kept(context: Context, snapshot: Snapshot, record: MaterializedViewRecord | SinkRecord) -> int:
    """The earlier generation that is kept in addition to the current generation; 0 if no earlier generation is kept."""
    if not isinstance(record, MaterializedViewRecord):
        return record.generation - 1
    window = rollback_window_ms(snapshot)
    if window is None or kept_generation(record) == 0:
        return kept_generation(record)
    place = (context.warehouse.uri, record.id, record.generation)
    if place not in _SINCE:
        _SINCE[place] = serves_since_ms(record, context.metastore.operations(kinds=(SWAP, UNDO)))
    since = _SINCE[place]
    return 0 if since is not None and now_ms() - since > window else kept_generation(record)
