"""The pager and the editor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.shell.outside import edited, pager, show_paged
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from pathlib import Path


def test_the_pager_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "more -d")
    assert pager() == ["more", "-d"]
    monkeypatch.setenv("RW_SQL_PAGER", "")
    assert pager() is None
    monkeypatch.setenv("RW_SQL_PAGER", "'a b' c")
    assert pager() == ["a b", "c"]


def test_a_long_text_goes_through_the_pager(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RW_SQL_PAGER", "tr a b")
    show_paged("aaa\n", is_long=True)
    show_paged("ccc\n", is_long=False)
    monkeypatch.setenv("RW_SQL_PAGER", "there-is-no-such-pager")
    show_paged("a\n", is_long=True)
    assert capfd.readouterr().out == "bbb\nccc\na\n"


def test_a_text_is_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "sed -i s/1/2/")
    assert edited("SELECT 1;") == "SELECT 2;"
    file = tmp_path / "a.sql"
    file.write_text("SHOW 1\n", encoding="utf-8")
    assert edited("", str(file)) == "SHOW 2"
    monkeypatch.setenv("VISUAL", "there-is-no-such-editor")
    with pytest.raises(SqlError, match="cannot be edited with there-is-no-such-editor"):
        edited("SELECT 1;")
