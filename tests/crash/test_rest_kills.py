"""A process is killed while its jobs come to rest, or while a record wakes them: each record is there once."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic
from tests.crash.lives import Lives
from tests.crash.rest_child import GOING, WAKING
from tests.integration.attached import produce_json
from tests.support.ageing import Pauses
from tests.support.waits import LIFE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.kafka, pytest.mark.long]

REST_POINTS = tuple(point.partition("@")[0] for point in GOING)
"""The fault points that only jobs at rest have."""


@pytest.mark.parametrize("point", [*GOING, *WAKING])
def test_each_record_is_there_once(
    point: str, spark: SparkSession, broker: BrokerInfo, topic_name: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    produce_json(broker.bootstrap, topic_name, [{"id": number} for number in range(10)])
    dump = tmp_path / "rows"
    lives = Lives(
        module="tests.crash.rest_child", folder=tmp_path, seconds=LIFE_SECONDS, pauses=Pauses(seed=7), spark=spark
    )
    task = {
        "warehouse": str(tmp_path / "warehouse"),
        "bootstrap": broker.bootstrap,
        "topic": topic_name,
        "dump": str(dump),
    }
    assert lives.live({**task, "point": point}, is_killed=True) == -signal.SIGKILL, lives.said()
    produce_json(broker.bootstrap, topic_name, [{"id": 100}])
    assert lives.live({**task, "point": ""}, is_killed=False) == os.EX_OK, lives.said()
    woken = [1000] if point in WAKING else []
    ids = [*range(10), 100, *woken]
    assert json.loads(dump.read_text()) == [[len(ids), sum(ids)]]
