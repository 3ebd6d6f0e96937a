"""Reads a Delta table's log. The module finds three facts: the versions that the log still contains, the number of rows
that a range of versions added, and the first version that was committed at or after a given time.

This module reads the log's JSON files, which Spark's Delta source reads too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.checkpoints.files import CheckpointFiles
from rw_sql.errors import UPSTREAM_MISSING, SqlError

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIGITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaTable:
    """The state of a table when it was read.

    ``id`` identifies the table in Spark's offsets. The table's log contains the versions from ``first`` up to, but not
    including, ``next``.
    """

    path: str
    id: str
    first: int
    next: int

    @property
    def is_whole(self) -> bool:
        """True if the log still contains the table's first version."""
        return self.first == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRows:
    """The number of rows that a range of versions added. ``rows`` is None if the log does not contain the row count of
    one of the added files.

    ``changed`` are the versions that deleted or replaced rows. A Delta source fails at a changed version unless the
    source's options tell Spark to skip or ignore these versions.
    """

    rows: int | None
    changed: tuple[int, ...]


def look_at_table(path: str) -> DeltaTable:
    """Reads the state of a table. Raises SqlError UPSTREAM_MISSING if there is no Delta table at ``path``."""
    files = CheckpointFiles.at(path)
    versions = _versions(files)
    if not versions:
        raise SqlError(
            UPSTREAM_MISSING, f"{path!r} is not a Delta table", hint="give the folder that contains _delta_log"
        )
    return DeltaTable(path=path, id=_table_id(files, versions), first=versions[0], next=versions[-1] + 1)


def rows_between(table: DeltaTable, start: int, end: int) -> VersionRows:
    """Returns the number of rows that the versions ``[start, end)`` added. Versions that are no longer in the log are
    ignored."""
    files = CheckpointFiles.at(table.path)
    rows: int | None = 0
    changed = []
    for version in range(max(start, table.first), min(end, table.next)):
        for kind, action in _actions(files, version):
            if kind == "remove" and action.get("dataChange", True):
                changed.append(version)
            elif kind == "add" and action.get("dataChange", True):
                counted = _records(action)
                rows = None if rows is None or counted is None else rows + counted
    return VersionRows(rows=rows, changed=tuple(dict.fromkeys(changed)))


def version_at(table: DeltaTable, milliseconds: int) -> int:
    """The first version that was committed at or after ``milliseconds`` (since 1970). If all versions are older,
    returns the number that the table's next version will have."""
    files = CheckpointFiles.at(table.path)
    low, high = table.first, table.next
    while low < high:
        middle = (low + high) // 2
        if _committed_ms(files, middle) >= milliseconds:
            high = middle
        else:
            low = middle + 1
    return low


def _versions(files: CheckpointFiles) -> list[int]:
    """The newest range of consecutive versions whose JSON files exist."""
    found = sorted(
        int(name[:_DIGITS])
        for name in files.stamps("_delta_log")
        if name[:_DIGITS].isdecimal() and name[_DIGITS:] == ".json"
    )
    first = len(found) - 1
    while first > 0 and found[first - 1] == found[first] - 1:
        first -= 1
    return found[first:] if found else []


def _table_id(files: CheckpointFiles, versions: list[int]) -> str:
    from deltalake import DeltaTable as Table

    if versions[0] == 0:
        for kind, action in _actions(files, 0):
            if kind == "metaData":
                return str(action["id"])
    return str(Table(files.location).metadata().id)


def _actions(files: CheckpointFiles, version: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in files.read(f"_delta_log/{version:0{_DIGITS}d}.json").split("\n"):
        if line.strip():
            yield from json.loads(line).items()


def _records(add: dict[str, Any]) -> int | None:
    try:
        counted = json.loads(add["stats"])["numRecords"]
    except (KeyError, TypeError, ValueError):
        return None
    return counted if isinstance(counted, int) else None


def _committed_ms(files: CheckpointFiles, version: int) -> int:
    for kind, action in _actions(files, version):
        if kind == "commitInfo":
            return int(action.get("inCommitTimestamp") or action.get("timestamp") or 0)
    return 0
