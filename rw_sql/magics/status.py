"""Shows the status of a running statement in a notebook's output: the elapsed time, and the jobs for which the
statement waits."""

from __future__ import annotations

import contextvars
from html import escape
from typing import TYPE_CHECKING, Any

from IPython.display import display

from rw_sql.cli.terminal.status_line import StatusLine, elapsed, jobs_shown, line_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.cli.terminal.status_line import Progress
    from rw_sql.runtime.observe.statement_progress import JobPhase

_REDRAW_SECONDS = 1.0


class StatusText:
    """A statement's status at one moment. In HTML, each job whose number of rows is known has a progress bar. Front
    ends without HTML show a line of text."""

    def __init__(self, progress: Progress, seconds: float) -> None:
        self._progress = progress
        self._seconds = seconds

    def __repr__(self) -> str:
        return line_of(self._progress, self._seconds)

    def _repr_html_(self) -> str:
        jobs, more = jobs_shown(self._progress)
        lines = [escape(f"{elapsed(self._seconds)}  {self._progress.what}"), *map(_job, jobs)]
        return "<br>".join([*lines, *([f"{more} more"] if more else [])])


class _Nothing:
    """The empty output that replaces the status after the statement has ended."""

    def __repr__(self) -> str:
        return ""

    def _repr_html_(self) -> str:
        return "<span></span>"


def _job(job: JobPhase) -> str:
    bar = f'<progress value="{min(job.done, job.total)}" max="{job.total}"></progress> ' if job.total else ""
    return bar + escape(str(job))


class CellStatus(StatusLine):
    """The status line in the output of a running cell. It disappears when the statement ends."""

    def __init__(self, describe: Callable[[], Progress]) -> None:
        super().__init__(describe)
        self._shown: Any = None
        # The context of this thread determines the cell in which the output appears; other threads do not have this
        # context.
        self._cell = contextvars.copy_context()

    def _begin(self) -> None:
        self._cell = contextvars.copy_context()

    def _show(self, progress: Progress, seconds: float) -> None:
        text = StatusText(progress, seconds)
        if self._shown is None:
            show: Any = display
            self._shown = self._cell.run(show, text, display_id=True)
        else:
            self._cell.run(self._shown.update, text)
        self._wait(_REDRAW_SECONDS)

    def _erase(self) -> None:
        super()._erase()
        if self._shown is not None:
            self._shown.update(_Nothing())
            self._shown = None
