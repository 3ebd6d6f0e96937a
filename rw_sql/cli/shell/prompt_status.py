"""Shows the status line of ``spark.sql`` at an interactive Python prompt, such as in ``rw-sql pyspark``, ``python`` and
IPython."""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from rw_sql.cli.terminal.status_line import SHOWN_AFTER, StatusLine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.cli.terminal.status_line import Progress


def show_at_prompt() -> None:
    """Shows a status line for statements that are typed at a Python prompt of this terminal and take more than a
    second."""
    if sys.stderr is not None and sys.stderr.isatty():
        from rw_sql.session.shown_status import show_statements

        show_statements(PromptStatus)


class PromptStatus(StatusLine):
    """A status line for statements that are typed at a Python prompt, but not for the statements of a program.

    The status line is not shown if Spark's progress bars are enabled, because the bars use the same line of the
    terminal. ``rw_sql.connect`` and ``rw-sql pyspark`` disable the bars.
    """

    @contextmanager
    def running(self, *, line_after: float = SHOWN_AFTER) -> Iterator[None]:
        """A context manager that shows the status of the code in the ``with`` block, unless Python is running a script
        or a startup file."""
        # Python sets sys.ps1 only after the startup file has run. The startup file may have imported rw_sql.
        with super().running(line_after=line_after) if hasattr(sys, "ps1") else nullcontext():
            yield

    def _show(self, progress: Progress, seconds: float) -> None:
        if not _has_bars():
            super()._show(progress, seconds)
        else:
            self._wait(1.0)


def _has_bars() -> bool:
    from rw_sql.runtime.spark.jvm import active_context

    context = active_context()
    return context is not None and context.getConf().get("spark.ui.showConsoleProgress", "false") == "true"
