"""Errors in the shell: none ends it, because its process may run the jobs of the warehouse."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.interface.exit_codes import DONE, FAILED, INTERRUPTED
from rw_sql.cli.shell.backend import Backend
from rw_sql.cli.shell.loop import Shell
from tests.support.warehouses import Absence, WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(*written.source(2, "my source"), written.view(3, "my view", 2))
    return written


@contextmanager
def shell_on(written: WrittenWarehouse) -> Iterator[Shell]:
    """A shell without Spark. It takes the standard output that the test has at this moment."""
    backend = Backend(written.uri)
    yield Shell(backend, is_interactive=False)
    backend.close()


def test_watch_outlasts_an_error_of_the_store(
    written: WrittenWarehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rw_sql.cli.shell.loop.time.sleep", Absence(written.folder))
    with shell_on(written) as shell:
        assert shell.run("SHOW SOURCES") == DONE
        assert shell.run("SHOW SOURCES \\watch 1") == DONE
    said = capsys.readouterr()
    assert said.out.count("my source") == 3
    assert said.err.count("RW418") == 1


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "soon"])
def test_watch_takes_a_number_of_seconds(
    written: WrittenWarehouse, capsys: pytest.CaptureFixture[str], seconds: str
) -> None:
    with shell_on(written) as shell:
        assert shell.run(f"SHOW SOURCES \\watch {seconds}") not in (DONE, INTERRUPTED)
    assert f'"{seconds}" is not a number of seconds' in capsys.readouterr().err


def test_an_error_without_a_code_is_shown_too(
    written: WrittenWarehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: str) -> None:
        raise ValueError("year 10000 is out of range")

    with shell_on(written) as shell:
        monkeypatch.setattr(shell.backend, "answer_early", fails)
        assert shell.run("SHOW SOURCES") == FAILED
    assert "ValueError: year 10000 is out of range" in capsys.readouterr().err


@pytest.mark.parametrize("name", ['"my view"', "my view"])
def test_an_object_with_a_blank_in_its_name_is_described(
    written: WrittenWarehouse, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    with shell_on(written) as shell:
        assert shell.run(f"\\d {name}") == DONE
    assert "BIGINT" in capsys.readouterr().out.upper()


@pytest.mark.parametrize(
    ("text", "is_aborted"),
    [
        ("SHOW SOURCES LIKE :'nothing'", True),
        ("\\i missing.sql", True),
        ("\\nothing\nSHOW SOURCES", True),
        ("SHOW SOURCES \\watch soon", True),
        ("\\nothing", False),
        ("SHOW SOURCES; \\nothing", False),
        ("SHOW SOURCES", False),
    ],
)
def test_a_block_is_aborted_if_a_statement_does_not_run(
    written: WrittenWarehouse, monkeypatch: pytest.MonkeyPatch, text: str, is_aborted: bool
) -> None:
    aborted: list[str] = []
    with shell_on(written) as shell:
        monkeypatch.setattr(shell.backend, "abort_block", lambda: aborted.append(text))
        shell.run(text)
    assert bool(aborted) is is_aborted
