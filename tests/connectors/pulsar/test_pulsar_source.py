"""The Pulsar connector on a real broker: bounds, pages, ranges, what is held, what is missing."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.pulsar import client, ids, reader
from rw_sql.connectors.pulsar.names import full_name, partition_of, short_name, topic_of
from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError
from rw_sql.model.split_status import EXPIRED, OK, split_status
from tests.support.pulsar_server import MAX_MESSAGE, new_name
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.pulsar_server import PulsarServer

_BASE = {"topic": "orders", "service.url": "pulsar://broker:6650"}


class Run:
    """One run of a source's reader, without Spark: its batches end with what the next one needs."""

    def __init__(self, options: Mapping[str, str], positions: dict[str, int] | None = None) -> None:
        self.kind = connector("pulsar")
        self.options = dict(options)
        if positions is None:
            upstream = self.kind.look(self.options)
            assert upstream.error is None
            positions = {split: seen.start for split, seen in upstream.splits.items()}
        self.positions = positions
        self.commits = True
        self._added = -1
        states = {split: SplitState(split=split, offset=at) for split, at in positions.items()}
        self.feed: Any = self.kind.range_feed(self.options, states, max_records=None)  # type: ignore[attr-defined]
        self.feed.begin(self._add)

    def _add(self) -> None:
        self._added += 1

    def read(self, count: int) -> list[bytes | None]:
        """The values of the next batches, until there are so many. Each batch is committed."""
        return [row["value"] for row in self.rows(count)]

    def rows(self, count: int) -> list[dict[str, Any]]:
        """The same, with all columns."""
        found: list[dict[str, Any]] = []
        never, deadline, taken = threading.Event(), time.monotonic() + LAST_RESORT_SECONDS, -1
        while len(found) < count:
            assert time.monotonic() < deadline, found
            if self._added == taken:
                never.wait(0.02)
                continue
            taken = self._added
            ranges = self.feed.take(str(taken))
            for split, (start, end) in ranges.items():
                is_compacted = "pulsar.read_compacted" in self.options
                key = reader.fetched_key(client.address_of(self.options), split, is_compacted=is_compacted)
                table = reader.FETCHED.get(key, start, end)
                assert table is not None
                found += table.to_pylist()
                assert self.positions[split] == start
                self.positions[split] = end
            if self.commits:
                self.feed.committed(ranges)
        return found

    def close(self) -> None:
        self.feed.close()


@pytest.fixture
def runs() -> Iterator[Any]:
    """Begins runs, which end with the test."""
    begun: list[Run] = []

    def begin(options: Mapping[str, str], positions: dict[str, int] | None = None) -> Run:
        begun.append(Run(options, positions))
        return begun[-1]

    yield begin
    for run in begun:
        run.close()


def options_of(server: PulsarServer, topic: str, **more: str) -> dict[str, str]:
    """The options of a source that reads a topic."""
    return {"topic": topic, "service.url": server.url, "subscription.name": f"s-{topic}", **more}


def values(count: int, prefix: str = "m") -> list[bytes]:
    return [f"{prefix}{index}".encode() for index in range(count)]


def read_again(options: Mapping[str, str], split: str, start: int, end: int) -> list[bytes | None]:
    tables = list(reader.read_range(client.address_of(options), split, start, end, is_compacted=False))
    return [value for table in tables for value in table.column("value").to_pylist()] if tables else []


def test_ids_are_numbers_in_their_order() -> None:
    assert ids.offset_of(12, 34, -1) == ids.offset_of(12, 34, 0) == 12 * 10**29 + 34 * 10**10
    assert ids.offset_of(12, 34, 5) < ids.offset_of(12, 35, 0) < ids.offset_of(13, 0, 0)
    assert ids.entry_of(ids.offset_of(12, 34, 5)) == ids.EntryId(12, 34)
    assert ids.place_of(ids.offset_of(12, 34, 5)) == 5
    assert ids.offset_of(2**63 - 1, 2**63 - 1, 2**31 - 1) < 10**60


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("12:34", ids.offset_of(12, 34, 0)),
        ("12:34:0", ids.offset_of(12, 34, 0)),
        ("12:34:0:5", ids.offset_of(12, 34, 5)),
        ("12:34:-1:-1", ids.offset_of(12, 34, 0)),
        ("12", None),
        ("12:34:0:5:6", None),
        (f"{2**63}:0", None),
    ],
)
def test_message_ids_as_texts(text: str, offset: int | None) -> None:
    assert ids.offset_from_text(text) == offset


