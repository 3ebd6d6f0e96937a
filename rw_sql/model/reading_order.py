"""Sorts views so that each comes after the views that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.metastore.records import MaterializedViewRecord


def in_reading_order(views: Sequence[MaterializedViewRecord]) -> tuple[MaterializedViewRecord, ...]:
    """The views, sorted so that each follows those of them that it reads, directly or indirectly; otherwise in the
    given order.

    A view with a new query may read a view that was created later and has a higher id.
    """
    by_id = {view.id: view for view in views}
    placed: dict[int, MaterializedViewRecord] = {}

    def place(view: MaterializedViewRecord) -> None:
        if view.id in placed:
            return
        for id_ in view.inputs:
            if id_ in by_id:
                place(by_id[id_])
        placed[view.id] = view

    for view in views:
        place(view)
    return tuple(placed.values())
