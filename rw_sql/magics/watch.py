"""Implements ``%rw watch``. It shows the jobs with their lags, rates and backfills, and refreshes this display until
the user interrupts the cell."""

from __future__ import annotations

import time
from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import DeltaError
from IPython.display import display

from rw_sql.errors import SqlError
from rw_sql.magics.table import ResultTable
from rw_sql.runtime.status.words import ago, duration, owner_texts, unreadable, worst_first
from rw_sql.runtime.support.processes import now_ms
from rw_sql.session.results import Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.runtime.status.reading import JobLine, WarehouseStatus

_COLUMNS = ("object", "kind", "state", "lag", "lag_time", "rows_per_second", "last_batch", "reason")
_NUMBERS = (False, False, False, True, True, True, True, False)


class StatusView:
    """The status of a warehouse at one moment. IPython displays the status as HTML, or as text in front ends without
    HTML.

    ``problem`` is the reason why a newer status cannot be read; None if the status is up to date.
    """

    def __init__(self, status: WarehouseStatus, problem: str | None = None) -> None:
        self._problem = problem
        counts = Counter(job.state for job in status.jobs)
        told = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
        self._lines = [
            *(text for _, text in owner_texts(status)),
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
        problem = "" if self._problem is None else f"<b>{escape(self._problem)}</b><br>"
        return f"<div>{problem}{lines}{to_type}</div>{self._table._repr_html_()}"

    def __repr__(self) -> str:
        problem = [] if self._problem is None else [self._problem]
        return "\n".join([*problem, *self._lines, *self._to_type, repr(self._table)])


class _NoStatus:
    """The error that is displayed while no status has been read successfully."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def _repr_html_(self) -> str:
        return f"<div><b>{escape(self._problem)}</b></div>"

    def __repr__(self) -> str:
        return self._problem


def watch(look: Callable[[], WarehouseStatus], seconds: float, looks: int | None = None) -> None:
    """Displays the warehouse's status, and updates it every ``seconds`` seconds. Ends after ``looks`` displays; if
    ``looks`` is None, only Ctrl-C ends it.

    If the status cannot be read, the function displays the error and the last status, and tries again after
    ``seconds``. Ctrl-C raises no error, and the last status remains visible.
    """
    show: Any = display
    last: WarehouseStatus | None = None
    handle, done = None, 0
    try:
        while looks is None or done < looks:
            if done:
                time.sleep(seconds)
            problem = None
            try:
                last = look()
            except (SqlError, OSError, DeltaError) as error:
                problem = unreadable(error, None if last is None else last.at_ms, now_ms(), seconds)
            view = StatusView(last, problem) if last is not None else _NoStatus(problem or "")
            if handle is None:
                handle = show(view, display_id=True)
            else:
                handle.update(view)
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
