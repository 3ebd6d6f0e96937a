"""Determines the lineage of data: which connections, sources, tables, views and sinks exist, and which object reads or
uses which other object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import MaterializedViewRecord, ObjectRecord

KINDS = ("connection", "delta_table", "source", "table", "materialized_view", "sink")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """``objects`` are in creation order. Each edge is a pair of ids: the id of an object that is read or used, and the
    id of the object that reads or uses it."""

    objects: tuple[ObjectRecord, ...]
    edges: tuple[tuple[int, int], ...]

    def inputs_of(self) -> dict[int, tuple[int, ...]]:
        """Maps each object to the objects that it reads or uses."""
        found: dict[int, tuple[int, ...]] = {record.id: () for record in self.objects}
        for read, reader in self.edges:
            found[reader] = (*found[reader], read)
        return found

    def readers_of(self) -> dict[int, tuple[int, ...]]:
        """Maps each object to the objects that read or use it."""
        found: dict[int, tuple[int, ...]] = {record.id: () for record in self.objects}
        for read, reader in self.edges:
            found[read] = (*found[read], reader)
        return found


def find_in_lineage(snapshot: Snapshot, name: str) -> ObjectRecord | None:
    """Finds the object with the given name.

    If several objects have the name, returns a table rather than its source, and a connection only if no other object
    has the name.
    """
    found = (snapshot.find(kind, name) for kind in ("table", "source", "materialized_view", "sink", *KINDS))
    return next((record for record in found if record is not None), None)


def lineage_of(snapshot: Snapshot, of: int | None = None) -> Lineage:
    """The lineage of all objects. If the id ``of`` is given, the lineage contains only this object, and its direct and
    indirect inputs and dependents."""
    known = {record.id: record for kind in KINDS for record in snapshot.all(kind)}
    edges = [
        (read, reader) for read in sorted(known) for reader in sorted(snapshot.readers.get(read, ())) if reader in known
    ]
    if of is not None:
        readers: dict[int, list[int]] = {}
        inputs: dict[int, list[int]] = {}
        for read, reader in edges:
            readers.setdefault(read, []).append(reader)
            inputs.setdefault(reader, []).append(read)
        kept = _reached(of, readers) | _reached(of, inputs)
        known = {id_: record for id_, record in known.items() if id_ in kept}
        edges = [(read, reader) for read, reader in edges if read in kept and reader in kept]
    return Lineage(objects=tuple(known[id_] for id_ in sorted(known)), edges=tuple(edges))


def _reached(start: int, along: dict[int, list[int]]) -> set[int]:
    seen, waiting = {start}, [start]
    while waiting:
        new = [id_ for id_ in along.get(waiting.pop(), ()) if id_ not in seen]
        seen.update(new)
        waiting += new
    return seen


def in_reading_order(views: Sequence[MaterializedViewRecord]) -> tuple[MaterializedViewRecord, ...]:
    """Sorts views so that each view comes after the views that it reads directly or indirectly. Apart from that, the
    order of ``views`` does not change.

    The order of ids is not sufficient: a view whose query was replaced may read a view that was created later.
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
