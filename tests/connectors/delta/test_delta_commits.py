"""Commits of a Delta table as a source reads them, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rw_sql.connectors.delta.commits import read_commit

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("separator", ["\x85", "\u2028", "\u2029", "\v", "\x1c"])
def test_values_in_statistics_may_have_any_character(tmp_path: Path, separator: str) -> None:
    words = pa.table({"word": [f"{separator}a", f"z{separator}"]})
    for mode, changes in (("append", ""), ("append", ""), ("overwrite", "WRITE")):
        write_deltalake(str(tmp_path), words, mode=mode)  # type: ignore[call-overload]
        (*_, newest) = sorted(path.stem for path in (tmp_path / "_delta_log").glob("*.json"))
        commit = read_commit(str(tmp_path), int(newest))
        assert commit is not None
        assert (len(commit.appended), commit.changes) == (1, changes)
