"""Larger batches for a snapshot of an idle log, because only so many batches may end at one place of the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.connectors.mysql_cdc.positions import STEPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.connectors.changes import TableProgress

_FEW_STEPS = STEPS // 2
"""How many batches of an idle log may end at one place before chunks are gathered to larger batches."""


@dataclass(slots=True)
class Gathering:
    """Counts the rows of chunks that have left at the newest place of the log."""

    _place: int = 0
    _rows: int = 0

    def note(self, position: int, rows: int) -> None:
        """Rows have left at a position."""
        place = position // STEPS
        self._rows = rows + (self._rows if place == self._place else 0)
        self._place = place

    def rows_at(self, position: int, progress: Iterable[TableProgress]) -> int:
        """The least number of rows in the next batch of chunks: 0 while few batches have ended at this place.

        Later it is a part of all rows that have left here, so that the numbers that remain suffice for a multiple of
        them. ``progress`` tells how many these are after a restart.
        """
        place, step = divmod(position, STEPS)
        if step < _FEW_STEPS:
            return 0
        if place != self._place:
            self._place = place
            self._rows = sum(each.rows_done for each in progress if not each.is_done)
        return self._rows // 64
