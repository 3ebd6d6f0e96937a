"""Compares the number of rows that a batch writes with independent counts. If the numbers differ, nothing is committed.

Spark, Delta and Arrow already provide these counts. Therefore, nothing has to be read again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rw_sql.connectors.base import AT_MOST, EXACTLY
from rw_sql.runtime.support.failures import StalledError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import Connector

MISCOUNT = "MISCOUNT"
"""The first word of the stall reason of a job that stalls because a batch has a wrong number of rows."""

_MOST_LEAVES = 16
_ROWS = "numOutputRows"


class MiscountError(StalledError):
    """Raised if a batch has a wrong number of rows. No part of the batch is committed. The job retries the batch."""

    def __init__(self, said: str) -> None:
        super().__init__(f"{MISCOUNT} {said}; no row of the batch is committed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount:
    """The number of rows that a batch will commit, and the number of rows that the batch has read. The latter is None
    if the read rows were not counted."""

    written: int
    read: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected number of rows of a batch: at least ``least`` and at most ``most``. If ``most`` is None, there is no
    upper limit.

    ``limits_of`` is the text that names the origin of these limits in error messages.

    If ``of_read`` is true, the limits apply to the rows that the batch reads, not to the rows that the batch writes. If
    ``is_row_by_row`` is true, each row that the batch reads becomes one row that the batch writes.
    """

    least: int = 0
    most: int | None = None
    limits_of: str = ""
    of_read: bool = False
    is_row_by_row: bool = False

    def require(self, count: RowCount) -> None:
        """Raises MiscountError with the actual and the expected number if the count is not as expected."""
        if self.is_row_by_row and count.read is not None and count.read != count.written:
            raise MiscountError(f"{count.read} rows were read and {count.written} are to be written")
        found = count.read if self.of_read else count.written
        if found is None or (found >= self.least and (self.most is None or found <= self.most)):
            return
        bound = f"at least {self.least}" if found < self.least else f"at most {self.most}"
        what = "were read" if self.of_read else "are to be written"
        raise MiscountError(f"{found} rows {what}, but {self.limits_of} has {bound}")


ANY = Expected()
"""An expectation that is met by any number of rows."""


@runtime_checkable
class _LoggedCounts(Protocol):
    """A connector whose upstream has a log that may contain the numbers of records."""

    def logged_records(self, options: Mapping[str, str], ranges: Mapping[str, tuple[int, int]]) -> int | None:
        """The number of records in the given ranges of offsets according to the upstream's log; None if the log does
        not contain this number."""
        ...


def expected_of(
    kind: Connector,
    ranges: Mapping[str, tuple[int, int]],
    options: Mapping[str, str] | None = None,
    *,
    is_row_by_row: bool,
) -> Expected:
    """The number of rows to expect from a batch's ranges of offsets. ``is_row_by_row`` is true if each record becomes
    one row.

    If the source's ``options`` are given and each record becomes one row, the expected number is the number of records
    according to the upstream's log, provided that the log contains this number. The expected number applies only to the
    rows that the batch writes, because Spark may read more rows than the ranges contain, and filter them afterwards.
    Raises the exceptions of the connector's ``read_batch``.
    """
    if options is not None and is_row_by_row and isinstance(kind, _LoggedCounts):
        logged = kind.logged_records(options, ranges)
        if logged is not None:
            return Expected(least=logged, most=logged, limits_of="the log of its input")
    counts = getattr(kind, "offsets_count", None)
    if counts not in (EXACTLY, AT_MOST):
        return ANY
    offsets = sum(end - start for start, end in ranges.values())
    return Expected(
        least=offsets if counts == EXACTLY else 0,
        most=offsets,
        limits_of=f"the range of {offsets} offsets",
        of_read=not is_row_by_row,
        is_row_by_row=is_row_by_row,
    )


def at_most(expected: Expected) -> Expected:
    """Returns the expectation for a query that may drop rows. The number of written rows then has only an upper
    limit."""
    if expected.of_read:
        return ANY
    return Expected(most=expected.most, limits_of=expected.limits_of)


def of_rows_read(expected: Expected) -> Expected:
    """Returns the expectation for a query that may drop rows, but whose read rows are counted. The limits apply to the
    rows that the query reads."""
    return replace(expected, of_read=True, is_row_by_row=False)


def exactly(rows: int) -> Expected:
    """Returns the expectation that exactly ``rows`` rows are written. The rows are persisted and have been counted."""
    return Expected(least=rows, most=rows, limits_of="the stored part of the batch")


def rows_read(plan: Any) -> int | None:
    """The number of rows that the leaves of an executed Spark plan returned; None if a leaf has no count, or if the
    plan has more than 16 leaves."""
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
