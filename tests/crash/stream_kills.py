"""Kills a process that reads a stream between the commit of a batch and Spark's own commit of the batch. Afterwards,
each message must be in the view exactly once."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

from tests.crash.lives import Lives
from tests.support.ageing import Pauses
from tests.support.waits import LIFE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def check_each_message_is_there_once(spark: SparkSession, folder: Path, given: str, messages: int) -> None:
    """Reads a stream with ``messages`` messages ``{"id": …}`` into a view, with a kill.

    ``given`` are the options of the source, as in a statement.
    """
    dump = folder / "rows"
    lives = Lives(
        module="tests.crash.upstream_child",
        folder=folder,
        seconds=LIFE_SECONDS,
        pauses=Pauses(seed=5),
        spark=spark,
    )
    create = f"CREATE SOURCE IF NOT EXISTS s (id INT) WITH ({given}, source_rate_limit = '50') FORMAT PLAIN ENCODE JSON"
    task = {"warehouse": str(folder / "warehouse"), "create": [create], "dump": str(dump)}
    status = lives.live({**task, "point": "batch.after_append@2"}, is_killed=True)
    assert status == -signal.SIGKILL, lives.said()
    assert lives.live({**task, "point": ""}, is_killed=False) == os.EX_OK
    assert sorted(json.loads(dump.read_text())) == list(range(messages))
