"""A process that reads files is killed between a batch's commit and Spark's own: each row is there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ageing import Pauses
from tests.support.waits import LIFE_SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.crash]

FILES, ROWS = 40, 25


def life(warehouse: Path, folder: Path, dump: Path, point: str) -> int:
    """One process on the warehouse: what it ends with."""
    task = json.dumps({"warehouse": str(warehouse), "folder": str(folder), "dump": str(dump), "point": point})
    return subprocess.run(
        [sys.executable, "-m", "tests.crash.file_child", task], timeout=LIFE_SECONDS, check=False
    ).returncode


def test_each_row_is_there_once(tmp_path: Path) -> None:
    folder, dump = tmp_path / "in", tmp_path / "rows"
    folder.mkdir()
    wanted: list[int] = []
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        (folder / f"{number:03}.json").write_text("".join(f'{{"id":{id_}}}\n' for id_ in ids))
        wanted += ids
    assert life(tmp_path / "warehouse", folder, dump, "batch.after_append@2") == -signal.SIGKILL
    Pauses(seed=6).pass_over(tmp_path / "warehouse")
    assert life(tmp_path / "warehouse", folder, dump, "") == os.EX_OK
    assert sorted(json.loads(dump.read_text())) == wanted
