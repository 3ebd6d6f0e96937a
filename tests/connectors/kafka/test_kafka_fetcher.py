"""Small batches are fetched exactly as Spark's reader would read them, or not at all."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

from rw_sql.cli.servers.kafka_topics import Record, create_topic, delete_records, produce
from rw_sql.connectors.fetching import FetchingConnector
from rw_sql.connectors.kafka.fetcher import KafkaFetcher
from rw_sql.connectors.kafka.source import KafkaConnector
from tests.support.raw_kafka import produce_raw
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

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


def arrived(found: KafkaFetcher, ends: Mapping[str, int], most: int = 1000) -> None:
    """Waits until exactly these ends have arrived."""
    wait_until(lambda: found.arrived(0.05, most=most) == ends, f"the ends {ends}")


def test_followed_records_arrive_without_a_request(broker: BrokerInfo, topic: str, fetching: KafkaFetcher) -> None:
    splits = [f"{topic}:{number}" for number in range(3)]
    produce(broker.bootstrap, topic, [Record(value=b"%d" % n, partition=n % 3) for n in range(9)])
    fetching.follow({splits[0]: 0, splits[1]: 3, splits[2]: 1})
    arrived(fetching, {splits[0]: 3, splits[2]: 3})
    # A part of what has arrived, then the remainder together with newer records.
    assert rows(fetching, {splits[0]: (0, 2)}) == [(splits[0], 0, b"0"), (splits[0], 1, b"3")]
    produce(broker.bootstrap, topic, [Record(value=b"new", partition=1)])
    arrived(fetching, {splits[0]: 3, splits[1]: 4, splits[2]: 3})
    assert rows(fetching, {splits[0]: (2, 3), splits[1]: (3, 4), splits[2]: (1, 3)}) == [
        (splits[0], 2, b"6"),
        (splits[1], 3, b"new"),
        (splits[2], 1, b"5"),
        (splits[2], 2, b"8"),
    ]
    assert fetching.arrived(0.0, most=1000) == {}
    # To follow from the same positions again changes nothing; other positions are followed anew.
    fetching.follow({splits[0]: 3, splits[1]: 4, splits[2]: 3})
    fetching.follow(dict.fromkeys(splits, 2))
    arrived(fetching, {splits[0]: 3, splits[1]: 4, splits[2]: 3})
    assert [value for _, _, value in rows(fetching, {splits[1]: (2, 4)})] == [b"7", b"new"]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_the_end_after_a_marker_arrives(broker: BrokerInfo, topic: str, isolation: str) -> None:
    split = f"{topic}:0"
    found = fetcher(broker, topic, **{"properties.isolation.level": isolation})
    found.follow({split: 0})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    producer.commit_transaction()
    arrived(found, {split: 2})
    assert rows(found, {split: (0, 2)}) == [(split, 0, b"a")]
    producer.begin_transaction()
    producer.produce(topic, b"b", partition=0)
    producer.flush()
    if isolation == "read_committed":
        assert found.arrived(0.3, most=1000) == {}
    else:
        arrived(found, {split: 3})
    producer.abort_transaction()
    arrived(found, {split: 4})
    assert [value for _, _, value in rows(found, {split: (2, 4)})] == ([] if isolation == "read_committed" else [b"b"])
    found.close()


def test_a_fetch_waits_for_records_that_have_not_arrived(
    broker: BrokerInfo, topic: str, fetching: KafkaFetcher
) -> None:
    split = f"{topic}:0"
    fetching.follow({split: 0})
    produce(broker.bootstrap, topic, [Record(value=b"%d" % n, partition=0) for n in range(5)])
    assert [value for _, _, value in rows(fetching, {split: (0, 4)})] == [b"0", b"1", b"2", b"3"]
    arrived(fetching, {split: 5})


def test_a_limited_number_of_records_and_bytes_arrives_before_a_fetch(
    broker: BrokerInfo, topic: str, fetching: KafkaFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = f"{topic}:0"
    monkeypatch.setattr("rw_sql.connectors.kafka.fetcher._AT_ONCE", 1)
    produce(broker.bootstrap, topic, [Record(value=b"x" * 100, partition=0) for _ in range(50)])
    fetching.follow({split: 0})
    wait_until(lambda: bool(fetching.arrived(0.05, most=10)), "records")
    ends = fetching.arrived(0.5, most=10)
    assert ends is not None
    assert 10 < ends[split] <= 12
    assert len(rows(fetching, {split: (0, ends[split])})) == ends[split]
    monkeypatch.setattr("rw_sql.connectors.kafka.fetcher.MOST_BYTES", 1000)
    wait_until(lambda: bool(fetching.arrived(0.05, most=1000)), "records")
    more = fetching.arrived(0.5, most=1000)
    assert more is not None
    assert 10 < more[split] - ends[split] <= 13


def test_a_fetch_from_elsewhere_ends_following(broker: BrokerInfo, topic: str, fetching: KafkaFetcher) -> None:
    split = f"{topic}:0"
    produce(broker.bootstrap, topic, [Record(value=b"%d" % n, partition=0) for n in range(5)])
    fetching.follow({split: 0})
    arrived(fetching, {split: 5})
    assert rows(fetching, {split: (3, 4)}) == [(split, 3, b"3")]
    assert fetching.arrived(0.0, most=1000) is None


def test_what_cannot_be_followed_is_left_to_sparks_reader(broker: BrokerInfo, topic: str) -> None:
    split = f"{topic}:0"
    with_headers = KAFKA.fetcher({"properties.bootstrap.server": broker.bootstrap, "topic": topic}, with_headers=True)
    assert not with_headers.can_follow
    found = fetcher(broker, topic)
    found.follow({split: 7})  # after the end
    wait_until(lambda: found.arrived(0.05, most=1000) is None, "the error of the position")
    found.follow({split: 0})
    assert found.arrived(0.0, most=1000) == {}
    found.unfollow()
    assert found.arrived(0.0, most=1000) is None
    found.close()
    found.follow({split: 0})
    assert found.arrived(0.0, most=1000) is None
