"""The versions of a table that rewind points still need."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.runtime.jobs.context import Context


def least_needed_version(context: Context, object_id: int) -> int | None:
    """The oldest version of a source's log, or of a view's table, that a rewind point needs; None if no point needs
    one.

    Upkeep keeps that version readable: its files, and the commits from it on.
    """
    needed = []
    for point in context.metastore.jobs.rewind_points():
        if point.reason is not None:
            continue
        if point.source_id == object_id:
            needed.append(point.log_version)
        for found in point.dependents:
            needed += [found.version] if found.id == object_id else []
            # After a rewind, a reader also continues in inputs that were not rewound, at the versions in ``reads``. A
            # reader that has completed only its first batch also requests the previous version (see table_consumers).
            is_first = found.batch == 0
            needed += [max(0, version - is_first) for id_, version in found.reads if id_ == object_id]
    return min(needed, default=None)
