"""Finds the RESTORE commits of a table for upkeep. A process reads each commit only once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.runtime.delta.delta_log import has_commit, latest_version, read_actions, restored_version

if TYPE_CHECKING:
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

    def restored_before(self, first: int) -> int | None:
        """Looks for a RESTORE commit that has version ``first`` or a later version, and that restored the table to a
        version before ``first``. Returns this earlier version. Returns None if there is no such RESTORE commit, or if
        the table has no commit before ``first``.

        The search ends at the first such RESTORE commit and reads no later commits. Reading all commits could take a
        long time, because a rewind point may keep the commits of a week.
        """
        known = self._found_before(first)
        if known is not None or not has_commit(self.warehouse, self.table, first - 1):
            return known
        newest = latest_version(self.warehouse, self.table)
        if first > self._end:
            self._begin = self._end = first
        for version in range(first, self._begin):
            self._read(version)
        self._begin = min(self._begin, first)
        known = self._found_before(first)
        while known is None and self._end <= newest:
            self._read(self._end)
            self._end += 1
            known = self._found_before(first)
        return known

    def _found_before(self, first: int) -> int | None:
        back = [back_to for version, back_to in self._found.items() if back_to < first <= version]
        return min(back, default=None)

    def _read(self, version: int) -> None:
        try:
            back_to = restored_version(read_actions(self.warehouse, self.table, version))
        except FileNotFoundError:  # another process has cleaned up this commit
            return
        if back_to is not None:
            self._found[version] = back_to
