"""How long the rows that a view had before its newest rebuild are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.codec import before_from_json, changes_from_json
from rw_sql.metastore.records import MaterializedViewRecord, PutObject
from rw_sql.model.parameters import NO_LIMIT, ROLLBACK_WINDOW

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import OperationRecord


def rollback_window_ms(snapshot: Snapshot) -> int | None:
    """The system parameter ``rollback_window`` in milliseconds; None if there is no limit."""
    value = snapshot.parameter(ROLLBACK_WINDOW)
    return None if value in (None, NO_LIMIT) else int(value.removesuffix("ms"))


def kept_generation(view: MaterializedViewRecord) -> int:
    """The earlier generation whose rows are kept beside the rows of the current one; 0 if the view had no earlier
    generation."""
    return view.kept_generation or view.generation - 1


def serves_since_ms(view: MaterializedViewRecord, newest_first: Iterable[OperationRecord]) -> int | None:
    """The time, in milliseconds since 1970, of the operation by which the view's current table replaced the table of an
    earlier generation; None if the log has no such operation."""
    for record in newest_first:
        before = before_from_json(record.before).objects.get(view.id)
        if not isinstance(before, MaterializedViewRecord) or before.generation == view.generation:
            continue
        made = (change.record for change in changes_from_json(record.changes) if isinstance(change, PutObject))
        if any(isinstance(m, MaterializedViewRecord) and m.id == view.id for m in made):
            return record.at_ms
    return None
