"""The ranges that the commits of a source's log have read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.runtime.control.inspector import WarehouseInspector
from rw_sql.runtime.delta import delta_log
from rw_sql.runtime.positions.commit_history import note_stretches
from tests.crash.test_positions import ROWS, Log

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from rw_sql.runtime.support.warehouse import Warehouse


def test_ranges_since_a_version_need_no_earlier_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path)
    output = log.start()
    for batch in range(6):
        output.append_rows(ROWS, batch, {"a:0": (batch, batch + 1)})
    last = log.log_version()
    read: list[int] = []
    actions = delta_log.read_actions

    def noted(warehouse: Warehouse, table: str, version: int) -> list[dict[str, Any]]:
        read.append(version)
        return actions(warehouse, table, version)

    monkeypatch.setattr(delta_log, "read_actions", noted)

    def ranges(down_to: int) -> list[tuple[int, int]]:
        read.clear()
        positions = WarehouseInspector(log.context, log.metastore.snapshot()).positions
        return [told.ranges["a:0"] for told in positions.committed_ranges(1, down_to=down_to)]

    assert ranges(last - 1) == [(4, 5), (5, 6)]
    assert sorted(read) == [last - 1, last]
    assert len(ranges(0)) == 6
    note_stretches(log.context.warehouse, log.metastore.snapshot(), log.source, last - 2)
    assert ranges(last - 1) == [(4, 5), (5, 6)]
    assert ranges(last - 2) == [(0, 4), (4, 5), (5, 6)]
    assert sorted(read) == [last - 1, last]
