"""Determines which columns are added to tables, and which views select these columns by ``*``.

An existing view does not contain an added column until the view is rebuilt. A view that is created after the column was
added contains it at once. Without the rebuild, the warehouse would therefore differ from a new warehouse that is
created from the folder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.errors import first_names
from rw_sql.metastore.records import MaterializedViewRecord, SinkRecord, TableRecord
from rw_sql.model.definitions import view_definition
from rw_sql.model.object_lookup import spoken
from rw_sql.model.pauses import direct_inputs
from rw_sql.plan.deploy.columns import in_the_way, without_used_drops
from rw_sql.plan.queries.unseen_columns import unseen_columns
from rw_sql.syntax.statements import AlterAddColumn, AlterTableDropColumn

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.plan.deploy.change import DeployChange
    from rw_sql.syntax.statements import Statement

_MOST = 8


def columns_to_gain(snapshot: Snapshot, view: ObjectRecord, altered: Mapping[int, DeployChange]) -> tuple[str, ...]:
    """Returns the columns that a rebuild would add to a view because the view's query selects these columns by ``*``.
    The result is empty for an object that is not a view, and for a view that cannot be rebuilt.

    ``altered`` maps the id of each altered table to the change of the table. The result is also empty if such a change
    drops or renames a column that the view may use, because the view is then created again. A column that
    :func:`without_used_drops` keeps, because the view uses it, does not have this effect.
    """
    if not isinstance(view, MaterializedViewRecord) or isinstance(view, TableRecord):
        return ()
    dropped: set[str] = set()
    added: dict[int, Sequence[str]] = {}
    for id_ in view.inputs:
        table, change = snapshot.get(id_), altered.get(id_)
        if change is None:
            continue
        left = without_used_drops(snapshot, change).statements
        users = in_the_way(snapshot, table, left, ()) if isinstance(table, TableRecord) else ()
        if any(user.id == view.id for user, _ in users):
            return ()
        # The folder does not list these columns, so a view does not have to gain them even if they stay.
        dropped |= {each.column for each in change.statements if isinstance(each, AlterTableDropColumn)}
        added[id_] = added_by(change.statements)
    gained = _unseen(snapshot, view, added)
    if not gained or _why_fixed(snapshot, view):
        return ()
    return tuple(name for name in gained if name not in dropped)


def why_wider(columns: Sequence[str]) -> str:
    """The reason for the rebuild of a view that gains the given columns."""
    return f"its * now selects {first_names(columns, _MOST)} too"


def added_by(statements: Sequence[Statement]) -> tuple[str, ...]:
    """The columns that the statements add to a table."""
    return tuple(each.column.name for each in statements if isinstance(each, AlterAddColumn))


def adds_columns(snapshot: Snapshot, changes: Iterable[DeployChange]) -> bool:
    """True if a change adds columns to a table, or if an existing view lacks some of the columns that its query selects
    by ``*``."""
    return any(added_by(change.statements) for change in changes) or any(
        _unseen(snapshot, view, {}) for view in snapshot.all("materialized_view")
    )


def why_created_again(snapshot: Snapshot, id_: int) -> str:
    """Returns the reason why a view must be created again to get all columns that its query selects by ``*``. Returns
    the empty string for every object that need not be created again for this purpose."""
    view = snapshot.get(id_)
    if not isinstance(view, MaterializedViewRecord) or isinstance(view, TableRecord):
        return ""
    why, columns = _why_fixed(snapshot, view), _unseen(snapshot, view, {})
    return f"{why_wider(columns)}, and {why}" if columns and why else ""


def with_note(snapshot: Snapshot, change: DeployChange, remade: Collection[int]) -> DeployChange:
    """Adds a note to a change that adds columns to a table, and returns the change. The note names each object that
    selects these columns by ``*`` but does not get them. ``remade`` are the ids of the objects that are rebuilt,
    created again or dropped."""
    table, columns = snapshot.get(change.touches[0]), added_by(change.statements)
    if not columns or not isinstance(table, TableRecord) or change.reason:
        return change
    notes = []
    for reader in snapshot.readers_of(table.id):
        missing = () if reader.id in remade else _unseen(snapshot, reader, {table.id: columns})
        why = _why_fixed(snapshot, reader) if missing else ""
        if why:
            named = f"{spoken(reader.kind)} {reader.name}"
            notes.append(f"{named} does not get {first_names(missing, _MOST)}, because {why}")
    return replace(change, reason="; ".join(notes))


def _unseen(
    snapshot: Snapshot, reader: MaterializedViewRecord | SinkRecord, added: Mapping[int, Sequence[str]]
) -> tuple[str, ...]:
    """The columns that the query of an object selects by ``*`` but that the object does not have. If a view's
    definition lists the columns, the result is empty, because the view gets no other columns."""
    found = unseen_columns(snapshot, reader, added)
    if found and isinstance(reader, MaterializedViewRecord) and view_definition(reader.definition).columns:
        return ()
    return found


def _why_fixed(snapshot: Snapshot, reader: MaterializedViewRecord | SinkRecord) -> str:
    """Returns the reason why an object cannot get further columns without being created again. Returns the empty string
    for a view that can be rebuilt."""
    if isinstance(reader, SinkRecord):
        return "the columns of a sink cannot change in place"
    dependents = snapshot.dependents_of(reader.id)
    sinks = [found.name for found in dependents if isinstance(found, SinkRecord)]
    if sinks:
        return f"sinks have sent its rows: {first_names(sinks, _MOST)}"
    views = (reader, *(found for found in dependents if isinstance(found, MaterializedViewRecord)))
    if any(direct_inputs(snapshot, view) for view in views):
        return "a source that it reads is not shared"
    return ""
