"""Facts about records and groups that only the brokers can provide: committed offsets, holes between offsets, times of
records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from rw_sql.connectors.base import GroupOffsets
from rw_sql.connectors.datagen.source import DatagenConnector
from rw_sql.connectors.kafka import peek as kafka_peek
from rw_sql.connectors.kafka.source import KafkaConnector
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo

KAFKA = KafkaConnector()


def options(broker: BrokerInfo, topic: str) -> dict[str, str]:
    return {"properties.bootstrap.server": broker.bootstrap, "topic": topic}


def put(broker: BrokerInfo, topic: str, count: int, *, partition: int = 0, at_ms: int | None = None) -> None:
    times = [None if at_ms is None else at_ms + number for number in range(count)]
    records = [
        Record(
            value=b"x", key=b"%d" % number, partition=partition, timestamp_ms=None if at_ms is None else at_ms + number
        )
        for number, time in enumerate(times)
    ]
    produce(broker.bootstrap, topic, records)


def commit(broker: BrokerInfo, group: str, *parts: tuple[str, int, int]) -> None:
    """Returns once the group's coordinator, which may just be loading, has taken all of them."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for _ in range(100):
        wanted = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(*part) for part in parts])
        (future,) = admin.alter_consumer_group_offsets([wanted]).values()
        if all(part.error is None for part in future.result(30).topic_partitions):
            return
        admin.poll(0.1)
    raise AssertionError(f"group {group} takes no offsets")


@pytest.mark.kafka
def test_what_a_group_has_committed(broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 3)
    put(broker, topic_name, 9)
    commit(broker, topic_name, (topic_name, 0, 4), (topic_name, 1, 0))
    splits = [f"{topic_name}:{part}" for part in range(3)]
    found = KAFKA.group_offsets(options(broker, topic_name), topic_name, splits)
    assert found == GroupOffsets(offsets={splits[0]: 4, splits[1]: 0})
    other = KAFKA.group_offsets(options(broker, topic_name), f"{topic_name}.none", splits)
    assert other.offsets == {}
    assert topic_name in other.groups


@pytest.mark.kafka
def test_a_group_that_reads_has_members(broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    put(broker, topic_name, 3)
    maker: Any = ck.Consumer
    consumer = maker({"bootstrap.servers": broker.bootstrap, "group.id": topic_name, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic_name])
        message = consumer.poll(60)
        assert message is not None
        consumer.commit(message, asynchronous=False)
        found = KAFKA.group_offsets(options(broker, topic_name), topic_name, [f"{topic_name}:0"])
    finally:
        consumer.close()
    assert found == GroupOffsets(offsets={f"{topic_name}:0": 1}, members=1)


@pytest.mark.kafka
def test_topics_whose_offsets_count_records_and_those_whose_do_not(broker: BrokerInfo, topic_name: str) -> None:
    kinds = ("plain", "compacted", "marked", "empty", "open")
    plain, compacted, marked, empty, unfinished = (f"{topic_name}.{kind}" for kind in kinds)
    create_topic(broker.bootstrap, plain, 3)
    create_topic(broker.bootstrap, compacted, 1, {"cleanup.policy": "compact,delete"})
    create_topic(broker.bootstrap, marked, 2)
    create_topic(broker.bootstrap, empty, 2)
    for topic in (plain, compacted):
        put(broker, topic, 40)
    maker: Any = ck.Producer
    producer = maker({"bootstrap.servers": broker.bootstrap, "transactional.id": marked})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(marked, b"x", partition=1)
    producer.commit_transaction(30)
    create_topic(broker.bootstrap, unfinished, 1)
    producer.begin_transaction()
    producer.produce(unfinished, b"x")
    producer.flush(30)
    try:
        found = KAFKA.sparse_topics(options(broker, f"{plain},{compacted},{marked},{empty},{unfinished}"))
    finally:
        producer.abort_transaction(30)
    assert found == {compacted: "compacted", marked: "transactional", unfinished: "transactional"}


@pytest.mark.kafka
def test_the_same_offsets_are_looked_at_once(
    broker: BrokerInfo, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Any] = []
    look = kafka_peek._topics_with_holes

    def counted(*given: Any, **named: Any) -> frozenset[str]:
        looks.append(named["ends"])
        return look(*given, **named)

    monkeypatch.setattr(kafka_peek, "_topics_with_holes", counted)
    create_topic(broker.bootstrap, topic_name, 1)
    for records in (3, 1):
        put(broker, topic_name, records)
        for _ in range(2):
            assert KAFKA.sparse_topics(options(broker, topic_name)) == {}
    assert looks == [{(topic_name, 0): 3}, {(topic_name, 0): 4}]


@pytest.mark.kafka
def test_when_waiting_records_were_written(broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 2)
    put(broker, topic_name, 5, at_ms=1_700_000_000_000)
    found = KAFKA.record_times(options(broker, topic_name), {f"{topic_name}:0": 3, f"{topic_name}:1": 0})
    assert found == {f"{topic_name}:0": 1_700_000_000_003}


@pytest.mark.long
def test_brokers_that_do_not_answer_are_a_reason_not_to_count() -> None:
    nowhere = {"properties.bootstrap.server": "127.0.0.1:1", "topic": "t"}
    (why,) = KAFKA.sparse_topics(nowhere, timeout=1).values()
    assert why.startswith("it is unknown whether every offset has a record: ")
    with pytest.raises(SqlError, match="the brokers do not answer"):
        KAFKA.group_offsets(nowhere, "g", ["t:0"], timeout=1)


def test_generated_rows_have_no_groups_and_no_holes() -> None:
    datagen = DatagenConnector()
    assert datagen.sparse_topics({}) == {}
    assert datagen.record_times({}, {"1-0": 3}) == {}
    with pytest.raises(SqlError, match="no consumer groups"):
        datagen.group_offsets({}, "g", ["1-0"])
