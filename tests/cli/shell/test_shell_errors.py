"""Errors in the shell: none ends it, because its process may run the jobs of the warehouse."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.interface.exit_codes import DONE, FAILED, INTERRUPTED
from rw_sql.cli.shell.backend import Backend
from rw_sql.cli.shell.loop import Shell, _run_shell
from rw_sql.plan.result.plan import Table
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


class BlockBackend(Backend):
    """A shell's backend without Spark, which knows only BEGIN UNSAFE, COMMIT and ROLLBACK."""

    state: str | None = None

    @property
    def block_state(self) -> str | None:
        return self.state

    def answer_early(self, text: str) -> Table | None:
        self.state = {"BEGIN UNSAFE": "open", "COMMIT": None, "ROLLBACK": None}.get(text.strip(), self.state)
        return Table(columns=(), rows=())


@pytest.mark.parametrize(
    ("way", "texts", "is_left_open"),
    [
        ("-c", ["BEGIN UNSAFE; PAUSE SOURCE s;"], True),
        ("-f", ["BEGIN UNSAFE", "PAUSE SOURCE s"], True),
        ("-c", ["BEGIN UNSAFE;\n\\q\nCOMMIT;"], True),
        ("pipe", ["BEGIN UNSAFE", "\\q\nCOMMIT"], True),
        ("pipe", ["BEGIN UNSAFE; COMMIT;"], False),
        ("-f", ["BEGIN UNSAFE", "ROLLBACK"], False),
        ("-c", ["SHOW SOURCES"], False),
    ],
)
def test_statements_that_end_inside_a_block_fail(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    way: str,
    texts: list[str],
    is_left_open: bool,
) -> None:
    files = [tmp_path / f"{number}.sql" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text + ";", encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(";\n".join(texts).encode())))
    status = _run_shell(
        BlockBackend(str(tmp_path / "w")),
        texts if way == "-c" else [],
        [str(file) for file in files] if way == "-f" else [],
    )
    assert status == (FAILED if is_left_open else DONE)
    said = capsys.readouterr().err
    if is_left_open:
        assert "RW333: the script ends inside a BEGIN UNSAFE block: no statement of the block took effect" in said
    else:
        assert said == ""


@pytest.mark.parametrize(
    ("text", "has_frame"), [("-- its plan\nEXPLAIN PAUSE SOURCE s", False), ("SELECT plan FROM t", True)]
)
def test_only_the_rows_of_explain_are_printed_as_text(
    written: WrittenWarehouse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    has_frame: bool,
) -> None:
    with shell_on(written) as shell:
        table = Table(columns=(("plan", "STRING"),), rows=(("one\ntwo",),))
        monkeypatch.setattr(shell.backend, "answer_early", lambda _: table)
        assert shell.run(text) == DONE
    assert ("(1 row)" in capsys.readouterr().out) is has_frame
