"""Compares how many rows a batch writes with what else says how many there are; where they differ none is committed.

All counters are such as Spark, Delta and Arrow keep anyway. Nothing is read a second time for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import AT_MOST, EXACTLY
from rw_sql.runtime.support.failures import StalledError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import Connector

MISCOUNT = "MISCOUNT"
"""The first word of the reason of a job whose batch has other rows than it should have."""

_MOST_LEAVES = 16
_ROWS = "numOutputRows"


class MiscountError(StalledError):
    """A batch has other rows than it should have. Nothing of it is committed; the job tries it again."""

    def __init__(self, said: str) -> None:
        super().__init__(f"{MISCOUNT} {said}; nothing of the batch is committed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount:
    """The rows that a batch is to commit, and those that it read; None where that is not counted."""

    written: int
    read: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """How many rows a batch has: between ``least`` and ``most``, as ``told_by`` says.

    ``of_read``: these are the rows that it reads, and nothing is said of those that it writes. ``is_row_by_row``: each
    row that it reads is written as one row.
    """

    least: int = 0
    most: int | None = None
    told_by: str = ""
    of_read: bool = False
    is_row_by_row: bool = False

    def require(self, count: RowCount) -> None:
        """Raises MiscountError with both numbers where the rows are not as many as they should be."""
        if self.is_row_by_row and count.read is not None and count.read != count.written:
            raise MiscountError(f"{count.read} rows were read and {count.written} are to be written")
        found = count.read if self.of_read else count.written
        if found is None or (found >= self.least and (self.most is None or found <= self.most)):
            return
        bound = f"at least {self.least}" if found < self.least else f"at most {self.most}"
        what = "were read" if self.of_read else "are to be written"
        raise MiscountError(f"{found} rows {what} where {self.told_by} has {bound}")


ANY = Expected()
"""Of a batch nothing says how many rows it has."""


def expected_of(kind: Connector, ranges: Mapping[str, tuple[int, int]], *, is_row_by_row: bool) -> Expected:
    """What the offsets that a batch reads say of its rows. ``is_row_by_row``: each record becomes one row."""
    counts = getattr(kind, "offsets_count", None)
    if counts not in (EXACTLY, AT_MOST):
        return ANY
    offsets = sum(end - start for start, end in ranges.values())
    return Expected(
        least=offsets if counts == EXACTLY else 0,
        most=offsets,
        told_by=f"the stretch of {offsets} offsets",
        of_read=not is_row_by_row,
        is_row_by_row=is_row_by_row,
    )


def at_most(expected: Expected) -> Expected:
    """What is expected where some of the rows may be left out."""
    if expected.of_read:
        return ANY
    return Expected(most=expected.most, told_by=expected.told_by)


def exactly(rows: int) -> Expected:
    """What is expected of rows that were counted and kept."""
    return Expected(least=rows, most=rows, told_by="what was kept of the batch")


def rows_read(plan: Any) -> int | None:
    """How many rows the leaves of an executed plan gave; None where one does not count them."""
    leaves = plan.collectLeaves()
    if leaves.size() > _MOST_LEAVES:
        return None
    found = 0
    for at in range(leaves.size()):
        counters = leaves.apply(at).metrics()
        if not counters.contains(_ROWS):
            return None
        found += int(counters.apply(_ROWS).value())
    return found
