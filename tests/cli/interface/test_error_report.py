"""A command that was asked for JSON prints JSON on standard output, also if an error ends it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.cli.interface.error_report import remember_output
from rw_sql.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOTHING = "there is no warehouse at nowhere"
WRONG = "expected a value, found: EOF"
COMMANDS = {
    "diff folder -w warehouse": (1, "RW101", WRONG),
    "diff folder -w warehouse --exit-code": (1, "RW101", WRONG),
    "diff missing -w warehouse": (2, "RW408", '"missing" is not a folder'),
    "apply folder -w warehouse": (1, "RW101", WRONG),
    "apply missing.json -w warehouse": (2, "RW408", '"missing.json" is not a folder'),
    "rollback totals -w nowhere": (1, "RW203", NOTHING),
    "run missing.sql": (2, "RW408", 'cannot read "missing.sql": No such file or directory'),
    "test folder --var nothing": (2, "RW107", "--var takes NAME=VALUE, not 'nothing'"),
    "check folder -w nowhere": (2, "RW408", NOTHING),
    "check folder --catalog missing": (2, "RW408", 'cannot read "missing": No such file or directory'),
    "check folder --var nothing": (2, "RW107", "--var takes NAME=VALUE, not 'nothing'"),
    "status -w nowhere": (1, "RW203", NOTHING),
    "status -w nowhere --watch": (1, "RW203", NOTHING),
    "lineage -w nowhere": (1, "RW203", NOTHING),
    "doctor -w nowhere": (1, "RW203", NOTHING),
    "takeover -w nowhere": (1, "RW203", NOTHING),
    "source list -w nowhere": (1, "RW203", NOTHING),
    "source show -s orders -w nowhere": (1, "RW203", NOTHING),
    "source pause -s orders -w nowhere": (1, "RW203", NOTHING),
    "checkpoint show nowhere": (1, "RW420", "'nowhere' is not the checkpoint of a streaming query"),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.sql").write_text("CREATE SOURCE s (a INT) WITH (connector = ")
    yield tmp_path
    remember_output("text")


def ran(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        app(args=command.split())
    out, error = capsys.readouterr()
    return int(str(ended.value.code)), out, error


@pytest.mark.parametrize("command", COMMANDS)
def test_an_error_is_json_too(command: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, code, message = COMMANDS[command]
    ended, out, told = ran(f"{command} -o json", capsys)
    error = json.loads(out)["error"]
    assert (ended, error["code"]) == (status, code)
    assert error["message"].replace(f"{place}/", "").startswith(message)
    assert error["code"] in told
    assert error["message"] in told
    assert set(error) == {"code", "sqlstate", "message", "hint", "detail", "file", "line", "column"}


def test_text_stays_on_standard_error(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran("status -w nowhere -o json", capsys)
    ended, out, told = ran("status -w nowhere", capsys)
    assert (ended, out) == (1, "")
    assert NOTHING in told.replace(f"{place}/", "")


def test_a_file_that_cannot_be_read_is_a_line_of_check(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended, out, _ = ran("check missing.sql folder -o json", capsys)
    lines: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert ended == 2
    assert [(line["file"], line["ok"], line["code"]) for line in lines] == [
        ("missing.sql", False, "RW408"),
        ("folder/a.sql", False, "RW101"),
    ]


@pytest.mark.parametrize("path", ["missing.slt", "folder", "folder/a.sql"])
def test_a_path_without_a_test_is_a_test_with_an_error(
    path: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, out, told = ran(f"test {path} -o json", capsys)
    (test,) = json.loads(out)["tests"]
    assert (ended, test["file"], test["status"]) == (2, path, "error")
    assert test["message"] in told
    ended, out, _ = ran(f"test {path} -o junit", capsys)
    assert ended == 2
    assert '<error message="' in out


def test_a_secret_in_the_statement_is_not_shown(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "folder" / "a.sql").write_text("CREATE SECRET s WITH (backend = 'meta') AS 'hunter2' nonsense;")
    _, out, told = ran("diff folder -w warehouse -o json", capsys)
    assert "error" in json.loads(out)
    assert "hunter2" not in out + told


def test_an_error_of_apply_that_is_no_statements_is_one_document(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")

    monkeypatch.setattr("rw_sql.cli.deploy.commands.StatementRunner", missing)
    (place / "folder" / "a.sql").write_text("CREATE CONNECTION c WITH (type = 'kafka', a = 'b');")
    ended, out, _ = ran("apply folder -w warehouse --yes -o json", capsys)
    assert ended == 2
    assert json.loads(out)["error"]["code"] == "RW416"


def test_the_error_is_flushed_into_a_pipe(place: Path) -> None:
    program = [sys.executable, "-c", "from rw_sql.cli.main import app; app(prog_name='rw-sql')"]
    done = subprocess.run(
        [*program, "doctor", "-w", "nowhere", "--output=json"], cwd=place, capture_output=True, text=True, check=False
    )
    assert json.loads(done.stdout)["error"]["code"] == "RW203"
    assert done.returncode == 1
