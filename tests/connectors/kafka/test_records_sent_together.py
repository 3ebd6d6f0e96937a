"""Records are sent together again after a batch whose records had to be sent one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rw_sql.connectors.kafka import sink as kafka_sink
from rw_sql.connectors.kafka.sink import KafkaSink, KafkaWriter, records
from rw_sql.connectors.sink import RefusedRowsError
from tests.support.sink_batches import batch, shape

OPTIONS = {"properties.bootstrap.server": "127.0.0.1:1", "topic": "t"}


class Brokers:
    """Brokers that refuse a request if one of its records is too large for the topic."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.requests: list[list[bytes]] = []

    def producer(self, properties: dict[str, Any], **_: Any) -> Producer:
        return Producer(self, int(properties.get("batch.num.messages", 10_000)), properties.get("batch.size"))


class Refusal:
    def code(self) -> int:
        from confluent_kafka import KafkaError

        return KafkaError.MSG_SIZE_TOO_LARGE


class Producer:
    """Sends up to ``most`` records in a request."""

    def __init__(self, brokers: Brokers, most: int, size: int | None) -> None:
        self.brokers, self.most, self.size = brokers, most, size
        self.waiting: list[tuple[bytes, Any]] = []

    def produce(self, _: str, value: bytes, __: bytes, on_delivery: Any) -> None:
        self.waiting.append((value, on_delivery))

    def poll(self, _: float) -> None:
        pass

    def flush(self, _: float) -> int:
        while self.waiting:
            sent, self.waiting = self.waiting[: self.most], self.waiting[self.most :]
            self.brokers.requests.append([value for value, _ in sent])
            is_good = all(len(value) <= self.brokers.limit for value, _ in sent)
            for value, delivered in sent:
                delivered(None if is_good else Refusal(), value)
        return 0

    def purge(self) -> None:
        self.waiting = []


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers(100)
    monkeypatch.setattr("confluent_kafka.Producer", made.producer)
    monkeypatch.setattr(kafka_sink, "_most_bytes", lambda spec, options: 500)
    return made


def test_after_a_refused_record_the_next_batches_are_sent_together(brokers: Brokers) -> None:
    writer = KafkaWriter(KafkaSink().spec, OPTIONS, shape("upsert", "id", encode="JSON"))
    good = batch((1, "a"), (2, "b"), (3, "c"))
    for _ in range(2):
        brokers.requests = []
        with pytest.raises(RefusedRowsError) as refused:
            writer.write(batch((1, "a"), (2, "b" * 200), (3, "c")), 0)
        assert [each.index for each in refused.value.refusals] == [1]
        assert [len(request) for request in brokers.requests] == [3, 1, 1, 1]
        brokers.requests = []
        writer.write(good, 1)
        assert [len(request) for request in brokers.requests] == [3]
    # The limit of the topic was not known before.
    assert writer._producer.size == 500 - 200


def test_a_sink_that_sends_each_record_alone_sends_it_once(brokers: Brokers) -> None:
    given = OPTIONS | {"properties.batch.num.messages": "1"}
    writer = KafkaWriter(KafkaSink().spec, given, shape("upsert", "id", encode="JSON"))
    with pytest.raises(RefusedRowsError):
        writer.write(batch((1, "a"), (2, "b" * 200)), 0)
    assert [len(request) for request in brokers.requests] == [1, 1]


def test_the_keys_of_debezium_records_are_json_also_for_an_older_sink_with_key_encode() -> None:
    of = shape("debezium", "id", encode="JSON")
    rows = batch((1, "a"), (None, "b"))
    old = replace(of, key_encode="TEXT")
    assert list(records(rows, old, now_ms=1)) == list(records(rows, of, now_ms=1))
