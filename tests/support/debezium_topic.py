"""A table of PostgreSQL whose changes Debezium's connector writes to a topic, as Avro or JSON."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.cli.servers.kafka_topics import create_topic, delete_topic
from rw_sql.connectors.schemas.client import RegistryClient
from tests.support.kafka_connect import avro_converter
from tests.support.postgres import PASSWORD
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.kafka_connect import ConnectApi
    from tests.support.postgres import PostgresInfo

_LOOK_SECONDS = 0.5


@dataclass(slots=True)
class DebeziumTopic:
    """The changes of the table ``table`` of the schema ``public`` in ``topic``.

    ``settings`` are the settings of the connector that differ from the defaults. The topic must have the changes of one
    table only, so each table has a connector of its own.
    """

    postgres: PostgresInfo
    connect: ConnectApi
    bootstrap: str
    registry: str
    table: str
    settings: Mapping[str, str] = field(default_factory=dict)
    partitions: int = 1
    name: str = field(default_factory=lambda: f"d{uuid.uuid4().hex[:10]}")

    @property
    def topic(self) -> str:
        """The name that Debezium gives the topic."""
        return f"{self.name}.public.{self.table}"

    def start(self) -> None:
        """Creates the topic and the connector, and waits until the connector follows the database's changes."""
        create_topic(self.bootstrap, self.topic, self.partitions)
        config = {
            "database.hostname": "127.0.0.1",
            "database.port": str(self.postgres.port),
            "database.user": self.postgres.user,
            "database.password": PASSWORD,
            "database.dbname": "postgres",
            "plugin.name": "pgoutput",
            "topic.prefix": self.name,
            "slot.name": self.name,
            "publication.name": self.name,
            "publication.autocreate.mode": "filtered",
            "table.include.list": f"public.{self.table}",
            "schema.name.adjustment.mode": "avro",
            "field.name.adjustment.mode": "avro",
            "poll.interval.ms": "20",
            **avro_converter("key", self.registry),
            **avro_converter("value", self.registry),
            **self.settings,
        }
        self.connect.create(self.name, config)
        self._wait(self._is_following, "Debezium follows the changes")

    def catch_up(self) -> None:
        """Waits until Kafka has every change of the database so far. The table must have a row.

        The connector acknowledges a transaction only when it reads a later transaction. Each check therefore updates a
        row without changing the row's values.
        """
        ((end,),) = self.postgres.run("SELECT pg_current_wal_lsn()")

        def is_there() -> bool:
            self.postgres.run(
                f"UPDATE {self.table} SET mark = mark WHERE ctid = (SELECT ctid FROM {self.table} LIMIT 1)"
            )
            return self._confirmed_from(end)

        self._wait(is_there, "Kafka has the database's changes")

    def versions(self, part: str = "value") -> int:
        """The number of schemas of the topic's values or keys."""
        return len(RegistryClient({"schema.registry": self.registry}).ids_of(f"{self.topic}-{part}"))

    def stop(self) -> None:
        """Deletes the connector, its slot, the table and the topic."""
        self.connect.delete(self.name)
        wait_until(lambda: not self._is_following(), "Debezium leaves its slot", look_seconds=_LOOK_SECONDS)
        self.postgres.run(f"SELECT pg_drop_replication_slot('{self.name}')")
        self.postgres.run(f"DROP PUBLICATION {self.name}")
        self.postgres.run(f"DROP TABLE {self.table} CASCADE")
        delete_topic(self.bootstrap, self.topic)

    def _is_following(self) -> bool:
        return bool(self.postgres.run(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{self.name}' AND active"))

    def _confirmed_from(self, lsn: str) -> bool:
        return bool(
            self.postgres.run(
                f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{self.name}' "
                f"AND confirmed_flush_lsn > '{lsn}'::pg_lsn"
            )
        )

    def _wait(self, is_met: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            self.connect.check(self.name)
            return is_met()

        wait_until(is_so, what, look_seconds=_LOOK_SECONDS)
