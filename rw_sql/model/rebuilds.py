"""Determines the record of a view after its rebuild, and how long the view's old rows are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.metastore.codec import before_from_json, changes_from_json
from rw_sql.metastore.records import MaterializedViewRecord, PutObject
from rw_sql.metastore.snapshot import Effect, fold
from rw_sql.model.parameters import NO_LIMIT, ROLLBACK_WINDOW

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord, OperationRecord, RebuildRecord


def rollback_window_ms(snapshot: Snapshot) -> int | None:
    """The value of the system parameter ``rollback_window`` in milliseconds; None if the old rows are kept without a
    time limit."""
    value = snapshot.parameter(ROLLBACK_WINDOW)
    return None if value in (None, NO_LIMIT) else int(value.removesuffix("ms"))


def kept_generation(view: MaterializedViewRecord) -> int:
    """The earlier generation whose rows are kept in addition to those of the current generation; 0 if there is no
    earlier generation."""
    return view.kept_generation or view.generation - 1


def serves_since_ms(view: MaterializedViewRecord, newest_first: Iterable[OperationRecord]) -> int | None:
    """Returns the time, in milliseconds since 1970, at which the view's current table replaced the table of another
    generation. Returns None if no operation in ``newest_first`` replaced a table of the view. ``newest_first`` are the
    operations that completed rebuilds or undid other operations, latest first."""
    for record in newest_first:
        before = before_from_json(record.before).objects.get(view.id)
        if not isinstance(before, MaterializedViewRecord) or before.generation == view.generation:
            continue
        made = (change.record for change in changes_from_json(record.changes) if isinstance(change, PutObject))
        if any(isinstance(m, MaterializedViewRecord) and m.id == view.id for m in made):
            return record.at_ms
    return None


def rebuilt(snapshot: Snapshot) -> Snapshot:
    """Returns the catalog as it will be after all present rebuilds have been completed."""
    views: dict[int, ObjectRecord | None] = {}
    for rebuild in snapshot.all("rebuild"):
        view = snapshot.get(rebuild.view_id)
        if isinstance(view, MaterializedViewRecord):
            views[view.id] = rebuilt_view(view, rebuild)
    return fold(snapshot, Effect(epoch=snapshot.epoch, actor="", objects=views)) if views else snapshot


def rebuilt_view(view: MaterializedViewRecord, rebuild: RebuildRecord) -> MaterializedViewRecord:
    """The record that the view gets after its rebuild. This record includes the changes that statements have made to
    the view during the rebuild."""
    made = view
    if rebuild.view is not None:
        made = replace(rebuild.view, has_change_feed=view.has_change_feed or rebuild.view.has_change_feed)
    is_next = rebuild.generation == view.generation + 1
    return replace(
        made,
        generation=rebuild.generation,
        histories=rebuild.histories,
        kept_generation=0 if is_next else view.generation,
        last_generation=0,
        parallelism=rebuild.parallelism or made.parallelism,
        resource_group=view.resource_group,
        group_since=view.group_since,
    )


def backfill_rate_limit(snapshot: Snapshot, view_id: int, generation: int) -> int | None:
    """The maximum number of backfill records per second for one generation of a view; None if there is no limit. The
    limit of a rebuild with another definition is the limit in this definition."""
    for rebuild in snapshot.all("rebuild"):
        if rebuild.view_id == view_id and rebuild.generation == generation and rebuild.view is not None:
            return rebuild.view.backfill_rate_limit
    view = snapshot.get(view_id)
    return view.backfill_rate_limit if isinstance(view, MaterializedViewRecord) else None
