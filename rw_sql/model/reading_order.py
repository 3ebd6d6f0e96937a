"""Views in the order in which rows come to them: what is read before what reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.metastore.records import MaterializedViewRecord


def in_reading_order(views: Sequence[MaterializedViewRecord]) -> tuple[MaterializedViewRecord, ...]:
    """The views, each behind those of them that it reads, itself or through others; else in the order given.

    A view that got another query may read one that was made after it, which has a higher id.
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
