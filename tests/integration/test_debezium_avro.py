"""A table over Debezium's Avro topic equals its PostgreSQL table, with the real connector, converter and registry."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.integration.attached import AttachedSession
from tests.support.debezium_columns import Modes
from tests.support.debezium_history import History
from tests.support.debezium_topic import DebeziumTopic
from tests.support.kafka_connect import CONVERTER, running_connect

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from rw_sql.cli.servers.schema_registry import RegistryInfo
    from tests.support.postgres import PostgresInfo

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.registry,
    pytest.mark.postgres,
    pytest.mark.debezium,
    pytest.mark.long,
]

TRANSACTIONS = 15


def test_a_table_equals_the_database(
    spark: SparkSession,
    broker: BrokerInfo,
    schema_registry: RegistryInfo,
    postgres: PostgresInfo,
    tmp_path: Path,
    seed: int,
) -> None:
    modes = Modes.of(seed)
    with running_connect(tmp_path / "connect", broker.bootstrap, CONVERTER) as connect:
        topic = DebeziumTopic(
            postgres, connect, broker.bootstrap, schema_registry.url, "captured", modes.settings, modes.partitions
        )
        session = AttachedSession(spark, str(tmp_path / "warehouse"))
        session.sql("SET timezone = 'UTC'")
        history = History(topic, session, modes, random.Random(seed))
        try:
            history.create()
            history.write(TRANSACTIONS)
            history.compare()
            history.add_column()
            history.write(TRANSACTIONS)
            history.compare()
        finally:
            history.close()
            session.detach()
