"""Files that a command rewrites keep their former content, byte-order mark and line ends unless all is well."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.formatting.command import run_fmt
from rw_sql.cli.text_input import as_before, replace_text, write_text
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from pathlib import Path

FORMATTED, TYPED = "SELECT 1;\n", "select   1;\n"


def full(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_full_disk_leaves_the_file_that_fmt_would_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.sql"
    file.write_text(TYPED, encoding="utf-8")
    monkeypatch.setattr(os, "fsync", full)
    assert run_fmt([str(file)]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == TYPED
    with pytest.raises(SqlError, match="No space left on device"):
        write_text(str(file), FORMATTED)
    assert file.read_text(encoding="utf-8") == TYPED
    assert names(tmp_path) == ["a.sql"]


def test_a_rewritten_file_keeps_its_mode_and_its_links(tmp_path: Path) -> None:
    file, link, twin = tmp_path / "a.sql", tmp_path / "link.sql", tmp_path / "twin.sql"
    file.write_text(TYPED, encoding="utf-8")
    file.chmod(0o640)
    link.symlink_to(file)
    assert run_fmt([str(link)]) == 0
    assert link.is_symlink()
    assert (file.read_text(encoding="utf-8"), file.stat().st_mode & 0o777) == (FORMATTED, 0o640)
    os.link(file, twin)
    replace_text(str(twin), TYPED)
    assert file.read_text(encoding="utf-8") == TYPED
    assert names(tmp_path) == ["a.sql", "link.sql", "twin.sql"]


def test_a_file_that_cannot_be_replaced_in_its_folder_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.sql"
    file.write_text(TYPED, encoding="utf-8")

    def busy(*_: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr("pathlib.Path.replace", busy)
    write_text(str(file), FORMATTED)
    assert file.read_text(encoding="utf-8") == FORMATTED
    assert names(tmp_path) == ["a.sql"]
    write_text("/dev/null", FORMATTED)
    with pytest.raises(SqlError, match="cannot write"):
        write_text(str(tmp_path / "none" / "a.sql"), FORMATTED)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\n", "c\nd\n"),
        ("a\r\nb\r\n", "c\r\nd\r\n"),
        ("\ufeffa\r\n", "\ufeffc\r\nd\r\n"),
        ("\ufeffa\n", "\ufeffc\nd\n"),
        ("a\r\nb\n", "c\nd\n"),
    ],
)
def test_a_text_gets_the_form_of_the_file_that_it_replaces(before: str, after: str) -> None:
    assert as_before("c\nd\n", before) == after


def test_a_pipe_gets_the_text() -> None:
    """/dev/fd/N of a pipe, as in ``--file >(jq .)``, is a link that leads to no path."""
    reads, writes = os.pipe()
    write_text(f"/dev/fd/{writes}", FORMATTED)
    os.close(writes)
    with open(reads, encoding="utf-8") as found:
        assert found.read() == FORMATTED


def test_a_rewritten_file_keeps_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.sql"
    file.write_text(TYPED, encoding="utf-8")
    other = next((group for group in os.getgroups() if group != file.stat().st_gid), None)
    if os.geteuid() == 0:
        other = 12345
    if other is None:
        pytest.skip("this user has only one group")
    os.chown(file, -1, other)
    replace_text(str(file), FORMATTED)
    assert (file.read_text(encoding="utf-8"), file.stat().st_gid) == (FORMATTED, other)

    def forbidden(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "chown", forbidden)
    replace_text(str(file), TYPED)
    assert (file.read_text(encoding="utf-8"), file.stat().st_gid) == (TYPED, other)
    assert names(tmp_path) == ["a.sql"]


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_file_in_a_folder_without_the_right_to_write_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A file that is mounted into a container with a read-only root file system, for example."""
    file = tmp_path / "a.sql"
    file.write_text(TYPED, encoding="utf-8")
    opened = type(file).open

    def open_(path: Path, mode: str = "r", *given: object, **named: object) -> object:
        if mode == "xb":
            raise OSError(code, os.strerror(code))
        return opened(path, mode, *given, **named)  # type: ignore[call-overload]

    monkeypatch.setattr("pathlib.Path.open", open_)
    replace_text(str(file), FORMATTED)
    monkeypatch.undo()
    assert file.read_text(encoding="utf-8") == FORMATTED
