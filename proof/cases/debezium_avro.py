"""Random histories of a PostgreSQL table whose changes Debezium writes to Kafka as Avro, in every mode of its types."""

from __future__ import annotations

import atexit
import os
import random
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from proof.harness import Facts, Proof
from proof.live import attached, broker
from rw_sql.cli.servers.schema_registry import RegistryInfo, start_registry, stop_registry
from tests.support.debezium_columns import Modes
from tests.support.debezium_history import History
from tests.support.debezium_topic import DebeziumTopic
from tests.support.kafka_connect import CONVERTER, DEBEZIUM, ConnectApi, running_connect
from tests.support.postgres import PostgresServer, running_server

_TRANSACTIONS = 40


@cache
def _servers() -> tuple[PostgresServer, ConnectApi, RegistryInfo]:
    """All servers of this process except the broker. They end together with the process."""
    ending = ExitStack()
    atexit.register(ending.close)
    folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="proof-debezium-")))
    registry = start_registry(folder / f"registry-{os.getpid()}", port=0)
    ending.callback(stop_registry, registry.folder)
    server = ending.enter_context(running_server(wal_level="logical", max_wal_senders="20", max_replication_slots="20"))
    connect = ending.enter_context(running_connect(folder / "connect", broker().bootstrap, CONVERTER))
    return server, connect, registry


def _check(seed: int, folder: Path) -> Facts:
    server, connect, registry = _servers()
    modes = Modes.of(seed)
    topic = DebeziumTopic(
        server.info, connect, broker().bootstrap, registry.url, f"t{seed}", modes.settings, modes.partitions
    )
    with attached(folder) as session:
        session.sql("SET timezone = 'UTC'")
        history = History(topic, session, modes, random.Random(seed))
        try:
            history.create()
            history.compare()
            for _ in range(2):
                history.write(_TRANSACTIONS)
                history.compare()
                history.add_column()
            history.write(_TRANSACTIONS)
            history.compare()
        finally:
            history.close()
    return dict(history.facts)


PROOF = Proof(
    name="debezium-avro",
    claim="A table over Debezium's Avro topic equals its PostgreSQL table, in every mode of Debezium's types.",
    method=(
        f"Debezium {DEBEZIUM} in Kafka Connect reads a PostgreSQL table of 30 types and writes Avro to Kafka, with "
        "Apicurio's converter and registry. Each seed has its own decimal.handling.mode (precise, string, double), "
        "time.precision.mode (adaptive, adaptive_time_microseconds, connect, isostring, microseconds, nanoseconds), "
        "binary.handling.mode, interval.handling.mode, replica identity, kind of key, tombstones, truncates and number "
        "of partitions; half of the seeds list the table's columns, the others take them from the schema. After the "
        f"snapshot, and three times after {_TRANSACTIONS} random transactions, the table has the keys of the database, "
        "every value is equal, and only truncates are errors. The transactions insert, update, change the key or a "
        "unique column, and delete; TOAST values do not change; transactions and savepoints are undone. In between, "
        "ALTER TABLE … ADD COLUMN changes the writer's schema twice, and REFRESH SCHEMA adopts it."
    ),
    seeds=range(24),
    check=_check,
)