def test_names() -> None:
    assert short_name("persistent://public/default/orders-partition-3") == "orders-partition-3"
    assert short_name("persistent://shop/eu/orders") == "shop/eu/orders"
    assert full_name("orders") == "persistent://public/default/orders"
    assert full_name("shop/eu/orders") == "persistent://shop/eu/orders"
    assert (topic_of("orders-partition-3"), partition_of("orders-partition-3")) == ("orders", 3)
    assert (topic_of("orders"), partition_of("orders")) == ("orders", -1)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"service.url": "http://broker:8080"}, "must be pulsar://host:port"),
        ({"service.url": "pulsar://"}, "must be pulsar://host:port"),
        ({"topic": "non-persistent://public/default/t"}, "not stored"),
        ({"topic": "a/b"}, "not a topic"),
        ({"oauth.issuer.url": "https://login"}, "auth.token only"),
        ({"scan.startup.mode": "timestamp"}, "scan.startup.mode"),
        ({"scan.startup.mode": "latest", "scan.startup.timestamp.millis": "5"}, "no meaning"),
    ],
)
def test_refused_options(changed: dict[str, str], told: str) -> None:
    with pytest.raises(SqlError, match=told):
        connector("pulsar").check_options({**_BASE, **changed})


def test_an_address_with_a_password_is_not_repeated() -> None:
    with pytest.raises(SqlError) as error:
        connector("pulsar").check_options({**_BASE, "service.url": "http://me:secret@broker:6650"})
    assert "secret" not in str(error.value)


def test_splits_by_short_names() -> None:
    kind = connector("pulsar")
    assert kind.resolve_split(_BASE, "2") == "orders-partition-2"
    assert kind.resolve_split(_BASE, "persistent://public/default/orders-partition-1") == "orders-partition-1"
    with pytest.raises(SqlError, match="not a split"):
        kind.resolve_split(_BASE, "a/b")
    # A digit of another script is no partition's number.
    assert kind.resolve_split(_BASE, "\u0662") != "orders-partition-2"
    assert kind.decode_state("orders", "12:34:0:5").offset == ids.offset_of(12, 34, 5)
    assert (
        kind.decode_state("orders", kind.encode_state(SplitState(split="orders", offset=7 * 10**40))).offset
        == 7 * 10**40
    )


def test_a_broker_that_is_not_there() -> None:
    told = connector("pulsar").look({**_BASE, "service.url": "pulsar://127.0.0.1:1", "auth.token": "secret"})
    assert told.error is not None
    assert "127.0.0.1:1 (connection refused)" in told.error


@pytest.mark.pulsar
def test_a_broker_that_stands_still_for_ten_seconds_is_waited_for(pulsar_server: PulsarServer) -> None:
    topic = new_name()
    pulsar_server.create(topic, 2)
    with pulsar_server.suspended(10.0):
        found = connector("pulsar").look(options_of(pulsar_server, topic))
    assert found.error is None
    assert sorted(found.splits) == [f"{topic}-partition-0", f"{topic}-partition-1"]


@pytest.mark.pulsar
def test_partitions_are_read_once_and_in_order(pulsar_server: PulsarServer, runs: Any) -> None:
    topic = new_name()
    pulsar_server.create(topic, 2)
    options = options_of(pulsar_server, topic)
    for partition in range(2):
        pulsar_server.send(
            f"{topic}-partition-{partition}", values(7, f"{partition}."), batch=3, key="k", properties={"p": "1"}
        )
    rows = runs(options).rows(14)
    for partition in range(2):
        of = [row for row in rows if row["_rw_split"] == f"{topic}-partition-{partition}"]
        assert [row["value"] for row in of] == values(7, f"{partition}.")
        assert {row["key"] for row in of} == {b"k"}
        assert of[0]["headers"] == [{"key": "p", "value": b"1"}]
        assert [row["message_id"].split(":")[2:] for row in of[:4]] == [
            [str(partition), "0"],
            [str(partition), "1"],
            [str(partition), "2"],
            [str(partition), "0"],
        ]
        offsets = [row["_rw_offset"] for row in of]
        assert offsets == sorted(offsets)


