"""Records whose timestamps Spark's reader cannot represent are found and read without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.connectors.fetching import UnreadableRecordError
from rw_sql.connectors.kafka import odd_times
from rw_sql.connectors.kafka import properties as kafka_properties
from rw_sql.connectors.kafka.source import KafkaConnector

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = pytest.mark.kafka

KAFKA = KafkaConnector()


def test_ranges_with_timestamps_that_spark_cannot_read(broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 2, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        at = {4: odd_times.FIRST_MS, 7: 2**63 - 1}.get(
            number, odd_times.FIRST_MS - 1 if number == 2 else 1_700_000_000_123
        )
        producer.produce(topic_name, b"%d" % number, partition=0, timestamp=at)
        producer.produce(topic_name, b"%d" % number, partition=1, timestamp=1_700_000_000_123)
    assert producer.flush(10) == 0
    options = {"properties.bootstrap.server": broker.bootstrap, "topic": topic_name}
    one, two = f"{topic_name}:0", f"{topic_name}:1"
    assert KAFKA.unstreamable(options, {one: (0, 10), two: (0, 10)}) == {one: 4}
    assert KAFKA.unstreamable(options, {one: (0, 4), two: (0, 10)}) == {}
    assert KAFKA.unstreamable(options, {one: (8, 10), two: (0, 10)}) == {one: 4}
    assert KAFKA.unstreamable(options | {"properties.bootstrap.server": "127.0.0.1:1"}, {one: (0, 1)}) == {}
    odd = {one: 4}
    assert odd_times.cut({one: (0, 10), two: (2, 9)}, odd) == ({one: (0, 4), two: (2, 9)}, {one: (4, 10)})
    assert odd_times.cut({one: (6, 10)}, odd) == ({}, {one: (6, 10)})
    assert odd_times.cut({one: (1, 3)}, odd) == ({one: (1, 3)}, {})
    assert odd_times.cut({one: (9, 9)}, odd) == ({}, {})
    properties = kafka_properties.admin_properties(KAFKA.spec, options)

    told: list[str] = []

    def unreadable(**ranges: tuple[int, int]) -> int | None:
        try:
            odd_times.require_none(
                properties, {one: ranges["one"], two: (0, 9)}, odd, "a reader", is_read_committed=True
            )
        except UnreadableRecordError as error:
            told.append(str(error))
            return error.offset
        return None

    assert (unreadable(one=(0, 5)), unreadable(one=(0, 4)), unreadable(one=(4, 5))) == (4, None, 4)
    # The brokers report only the first such record.
    assert (unreadable(one=(5, 7)), unreadable(one=(5, 9)), unreadable(one=(8, 10))) == (None, 7, None)
    assert unreadable(one=(50, 60)) is None
    assert told[0] == (
        f"UNREADABLE {one}: the timestamp of the record at offset 4 has more digits than Spark's reader accepts, and a "
        "reader needs that reader"
    )
    reader = odd_times.KafkaPartReader(is_read_committed=True)
    found = [row for table in reader.read(properties, [one, 1, 8]) for row in table.to_pylist()]
    assert [row["value"] for row in found] == [b"%d" % number for number in range(1, 8)]
    assert [row["_rw_offset"] for row in found if row["timestamp"] is None] == [2, 4, 7]
    with pytest.raises(OSError, match=f"{one}: "):
        list(reader.read(properties, [one, 50, 60]))


def test_ranges_with_markers_are_read_to_their_ends(broker: BrokerInfo, topic_name: str) -> None:
    topic = topic_name
    create_topic(broker.bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for value, is_kept in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        (producer.commit_transaction if is_kept else producer.abort_transaction)()
    options = {"properties.bootstrap.server": broker.bootstrap, "topic": topic}
    properties = kafka_properties.admin_properties(KAFKA.spec, options)
    for start, end, values in ((0, 6, [b"a", b"c"]), (1, 4, []), (3, 5, [b"c"]), (5, 6, [])):
        read = odd_times.KafkaPartReader(is_read_committed=True).read(properties, [f"{topic}:0", start, end])
        assert [row["value"] for table in read for row in table.to_pylist()] == values
