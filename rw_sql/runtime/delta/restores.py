"""Finds the RESTORE commits of a table, for upkeep. A process reads each commit once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.runtime.delta.delta_log import has_commit, latest_version, read_actions, restored_version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.runtime.support.warehouse import Warehouse


@dataclass(slots=True, kw_only=True)
class Restores:
    """The RESTORE commits of one table.

    Commits from ``_begin`` up to, but not including, ``_end`` have been read. ``_found`` maps the version of each
    RESTORE commit to the version that it restored.
    """

    warehouse: Warehouse
    table: str
    _begin: int = field(default=0, init=False)
    _end: int = field(default=0, init=False)
    _found: dict[int, int] = field(default_factory=dict, init=False)

    def oldest_restored(self, first: int) -> int | None:
        """The oldest version that a RESTORE commit from version ``first`` on goes back to; None if there is no such
        commit, or no commit before ``first``."""
        if not has_commit(self.warehouse, self.table, first - 1):
            return None
        newest = latest_version(self.warehouse, self.table)
        if first > self._end:
            self._begin = self._end = first
            self._found.clear()
        self._read(range(first, self._begin))
        self._begin = min(self._begin, first)
        self._read(range(self._end, newest + 1))
        self._end = max(self._end, newest + 1)
        return min((back_to for version, back_to in self._found.items() if version >= first), default=None)

    def _read(self, versions: Iterable[int]) -> None:
        for version in versions:
            try:
                back_to = restored_version(read_actions(self.warehouse, self.table, version))
            except FileNotFoundError:  # another process has cleaned up this commit
                continue
            if back_to is not None:
                self._found[version] = back_to
