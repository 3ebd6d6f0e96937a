"""Shows a status line for commands that run longer than a second. The line contains the elapsed time, the current
activity, and the jobs for which the command waits.

At a terminal, the line is redrawn in place, and is removed when the activity ends. Elsewhere, new lines are printed to
standard error, at intervals that grow with the elapsed time.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rich.console import Group
from rich.live import Live
from rich.text import Text

from rw_sql.cli.terminal.output import console_for
from rw_sql.runtime.status.words import duration, round_half_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

    from rich.console import Console

    from rw_sql.runtime.observe.statement_progress import JobPhase

logger = logging.getLogger(__name__)

SHOWN_AFTER = 1.0
"""The time in seconds after which the status line of a statement appears."""

_REDRAW_SECONDS = 0.5
_MOST_SECONDS = 60.0
"""The maximum interval in seconds between two lines on a stream that cannot be redrawn in place."""

_MOST_JOBS = 8
_BAR = 20
_ECHOED = 8
"""The number of columns that stay free at the end of the last line.

The terminal writes ``^C`` in these columns for each Ctrl-C. If ``^C`` wrapped to the next line, the status could not be
removed completely.
"""


class Progress(Protocol):
    """A running activity, and the jobs for which the activity waits."""

    @property
    def what(self) -> str:
        """The activity in words."""
        ...

    @property
    def jobs(self) -> tuple[JobPhase, ...]:
        """The phases of the jobs for which the activity waits."""
        ...


@dataclass(frozen=True, slots=True)
class Doing:
    """An activity that is not a statement, such as starting Spark."""

    what: str
    jobs: tuple[JobPhase, ...] = ()


class StatusLine:
    """The status line of a command. A separate thread calls ``describe``, which returns the current activity."""

    def __init__(
        self,
        describe: Callable[[], Progress],
        *,
        stream: TextIO | None = None,
        is_quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """If ``is_quiet`` is true, nothing is printed on streams that cannot be redrawn in place."""
        self._describe = describe
        self._stream = stream
        self._is_quiet = is_quiet
        self._clock = clock
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._started: float | None = None
        self._due = 0.0
        self._run = 0
        self._live: Live | None = None

    @contextmanager
    def running(self, *, line_after: float = SHOWN_AFTER) -> Iterator[None]:
        """A context manager that shows the status while its block runs. The status appears after a second. On a stream
        that cannot be redrawn in place, the first line is instead printed after ``line_after`` seconds."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="rw_sql-status", daemon=True)
            self._thread.start()
        with self._changed:
            self._begin()
            self._started = self._clock()
            self._resume(self._started, SHOWN_AFTER if _is_redrawn(self._console()) else line_after)
        try:
            yield
        finally:
            with _whole(), self._changed:
                self._started = None
                self._erase()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """A context manager that hides the status line while rows are printed or a question is asked."""
        with self._changed:
            started, self._started = self._started, None
            self._erase()
        try:
            yield
        finally:
            if started is not None:
                with self._changed:
                    self._started = started
                    self._resume(self._clock())

    def _begin(self) -> None:
        """Prepares the status line; does nothing in this class. :meth:`running` calls this method in the thread that
        runs the statement."""

    def _wait(self, seconds: float) -> None:
        """Delays the next status by this many seconds."""
        self._due = self._clock() + seconds

    def _console(self) -> Console:
        return console_for(self._stream or sys.stderr)

    def _resume(self, since: float, after: float = SHOWN_AFTER) -> None:
        self._run += 1
        self._due = since + after
        self._changed.notify()

    def _erase(self) -> None:
        self._run += 1
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _watch(self) -> None:
        while True:
            with self._changed:
                if self._started is None:
                    self._changed.wait()
                    continue
                left = self._due - self._clock()
                if left > 0:
                    self._changed.wait(left)
                    continue
                run = self._run
            # The lock is not held during this call. Reading the activity of the jobs may take a while, and the
            # statement must be able to end in the meantime.
            progress = self._described()
            with self._changed:
                if run == self._run and self._started is not None:
                    self._show(progress, self._clock() - self._started)

    def _described(self) -> Progress:
        """Returns the current activity. If ``describe`` raises an exception, returns an activity named ``running``
        instead, and the display continues."""
        try:
            return self._describe()
        except Exception:
            logger.debug("the activity of a statement cannot be read", exc_info=True)
            return Doing("running")

    def _show(self, progress: Progress, seconds: float) -> None:
        console = self._console()
        if _is_redrawn(console):
            if self._live is None:
                self._live = Live(
                    console=console, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
                )
                self._live.start()
            self._live.update(_drawn(progress, seconds, console.width), refresh=True)
            self._wait(_REDRAW_SECONDS)
            return
        if not self._is_quiet:
            console.print(Text(line_of(progress, seconds), style="dim"), soft_wrap=True)
        self._wait(min(_MOST_SECONDS, max(1.0, seconds)))


@contextmanager
def _whole() -> Iterator[None]:
    """A context manager for the code that removes the status line. In the main thread, a Ctrl-C during the block takes
    effect only after the block."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if interrupts:
            signal.raise_signal(signal.SIGINT)


def _is_redrawn(console: Console) -> bool:
    return console.is_terminal and not console.is_dumb_terminal


def own_stderr() -> TextIO:
    """A copy of standard error. The copy still writes to the terminal after the original descriptor is redirected to a
    file. Returns ``sys.stderr`` itself if it has no descriptor."""
    try:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError):  # a stream without a descriptor, as in a notebook
        return sys.stderr


def line_of(progress: Progress, seconds: float) -> str:
    """Returns the status in one line, such as ``running for 12 s: planning``, followed by the jobs. The parts are
    separated by ``;``."""
    jobs, more = jobs_shown(progress)
    return "; ".join(
        [f"running for {elapsed(seconds)}: {progress.what}", *map(str, jobs), *([f"{more} more"] if more else [])]
    )


def jobs_shown(progress: Progress) -> tuple[tuple[JobPhase, ...], int]:
    """Returns the jobs that a status lists, and the number of jobs that it omits."""
    return progress.jobs[:_MOST_JOBS], max(0, len(progress.jobs) - _MOST_JOBS)


def _drawn(progress: Progress, seconds: float, width: int) -> Group:
    head = Text(f"{elapsed(seconds)}  {progress.what}  (Ctrl-C cancels)", style="dim")
    shown, more = jobs_shown(progress)
    jobs = [_job(job) for job in shown]
    if more:
        jobs.append(Text(f"  {more} more", style="dim"))
    lines = [head, *jobs]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    lines[-1].truncate(max(_ECHOED, width - _ECHOED), overflow="ellipsis")
    return Group(*lines)


def _job(job: JobPhase) -> Text:
    if not job.total:
        return Text(f"  {job}", style="dim")
    filled = round(_BAR * min(1.0, job.done / job.total))
    return Text("  ").append("━" * filled, style="green").append("━" * (_BAR - filled), style="dim").append(f" {job}")


def elapsed(seconds: float) -> str:
    """A duration without fractions: ``12 s``, ``3 min 5 s``."""
    whole = round_half_up(seconds)
    return f"{whole} s" if whole < 60 else duration(seconds)
