"""Spark starts in a thread of its own while the shell's prompt is shown; afterwards errors still reach the terminal."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.patch_stdout import patch_stdout

from rw_sql.cli.spark_start import beside_prompt, start_spark
from rw_sql.cli.terminal.output import print_error

if TYPE_CHECKING:
    from pathlib import Path


class Terminal(DummyOutput):
    """The output of a prompt, with the descriptor of standard error."""

    def fileno(self) -> int:
        return 2


@pytest.mark.parametrize("has_prompt_at_the_end", [False, True], ids=["a-statement-waits", "at-the-next-prompt"])
def test_errors_are_shown_after_a_start_that_began_at_a_prompt(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    has_prompt_at_the_end: bool,
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def connect(*_: object, **__: object) -> object:
        begun.set()
        assert may_end.wait(10)
        return object()

    monkeypatch.setattr("rw_sql.session.attach.connect", connect)
    starting = threading.Thread(
        target=start_spark,
        args=(str(tmp_path),),
        kwargs={"on_failure": sys.stderr.write, "is_beside_prompt": True, "uses_archive": False},
    )

    def end() -> None:
        may_end.set()
        starting.join()

    before = sys.stderr
    with create_pipe_input() as keys, create_app_session(input=keys, output=Terminal()), beside_prompt():
        with patch_stdout(raw=True):
            starting.start()
            assert begun.wait(10)
        print_error("while Spark starts")
        if has_prompt_at_the_end:
            with patch_stdout(raw=True):
                end()
        else:
            end()
        print_error("after the start")
    assert sys.stderr is before
    assert capfd.readouterr().err == "while Spark starts\nafter the start\n"