@pytest.mark.pulsar
def test_a_run_continues_within_a_batch(pulsar_server: PulsarServer, runs: Any) -> None:
    topic = new_name()
    options = options_of(pulsar_server, topic)
    first = runs(options)
    sent = pulsar_server.send(topic, values(6), batch=6)
    assert first.read(6) == values(6)
    first.close()
    for index, id_ in enumerate(sent):
        at = ids.offset_from_text(id_)
        assert at is not None
        assert runs(options, {topic: at}).read(6 - index) == values(6)[index:]


@pytest.mark.pulsar
def test_the_subscription_holds_what_was_not_committed(pulsar_server: PulsarServer, runs: Any) -> None:
    topic = new_name()
    options = options_of(pulsar_server, topic)
    first = runs(options)
    pulsar_server.send(topic, values(3))
    assert first.read(3) == values(3)
    first.close()
    # Nobody reads for a while: ledgers roll over, and the broker removes what no subscription needs.
    pulsar_server.roll_over(topic)
    pulsar_server.send(topic, values(3, "later"))
    pulsar_server.roll_over(topic)
    pulsar_server.roll_over(topic)
    upstream = connector("pulsar").look(options)
    state = SplitState(split=topic, offset=first.positions[topic])
    assert split_status(state, upstream.splits[topic]) == OK
    assert runs(options, first.positions).read(3) == values(3, "later")


@pytest.mark.pulsar
def test_a_quiet_topic_continues_after_its_ledgers_rolled_over(pulsar_server: PulsarServer, runs: Any) -> None:
    topic = new_name()
    options = options_of(pulsar_server, topic)
    first = runs(options)
    pulsar_server.send(topic, values(3))
    assert first.read(3) == values(3)
    for _ in range(3):
        pulsar_server.roll_over(topic)
    first.close()
    second = runs(options, first.positions)
    pulsar_server.send(topic, values(1, "new"))
    assert second.read(1) == [b"new0"]


@pytest.mark.pulsar
def test_what_was_committed_is_released(pulsar_server: PulsarServer, runs: Any) -> None:
    topic = new_name()
    run = runs(options_of(pulsar_server, topic))
    (first, *_) = pulsar_server.send(topic, values(3))
    assert run.read(3) == values(3)
    ledger = int(first.split(":")[0])
    deadline = time.monotonic() + LAST_RESORT_SECONDS
    # An acknowledgement that is lost with a connection is repeated by the next one.
    while pulsar_server.internal(topic)["ledgers"][0]["ledgerId"] <= ledger:
        assert time.monotonic() < deadline, pulsar_server.internal(topic)
        pulsar_server.roll_over(topic)
        pulsar_server.send(topic, values(3))
        assert run.read(3) == values(3)


@pytest.mark.pulsar
def test_removed_messages_are_never_skipped(pulsar_server: PulsarServer, runs: Any) -> None:
    topic = new_name()
    options = options_of(pulsar_server, topic)
    first = runs(options)
    pulsar_server.send(topic, values(3))
    assert first.read(3) == values(3)
    first.close()
    # Somebody removes the subscription: what comes next is lost as its ledger rolls over.
    connector("pulsar").release(options, slot=True, publication=False)  # type: ignore[attr-defined]
    pulsar_server.send(topic, values(3, "lost"))
    pulsar_server.roll_over(topic)
    pulsar_server.send(topic, values(3, "later"))
    upstream = connector("pulsar").look(options)
    state = SplitState(split=topic, offset=first.positions[topic])
    assert split_status(state, upstream.splits[topic]) == EXPIRED
    with pytest.raises(OSError, match="EXPIRED"):
        runs(options, first.positions)
    with pytest.raises(client.PulsarError, match="EXPIRED"):
        read_again(options, topic, first.positions[topic], upstream.splits[topic].end)
    assert runs(options, {topic: upstream.splits[topic].start}).read(3) == values(3, "later")


