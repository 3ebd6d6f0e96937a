"""A process that reads a NATS stream is killed between a batch's commit and Spark's own: each message is there once."""

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

    from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.nats, pytest.mark.long]

MESSAGES = 400


def test_each_message_is_there_once(spark: SparkSession, nats_server: NatsServer, tmp_path: Path) -> None:
    nats_server.create("KILLED")
    nats_server.publish("KILLED", [b'{"id": %d}' % number for number in range(MESSAGES)])
    dump = tmp_path / "rows"
    lives = Lives(
        module="tests.crash.upstream_child",
        folder=tmp_path,
        seconds=LIFE_SECONDS,
        pauses=Pauses(seed=5),
        spark=spark,
    )
    create = (
        f"CREATE SOURCE IF NOT EXISTS s (id INT) WITH (connector = 'nats', server_url = '{nats_server.url}', "
        "stream = 'KILLED', subject = '>', source_rate_limit = '50') FORMAT PLAIN ENCODE JSON"
    )
    task = {"warehouse": str(tmp_path / "warehouse"), "create": [create], "dump": str(dump)}
    status = lives.live({**task, "point": "batch.after_append@2"}, is_killed=True)
    assert status == -signal.SIGKILL, lives.said()
    assert lives.live({**task, "point": ""}, is_killed=False) == os.EX_OK
    assert sorted(json.loads(dump.read_text())) == list(range(MESSAGES))
    nats_server.delete("KILLED")
