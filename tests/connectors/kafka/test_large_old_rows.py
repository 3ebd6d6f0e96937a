"""An old row that is too large for the topic, because the sink has refused it, does not prevent its correction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.connectors.kafka.sink import KafkaSink, KafkaWriter
from rw_sql.connectors.sink import DELETE, INSERT, UPDATE, UPDATE_BEFORE, RefusedRowsError
from tests.support.sink_batches import batch, shape

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo

LARGE = "x" * 2_000_000
OPTIONS = {"properties.bootstrap.server": "127.0.0.1:1", "topic": "t"}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str, Any, Any]]:
    """The events that a writer sends, in place of a broker: the row's index, ``op``, ``before`` and ``after``."""
    events: list[tuple[int, str, Any, Any]] = []

    def note(_: KafkaWriter, made: list[tuple[int, tuple[bytes, bytes | None]]]) -> None:
        for index, (_key, value) in made:
            told: dict[str, Any] = {"op": "", "before": None, "after": None}
            if value is not None:
                told = json.loads(value)["payload"]
            events.append((index, told["op"], told["before"], told["after"]))

    monkeypatch.setattr(KafkaWriter, "_send", note)
    return events


def written(*rows: Any, **options: str) -> list[int]:
    """Writes a batch; returns the indexes of the refused rows."""
    writer = KafkaWriter(KafkaSink().spec, OPTIONS | options, shape("debezium", "id", encode="JSON"))
    try:
        writer.write(batch(*rows), 0)
    except RefusedRowsError as error:
        return [each.index for each in error.refusals]
    finally:
        writer.close()
    return []


def test_an_update_of_a_row_that_is_too_large_becomes_a_create_event(sent: list[Any]) -> None:
    others = ((2, "a", UPDATE_BEFORE), (2, "b", UPDATE))
    assert written((1, LARGE, UPDATE_BEFORE), *others, (1, "small", UPDATE)) == []
    assert sent == [
        (2, "u", {"id": 2, "word": "a"}, {"id": 2, "word": "b"}),
        (3, "c", None, {"id": 1, "word": "small"}),
    ]


def test_a_delete_of_a_row_that_is_too_large_has_only_the_key(sent: list[Any]) -> None:
    assert written((1, LARGE, DELETE)) == []
    assert sent == [(0, "d", {"id": 1, "word": None}, None), (0, "", None, None)]


def test_a_new_row_that_is_too_large_is_refused(sent: list[Any]) -> None:
    assert written((1, LARGE, INSERT), (2, "a", UPDATE_BEFORE), (2, LARGE, UPDATE)) == [0, 2]
    assert sent == []


@pytest.mark.kafka
def test_brokers_get_a_smaller_record_in_place_of_one_that_they_refuse(broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 1, {"max.message.bytes": "10000"})
    given = {"properties.bootstrap.server": broker.bootstrap, "topic": topic_name}
    of = shape("debezium", "id", encode="JSON")
    old = "x" * 20_000
    # The second writer is that of a user who may not read the topic's settings.
    for writer in (KafkaSink().open(given, of, "me"), KafkaWriter(KafkaSink().spec, given, of)):
        writer.write(batch((1, old, UPDATE_BEFORE), (1, "a", UPDATE), (2, old, DELETE), (3, "b")), 0)
        with pytest.raises(RefusedRowsError) as refused:
            writer.write(batch((4, old, UPDATE_BEFORE), (4, old, UPDATE), (5, "c")), 1)
        assert [each.index for each in refused.value.refusals] == [1]
        writer.close()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic_name, 0, 0)])
    end = consumer.get_watermark_offsets(TopicPartition(topic_name, 0), timeout=20)[1]
    read = [message for message in consumer.consume(end, timeout=20) if message.value() is not None]
    consumer.close()
    events = [json.loads(message.value() or b"")["payload"] for message in read]
    assert [(event["op"], event["before"], event["after"]) for event in events if event["op"] != "c"][-1:] == [
        ("d", {"id": 2, "word": None}, None)
    ]
    assert {event["after"]["id"] for event in events if event["op"] == "c"} == {1, 3, 5}