@pytest.mark.pulsar
def test_a_topic_that_was_created_again_is_not_continued(pulsar_server: PulsarServer, runs: Any) -> None:
    topic = new_name()
    options = options_of(pulsar_server, topic)
    first = runs(options)
    pulsar_server.send(topic, values(3))
    assert first.read(3) == values(3)
    first.close()
    pulsar_server.delete(topic)
    with pytest.raises(OSError, match="EXPIRED"):
        runs(options, first.positions)
    pulsar_server.send(topic, values(5, "other"))
    upstream = connector("pulsar").look(options)
    state = SplitState(split=topic, offset=first.positions[topic])
    assert split_status(state, upstream.splits[topic]) == EXPIRED
    with pytest.raises(OSError, match="created again"):
        runs(options, first.positions)


@pytest.mark.pulsar
def test_a_position_within_the_ids_of_another_topic_is_not_continued(pulsar_server: PulsarServer, runs: Any) -> None:
    topic = new_name()
    options = options_of(pulsar_server, topic)
    first = runs(options)
    sent = [ids.offset_from_text(text) or 0 for text in pulsar_server.send(topic, values(9), batch=3)]
    assert first.read(9) == values(9)
    foreign = sent[2] + 4  # It follows a fifth message of a batch that has three.
    assert sent[0] < foreign < sent[8]
    with pytest.raises(OSError, match=r"the message before .* does not exist"):
        runs(options, {topic: foreign})
    assert runs(options, {topic: sent[2] + 1}).read(6) == values(9)[3:]


@pytest.mark.pulsar
def test_a_topic_that_is_created_again_under_a_running_reader(pulsar_server: PulsarServer, runs: Any) -> None:
    topic = new_name()
    run = runs(options_of(pulsar_server, topic))
    pulsar_server.send(topic, values(3))
    assert run.read(3) == values(3)
    pulsar_server.delete(topic)
    pulsar_server.send(topic, values(3, "other"))
    with pytest.raises(OSError, match="EXPIRED"):
        run.read(1)


@pytest.mark.pulsar
def test_messages_before_the_first_read_of_an_empty_topic(pulsar_server: PulsarServer, runs: Any) -> None:
    topic = new_name()
    pulsar_server.create(topic, 1)
    options, kind, split = options_of(pulsar_server, topic), connector("pulsar"), f"{topic}-partition-0"
    empty = kind.look(options).splits[split]
    assert (empty.is_empty, kind.start_offset({**options, "scan.startup.mode": "latest"}, empty, {})) == (True, 0)
    pulsar_server.send(split, values(2))
    # The position of the empty topic is still valid.
    assert split_status(SplitState(split=split, offset=0), kind.look(options).splits[split]) == OK
    assert runs(options, {split: 0}).read(2) == values(2)


