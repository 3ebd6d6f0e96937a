"""The expected result of made_up_rows.sql: its rows are numbered, so their counts follow from arithmetic."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

ROWS_BEFORE, ROWS_AFTER = 20_000, 32_000
OVERLAP = 500
"""The offsets injected by made_up_rows.sql (4875 in each of four splits) begin at row 19,500."""

GROUPS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected contents of the views: all rows, those read twice, and the rows of each group."""

    rows: int
    repeated: int
    by_group: dict[int, int]


def _expect(ids: list[int]) -> Expected:
    return Expected(
        rows=len(ids), repeated=len(ids) - len(set(ids)), by_group=dict(Counter(number % GROUPS for number in ids))
    )


BEFORE = _expect([*range(ROWS_BEFORE)])
AFTER = _expect([*range(ROWS_BEFORE), *range(ROWS_BEFORE - OVERLAP, ROWS_AFTER)])
