"""A broker that refuses the consumer group of a reader still delivers the records, so that the refusal changes nothing.

The client reports the refusal once, in a message without a topic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import confluent_kafka as ck
import pytest

from rw_sql.connectors.kafka import odd_times, peek, properties, truncation
from rw_sql.connectors.kafka.fetcher import KafkaFetcher, consumer_properties
from rw_sql.connectors.kafka.source import KafkaConnector

if TYPE_CHECKING:
    from collections.abc import Sequence

KAFKA = KafkaConnector()
OPTIONS = {"properties.bootstrap.server": "localhost:9092", "topic": "t"}
PART = ("t", 0)


@dataclass
class Received:
    """A message of the client: an error, or a record with a value."""

    at: int | None = None
    fault: ck.KafkaError | None = None
    part: tuple[str, int] | None = PART

    def topic(self) -> str | None:
        return None if self.part is None else self.part[0]

    def partition(self) -> int | None:
        return None if self.part is None else self.part[1]

    def offset(self) -> int | None:
        return self.at

    def error(self) -> ck.KafkaError | None:
        return self.fault

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"v"

    def timestamp(self) -> tuple[int, int]:
        return ck.TIMESTAMP_CREATE_TIME, 1_700_000_000_000

    def leader_epoch(self) -> int:
        return 0


def refused() -> Received:
    return Received(fault=ck.KafkaError(ck.KafkaError.GROUP_AUTHORIZATION_FAILED), part=None)


def the_end(at: int) -> Received:
    return Received(at, fault=ck.KafkaError(ck.KafkaError._PARTITION_EOF))


@dataclass
class Consumer:
    """A consumer that delivers these messages, one with each poll."""

    messages: list[Received]
    closed: list[bool] = field(default_factory=list)

    def poll(self, seconds: float) -> Received | None:
        del seconds
        return self.messages.pop(0) if self.messages else None

    def consume(self, most: int, seconds: float) -> Sequence[Received]:
        del most, seconds
        return ()

    def assign(self, parts: object) -> None: ...

    def unassign(self) -> None: ...

    def seek(self, part: object) -> None: ...

    def list_topics(self, topic: str, *, timeout: float) -> None: ...

    def close(self) -> None:
        self.closed.append(True)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    made = Consumer([refused(), Received(0), Received(1), the_end(2)])
    monkeypatch.setattr(ck, "Consumer", lambda _: made)
    return made


def test_a_fetch_returns_the_records_after_the_refusal(consumer: Consumer) -> None:
    fetcher = KafkaFetcher(properties={}, is_read_committed=True, with_headers=False)
    table = fetcher.fetch({"t:0": (0, 2)})
    assert table is not None
    assert table.column("_rw_offset").to_pylist() == [0, 1]
    assert not consumer.closed


def test_another_error_still_leaves_the_batch_to_sparks_reader(consumer: Consumer) -> None:
    consumer.messages[0] = Received(fault=ck.KafkaError(ck.KafkaError.TOPIC_AUTHORIZATION_FAILED))
    fetcher = KafkaFetcher(properties={}, is_read_committed=True, with_headers=False)
    assert fetcher.fetch({"t:0": (0, 2)}) is None
    assert consumer.closed


def test_the_times_of_records_are_read(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peek._CONSUMERS, "with_client", lambda _, ask: ask(consumer))
    assert peek.record_times({}, {PART: 0}, timeout=2.0) == {PART: 1_700_000_000_000}


def test_offsets_without_a_record_are_found(consumer: Consumer) -> None:
    consumer.messages.pop(1)
    assert peek._topics_with_holes(cast("Any", consumer), {PART: 0}, {PART: 2}) == {"t"}


@pytest.mark.usefixtures("consumer")
def test_records_with_odd_times_are_read() -> None:
    reader = odd_times.KafkaPartReader(is_read_committed=True)
    (one, two) = reader.read({}, ("t:0", 0, 2))
    assert [*one.column("_rw_offset").to_pylist(), *two.column("_rw_offset").to_pylist()] == [0, 1]


def test_a_position_is_compared_with_the_epochs(consumer: Consumer) -> None:
    assert truncation._check(cast("Any", consumer), {PART: (0, 0)}, 2.0) == {}
    assert len(consumer.messages) == 2


@pytest.mark.parametrize(
    ("given", "group"),
    [
        ({}, "rw-consumer-rw_sql"),
        ({"group.id.prefix": "team"}, "team-rw_sql"),
        ({"group.id.prefix": "team", "group.id": "fixed"}, "fixed"),
    ],
)
def test_every_consumer_uses_the_group_of_the_source(
    given: dict[str, str], group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_source = properties.reader_properties(KAFKA.spec, OPTIONS | given)
    assert KAFKA.fetcher(OPTIONS | given).properties == of_source
    assert consumer_properties(of_source, is_read_committed=True)["group.id"] == group
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(ck, "Consumer", made.append)
    peek.make_consumer(of_source)
    assert made[0]["group.id"] == group
    # An administrative client has no group.
    assert "group.id" not in properties.admin_properties(KAFKA.spec, OPTIONS | given)
