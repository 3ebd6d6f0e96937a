"""Describes which objects of a block are changed again by later statements of the block. The validation of such an
object must wait, because only its last state in the block is committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector
from rw_sql.metastore.records import ConnectionRecord, SinkRecord, SourceRecord
from rw_sql.model.options import source_options
from rw_sql.plan.effects.connection_impact import differences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.metastore import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterChanges:
    """The changes that the later statements of a block make.

    ``changed`` are the ids of the connections, sources and sinks whose properties, or whose connection's properties,
    change again. A statement does not validate these objects, because the last statement that changes an object
    validates it. ``moved`` are the ids of the sources whose upstream may then be another one than after the present
    statement. A statement assigns no splits to these sources.
    """

    changed: frozenset[int] = frozenset()
    moved: frozenset[int] = frozenset()


NO_LATER_CHANGES = LaterChanges()
"""For a statement outside of a block, and for the last statement of a block."""


def all_unsettled(snapshot: Snapshot) -> LaterChanges:
    """Returns the later changes for a block that is not complete yet, in which any object may change again."""
    return LaterChanges(changed=frozenset(_definitions(snapshot)))


def later_changes(now: Snapshot, later: Sequence[Snapshot]) -> LaterChanges:
    """Returns the changes between the catalog ``now``, which is the catalog after one statement of a block, and the
    catalogs after each later statement."""
    present = _definitions(now)
    following = [_definitions(each) for each in later]
    changed = {id_ for id_, definition in present.items() if any(each.get(id_) != definition for each in following)}
    return LaterChanges(
        changed=frozenset(changed), moved=frozenset(id_ for id_ in changed if _moves(now, later[-1], id_))
    )


def _definitions(snapshot: Snapshot) -> dict[int, tuple[str, ...]]:
    """Maps the id of each connection, source and sink to its definition, followed by the definitions of the connections
    that it uses."""
    found: dict[int, tuple[str, ...]] = {}
    for record in (*snapshot.all("connection"), *snapshot.all("source"), *snapshot.all("sink")):
        if isinstance(record, ConnectionRecord | SourceRecord | SinkRecord):
            found[record.id] = (record.definition,)
    for connection in snapshot.all("connection"):
        for user in snapshot.users_of(connection.id):
            if user.id in found:
                found[user.id] = (*found[user.id], connection.definition)
    return found


def _moves(now: Snapshot, then: Snapshot, id_: int) -> bool:
    source, changed = now.get(id_), then.get(id_)
    if not isinstance(source, SourceRecord) or not isinstance(changed, SourceRecord):
        return False
    spec = connector(source.connector).spec
    changes = differences(source_options(now, source), source_options(then, changed))
    return any((known := spec.option(key)) is not None and known.is_of_connection for key, _, _ in changes)
