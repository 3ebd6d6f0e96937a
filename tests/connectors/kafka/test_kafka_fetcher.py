"""Small batches are fetched exactly as Spark's reader would read them, or not at all."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

from rw_sql.cli.kafka_topics import Record, create_topic, delete_records, produce
from rw_sql.connectors.base import FetchingConnector
from rw_sql.connectors.kafka.fetcher import KafkaFetcher
from rw_sql.connectors.kafka.source import KafkaConnector
from tests.support.raw_kafka import produce_raw

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rw_sql.cli.kafka_broker import BrokerInfo

pytestmark = pytest.mark.kafka

KAFKA = KafkaConnector()


@pytest.fixture
def topic(broker: BrokerInfo, topic_name: str) -> str:
    create_topic(broker.bootstrap, topic_name, 3)
    return topic_name


def fetcher(broker: BrokerInfo, topic: str, **more: str) -> KafkaFetcher:
    options = {"properties.bootstrap.server": broker.bootstrap, "topic": topic, **more}
    return KAFKA.fetcher(options)


@pytest.fixture
def fetching(broker: BrokerInfo, topic: str) -> Iterator[KafkaFetcher]:
    made = fetcher(broker, topic)
    yield made
    made.close()


def rows(found: KafkaFetcher, ranges: Mapping[str, tuple[int, int]]) -> list[tuple[str, int, bytes | None]]:
    """Split, offset and value of each record, sorted."""
    table = found.fetch(ranges)
    assert table is not None
    listed: list[dict[str, Any]] = table.to_pylist()
    return sorted((row["_rw_split"], row["_rw_offset"], row["value"]) for row in listed)


def test_exactly_the_ranges_batch_after_batch(broker: BrokerInfo, topic: str, fetching: KafkaFetcher) -> None:
    produce(broker.bootstrap, topic, [Record(value=b"%d" % n, partition=n % 3) for n in range(30)])
    first = {f"{topic}:0": (0, 4), f"{topic}:1": (2, 10), f"{topic}:2": (5, 5)}
    assert rows(fetching, first) == [
        *((f"{topic}:0", at, b"%d" % (at * 3)) for at in range(4)),
        *((f"{topic}:1", at, b"%d" % (at * 3 + 1)) for at in range(2, 10)),
    ]
    # Each batch is read from its own start, whether that is after or before the end of the last one.
    assert rows(fetching, {f"{topic}:0": (4, 6)}) == [(f"{topic}:0", at, b"%d" % (at * 3)) for at in (4, 5)]
    assert rows(fetching, {f"{topic}:0": (1, 2), f"{topic}:2": (9, 10)}) == [
        (f"{topic}:0", 1, b"3"),
        (f"{topic}:2", 9, b"29"),
    ]
    assert rows(fetching, {f"{topic}:0": (3, 3)}) == []


def test_every_part_of_a_record_is_read(broker: BrokerInfo, topic: str, fetching: KafkaFetcher) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"v", b"k", partition=0, timestamp=1_700_000_000_123, headers=[("a", b"1"), ("b", None)])
    producer.produce(topic, None, None, partition=0, timestamp=1)
    producer.flush()
    table = fetching.fetch({f"{topic}:0": (0, 2)})
    assert table is not None
    full, bare = table.to_pylist()
    assert (full["key"], full["value"], full["partition"]) == (b"k", b"v", "0")
    assert full["timestamp"].timestamp() == 1_700_000_000.123
    assert full["headers"] is None
    assert (bare["key"], bare["value"], bare["headers"]) == (None, None, None)


def test_a_record_without_a_time_or_with_a_wrong_one(broker: BrokerInfo, topic_name: str) -> None:
    """A producer may write any number: no time, a time before 1970, microseconds, nanoseconds."""
    create_topic(broker.bootstrap, topic_name, 1, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    written = [-1, -86_400_000, 1_700_000_000_123, 1_700_000_000_123_000, 1_700_000_000_123_000_000]
    for at in written:
        producer.produce(topic_name, b"v", partition=0, timestamp=at)
    assert producer.flush(10) == 0
    found = fetcher(broker, topic_name)
    table = found.fetch({f"{topic_name}:0": (0, 5)})
    found.close()
    assert table is not None
    times = [row["timestamp"] and row["timestamp"].timestamp() for row in table.to_pylist()]
    assert times == [None, -86_400.0, 1_700_000_000.123, None, None]
    options = {"properties.bootstrap.server": broker.bootstrap, "topic": topic_name}
    assert KAFKA.record_times(options, {f"{topic_name}:0": 3}) == {}
    assert KAFKA.record_times(options, {f"{topic_name}:0": 2}) == {f"{topic_name}:0": 1_700_000_000_123}


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_markers_and_aborted_records(broker: BrokerInfo, topic: str, isolation: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for value, is_kept in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        (producer.commit_transaction if is_kept else producer.abort_transaction)()
    # a, marker, b, marker, c, marker: the range ends in a hole, which is the end of the partition too.
    found = fetcher(broker, topic, **{"properties.isolation.level": isolation})
    values = [value for _, _, value in rows(found, {f"{topic}:0": (0, 6)})]
    assert values == ([b"a", b"c"] if isolation == "read_committed" else [b"a", b"b", b"c"])
    # A range that ends in a hole with records after it, and a range that is only a hole.
    assert [value for _, _, value in rows(found, {f"{topic}:0": (0, 2)})] == [b"a"]
    assert rows(found, {f"{topic}:0": (5, 6)}) == []
    found.close()


def test_records_that_are_gone_are_left_to_sparks_reader(
    broker: BrokerInfo, topic: str, fetching: KafkaFetcher
) -> None:
    produce(broker.bootstrap, topic, [Record(value=b"x", partition=0) for _ in range(6)])
    delete_records(broker.bootstrap, topic, {0: 3})
    assert fetching.fetch({f"{topic}:0": (1, 6)}) is None
    assert len(rows(fetching, {f"{topic}:0": (3, 6)})) == 3


def test_a_request_without_an_answer_fails_soon(broker: BrokerInfo, topic: str) -> None:
    found = fetcher(broker, topic, **{"properties.bootstrap.server": "127.0.0.1:1"})
    assert found.fetch({f"{topic}:0": (0, 1)}) is None
    found.close()


def test_a_batch_of_many_bytes_is_left_to_sparks_reader(
    broker: BrokerInfo, topic: str, fetching: KafkaFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(broker.bootstrap, topic, [Record(value=b"x" * 1000, partition=0) for _ in range(50)])
    monkeypatch.setattr("rw_sql.connectors.kafka.fetcher.MOST_BYTES", 20_000)
    assert fetching.fetch({f"{topic}:0": (0, 50)}) is None
    assert len(rows(fetching, {f"{topic}:0": (0, 10)})) == 10


class Noticed:
    """A consumer that signals when it is asked for records."""

    def __init__(self, consumer: Consumer, is_polled: threading.Event) -> None:
        self.consumer = consumer
        self.is_polled = is_polled

    def __getattr__(self, name: str) -> Any:
        if name == "poll":
            self.is_polled.set()
        return getattr(self.consumer, name)


def test_a_fetch_ends_with_its_owner(broker: BrokerInfo, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_consumer, is_polled = KafkaFetcher._open, threading.Event()
    monkeypatch.setattr(KafkaFetcher, "_open", lambda self: Noticed(open_consumer(self), is_polled))
    monkeypatch.setattr("rw_sql.connectors.kafka.fetcher._SECONDS", 3600.0)
    found = fetcher(broker, topic)
    answers: list[object] = []
    # There is no record at that offset, so only the end of its owner ends the wait.
    waiting = threading.Thread(target=lambda: answers.append(found.fetch({f"{topic}:0": (0, 1)})), daemon=True)
    waiting.start()
    assert is_polled.wait(60)
    found.close()
    waiting.join(60)
    assert answers == [None]
    assert found.fetch({f"{topic}:0": (0, 1)}) is None


def test_kafka_fetches() -> None:
    assert isinstance(KAFKA, FetchingConnector)


def test_records_with_headers_are_left_to_sparks_reader(broker: BrokerInfo, topic: str, fetching: KafkaFetcher) -> None:
    """The client crashes the process at a header whose name is not UTF-8, as any producer may write."""
    produce_raw(broker.bootstrap, topic, b"1", [(b"ok", b"x"), (b"\xff\xfe", b"y")])
    split = f"{topic}:0"
    assert rows(fetching, {split: (0, 1)}) == [(split, 0, b"1")]
    options = {"properties.bootstrap.server": broker.bootstrap, "topic": topic}
    with_headers = KAFKA.fetcher(options, with_headers=True)
    assert with_headers.fetch({split: (0, 1)}) is None
    with_headers.close()