@pytest.mark.pulsar
def test_chunked_messages_are_whole(pulsar_server: PulsarServer, runs: Any) -> None:
    topic = new_name()
    options = options_of(pulsar_server, topic)
    run = runs(options)
    large = bytes(range(256)) * (5 * MAX_MESSAGE // 256)
    sent = pulsar_server.send(topic, [b"before", large, b"after"])
    assert run.read(3) == [b"before", large, b"after"]
    run.close()
    upstream = connector("pulsar").look(options).splits[topic]
    assert upstream.end == run.positions[topic]
    before = ids.offset_from_text(sent[0])
    assert before is not None
    # A range that begins between two messages, and one that begins at the last chunk.
    assert read_again(options, topic, before + 1, upstream.end) == [large, b"after"]
    last_chunk = ids.offset_from_text(sent[1])
    assert last_chunk is not None
    assert read_again(options, topic, last_chunk, upstream.end) == [large, b"after"]


@pytest.mark.pulsar
def test_a_topic_that_ends_with_a_chunked_message_has_an_end(pulsar_server: PulsarServer, runs: Any) -> None:
    topic = new_name()
    options = options_of(pulsar_server, topic)
    runs(options)
    sent = pulsar_server.send(topic, [b"before", b"x" * 3 * MAX_MESSAGE])
    last = ids.offset_from_text(sent[1])
    assert last is not None
    assert connector("pulsar").look(options).splits[topic].end == last + 1


@pytest.mark.pulsar
def test_ranges_are_read_again_exactly(pulsar_server: PulsarServer, runs: Any) -> None:
    topic = new_name()
    options = options_of(pulsar_server, topic)
    run = runs(options)
    run.commits = False  # All of it stays at the broker.
    sent = [ids.offset_from_text(text) or 0 for text in pulsar_server.send(topic, values(300), batch=2)]
    assert run.read(300) == values(300)  # 150 entries are three ledgers.
    assert len({ids.entry_of(offset).ledger for offset in sent}) > 1
    for start, end in ((0, 300), (1, 299), (97, 203), (150, 151), (299, 300)):
        assert read_again(options, topic, sent[start], sent[end - 1] + 1) == values(300)[start:end]
    with pytest.raises(client.PulsarError, match="was removed before it was read"):
        read_again(options, topic, sent[0], sent[-1] + 2)


@pytest.mark.pulsar
def test_times(pulsar_server: PulsarServer, runs: Any) -> None:
    topic = new_name()
    options, kind = options_of(pulsar_server, topic), connector("pulsar")
    run = runs(options)
    pulsar_server.send(topic, values(3, "early"))
    rows = run.rows(3)
    times = [int(row["timestamp"].timestamp() * 1000) for row in rows]
    never = threading.Event()
    while int(time.time() * 1000) <= times[-1]:
        never.wait(0.001)
    sent = [ids.offset_from_text(text) for text in pulsar_server.send(topic, values(3, "late"))]
    assert run.read(3) == values(3, "late")
    assert kind.offsets_at(options, times[-1] + 1, [topic]) == {topic: sent[0]}
    assert kind.offsets_at(options, 0, [topic]) == {topic: int(rows[0]["_rw_offset"])}
    assert kind.offsets_at(options, int(time.time() * 1000) + 3_600_000, [topic]) == {topic: run.positions[topic]}
    assert kind.record_times(options, {topic: int(rows[1]["_rw_offset"])}) == {topic: times[1]}


@pytest.mark.pulsar
def test_partitions_that_are_added(pulsar_server: PulsarServer) -> None:
    topic = new_name()
    pulsar_server.create(topic, 1)
    options, kind = options_of(pulsar_server, topic), connector("pulsar")
    assert list(kind.look(options).splits) == [f"{topic}-partition-0"]
    pulsar_server.grow(topic, 3)
    assert list(kind.look(options).splits) == [f"{topic}-partition-{index}" for index in range(3)]


@pytest.mark.pulsar
def test_a_missing_namespace(pulsar_server: PulsarServer) -> None:
    told = connector("pulsar").look(options_of(pulsar_server, "public/missing/t"))
    assert told.missing == ("public/missing/t",)


@pytest.mark.pulsar
def test_compacted_topics(pulsar_server: PulsarServer, runs: Any) -> None:
    topic = new_name()
    options = options_of(pulsar_server, topic, **{"pulsar.read_compacted": "true"})
    held = runs(options)
    for turn in range(3):
        pulsar_server.send(topic, [f"a{turn}".encode()], key="a")
        pulsar_server.send(topic, [f"b{turn}".encode()], key="b")
    assert held.read(6)
    pulsar_server.compact(topic)
    assert runs(options, {topic: 0}).read(2) == [b"a2", b"b2"]


@pytest.mark.pulsar
def test_release_removes_the_subscription(pulsar_server: PulsarServer, runs: Any) -> None:
    topic = new_name()
    pulsar_server.create(topic, 2)
    options = options_of(pulsar_server, topic)
    runs(options).close()
    names = [f"{topic}-partition-{index}" for index in range(2)]
    assert all(options["subscription.name"] in pulsar_server.internal(name)["cursors"] for name in names)
    connector("pulsar").release(options, slot=True, publication=False)  # type: ignore[attr-defined]
    assert not any(pulsar_server.internal(name)["cursors"] for name in names)


def test_the_columns_are_those_of_spark() -> None:
    assert [
        field.split()[0] for field in reader.RECORDS.replace("array<struct<key:string,value:binary>>", "a").split(", ")
    ] == (reader.SCHEMA.names)
    assert reader.SCHEMA.field("_rw_offset").type == pa.string()
