"""Determines the versions of a table that rewind points still need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.records import MaterializedViewRecord, SinkRecord, SourceRecord
from rw_sql.model.job_ids import sink_job, view_job
from rw_sql.model.rebuilds import kept_generation
from rw_sql.runtime.delta.delta_log import table_id
from rw_sql.runtime.positions.progress import newest_planned
from rw_sql.runtime.positions.table_consumers import needed_version, planned_versions_of

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import PointDependent, RewindPoint
    from rw_sql.runtime.jobs.context import Context

FOLDER = "checkpoints"
"""The folder in the warehouse that contains both the checkpoints and their copies for rewind points. The cleanup of
this folder after a DROP therefore also deletes the copies for a dropped source."""


def copies_of(context: Context, point: RewindPoint, object_id: int) -> str:
    """The folder with the copy of a dependent's checkpoint at a rewind point."""
    root = f"{context.warehouse.uri}/{FOLDER}/{point.folder}"
    for job in (view_job(object_id), sink_job(object_id)):
        if context.warehouse.list_names(f"{root}/{job}"):
            return f"{root}/{job}"
    return f"{root}/{view_job(object_id)}"


def least_needed_version(context: Context, object_id: int, generation: int = 1) -> int | None:
    """Returns the oldest version of an object's table that a rewind point needs. The table of a source is its log, and
    the table of a view is the table of ``generation``. Returns None if no point needs a version of the table.

    Upkeep keeps the files of that version, and all commits from that version on. Therefore, the version stays readable.
    A point of a dropped source needs no version. A point needs no version of a dependent's table if a REWIND does not
    change the dependent: the dependent was dropped, or the generation of its table differs from the generation at the
    time of the point. However, while UNDO can put the dependent's earlier table into use again, the point still needs
    versions of the dependent's inputs.
    """
    snapshot = context.metastore.snapshot()
    record = snapshot.get(object_id)
    # Points refer only to tables in use, and a REWIND does not restore the table that records a sink's batches.
    if getattr(record, "generation", 1) != generation or isinstance(record, SinkRecord):
        return None
    needed = []
    for point in context.metastore.jobs.rewind_points():
        if not point.has_data or not isinstance(snapshot.get(point.source_id), SourceRecord):
            continue
        if point.source_id == object_id:
            needed.append(point.log_version)
        for found in point.dependents:
            if is_rewound(snapshot, found):
                needed += [found.version] if found.id == object_id else []
            if is_rewound(snapshot, found) or _may_return(context, snapshot, found):
                needed += [needed_of_input(context, point, found, id_) for id_, _ in found.reads if id_ == object_id]
    return min(needed, default=None)


def is_rewound(snapshot: Snapshot, dependent: PointDependent) -> bool:
    """True if a REWIND to the rewind point that contains ``dependent`` changes this view or sink. A REWIND does not
    change a view if the generation of its table differs from the generation at the time of the point. A sink's
    generations are not compared, because each REWIND gives the sink a new generation."""
    record = snapshot.get(dependent.id)
    if isinstance(record, MaterializedViewRecord):
        return record.generation == dependent.generation
    return isinstance(record, SinkRecord)


def _may_return(context: Context, snapshot: Snapshot, dependent: PointDependent) -> bool:
    """True if the table that a rebuilt view had at a rewind point is kept for UNDO."""
    record = snapshot.get(dependent.id)
    if not isinstance(record, MaterializedViewRecord) or kept_generation(record) != dependent.generation:
        return False
    return bool(context.warehouse.list_names(context.warehouse.data(record.id, dependent.generation)))


def needed_of_input(context: Context, point: RewindPoint, dependent: PointDependent, input_id: int) -> int:
    """The first version of an input's table that a dependent needs when it continues from the copy of its checkpoint.

    After a REWIND, a dependent also continues to read its inputs that were not rewound, at the versions in ``reads``.
    However, the dependent's query first requests the last batch of the copied checkpoint again, and this batch begins
    at an earlier version (see :mod:`rw_sql.runtime.positions.table_consumers`).
    """
    unread = dict(dependent.reads)[input_id]
    snapshot, warehouse = context.metastore.snapshot(), context.warehouse
    record = snapshot.get(dependent.id)
    if dependent.batch < 0 or not isinstance(record, MaterializedViewRecord | SinkRecord):
        return unread
    copy = copies_of(context, point, dependent.id)
    table = warehouse.data(input_id, getattr(snapshot.get(input_id), "generation", 1))
    versions = planned_versions_of(warehouse, copy, table_id(warehouse, table))
    first = needed_version(versions, record, input_id, is_first=newest_planned(warehouse, copy) == 0)
    return unread if first is None else min(unread, first)
