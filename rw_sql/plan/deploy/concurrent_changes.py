"""Detects that another session has changed an object that a running deployment is about to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import CONCURRENT_CHANGE, SqlError
from rw_sql.metastore.records import RebuildRecord, TableRecord
from rw_sql.model.object_lookup import spoken
from rw_sql.plan.deploy.change import ALTER, DROP, REBUILD, RECREATE, RENAME, UNSAFE
from rw_sql.plan.deploy.definitions import record_to_be

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.plan.deploy.change import DeployChange


class KnownDefinitions:
    """The names and definitions that the objects of a deployment have after the deployment's own statements.

    A deployment may wait for hours for a rebuild. During this time, another session may change the same objects, for
    example a second deployment with a newer version of the folder. The first deployment must not overwrite these
    changes. A changed epoch does not prove such a change, because the end of a rebuild raises epochs too. For a view
    that is being rebuilt, the stored definition is the definition after the rebuild.
    """

    def __init__(self, snapshot: Snapshot, changes: Iterable[DeployChange]) -> None:
        ids = (id_ for change in changes if (id_ := _changed(change)) is not None)
        self._known = {id_: _definition(snapshot, id_) for id_ in ids}

    def require_unchanged(self, snapshot: Snapshot, change: DeployChange, again: str) -> None:
        """Raises SqlError CONCURRENT_CHANGE if another session has changed or dropped the object of a change. ``again``
        is an instruction to the user, such as "run the same command again".

        No check is needed for a WAIT, because a WAIT overwrites nothing.
        """
        id_ = _changed(change)
        if id_ is None:
            return
        definition = _definition(snapshot, id_)
        if definition == self._known[id_]:
            return
        done = "dropped" if definition is None else "changed"
        raise SqlError(
            CONCURRENT_CHANGE,
            f'{spoken(change.kind)} "{change.name}" was {done} by another session since the changes were planned',
            hint="rw-sql diff shows the remaining changes, which may overwrite the other session's change; to make "
            f"them, {again}",
        )

    def renew(self, snapshot: Snapshot, change: DeployChange) -> None:
        """Records the definitions that the deployment's own statement has changed. This function is not called for a
        WAIT, because during a WAIT, only other sessions change definitions. ``snapshot`` is the catalog after the
        statement.

        The function records only the definitions of the statement's object and of its dependents, because a rename, for
        example, also changes the definitions of the object's readers. The recorded definitions of all remaining objects
        stay old. If another session changes such an object during the statement, :meth:`require_unchanged` therefore
        detects the change.
        """
        id_ = _changed(change)
        if id_ is None:
            return
        # An exchange of names touches two objects. The other ids are those of the objects that the definition names.
        ids = change.touches if change.action == RENAME else (id_,)
        affected = {found for each in ids for found in _with_dependents(snapshot, each)}
        for found in affected & self._known.keys():
            self._known[found] = _definition(snapshot, found)


def _changed(change: DeployChange) -> int | None:
    """The id of the object that a change alters, renames or drops; None if the change creates an object."""
    is_drop = change.action in (DROP, RECREATE) and not change.place
    if not change.touches or not (is_drop or change.action in (ALTER, UNSAFE, REBUILD, RENAME)):
        return None
    return change.touches[0]


def _definition(snapshot: Snapshot, id_: int) -> tuple[str, str] | None:
    """The name and the definition of an object; None if the object does not exist."""
    record = snapshot.get(id_)
    if record is None:
        return None
    return record.name, getattr(record_to_be(snapshot, record), "definition", "")


def _with_dependents(snapshot: Snapshot, id_: int) -> set[int]:
    """Returns the object and its dependents. The dependents include each view that is being rebuilt, if the view's new
    query reads the object. For a table, the dependents include the readers of the table's source."""
    record = snapshot.get(id_)
    starts = [id_]
    if isinstance(record, TableRecord) and record.source_id is not None:
        starts.append(record.source_id)
    dependents = [found for start in starts for found in snapshot.dependents_of(start)]
    views = {found.view_id for found in dependents if isinstance(found, RebuildRecord)}
    return {*starts, *(found.id for found in dependents), *views}
