"""Computes the notices about objects that a move leaves on the former server, such as slots and subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.left_objects import LeavingConnector
from rw_sql.connectors.registry import connector
from rw_sql.model.options import source_options, visible
from rw_sql.plan.effects.capture_moves import notes_on_left_slot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.model.options import PlannedOptions
    from rw_sql.plan.ports.inspector import Inspector


def notes_on_left_objects(
    inspector: Inspector, then: Snapshot, source: SourceRecord, old: PlannedOptions, new: PlannedOptions
) -> Iterator[str]:
    """Yields a notice about the object that holds records back for the source on the server that the options ``old``
    name, if the source no longer uses this object with the options ``new``. The notice contains the statement or the
    command that removes the object. ``then`` is the catalog after the change.

    rw_sql does not remove the object, because the source needs the object if the change is undone. Yields nothing if
    another source uses the object, or if no run of the source has begun.
    """
    yield from notes_on_left_slot(inspector, then, source, old, new)
    kind = connector(source.connector)
    if not isinstance(kind, LeavingConnector) or not source.is_shared:
        return
    left, now = kind.holding_object(visible(old)), kind.holding_object(visible(new))
    readers = (other for other in then.all("source") if other.connector == source.connector)
    used = {
        (each.title, each.place) for each in (kind.holding_object(visible(source_options(then, o))) for o in readers)
    }
    is_left = (left.title, left.place) not in {(now.title, now.place), *used}
    if is_left and inspector.positions.newest_run(source.id):
        yield (
            f"{left.title} stays on {left.place}, which keeps messages for it, so that this operation can be undone. "
            f"When neither an UNDO nor another program needs it, run: {left.removal}"
        )
