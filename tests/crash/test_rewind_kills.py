"""A process in a REWIND is killed with SIGKILL: the next process finishes it, with the same rows as without a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.crash.chain import ROOT
from tests.runtime.mini_streams import MiniWarehouse, expected
from tests.support.ageing import HOUR, WEEK, grow_old
from tests.support.waits import LIFE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path


def carry_out(warehouse: str, point: str) -> int:
    """Runs a process that is to be killed at a fault point; returns its exit status."""
    return subprocess.run(
        [sys.executable, "-m", "tests.crash.rewind_child", warehouse],
        cwd=ROOT,
        env={**os.environ, "RW_SQL_FAULT": point},
        capture_output=True,
        timeout=LIFE_SECONDS,
        check=False,
    ).returncode


@pytest.mark.crash
@pytest.mark.long
def test_killed_twice_on_the_way(tmp_path: Path) -> None:
    mini = MiniWarehouse.at(tmp_path / "warehouse")
    mini.create_view("counts")
    mini.create_view("pairs")
    mini.ingest(4, 6)
    mini.read_views()
    mini.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('1-0' = 6) ALLOW DUPLICATES")
    operation = mini.epoch()
    # The rewind point too is made by a process that follows one that was killed while making it.
    warehouse = mini.context.warehouse.uri
    assert carry_out(warehouse, "rewind_point.after_copy") == -signal.SIGKILL
    grow_old(tmp_path / "warehouse", HOUR)
    assert carry_out(warehouse, "") == 0
    mini.run("RESUME SOURCE s")
    mini.ingest(9)
    mini.read_views()
    mini.run(f"REWIND SOURCE s TO OPERATION {operation}")
    assert carry_out(warehouse, "rewind.checkpoint_removed@2") == -signal.SIGKILL
    grow_old(tmp_path / "warehouse", WEEK)
    assert carry_out(warehouse, "rewind.fenced") == 0, "what was taken back is not taken back again"
    wanted = expected(range(10))
    assert {name: mini.rows(name) for name in ("counts", "pairs")} == {
        name: wanted[name] for name in ("counts", "pairs")
    }
    mini.ingest(3)
    mini.read_views()
    assert mini.rows("pairs") == expected(range(13))["pairs"]
