"""Orders the changes of a deployment around the rebuilds of views, and continues the rebuilds that an earlier
deployment began."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.metastore.records import MaterializedViewRecord
from rw_sql.plan.deploy.change import REBUILD
from rw_sql.plan.deploy.order import key_of, named_by
from rw_sql.plan.statements.view.alter_query import gains_columns
from rw_sql.syntax.statements import Name, Wait

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.plan.deploy.change import DeployChange
    from rw_sql.plan.deploy.folder import FolderObject
    from rw_sql.syntax.statements import CreateMaterializedView, Statement

_RUNNING = "a rebuild with this definition is already running"


def waiting_for(
    snapshot: Snapshot, record: ObjectRecord, to_be: ObjectRecord, definition: CreateMaterializedView
) -> tuple[tuple[Statement, ...], str]:
    """Returns the statements that wait for a running rebuild of a view, and the reason why the change contains them.
    ``to_be`` and ``definition`` are the record and the definition that the view will have after the rebuild.

    The first WAIT may end before the rebuild is complete. If the job of the rebuild is then stalled, the CREATE OR
    REPLACE begins the rebuild again; otherwise it changes nothing. The plan cannot use the status of the job before the
    WAIT, because a process that takes over the jobs starts them again.

    In two cases, the result is only a WAIT. In the first case, the view reads another view that is being rebuilt, and
    the CREATE OR REPLACE of that other view already begins both rebuilds again. In the second case, the CREATE OR
    REPLACE would add columns to the view, and would therefore begin even a healthy rebuild again.
    """
    wait = Wait(kind="MATERIALIZED VIEW", name=Name.of(record.name))
    others = (rebuild.view_id for rebuild in snapshot.all("rebuild") if rebuild.view_id != record.id)
    if (
        not isinstance(to_be, MaterializedViewRecord)
        or gains_columns(snapshot, to_be)
        or any(reader.id == record.id for other in others for reader in snapshot.dependents_of(other))
    ):
        return (wait,), _RUNNING
    return (wait, replace(definition, or_replace=True), wait), f"{_RUNNING}, or is begun again if it is stalled"


def rebuilds_last(
    changes: Sequence[DeployChange], ordered: Sequence[FolderObject], running: Collection[int]
) -> list[DeployChange]:
    """Moves to the end the changes that must wait for a rebuild: the changes of the rebuilt views, and of the objects
    that read these views directly or through other objects. The other changes thus need not wait.

    ``ordered`` are all objects of the folder; each object follows the objects that it reads. ``running`` are the ids of
    the views whose change waits for a rebuild that is already running. Statements that alter one of these views precede
    the first WAIT, because they affect the rebuild.
    """
    rebuilt = {(change.kind, change.name) for change in changes if change.action == REBUILD}
    waiting: set[tuple[str, str]] = set()
    readers: set[tuple[str, str]] = set()
    for wanted in ordered:
        if not waiting.isdisjoint(named_by(wanted)):
            readers.add((wanted.kind, wanted.name))
        if (wanted.kind, wanted.name) in rebuilt | readers:
            waiting.add(key_of(wanted.kind, wanted.name))
    first: list[DeployChange] = []
    roots: list[DeployChange] = []
    last: list[DeployChange] = []
    for change in changes:
        is_running = change.action == REBUILD and change.touches[0] in running
        if key_of(change.kind, change.name) not in waiting:
            first.append(change)
        elif is_running and (change.kind, change.name) not in readers:
            roots.append(change)
        elif is_running:
            # The rebuild of an input may have replaced the running rebuild, so that the first WAIT would not show
            # whether the view has its new definition.
            now, then = _parts(change)
            first += now
            last += [replace(each, statements=each.statements[-2:]) for each in then]
        else:
            last.append(change)
    return [*first, *_together(roots), *last]


def _together(changes: Sequence[DeployChange]) -> list[DeployChange]:
    """Splits the changes of running rebuilds and moves the last WAIT of each change to the end. Every stalled rebuild
    thus begins again before a WAIT requires that a rebuild is complete. This order is necessary because the tables of
    two rebuilt views with a common reader are replaced together."""
    if len(changes) < 2:
        return list(changes)
    parts = [_parts(change) for change in changes]
    begun = [replace(each, statements=each.statements[:-1]) for _, then in parts for each in then]
    waits = [replace(each, statements=each.statements[-1:]) for _, then in parts for each in then]
    return [*(each for now, _ in parts for each in now), *(each for each in begun if each.statements), *waits]


def _parts(change: DeployChange) -> tuple[list[DeployChange], list[DeployChange]]:
    """Splits a change before its first WAIT. Returns the change with the statements before the WAIT, and the change
    with the WAIT and all later statements."""
    at = next(at for at, statement in enumerate(change.statements) if isinstance(statement, Wait))
    now, then = (replace(change, statements=part) for part in (change.statements[:at], change.statements[at:]))
    return [now] if at else [], [then]
