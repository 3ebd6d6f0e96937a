"""Lists the snapshots of a table's main branch, with their sequence numbers and operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

APPEND, REPLACE = "append", "replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshot:
    """One snapshot. ``sequence`` is the snapshot's sequence number. ``operation`` is Iceberg's name for the snapshot's
    effect on the table."""

    sequence: int
    id: int
    parent: int | None
    operation: str
    at_ms: int

    @property
    def changes(self) -> str:
        """The snapshot's operation, if the operation changes or removes existing rows; otherwise empty."""
        return "" if self.operation in (APPEND, REPLACE) else self.operation


class HistoryLostError(Exception):
    """Raised if some of the requested snapshots may have expired. ``first`` is the sequence number of the oldest
    snapshot that still exists."""

    def __init__(self, first: int) -> None:
        super().__init__(f"snapshots before {first} have expired")
        self.first = first


def end_of(table: Table) -> int:
    """The offset after the current snapshot: its sequence number plus 1. The result is 0 for a table without
    snapshots."""
    current = table.current_snapshot()
    return 0 if current is None else _sequence(current) + 1


def snapshots(table: Table, start: int, end: int) -> tuple[TableSnapshot, ...]:
    """The snapshots of the main branch with sequence numbers in ``[start, end)``, oldest first.

    Sequence numbers of the range that are not in the result belong to snapshots outside the main branch. Raises
    HistoryLostError if a snapshot of the range may have expired.
    """
    found: list[TableSnapshot] = []
    first: Snapshot | None = None
    for snapshot in _ancestors(table):
        if _sequence(snapshot) < start:
            first = None
            break
        first = snapshot
        if _sequence(snapshot) < end:
            found.append(_made(snapshot))
    # The chain of snapshots is incomplete: its oldest snapshot had a parent that has expired and may have been one of
    # the requested snapshots. Some writers then omit the parent's id, so that the snapshot looks like the table's first
    # snapshot.
    if first is not None and _sequence(first) > start:
        raise HistoryLostError(_sequence(first))
    return tuple(reversed(found))


def rolled_back(table: Table, position: int) -> int | None:
    """Returns the sequence number of the last snapshot that was read before ``position``, if a rollback of the table
    has removed this snapshot from the main branch. Otherwise, returns None.

    A snapshot that belongs to another branch or a tag does not count, because the source has never read it.
    """
    last = next((each for each in table.snapshots() if _sequence(each) == position - 1), None)
    if last is None or any(each.snapshot_id == last.snapshot_id for each in _ancestors(table)):
        return None
    from pyiceberg.table.snapshots import ancestors_of

    for ref in table.metadata.refs.values():
        named = table.metadata.snapshot_by_id(ref.snapshot_id)
        if any(each.snapshot_id == last.snapshot_id for each in ancestors_of(named, table.metadata)):
            return None
    return _sequence(last)


def snapshot_before(table: Table, end: int) -> TableSnapshot | None:
    """The newest snapshot of the main branch with a sequence number below ``end``; None if there is no such
    snapshot."""
    return next((_made(found) for found in _ancestors(table) if _sequence(found) < end), None)


def first_since(table: Table, milliseconds: int) -> int:
    """The sequence number of the first snapshot that was committed at or after ``milliseconds`` (since 1970). If there
    is no such snapshot, the result is that of :func:`end_of`."""
    found = end_of(table)
    for snapshot in _ancestors(table):
        if snapshot.timestamp_ms < milliseconds:
            break
        found = _sequence(snapshot)
    return found


def oldest(table: Table) -> TableSnapshot | None:
    """The oldest snapshot of the main branch that has not expired; None for a table without snapshots."""
    found = list(_ancestors(table))
    return _made(found[-1]) if found else None


def _ancestors(table: Table) -> Iterator[Snapshot]:
    from pyiceberg.table.snapshots import ancestors_of

    yield from ancestors_of(table.current_snapshot(), table.metadata)


def _sequence(snapshot: Snapshot) -> int:
    return int(snapshot.sequence_number or 0)


def _made(snapshot: Snapshot) -> TableSnapshot:
    operation = "an unknown operation" if snapshot.summary is None else snapshot.summary.operation.value
    return TableSnapshot(
        sequence=_sequence(snapshot),
        id=snapshot.snapshot_id,
        parent=snapshot.parent_snapshot_id,
        operation=operation,
        at_ms=snapshot.timestamp_ms,
    )
