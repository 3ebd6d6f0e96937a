"""A current folder that was deleted, and a user without a home folder: what works without them, and one sentence for
what does not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from rw_sql.cli.main import app
from rw_sql.cli.servers.schema_registry import registry_runner
from rw_sql.cli.shell.prompt import history_file, make_prompt
from rw_sql.errors import FILE_UNREADABLE, SqlError
from rw_sql.metastore.commits import user_name
from rw_sql.runtime.spark.jar_cache import remember_jars, remembered_jars
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.session.java import check_java
from tests.cli.test_environment import fake_java

if TYPE_CHECKING:
    from pathlib import Path

DELETED = "the current folder of this process was deleted"


@pytest.fixture
def deleted_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which was deleted."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    return folder


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a name and a home folder, as containers start programs."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54_321)


@pytest.mark.usefixtures("deleted_folder")
@pytest.mark.parametrize(
    "words", ["status", "source list", "diff .", "checkpoint show cp", "dev kafka start", "dev kafka stop", "test ."]
)
def test_a_command_in_a_deleted_folder_says_so(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RW_SQL_WAREHOUSE", raising=False)
    with pytest.raises(SystemExit) as ended:
        app(words.split())
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"RW408: {DELETED}\nHINT: cd to a folder that exists\n"


@pytest.mark.usefixtures("deleted_folder")
def test_only_relative_paths_need_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Warehouse.at(str(tmp_path / "w")).uri == str(tmp_path / "w")
    with pytest.raises(SqlError, match=DELETED):
        Warehouse.at("w")
    fake_java(tmp_path, "Error occurred during initialization of VM")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SqlError, match=DELETED):
        check_java()


@pytest.mark.usefixtures("nobody")
def test_a_user_without_a_home_folder_has_no_cache(tmp_path: Path) -> None:
    assert user_name() == "uid 54321"
    jar = tmp_path / "a.jar"
    jar.touch()
    remember_jars("group:artifact:1", [str(jar)])
    assert remembered_jars("group:artifact:1") is None
    for refused in (lambda: Warehouse.at("~/w"), registry_runner):
        with pytest.raises(SqlError, match="the user has no home folder") as error:
            refused()
        assert error.value.kind is FILE_UNREADABLE


@pytest.mark.usefixtures("nobody")
def test_a_shell_works_without_a_file_for_its_history(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    folder = tmp_path / "history"
    folder.mkdir()
    assert history_file() is None
    for history in (None, file / "history", folder):
        with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
            prompt = make_prompt(None, history)
            keys.send_text("SHOW SOURCES;\n")
            assert prompt.prompt("> ") == "SHOW SOURCES;"
            keys.send_text("\x1b[A\n")  # The arrow up: the entry before.
            assert prompt.prompt("> ") == "SHOW SOURCES;"


@pytest.mark.parametrize(
    "words", [["dev", "kafka", "start", "--folder"], ["dev", "kafka", "stop", "--folder"], ["--install-completion"]]
)
def test_a_folder_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    last = "bash" if words[0].startswith("--") else str(tmp_path / "file" / "folder")
    with pytest.raises(SystemExit) as ended:
        app([*words, last])
    assert ended.value.code == 2
    assert f'RW408: cannot use "{tmp_path / "file"}' in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["doctor"],
        ["lineage"],
        ["export-catalog"],
        ["source", "list"],
        ["source", "pause", "-s", "s"],
        ["takeover"],
        ["shell", "-c", "SHOW SOURCES"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("below", ["", "/folder/folder"])
def test_a_file_is_no_warehouse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], below: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended:
        app([*words, "--warehouse", f"{tmp_path}/file{below}"])
    assert ended.value.code == (1 if words[0] == "shell" else 2)
    said = capsys.readouterr().err
    assert f'RW408: "{tmp_path}/file{below}" cannot be a warehouse: "{tmp_path}/file" is a file' in said
    assert "HINT: name a folder with --warehouse PATH or RW_SQL_WAREHOUSE" in said


@pytest.mark.parametrize("words", [["status"], ["source", "list"], ["export-catalog"]], ids=" ".join)
@pytest.mark.parametrize("has_folder", [False, True])
def test_a_warehouse_that_does_not_exist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], has_folder: bool
) -> None:
    if has_folder:
        (tmp_path / "w").mkdir()
    with pytest.raises(SystemExit):
        app([*words, "--warehouse", str(tmp_path / "w")])
    code, _, said = capsys.readouterr().err.partition(": ")
    assert code == ("RW408" if words == ["export-catalog"] else "RW203")
    assert said.startswith(f"there is no warehouse at {tmp_path}/w\nHINT: name one with --warehouse PATH")
    assert (tmp_path / "w").exists() == has_folder
