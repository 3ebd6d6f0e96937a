"""Records that are late, missing, huge, empty or undeclared: each is in its place, and counted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from rw_sql.connectors.kafka.spark_reader import CONSUMER_CACHE, KEPT_CONSUMERS
from tests.integration.attached import AttachedSession, produce_json

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

HUGE = 10_000_000


def create(session: AttachedSession, broker: BrokerInfo, topic: str, columns: str = "id INT, name VARCHAR") -> None:
    session.sql(
        f"CREATE SOURCE orders ({columns}) WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON"
    )


def produce_huge(broker: BrokerInfo, topic: str, *values: bytes) -> None:
    """Records that are larger than a client's default limit."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 2 * HUGE})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def told(session: AttachedSession) -> dict[str, object]:
    """The row of ``orders`` in SHOW SOURCES."""
    return next(row.asDict() for row in session.sql("SHOW SOURCES") if row.name == "orders")


@pytest.mark.long
def test_what_does_not_decode_is_shown_with_its_bytes_and_counted(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, 1, {"max.message.bytes": str(2 * HUGE)})
    # More columns than Delta keeps statistics of by default; the errors are counted from statistics.
    columns = "id INT, name VARCHAR, " + ", ".join(f"c{number} INT" for number in range(30))
    create(session, broker, topic_name, columns)
    # Nothing has read it, and there is no log yet.
    assert session.sql("SELECT * FROM `orders$errors`") == []
    session.sql("CREATE MATERIALIZED VIEW v AS SELECT id, length(name) AS letters FROM orders")
    assert session.flushed_rows_of("v") == []
    produce(broker.bootstrap, topic_name, [b'{"id": 1, "name": "a"}', b'{"id": 2, "name"', Record(value=None)])
    text, junk = "x" * HUGE, b"y" * HUGE
    produce_huge(broker, topic_name, json.dumps({"id": 3, "name": text}).encode(), junk)
    produce_json(broker.bootstrap, topic_name, [{"id": 4, "name": "after"}])
    assert session.flushed_rows_of("v") == [(1, 1), (3, HUGE), (4, 5)]

    bad = {row.offset: row for row in session.sql("SELECT * FROM `orders$errors`")}
    assert list(bad[1].asDict()) == ["bytes", "split", "offset", "reason"]
    assert sorted(bad) == [1, 2, 4]
    assert {row.split for row in bad.values()} == {f"{topic_name}:0"}
    assert bytes(bad[1].bytes) == b'{"id": 2, "name"'
    assert bad[2].bytes is None
    assert bytes(bad[4].bytes) == junk
    assert "not JSON" in bad[1].reason
    assert bad[2].reason == "the record has no value"
    assert session.spark.table("`orders$errors`").count() == 3
    source = told(session)
    assert (source["decode_errors"], source["log_rows"], source["state"]) == (3, 6, "RUNNING")
    assert source["log_since"] is not None
    size = source["log_bytes"]
    assert isinstance(size, int)
    assert size > 0
    session.run("DROP MATERIALIZED VIEW v", "DROP SOURCE orders")
    assert not session.spark.catalog.tableExists("`orders$errors`")


@pytest.mark.long
def test_late_rows_are_dropped_by_windows_alone(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    create(session, broker, topic_name, "id INT, at TIMESTAMPTZ, WATERMARK FOR at AS at - INTERVAL '10' SECOND")
    session.run(
        "CREATE MATERIALIZED VIEW every AS SELECT id FROM orders",
        "CREATE MATERIALIZED VIEW windows AS SELECT minute.start AS w, count(*) AS n "
        "FROM (SELECT window(at, '1 minute') AS minute FROM orders) GROUP BY minute",
    )
    for rows in (
        [{"id": 1, "at": "2026-01-01T00:00:30Z"}],
        [{"id": 2, "at": "2026-01-01T00:05:00Z"}],
        [{"id": 3, "at": "2026-01-01T00:00:40Z"}],
        [{"id": 4, "at": "2026-01-01T00:04:55Z"}],
    ):
        produce_json(broker.bootstrap, topic_name, rows)
        session.sql("FLUSH")
    assert session.rows_of("every") == [(1,), (2,), (3,), (4,)]
    found = session.sql("SELECT minute(w) AS at, n FROM windows")
    assert sorted((row.at, row.n) for row in found) == [(0, 1), (4, 1), (5, 1)]
    assert told(session)["decode_errors"] == 0


def test_an_empty_topic_and_one_record(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 3)
    create(session, broker, topic_name)
    session.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM orders")
    assert session.flushed_rows_of("v") == []
    produce_json(broker.bootstrap, topic_name, [{"id": 1}], 1)
    assert session.flushed_rows_of("v") == [(1,)]
    assert told(session)["log_rows"] == 1


def test_sparks_reader_keeps_its_consumers(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 3)
    produce_json(broker.bootstrap, topic_name, [{"id": 1}], 1)
    session.run(
        f"CREATE SOURCE orders (id INT) INCLUDE header AS h WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM orders",
    )
    assert session.flushed_rows_of("v") == [(1,)]
    # For a topic with many partitions, Spark would create most consumers again for each batch.
    settings: Any = session.spark._jvm
    assert settings.org.apache.spark.SparkEnv.get().conf().get(CONSUMER_CACHE) == str(KEPT_CONSUMERS)


@pytest.mark.long
def test_a_rate_of_0_hangs_nothing(spark: SparkSession, tmp_path: Path) -> None:
    session = AttachedSession(spark, str(tmp_path / "warehouse"))
    try:
        session.run(
            "CREATE SOURCE orders (id INT) WITH (connector = 'datagen', datagen.rows.total = '500', "
            "source_rate_limit = '0')",
            "CREATE MATERIALIZED VIEW v AS SELECT id FROM orders",
        )
        notices = {row.object: (row.change, row.detail) for row in session.sql("FLUSH")}
        assert notices["orders"][0] == "NOTICE"
        assert "source_rate_limit is 0" in notices["orders"][1]
        assert told(session)["state"] == "THROTTLED"
        session.run(
            "PAUSE SOURCE orders", "RESUME SOURCE orders", "ALTER SOURCE orders SET source_rate_limit = DEFAULT"
        )
        assert len(session.flushed_rows_of("v")) == 500
        session.run("ALTER SOURCE orders SET source_rate_limit = 0", "DROP SOURCE orders CASCADE")
    finally:
        session.detach()
