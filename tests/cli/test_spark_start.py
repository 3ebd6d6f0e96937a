"""Without Java, a command says so at once: before it reports that Spark starts, and before it loads Spark."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli import spark_start
from rw_sql.cli.shell.backend import Backend
from rw_sql.cli.terminal.status_line import Doing, StatusLine
from rw_sql.errors import JAVA_MISSING, SqlError

if TYPE_CHECKING:
    from contextlib import _GeneratorContextManager
    from pathlib import Path


@pytest.fixture(autouse=True)
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


class Slow(StatusLine):
    """A status line that is due at once, as on a machine where everything takes long."""

    def __init__(self) -> None:
        self.written = io.StringIO()
        super().__init__(lambda: Doing("starting Spark"), stream=self.written)
        self.has_run = False

    def running(self, *, line_after: float = 0.0) -> _GeneratorContextManager[None]:
        self.has_run = True
        return super().running(line_after=0.0)


def test_the_refusal_comes_before_the_status_line(tmp_path: Path) -> None:
    status = Slow()
    with pytest.raises(SqlError) as refused, spark_start.spark_for(str(tmp_path), status=status):
        pass
    assert refused.value.kind is JAVA_MISSING
    assert not status.has_run
    assert status.written.getvalue() == ""


def test_the_refusal_comes_before_the_line_at_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SqlError, match="needs Java"), spark_start.spark_for(str(tmp_path)):
        pass
    assert capsys.readouterr() == ("", "")


def test_the_shell_starts_no_thread_for_it(tmp_path: Path) -> None:
    backend = Backend(str(tmp_path))
    for _ in range(2):  # the second statement tries again
        with pytest.raises(SqlError, match="needs Java"):
            backend.attached()
        assert not backend.is_starting
        assert backend.phase is None
