"""A process that reads a RabbitMQ stream is killed within a batch, after its commit: each message is there once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.stream_kills import check_each_message_is_there_once

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.rabbitmq_server import RabbitServer

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.rabbitmq, pytest.mark.long]

MESSAGES = 400


def test_each_message_is_there_once(spark: SparkSession, rabbit_server: RabbitServer, tmp_path: Path) -> None:
    rabbit_server.create("killed")
    rabbit_server.publish("killed", [b'{"id": %d}' % number for number in range(MESSAGES)])
    given = f"connector = 'rabbitmq', url = '{rabbit_server.url}', stream = 'killed'"
    check_each_message_is_there_once(spark, tmp_path, given, MESSAGES)
    rabbit_server.delete("killed")
