"""Determines which sources are paused, and which views do not run because a source is paused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.records import SourceRecord
from rw_sql.model.rates import is_throttled

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import MaterializedViewRecord, PauseRecord


def pauses_of(snapshot: Snapshot, source_id: int) -> tuple[PauseRecord, ...]:
    """The pauses that apply to a source: the pause of this source, the pause of all sources, or both."""
    return tuple(record for record in snapshot.all("pause") if record.source_id in (None, source_id))


def is_suspended(snapshot: Snapshot, source: SourceRecord) -> bool:
    """True if the source's readers must not run, because the source is paused or has the rate 0."""
    return bool(pauses_of(snapshot, source.id)) or is_throttled(source)


def direct_inputs(snapshot: Snapshot, view: MaterializedViewRecord) -> tuple[SourceRecord, ...]:
    """Returns those sources of a view that are not shared. The view's own direct readers read these sources from the
    upstream."""
    records = (snapshot.get(id_) for id_ in view.inputs)
    return tuple(record for record in records if isinstance(record, SourceRecord) and not record.is_shared)


def is_view_paused(snapshot: Snapshot, view: MaterializedViewRecord) -> bool:
    """True if a view's job must not run, because :func:`is_suspended` is true for one of the view's
    :func:`direct_inputs`."""
    return any(is_suspended(snapshot, source) for source in direct_inputs(snapshot, view))
