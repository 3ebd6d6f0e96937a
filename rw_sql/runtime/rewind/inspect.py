"""Reads the facts for planning REWIND: the existing points, and the operations and rows that a rewind would revert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from rw_sql.metastore.records import SinkRecord, SourceRecord
from rw_sql.plan.ports.rewinds import RewindLook, TableBack
from rw_sql.runtime.delta.delta_log import commit_versions, commits, has_new_data, last_batch
from rw_sql.runtime.positions.pins import copies_of, is_rewound, needed_of_input
from rw_sql.runtime.rewind.restore import read_on_from

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import PointDependent, RewindPoint
    from rw_sql.runtime.jobs.context import Context

GONE = "no longer exists in the version that it had then"


class RewindPoints:
    """Implements ``RewindPort`` for the warehouse of a process."""

    def __init__(self, context: Context, snapshot: Snapshot) -> None:
        self._context = context
        self._snapshot = snapshot

    def points(self, source_id: int | None = None) -> tuple[RewindPoint, ...]:
        return self._context.metastore.jobs.rewind_points(source_id)

    def carried_out(self) -> frozenset[int]:
        return self._context.metastore.jobs.rewound()

    def look(self, point: RewindPoint) -> RewindLook:
        context, snapshot = self._context, self._snapshot
        tables = []
        source = snapshot.get(point.source_id)
        if isinstance(source, SourceRecord):
            tables.append(_table(context, source.id, context.log_path(source), point.log_version))
        back = {point.source_id, *(dependent.id for dependent in point.dependents)}
        for dependent in point.dependents:
            record = snapshot.get(dependent.id)
            if record is None or not is_rewound(snapshot, dependent):
                # If the view's table has another generation, REWIND refuses the view as created after the point.
                continue
            if isinstance(record, SinkRecord):
                found = TableBack(object_id=record.id, has_emitted=_has_emitted(context, snapshot, record, dependent))
            else:
                path = context.warehouse.data(record.id, dependent.generation)
                found = _table(context, record.id, path, dependent.version)
            if found.lost is None:
                lost = _lost(context, snapshot, point, dependent, back)
                found = found if lost is None else TableBack(object_id=record.id, lost=lost)
            tables.append(found)
        return RewindLook(tables=tuple(tables))


def _lost(
    context: Context, snapshot: Snapshot, point: RewindPoint, dependent: PointDependent, back: set[int]
) -> str | None:
    """The reason why a dependent view or sink cannot be rewound although its table can be restored; None if the
    dependent can be rewound."""
    if dependent.batch >= 0 and not context.warehouse.list_names(copies_of(context, point, dependent.id)):
        return "has no copy of its checkpoint any more"
    for id_, version in dependent.reads:
        other = snapshot.get(id_)
        if id_ in back or other is None:
            continue
        table = context.warehouse.data(id_, getattr(other, "generation", 1))
        further = read_on_from(context.warehouse, table, version)
        if further is None:
            return f"reads {other.name} too, which has been rewound since"
        oldest = min(commit_versions(context.warehouse, table), default=0)
        if further == version and dependent.batch >= 0 and needed_of_input(context, point, dependent, id_) < oldest:
            return f"reads {other.name} too, whose log has dropped commits that the query needs to continue from there"
    return None


def _table(context: Context, object_id: int, path: str, version: int) -> TableBack:
    try:
        now = DeltaTable(path)
        if version < 0:
            return TableBack(object_id=object_id, lost=GONE)
        then = DeltaTable(path, version=version)
        # Only files that are no longer part of the table may be missing.
        gone = set(then.file_uris()) - set(now.file_uris())
    except DeltaError:
        return TableBack(object_id=object_id, lost=GONE)
    if any(not context.warehouse.exists(file) for file in gone):
        return TableBack(object_id=object_id, lost=GONE)
    return TableBack(object_id=object_id, now=_rows(now), then=_rows(then))


def _rows(table: DeltaTable) -> int | None:
    counts = table.get_add_actions(flatten=True)["num_records"].to_pylist()
    return None if None in counts else sum(counts)


def _has_emitted(context: Context, snapshot: Snapshot, sink: SinkRecord, dependent: PointDependent) -> bool:
    """True if a sink may have sent rows since the point: the sink has another generation now, or it has completed
    batches since the point and one of its inputs has new rows since the point."""
    if sink.generation != dependent.generation:
        return True
    table = context.warehouse.data(sink.id, sink.generation)
    if last_batch(context.warehouse, table, sink.generation) <= dependent.batch:
        return False
    for id_, version in dependent.reads:
        given = context.warehouse.data(id_, getattr(snapshot.get(id_), "generation", 1))
        if any(has_new_data(actions) for _, actions in commits(context.warehouse, given, down_to=version)):
            return True
    return False
