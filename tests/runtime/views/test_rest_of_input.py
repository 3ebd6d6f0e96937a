"""The check after a query's batch, whether the rest of the input is small, reads each commit of the input once."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rw_sql.runtime.delta.delta_log import read_actions
from rw_sql.runtime.delta.job_output import SMALL_ROWS
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.views import row_mode
from rw_sql.runtime.views.row_mode import RowMode


def _commit(table: Path, version: int, rows: int) -> None:
    added = {"path": f"{version}.parquet", "size": 10, "dataChange": True, "stats": json.dumps({"numRecords": rows})}
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020d}.json").write_text(json.dumps({"add": added}) + "\n", "utf-8")


def _end(checkpoint: Path, batch: int, version: int) -> None:
    offset = {"reservoirId": "t", "reservoirVersion": version, "index": -1, "isStartingVersion": False}
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(offset)}", "utf-8")


@pytest.mark.parametrize("is_changing", [False, True])
def test_each_commit_is_read_once(tmp_path: Path, is_changing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table, checkpoint = tmp_path / "data" / "1" / "1", tmp_path / "checkpoints" / "v"
    warehouse = Warehouse(str(tmp_path))
    read: list[int] = []

    def counted(of: Warehouse, path: str, version: int) -> list[dict[str, Any]]:
        read.append(version)
        return read_actions(of, path, version)

    monkeypatch.setattr(row_mode, "read_actions", counted)
    given = SimpleNamespace(is_changing=is_changing, live_from=None)
    run: Any = SimpleNamespace(
        context=SimpleNamespace(warehouse=warehouse),
        checkpoint=str(checkpoint),
        spec=SimpleNamespace(job="v", inputs=(given,)),
        table_of=lambda _: str(table),
    )
    nothing: Any = None
    mode = RowMode(run=run, streaming=nothing, start_query=nothing, end_query=nothing, write=nothing, writer=None)

    def is_rest_small(batch: int, end: int) -> bool:
        _end(checkpoint, batch, end)
        return mode._is_rest_small(batch)

    for version in range(12):
        _commit(table, version, 3)
    assert is_rest_small(0, 4)
    assert read == list(range(4, 12))
    for version in range(12, 16):
        _commit(table, version, 3)
    assert is_rest_small(1, 8)
    assert is_rest_small(2, 9)
    assert read == list(range(4, 16))
    # The commits after a commit that is too large are not read.
    for version, rows in ((16, SMALL_ROWS), (17, 1)):
        _commit(table, version, rows)
    assert not is_rest_small(3, 12)
    assert read == list(range(4, 17))
    assert is_rest_small(4, 17)
    assert read == list(range(4, 18))
