"""The status line shows nothing in the first second, then the activity and progress, and nothing after the end of the
statement."""

from __future__ import annotations

import io
import re
import signal
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.terminal.status_line import Doing, StatusLine, line_of
from rw_sql.runtime.observe.statement_progress import JobPhase
from tests.integration.processes import at_a_terminal
from tests.support.waits import LAST_RESORT_SECONDS, wait_until

if TYPE_CHECKING:
    from pathlib import Path

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
MAKING = JobPhase(job="mv-9", name="m", phase="reading history", done=300, total=5000)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_line_has_what_runs_and_each_job() -> None:
    assert line_of(Doing("waiting for its backfill", (MAKING,)), 72.9) == (
        "running for 1 min 13 s: waiting for its backfill; m (mv-9): reading history, 300 of 5,000 rows"
    )
    many = tuple(JobPhase(job=f"mv-{n}", name=f"v{n}", phase="STARTING") for n in range(10))
    assert line_of(Doing("x", many), 1).endswith("; v7 (mv-7): STARTING; 2 more")


@pytest.mark.long
def test_lines_without_a_terminal() -> None:
    stream, shown = io.StringIO(), threading.Semaphore(0)
    stream_write = stream.write

    def write(text: str) -> int:
        written = stream_write(text)
        if "\n" in text:
            shown.release()
        return written

    stream.write = write  # type: ignore[method-assign]
    status = StatusLine(lambda: Doing("planning"), stream=stream)
    with status.running():
        assert shown.acquire(timeout=LAST_RESORT_SECONDS)
        assert shown.acquire(timeout=LAST_RESORT_SECONDS)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "running for 1 s: planning"
    assert len(lines) == 2


def test_no_redrawn_line_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as many CI services do
    stream = io.StringIO()
    with StatusLine(lambda: Doing("planning"), stream=stream).running():
        wait_until(lambda: "planning" in stream.getvalue(), "the status")
    assert stream.getvalue() == "running for 1 s: planning\n"


def test_a_short_statement_shows_nothing_and_quiet_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    described = threading.Event()

    def describe() -> Doing:
        described.set()
        return Doing("planning")

    clock, stream = Clock(), io.StringIO()
    status = StatusLine(describe, stream=stream, clock=clock)
    with status.running():
        pass
    assert (stream.getvalue(), described.is_set()) == ("", False)
    quiet = StatusLine(describe, stream=stream, is_quiet=True)
    with quiet.running():
        assert described.wait(LAST_RESORT_SECONDS)
    assert stream.getvalue() == ""


def test_a_description_that_fails_does_not_end_the_display() -> None:
    described = threading.Event()

    def describe() -> Doing:
        if not described.is_set():
            described.set()
            raise KeyError("a job")
        return Doing("planning")

    stream = Terminal()
    status = StatusLine(describe, stream=stream)
    with status.running():
        wait_until(lambda: "planning" in stream.getvalue(), "the next description")


def test_what_describes_slowly_draws_nothing_behind_the_end() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def describe() -> Doing:
        begun.set()
        may_end.wait(LAST_RESORT_SECONDS)
        ended.set()
        return Doing("planning")

    stream = Terminal()
    status = StatusLine(describe, stream=stream)
    with status.running():
        assert begun.wait(LAST_RESORT_SECONDS)
        with status.hidden():
            assert stream.getvalue() == ""
    may_end.set()
    assert ended.wait(LAST_RESORT_SECONDS)
    with status.running():  # the same thread takes the next statement
        pass
    assert stream.getvalue() == ""


_FILE_AS_STDERR = """
import os, sys, tempfile, threading
from rw_sql.cli.shell.loop import Shell
from rw_sql.cli.terminal.status_line import Doing
class Backend:
    def progress(self):
        return Doing("starting Spark")
with Shell(Backend(), is_interactive=True)._status.running():
    threading.Event().wait(1.2)
    file = tempfile.TemporaryFile()
    os.dup2(file.fileno(), 2)
    threading.Event().wait(30)
"""


@pytest.mark.long
def test_the_shells_line_goes_on_while_standard_error_is_a_file(tmp_path: Path) -> None:
    with at_a_terminal([sys.executable, "-c", _FILE_AS_STDERR], tmp_path, {"TERM": "xterm"}) as terminal:
        terminal.read_until("1 s  starting Spark")
        terminal.read_until("3 s  starting Spark")


def test_the_terminal_can_echo_ctrl_c_behind_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the echo went on in the next line, a part of the status would stay on the screen."""
    monkeypatch.setenv("COLUMNS", "60")
    stream = Terminal()
    jobs = tuple(JobPhase(job=f"mv-{n}", name="a_long_name" * 9, phase="reading history") for n in range(2))
    with StatusLine(lambda: Doing("waiting", jobs), stream=stream).running():
        wait_until(lambda: stream.getvalue().count("…") >= 2, "the status")
    *_, first, last = (line for line in ANSI.sub("", stream.getvalue()).splitlines() if "a_long_name" in line)
    assert (len(first), len(last)) == (60, 60 - len("^C^C^C^C"))


def test_a_second_ctrl_c_waits_until_the_line_is_removed() -> None:
    stream = Terminal()
    status = StatusLine(lambda: Doing("planning"), stream=stream)
    erase = status._erase

    def erase_slowly() -> None:
        signal.raise_signal(signal.SIGINT)
        erase()

    def run() -> None:
        with status.running():
            wait_until(lambda: "planning" in stream.getvalue(), "the status")
            status._erase = erase_slowly  # type: ignore[method-assign]

    # A shell script's background jobs, such as a run of these tests, ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run()
        assert status._live is None
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
