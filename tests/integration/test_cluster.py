"""A standalone Spark cluster whose executors do not all see the warehouse's folder."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.cluster import why_no_blind_worker
from tests.integration.cluster_child import ROWS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.long]

_WHY_NOT = why_no_blind_worker()


@pytest.mark.alone
@pytest.mark.skipif(bool(_WHY_NOT), reason=f"left out: {_WHY_NOT}")
def test_an_executor_that_does_not_see_the_warehouse_loses_no_row(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.cluster_child", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    # Refused before the first batch. The reason names the executor and the folder that it does not see, and the remedy.
    warehouse = tmp_path / "warehouse"
    for refused in (found["refused"], found["one_way"]):
        assert refused.startswith(f"UNSHARED {warehouse}: ")
        assert f" in {tmp_path}/blind/" in refused
        assert f"{tmp_path}/seeing/" not in refused
        assert "Mount the same folder at this path on every host" in refused
    assert "it does not see what the driver wrote: no such file or directory" in found["refused"]
    assert "the driver does not see what this executor writes" in found["one_way"]
    assert not found["was_written"]
    # Without the check, the batch stalls with both numbers and commits nothing.
    assert f"Spark's tasks report {ROWS} rows in " in found["stalled"]
    assert "no row of the batch is committed" in found["stalled"]
    assert found["committed"] == 0
    # Spark itself commits a MERGE, so the commit is reverted.
    reason, rows, batch = found["merged"]
    assert reason.startswith("MISCOUNT Spark's tasks report ")
    assert "of which the driver does not find" in reason
    assert (rows, batch) == (1, 0)
    # Once the executor sees the folder, the job continues by itself.
    assert found["is_whole"]
    assert found["left"] == []
