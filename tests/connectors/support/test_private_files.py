"""Files of secret values: one per value, readable by this user only, also after /tmp was cleaned, and copied to
executors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.support import private_files as module
from rw_sql.connectors.support.private_files import (
    discard,
    files_for_executors,
    hold,
    private_file,
    receive,
    remove_abandoned,
    share_with_executors,
)

if TYPE_CHECKING:
    from pathlib import Path


def modes(folder: Path) -> set[int]:
    return {folder.stat().st_mode & 0o777, *(file.stat().st_mode & 0o777 for file in folder.iterdir())}


def ended_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def change_holder(folder: Path, **changes: object) -> None:
    for note in folder.glob(".held-by-*"):
        note.write_text(json.dumps(json.loads(note.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def test_a_deleted_folder_is_made_again() -> None:
    file = private_file("hunter2")
    assert private_file("hunter2") == file
    shutil.rmtree(file.parent)
    again = private_file("hunter2")
    assert again == file
    assert again.read_text(encoding="utf-8") == "hunter2"
    assert (again.stat().st_mode & 0o777, again.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    # The folder still has its holder, so that no other process deletes it.
    remove_abandoned(str(file.parent.parent))
    assert again.exists()


def test_nothing_is_left_of_files_that_jobs_make_while_the_process_ends(tmp_path: Path) -> None:
    script = (
        "import atexit\n"
        "from rw_sql.connectors.support.private_files import private_file\n"
        "atexit.register(private_file, 'made while jobs stop')\n"
        "private_file('hunter2')\n"
    )
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True)
    assert list(tmp_path.iterdir()) == []


def test_executors_get_only_the_files_that_their_options_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_for_executors", {})
    named, other = private_file("a certificate\r\n"), private_file("the driver's own")
    share_with_executors(["/etc/hosts", f"fs://{named}", 7, None, str(named)])
    assert files_for_executors() == {str(named): "a certificate\r\n"}
    assert other.exists()


def test_files_are_copied_to_the_same_paths_for_one_user_only(tmp_path: Path) -> None:
    folder = tmp_path / "not there yet" / "rw_sql-secrets-held-x"
    files = {str(folder / "a"): "hunter2\n", str(folder / "b"): "ü"}
    assert receive(files, os.getpid()) == ""
    assert {path: (folder / path).read_bytes().decode() for path in files} == files
    assert modes(folder) == {0o700, 0o600}
    # A file that exists stays as it is.
    inode = (folder / "a").stat().st_ino
    assert receive(files, os.getpid()) == ""
    assert (folder / "a").stat().st_ino == inode
    # Only complete files are in the folder.
    assert {file.name for file in folder.iterdir() if not file.name.startswith(".held-by-")} == {"a", "b"}


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert receive({str(tmp_path / "file" / "a"): "x"}, os.getpid()) == f"{tmp_path / 'file'} is not a folder"
    said = receive({str(tmp_path / "file" / "folder" / "a"): "x"}, os.getpid())
    assert said.startswith("it cannot write ")
    assert said.endswith((": file exists", ": not a directory"))


def test_a_folder_of_another_user_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    (folder / "a").write_text("of the other user", encoding="utf-8")
    said = receive({str(folder / "a"): "x"}, os.getpid())
    assert said == f"{folder} belongs to the user with the id {owner}, and the executor's user is {owner + 1}"


@pytest.mark.parametrize("is_executor", [False, True], ids=["driver", "executor"])
def test_only_folders_whose_holders_have_all_ended_are_removed(tmp_path: Path, is_executor: bool) -> None:
    folder = tmp_path / "rw_sql-secrets-held-x"
    folder.mkdir(mode=0o700)
    hold(str(folder), ended_pid(), is_driver=not is_executor)
    hold(str(folder), os.getpid(), is_driver=False)
    remove_abandoned(str(tmp_path))
    assert folder.exists()
    for note in folder.glob(".held-by-*"):
        if f'"pid": {os.getpid()}' in note.read_text(encoding="utf-8"):
            note.unlink()
    remove_abandoned(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_host_is_never_removed(tmp_path: Path) -> None:
    folder = tmp_path / "rw_sql-secrets-held-x"
    folder.mkdir(mode=0o700)
    hold(str(folder), ended_pid(), is_driver=True)
    for changes in (
        {"host": "another", "boot": "b"},
        {"space": "pid:[1]"},
        {"boot": "", "space": "", "host": "another"},
    ):
        change_holder(folder, **changes)
        remove_abandoned(str(tmp_path))
        assert folder.exists(), changes
    # The processes of this host have ended if the host was started again.
    hold(str(folder), ended_pid(), is_driver=True)
    for note in folder.glob(".held-by-*"):
        if '"host": "another"' in note.read_text(encoding="utf-8"):
            note.unlink()
    change_holder(folder, boot="an earlier one")
    remove_abandoned(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_known_holder_stays_unless_an_older_version_made_it(tmp_path: Path) -> None:
    names = {f"rw_sql-secrets-{ended_pid()}-x", f"rw_sql-secrets-{os.getpid()}-x", "rw_sql-secrets-held-x", "other"}
    for name in names:
        (tmp_path / name).mkdir(mode=0o700)
    remove_abandoned(str(tmp_path))
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {f"rw_sql-secrets-{os.getpid()}-x", "rw_sql-secrets-held-x", "other"}


def test_an_executor_removes_its_copy_but_never_the_folder_of_the_driver(tmp_path: Path) -> None:
    files = {str(tmp_path / "copy" / "a"): "x"}
    assert receive(files, os.getpid()) == ""
    discard(str(tmp_path / "copy"))
    discard(str(tmp_path / "copy"))
    assert list(tmp_path.iterdir()) == []
    assert receive(files, os.getpid()) == ""
    hold(str(tmp_path / "copy"), os.getpid(), is_driver=True)
    discard(str(tmp_path / "copy"))
    assert (tmp_path / "copy" / "a").exists()
