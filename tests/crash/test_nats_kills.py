"""A process that reads a NATS stream is killed between a batch's commit and Spark's own: each message is there once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.stream_kills import check_each_message_is_there_once

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.nats, pytest.mark.long]

MESSAGES = 400


def test_each_message_is_there_once(spark: SparkSession, nats_server: NatsServer, tmp_path: Path) -> None:
    nats_server.create("KILLED")
    nats_server.publish("KILLED", [b'{"id": %d}' % number for number in range(MESSAGES)])
    given = f"connector = 'nats', server_url = '{nats_server.url}', stream = 'KILLED', subject = '>'"
    check_each_message_is_there_once(spark, tmp_path, given, MESSAGES)
    nats_server.delete("KILLED")
