"""Kafka records with timestamps that Spark's reader cannot represent, such as nanoseconds."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from tests.integration.attached import READER, AttachedSession, wait_until

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}


def send(broker: BrokerInfo, topic: str, first: int, count: int, *odd: int) -> None:
    """Records with ``count`` ids from ``first`` on; the timestamps of the ids in ``odd`` are in nanoseconds."""
    produce(
        broker.bootstrap,
        topic,
        [
            Record(
                value=json.dumps({"id": id_}).encode(),
                partition=id_ % 2,
                timestamp_ms=time.time_ns() if id_ in odd else 1_700_000_000_000 + id_,
            )
            for id_ in range(first, first + count)
        ],
    )


def create(session: AttachedSession, broker: BrokerInfo, topic: str, include: str = "") -> None:
    session.sql(
        f"CREATE SOURCE orders (id INT) INCLUDE timestamp AS at {include} WITH (connector = 'kafka', "
        f"topic = '{topic}', properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON"
    )


def test_a_timestamp_in_nanoseconds_is_null_in_every_read(
    session: AttachedSession, broker: BrokerInfo, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in READER:
        monkeypatch.setattr(module, "SMALL_ROWS", -1)  # Spark reads every batch.
    create_topic(broker.bootstrap, topic_name, 2, ANY_TIME)
    create(session, broker, topic_name)
    odd = {3, 8, 12, 20}
    send(broker, topic_name, 0, 10, *odd)
    everything = "SELECT id, unix_millis(at) AS at FROM orders"

    def rows(count: int) -> list[tuple[int, int | None]]:
        return [(id_, None if id_ in odd else 1_700_000_000_000 + id_) for id_ in range(count)]

    assert sorted((row.id, row.at) for row in session.sql(everything)) == rows(10)
    session.sql("CREATE MATERIALIZED VIEW v AS SELECT id, unix_millis(at) AS at FROM orders")
    assert session.flushed_rows_of("v") == rows(10)
    for count, each in ((7, (12,)), (2, ()), (11, (20,))):
        send(broker, topic_name, len(session.rows_of("v")), count, *each)
        session.flushed_rows_of("v")
    assert session.rows_of("v") == rows(30)
    session.sql("CREATE MATERIALIZED VIEW w AS SELECT id, unix_millis(at) AS at FROM orders")
    assert session.flushed_rows_of("w") == rows(30)


def test_headers_of_such_a_record_stall_the_source_until_it_is_passed(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, 2, ANY_TIME)
    session.allow_unsafe()
    create(session, broker, topic_name, "INCLUDE header AS h")
    session.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM orders")
    send(broker, topic_name, 0, 10, 5)
    reasons: list[str] = []

    def is_stalled() -> bool:
        reasons[:] = [job.reason for job in session.jobs().values() if job.state == "STALLED"]
        return bool(reasons)

    wait_until(is_stalled, "the source has stalled")
    assert f"UNREADABLE {topic_name}:1: the timestamp of the record at offset 2 has more digits" in reasons[0]
    assert f"INJECT SOURCE OFFSETS orders VALUES ('{topic_name}:1' = 3)" in reasons[0]
    session.run(
        "PAUSE SOURCE orders",
        f"INJECT SOURCE OFFSETS orders VALUES ('{topic_name}:1' = 3)",
        "RESUME SOURCE orders",
    )
    send(broker, topic_name, 10, 10)
    found = {id_ for (id_,) in session.flushed_rows_of("v")}
    assert found >= {0, 2, 4, 6, 8, 7, 9, *range(10, 20)}
    assert 5 not in found


def test_a_view_that_reads_the_topic_itself_names_the_record(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, 2, ANY_TIME)
    session.allow_unsafe()
    session.sql("SET streaming_use_shared_source = false")
    create(session, broker, topic_name)
    session.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM orders")
    send(broker, topic_name, 0, 10, 5)
    reasons: list[str] = []

    def is_stalled() -> bool:
        reasons[:] = [job.reason for job in session.jobs().values() if job.state == "STALLED"]
        return bool(reasons)

    wait_until(is_stalled, "the view has stalled")
    assert reasons[0].startswith(f"UNREADABLE {topic_name}:1: the query of v, which reads orders itself, cannot read")
    assert f"INJECT SOURCE OFFSETS orders VALUES ('{topic_name}:1' = 3)" in reasons[0]
    session.run(
        "PAUSE SOURCE orders",
        f"INJECT SOURCE OFFSETS orders VALUES ('{topic_name}:1' = 3)",
        "RESUME SOURCE orders",
    )
    send(broker, topic_name, 10, 10)
    found = {id_ for (id_,) in session.flushed_rows_of("v")}
    assert found >= {0, 2, 4, 6, 8, 7, 9, *range(10, 20)}
    assert 5 not in found
