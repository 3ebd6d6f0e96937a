"""Enlarges the batches of a snapshot while the server's log does not grow, because only a limited number of batches can
end at one position of the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.connectors.mysql_cdc.positions import STEPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.connectors.changes import TableProgress

_FEW_STEPS = STEPS // 2
"""The number of batches at one position of the log after which chunks are combined into larger batches."""


@dataclass(slots=True)
class Gathering:
    """Counts the rows of the chunks that were emitted at the last position of the log."""

    _place: int = 0
    _rows: int = 0

    def note(self, position: int, rows: int) -> None:
        """Notes that rows were emitted at ``position``."""
        place = position // STEPS
        self._rows = rows + (self._rows if place == self._place else 0)
        self._place = place

    def rows_at(self, position: int, progress: Iterable[TableProgress]) -> int:
        """The minimum number of rows in the next batch of chunks; 0 while few batches have ended at this position.

        After many batches, the minimum is a fraction of all rows that were emitted at this position, so that the
        remaining batch numbers suffice for a much larger table. After a restart, ``progress`` provides the number of
        emitted rows.
        """
        place, step = divmod(position, STEPS)
        if step < _FEW_STEPS:
            return 0
        if place != self._place:
            self._place = place
            self._rows = sum(each.rows_done for each in progress if not each.is_done)
        return self._rows // 64
