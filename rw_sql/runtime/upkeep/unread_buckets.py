"""Finds the oldest hourly bucket of a log whose rows a reader has not read.

A later commit usually has a later bucket. If the clock of a job's machine is set back, however, a later commit has an
earlier bucket. Therefore, every commit must be read. A reader may be a hundred thousand commits behind, and reading
commits in upkeep delays the job's batches. For this reason, a process reads each commit only once, and one run of
upkeep reads a limited number of commits.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.runtime.decoding.decoder import BUCKET
from rw_sql.runtime.delta.delta_log import commit_versions, read_actions

if TYPE_CHECKING:
    from rw_sql.runtime.support.warehouse import Warehouse

MOST_COMMITS = 1000
"""The maximum number of commits that one run of upkeep reads. Between two runs of upkeep, a job usually makes only a
tenth of this number of commits. On a local path, reading this number of commits delays a batch by 0.2 s."""


@dataclass(slots=True, kw_only=True)
class UnreadBuckets:
    """The oldest buckets of the rows that the commits of a log add.

    Commits from ``_begin`` up to, but not including, ``_end`` have been read. ``_least`` is a list of pairs ``(version,
    bucket)`` in ascending order. For each commit whose oldest bucket is older than every bucket of the later commits,
    the list contains the commit's version and oldest bucket. The list has at most one entry per bucket.
    """

    warehouse: Warehouse
    table: str
    _begin: int = field(default=0, init=False)
    _end: int = field(default=0, init=False)
    _least: list[tuple[int, int]] = field(default_factory=list, init=False)

    def oldest_from(self, first: int, newest: int, *, least: int) -> int | None:
        """The oldest bucket with rows in the commits from version ``first`` to version ``newest``; None if these
        commits add no rows.

        Returns ``least`` if the oldest bucket is ``least`` or older. Also returns ``least`` if more than MOST_COMMITS
        commits must be read to find the oldest bucket. Later calls then read the remaining commits.
        """
        if not self._begin <= first <= self._end:
            self._begin = self._end = first
            self._least.clear()
        for _ in range(MOST_COMMITS):
            found = self._found_from(first)
            if found is not None and found <= least:
                return least
            if self._end > newest:
                return found
            self._read_next(newest)
        return least

    def _found_from(self, first: int) -> int | None:
        """Returns the oldest bucket in those commits from version ``first`` on that this process has already read; None
        if these commits add no rows."""
        at = bisect_left(self._least, (first,))
        return self._least[at][1] if at < len(self._least) else None

    def _read_next(self, newest: int) -> None:
        version = self._end
        try:
            actions = read_actions(self.warehouse, self.table, version)
        except FileNotFoundError:
            # This commit was cleaned up, so no reader can read it. The later commits may exist.
            existing = (later for later in commit_versions(self.warehouse, self.table) if later > version)
            self._end = min(existing, default=newest + 1)
            return
        self._end = version + 1
        buckets = [
            int(action["add"]["partitionValues"][BUCKET])
            for action in actions
            if "add" in action and action["add"].get("dataChange", True)
        ]
        if not buckets:
            return
        oldest = min(buckets)
        while self._least and self._least[-1][1] >= oldest:
            self._least.pop()
        self._least.append((version, oldest))
