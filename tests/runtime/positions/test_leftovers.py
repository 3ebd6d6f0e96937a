"""Temporary files of an interrupted start are removed, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.runtime.positions.leftovers import remove_leftovers
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

_TEMPORARY = ("offsets/.0.6f1d.tmp", "offsets/..0.6f1d.tmp.crc", "offsets/0.6f1d.writing", "commits/.0.6f1d.tmp")


def _checkpoint(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_checkpoint_without_a_batch_is_emptied(tmp_path: Path) -> None:
    _checkpoint(tmp_path, "metadata", *_TEMPORARY)
    remove_leftovers(Warehouse.at(str(tmp_path)), str(tmp_path))
    assert _files(tmp_path) == {"metadata"}


def test_a_checkpoint_with_a_batch_is_left_as_it_is(tmp_path: Path) -> None:
    for batch in ("offsets/0", "commits/0"):
        folder = tmp_path / batch.replace("/", "-")
        _checkpoint(folder, batch, *_TEMPORARY)
        remove_leftovers(Warehouse.at(str(folder)), str(folder))
        assert _files(folder) == {batch, *_TEMPORARY}


def test_there_may_be_no_checkpoint(tmp_path: Path) -> None:
    remove_leftovers(Warehouse.at(str(tmp_path)), f"{tmp_path}/none")
    assert not _files(tmp_path)
