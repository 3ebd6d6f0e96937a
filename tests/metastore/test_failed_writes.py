"""Failed writes of the metastore that no caller sees: they are logged, unless their cause is logged elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore import Metastore
from rw_sql.metastore.table import StoredTable

if TYPE_CHECKING:
    from pathlib import Path

READ_ONLY = "Generic LocalFileSystem error: Unable to open file /w/a.parquet#1: Read-only file system (os error 30)"


@pytest.mark.parametrize("text", [f"Kernel error: Arrow error: {READ_ONLY}", f"Failed to parse parquet: {READ_ONLY}"])
@pytest.mark.parametrize("is_explained", [True, False])
def test_a_failed_upkeep_is_logged_unless_its_cause_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str, is_explained: bool
) -> None:
    def fail(_table: StoredTable) -> None:
        raise Exception(text)

    metastore = Metastore.open(str(tmp_path / "w"))
    asked: list[str] = []

    def explained(error: Exception) -> bool:
        asked.append(str(error))
        return is_explained

    metastore.failed_writes.is_explained = explained
    monkeypatch.setattr(StoredTable, "refresh", fail)
    table = next(iter(metastore._projections.values()))
    table.upkeep()
    assert asked == [text]
    # Threads of earlier tests may log failures of their own warehouses.
    assert [text for line in caplog.messages if text in line] == ([] if is_explained else [text])
    metastore.failed_writes.forget()
    table.upkeep()
    assert any(text in line for line in caplog.messages)
    assert len(asked) == 1
