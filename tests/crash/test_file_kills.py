"""A process that reads files is killed between a batch's commit and Spark's own: each row is there once."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.crash.lives import Lives
from tests.support.ageing import Pauses
from tests.support.waits import LIFE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.long]

FILES, ROWS = 40, 25


def test_each_row_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    folder, dump = tmp_path / "in", tmp_path / "rows"
    folder.mkdir()
    wanted: list[int] = []
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        (folder / f"{number:03}.json").write_text("".join(f'{{"id":{id_}}}\n' for id_ in ids))
        wanted += ids
    pauses = Pauses(seed=4)
    lives = Lives(
        module="tests.crash.upstream_child",
        folder=tmp_path,
        seconds=LIFE_SECONDS,
        pauses=pauses,
        spark=spark,
    )
    create = (
        f"CREATE SOURCE IF NOT EXISTS s (id INT) WITH (connector = 'posix_fs', posix_fs.root = '{folder}', "
        "source_rate_limit = '50') FORMAT PLAIN ENCODE JSON"
    )
    task = {"warehouse": str(tmp_path / "warehouse"), "create": [create], "dump": str(dump)}
    status = lives.live({**task, "point": "batch.after_append@2"}, is_killed=True)
    assert status == -signal.SIGKILL, lives.said()
    assert lives.live({**task, "point": ""}, is_killed=False) == os.EX_OK
    assert pauses.drawn == ["a week later"]
    assert sorted(json.loads(dump.read_text())) == wanted
