"""The status line of ``spark.sql`` at a Python prompt: shown only there, and away while Spark draws its bars."""

from __future__ import annotations

import io
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import rw_sql
from rw_sql.cli.shell import prompt_status
from rw_sql.cli.shell.prompt_status import PromptStatus
from rw_sql.cli.terminal.status_line import Doing
from rw_sql.session import shown_status
from tests.support.waits import LAST_RESORT_SECONDS, wait_until

if TYPE_CHECKING:
    from rw_sql.session.shown_status import StatusDisplay


class Terminal(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_status._Installed, "display", None)


def installed() -> StatusDisplay | None:
    return shown_status._Installed.display


def test_the_status_is_installed_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert rw_sql.attach is not None
    assert installed() is None  # a notebook, or a prompt whose errors go to a file
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert rw_sql.connect is not None
    assert isinstance(installed(), PromptStatus)


def test_the_status_appears_at_a_prompt_that_starts_after_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_status, "_has_bars", lambda: False)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    status = PromptStatus(lambda: Doing("planning"), stream=stream)
    with status.running():  # a program, or the startup file of the prompt
        assert status._started is None
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with status.running():
        wait_until(lambda: "planning" in stream.getvalue(), "the status")


@pytest.mark.parametrize("has_bars", [True, False])
def test_the_status_gives_way_to_sparks_bars(monkeypatch: pytest.MonkeyPatch, has_bars: bool) -> None:
    monkeypatch.setattr(prompt_status, "_has_bars", lambda: has_bars)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    described = threading.Semaphore(0)

    def describe() -> Doing:
        described.release()
        return Doing("planning")

    stream = Terminal()
    with PromptStatus(describe, stream=stream).running():
        for _ in range(2):  # the first was shown, or not, before the second is described
            assert described.acquire(timeout=LAST_RESORT_SECONDS)
    assert ("planning" in stream.getvalue()) is not has_bars
