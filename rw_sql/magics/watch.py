"""``%rw watch``: shows the jobs with their lags, rates and backfills, and updates them in place until the cell is
interrupted."""

from __future__ import annotations

import time
from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any

from IPython.display import display

from rw_sql.magics.table import ResultTable
from rw_sql.runtime.status.words import ago, duration, owner_text, worst_first
from rw_sql.session.results import Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.runtime.status.reading import JobLine, WarehouseStatus

_COLUMNS = ("object", "kind", "state", "lag", "lag_time", "rows_per_second", "last_batch", "reason")
_NUMBERS = (False, False, False, True, True, True, True, False)


class StatusView:
    """The status of a warehouse at one moment, as HTML, and as text for front ends without HTML."""

    def __init__(self, status: WarehouseStatus) -> None:
        self._status = status
        counts = Counter(job.state for job in status.jobs)
        told = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
        self._lines = [
            owner_text(status.owner, status.epoch, status.at_ms),
            f"jobs: {told or 'none'}",
        ]
        rows = tuple(_cells(job, status.at_ms) for job in worst_first(status.jobs))
        self._table = ResultTable(Rows(columns=_COLUMNS, rows=rows), numbers=_NUMBERS)
        self._to_type = [
            f"{job.object} is STALLED: type {statement};" for job in status.stalled for statement in job.statements
        ]

    def _repr_html_(self) -> str:
        lines = "<br>".join(map(escape, self._lines))
        to_type = "".join(f"<br><b>{escape(line)}</b>" for line in self._to_type)
        return f"<div>{lines}{to_type}</div>{self._table._repr_html_()}"

    def __repr__(self) -> str:
        return "\n".join([*self._lines, *self._to_type, repr(self._table)])


def watch(look: Callable[[], WarehouseStatus], seconds: float, looks: int | None = None) -> None:
    """Displays a status and updates it every ``seconds``, until Ctrl-C or for ``looks`` updates.

    An interrupt ends the call without an error; the newest status stays visible.
    """
    show: Any = display
    handle = show(StatusView(look()), display_id=True)
    done = 1
    try:
        while looks is None or done < looks:
            time.sleep(seconds)
            handle.update(StatusView(look()))
            done += 1
    except KeyboardInterrupt:
        return


def _cells(job: JobLine, at_ms: int) -> tuple[str | None, ...]:
    return (
        job.object,
        job.kind.replace("_", " "),
        job.state,
        None if job.lag_records is None else f"{job.lag_records:,}",
        None if job.lag_seconds is None else duration(job.lag_seconds),
        None if job.rows_per_second is None else f"{job.rows_per_second:,.1f}",
        None if job.last_batch_ms is None else ago(job.last_batch_ms, at_ms),
        job.reason,
    )
