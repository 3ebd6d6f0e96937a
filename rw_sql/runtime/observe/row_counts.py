"""Stores, in a compact form, the row counts of the commits that readers of tables have not read.

For a reader that is far behind, each measurement needs the row counts of thousands of commits. The cache of commits
(``commit_numbers``) stores all numbers of a commit, which takes twenty times the memory. That cache may therefore be
too small for all unread commits, and would then drop each commit before the next measurement needs the commit again.
"""

from __future__ import annotations

import threading
import time
from array import array
from dataclasses import dataclass, field

_MOST_COUNTED = 1_000_000
"""The maximum number of commits whose row counts are stored, over all tables and kinds of readers. Each commit takes 16
bytes."""

_WINDOW_SECONDS = 300.0
"""The length of a period in seconds. A measurement removes the commits that the measured kind of reader has not needed
for two periods. If there is no room for a new commit, all commits of every kind of reader whose current period began
more than three periods ago are removed."""

_UNREAD, _UNKNOWN = -2, -1

Kind = tuple[str, str, str | None, bool]
"""Identifies a table and a kind of reader. The first item is the table's path, and the second item is the table's Delta
id if the table is outside the warehouse. The third item is the upstream table to which the reader is limited, or None.
The last item is True if the reader reads the change feed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRows:
    """``rows`` is the number of rows that a reader gets from a commit; None if the commit does not show this number.
    ``at_ms`` is the commit's time."""

    rows: int | None
    at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSum:
    """The number of rows in consecutive commits, of which the last is the commit before version ``end``.

    ``rows`` is None if a commit does not show its number of rows. ``since_ms`` is the time of the first commit with
    rows. ``passed`` is the version of this commit, or ``end`` if no commit has rows.
    """

    end: int
    passed: int
    rows: int | None = 0
    since_ms: int | None = None

    def plus(self, found: CommitRows) -> RowSum:
        """The sum after adding the commit with version ``end``, whose rows are ``found``."""
        if found.rows == 0:
            passed = self.end + 1 if self.passed == self.end else self.passed
            return RowSum(end=self.end + 1, passed=passed, rows=self.rows, since_ms=self.since_ms)
        return RowSum(
            end=self.end + 1,
            passed=self.passed,
            rows=None if self.rows is None or found.rows is None else self.rows + found.rows,
            since_ms=found.at_ms if self.since_ms is None else self.since_ms,
        )


@dataclass(slots=True)
class _Counted:
    """The row counts and times of consecutive commits, beginning with version ``first``.

    ``lowest`` is the lowest version that a measurement has needed since the time ``since``. ``lowest_before`` is the
    lowest version that a measurement needed in the period before ``since``.
    """

    first: int
    lowest: int
    lowest_before: int
    since: float
    rows: array[int] = field(default_factory=lambda: array("q"))
    times: array[int] = field(default_factory=lambda: array("q"))

    def need(self, version: int, now: float) -> None:
        """Records that a measurement needs the commits from ``version`` on. Removes the commits that no measurement has
        needed for two periods."""
        if now - self.since < _WINDOW_SECONDS:
            self.lowest = min(self.lowest, version)
            return
        spare = min(self.lowest, self.lowest_before, version) - self.first
        if spare > 0:
            del self.rows[:spare]
            del self.times[:spare]
            self.first += spare
        self.lowest_before, self.lowest, self.since = self.lowest, version, now

    def get(self, version: int) -> CommitRows | None:
        """The numbers of a commit if they are known."""
        at = version - self.first
        if not 0 <= at < len(self.rows) or self.rows[at] == _UNREAD:
            return None
        return CommitRows(rows=_or_none(self.rows[at]), at_ms=_or_none(self.times[at]))

    def sum_from(self, begin: int, newest: int) -> RowSum:
        """The sum over the commits from version ``begin`` on, up to ``newest`` or to the first commit whose
        numbers are not known."""
        if begin < self.first:
            return RowSum(end=begin, passed=begin)
        rows = self.rows[begin - self.first : newest + 1 - self.first]
        if _UNREAD in rows:
            del rows[rows.index(_UNREAD) :]
        end = begin + len(rows)
        passed = next((begin + at for at, number in enumerate(rows) if number), end)
        with_rows = (self.times[at - self.first] for at in range(passed, end) if rows[at - begin])
        return RowSum(
            end=end,
            passed=passed,
            rows=None if _UNKNOWN in rows else sum(rows),
            since_ms=next((at_ms for at_ms in with_rows if at_ms != _UNKNOWN), None),
        )

    def put(self, version: int, found: CommitRows) -> None:
        """Stores the numbers of a commit."""
        if not self.rows:
            self.first = version
        missing = self.first - version
        if missing > 0:
            self.rows[:0] = self.times[:0] = array("q", [_UNREAD]) * missing
            self.first = version
        at = version - self.first
        more = at + 1 - len(self.rows)
        if more > 0:
            self.rows.extend([_UNREAD] * more)
            self.times.extend([_UNREAD] * more)
        self.rows[at] = _UNKNOWN if found.rows is None else found.rows
        self.times[at] = _UNKNOWN if found.at_ms is None else found.at_ms

    def size_with(self, version: int) -> int:
        """The number of commits that the stored range covers after :meth:`put` has stored the numbers of
        ``version``."""
        if not self.rows:
            return 1
        return max(version, self.first + len(self.rows) - 1) + 1 - min(version, self.first)


def _or_none(number: int) -> int | None:
    return None if number == _UNKNOWN else number


class RowCounts:
    """The rows of commits by table and kind of reader. Thread-safe."""

    def __init__(self) -> None:
        self._counted: dict[Kind, _Counted] = {}
        self._size = 0
        self._lock = threading.Lock()

    def sum_from(self, kind: Kind, begin: int, newest: int) -> RowSum:
        """The sum over the commits from version ``begin`` on, up to ``newest`` or to the first commit whose numbers are
        not known.

        A measurement calls this method first. The call also records that the measurement needs the commits from
        ``begin`` on.
        """
        with self._lock:
            counted = self._counted.get(kind)
            if counted is None:
                return RowSum(end=begin, passed=begin)
            before = len(counted.rows)
            counted.need(begin, time.monotonic())
            self._size += len(counted.rows) - before
            return counted.sum_from(begin, newest)

    def get(self, kind: Kind, version: int) -> CommitRows | None:
        """The numbers of a commit if they are known."""
        with self._lock:
            counted = self._counted.get(kind)
            return None if counted is None else counted.get(version)

    def put(self, kind: Kind, version: int, found: CommitRows) -> bool:
        """Stores the numbers of a commit and returns True. If there is no room because the readers need too many
        commits, stores nothing and returns False."""
        with self._lock:
            now = time.monotonic()
            counted = self._counted.get(kind)
            if counted is None:
                counted = _Counted(first=version, lowest=version, lowest_before=version, since=now)
            more = counted.size_with(version) - len(counted.rows)
            if self._size + more > _MOST_COUNTED:
                self._forget_unused(now)
            if self._size + more > _MOST_COUNTED:
                return False
            self._counted[kind] = counted
            counted.put(version, found)
            self._size += more
            return True

    def _forget_unused(self, now: float) -> None:
        """Removes all counts of each table and kind of reader whose current period began more than three periods ago.
        No measurement needs these counts, for example because the table was dropped or the reader has ended."""
        for kind, counted in list(self._counted.items()):
            if now - counted.since > 3 * _WINDOW_SECONDS:
                self._size -= len(counted.rows)
                del self._counted[kind]
