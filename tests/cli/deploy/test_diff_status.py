"""The exit status of ``rw-sql diff --exit-code``: 2 only for a difference, 1 for every error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.interface.error_report import remember_output
from rw_sql.cli.main import app
from rw_sql.errors import STORE_UNREACHABLE, SqlError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXT = (
    "CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = 't', "
    "properties.bootstrap.server = '127.0.0.1:9092') FORMAT PLAIN ENCODE JSON;\n"
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.sql").write_text(TEXT, encoding="utf-8")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.sql").write_text("-- nothing yet\n", encoding="utf-8")
    yield tmp_path
    remember_output("text")


def status(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        app(args=["diff", *words])
    return int(str(ended.value.code or 0))


@pytest.mark.parametrize(("folder", "expected"), [("folder", 2), ("empty", 0)])
def test_a_difference_has_its_own_status(folder: str, expected: int) -> None:
    assert status(folder, "-w", "w", "--exit-code") == expected
    assert status(folder, "-w", "w") == 0


@pytest.mark.parametrize(
    "words",
    [
        ("missing",),
        ("folder", "--env", "missing"),
        ("folder", "--var", "x"),
        ("folder", "--allow", "LOSS"),
        ("folder", "--output", "yaml"),
        ("folder", "--file", "missing/plan.json"),
        ("folder", "--catalog", "missing.json"),
        ("folder", "--catalog", "c.json", "--file", "plan.json"),
        ("folder", "--no-such-option"),
        ("folder", "another"),
        (),
    ],
    ids=" ".join,
)
def test_every_error_has_status_1(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """A nightly check takes status 2 for a difference."""
    assert status(*words) == 2 if "LOSS" not in words else 1
    assert status(*words, "--exit-code") == 1
    assert capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'deltalake'", name="deltalake"),
        PermissionError(13, "Permission denied", "w"),
        SqlError(STORE_UNREACHABLE, "the store is away"),
    ],
)
def test_an_error_while_the_changes_are_shown_has_status_1(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("rw_sql.cli.deploy.commands.show_changes", refuse)
    assert status("folder", "-w", "w", "--exit-code") == 1
    assert capsys.readouterr().err


def test_the_error_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("folder", "--file", "missing/plan.json", "--exit-code", "-o", "json") == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "RW408"
