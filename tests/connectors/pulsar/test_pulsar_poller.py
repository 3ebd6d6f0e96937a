"""The poller and the feed of the Pulsar connector with fakes of pulsar-client: no broker runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.pulsar import client, poller, reader, subscriptions
from rw_sql.connectors.pulsar.ids import EntryId, offset_of
from rw_sql.connectors.registry import connector
from rw_sql.connectors.support.records.fetched_ranges import FetchedRanges
from rw_sql.connectors.support.records.range_stream import LostRecordsError
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = {"service.url": "pulsar://broker:6650", "topic": "users"}
COMPACTED = {**OPTIONS, "pulsar.read_compacted": "true"}


def message(ledger: int, entry: int, data: bytes) -> reader.RawMessage:
    return reader.RawMessage(
        offset=offset_of(ledger, entry, -1),
        first=EntryId(ledger, entry),
        entry=EntryId(ledger, entry),
        place=-1,
        id_data=b"",
        data=data,
        key="",
        properties={},
        at_ms=0,
    )


MESSAGES = [message(7, entry, b"%d" % entry) for entry in range(6)]


class Partition:
    """A reader of pulsar-client over six messages, of which compaction keeps the last two."""

    def __init__(self, address: client.Address, split: str, *, is_compacted: bool) -> None:
        self._kept = MESSAGES[4:] if is_compacted else MESSAGES

    def page(self, position: int, most: int) -> list[reader.RawMessage]:
        return [each for each in self._kept if each.offset >= position][:most]

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "PartitionReader", Partition)
    monkeypatch.setattr(reader, "FETCHED", FetchedRanges(reader.SCHEMA, reader.FETCHED._most))
    monkeypatch.setattr(poller, "FETCHED", reader.FETCHED)


def polled(options: Mapping[str, str], most: int = 400_000) -> tuple[int, int]:
    """The range that a source's poller finds from the beginning."""
    one = poller.Poller(max_records=most, is_compacted="pulsar.read_compacted" in options)
    (found,) = one.stretches(options, {"users": SplitState(split="users", offset=offset_of(7, 0, -1))})
    return found.start, found.end


def values(options: Mapping[str, str], start: int, end: int) -> list[bytes] | None:
    address, is_compacted = client.address_of(options), "pulsar.read_compacted" in options
    found = reader.FETCHED.get(reader.fetched_key(address, "users", is_compacted=is_compacted), start, end)
    return None if found is None else found.column("value").to_pylist()


def test_a_source_does_not_read_the_messages_that_a_compacted_source_of_the_topic_has_fetched() -> None:
    kind: Any = connector("pulsar")
    whole, compacted = polled(OPTIONS), polled(COMPACTED)
    assert whole == compacted
    assert values(OPTIONS, *whole) == [b"%d" % entry for entry in range(6)]
    assert values(COMPACTED, *whole) == [b"4", b"5"]
    assert kind.record_count(OPTIONS, {"users": whole}) == 6
    assert kind.record_count(COMPACTED, {"users": whole}) == 2


def test_sources_of_one_topic_know_the_number_of_messages_that_each_of_them_has_fetched() -> None:
    kind: Any = connector("pulsar")
    few, all_of_them = polled(OPTIONS, most=3), polled(OPTIONS)
    assert few != all_of_them
    assert kind.record_count(OPTIONS, {"users": few}) == 3
    assert values(OPTIONS, *few) == [b"0", b"1", b"2"]
    # The memory has overflowed since.
    reader.FETCHED._most = 1
    for _ in range(2):
        reader.FETCHED.put("other", 0, 1, reader.FETCHED._schema.empty_table())
        polled(COMPACTED)
    assert values(OPTIONS, *few) is None
    assert kind.record_count(OPTIONS, {"users": few}) == 3


class Consumer:
    """A consumer of pulsar-client that remembers what is acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[int, int]] = []

    def acknowledge_cumulative(self, id_: Any) -> None:
        self.acknowledged.append((id_.ledger_id(), id_.entry_id()))

    def seek(self, id_: Any) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_commit_acknowledges_only_partitions_with_new_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    consumers = {f"users-partition-{at}": Consumer() for at in range(3)}
    monkeypatch.setattr(subscriptions, "_subscribed", lambda address, split, name: consumers[split])
    begins = {split: SplitState(split=split, offset=offset_of(7, 0, -1)) for split in consumers}
    monkeypatch.setattr(poller, "THREADS", 1)
    monkeypatch.setattr(poller, "_MOST_BYTES", 1)
    feed = poller.PulsarFeed(OPTIONS, begins, subscription="s", max_records=9, is_compacted=False, poll_seconds=0.1)
    try:
        feed._offer()
        taken = feed.take("0")
        assert list(taken) == ["users-partition-0"]
        # The reader's commit names every partition; the others stay at the beginning of a ledger.
        feed.committed({split: taken.get(split, (state.offset, state.offset)) for split, state in begins.items()})
    finally:
        feed.close()
    assert [each.acknowledged for each in consumers.values()] == [[(7, 1)], [], []]


def test_the_beginning_of_an_entry_is_acknowledged_as_it_is_subscribed(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer()
    monkeypatch.setattr(subscriptions, "_subscribed", lambda address, split, name: consumer)
    one = subscriptions.Subscriptions(client.address_of(OPTIONS), "s")
    one.open({"users": 0})
    for end in (0, offset_of(13, 0, -1), offset_of(13, 0, 4), offset_of(13, 0, -1) + 1):
        one.acknowledge({"users": end})
    assert consumer.acknowledged == []
    for end in (offset_of(13, 9, -1), offset_of(13, 9, -1) + 1, offset_of(13, 9, 5)):
        one.acknowledge({"users": end})
    assert consumer.acknowledged == [(13, 8)] * 3


@pytest.mark.parametrize("number", [2**63 * 10**10, 2**63 * 10**29, 10**60 - 1])
def test_a_number_without_a_message_id_is_refused(number: int) -> None:
    kind: Any = connector("pulsar")
    with pytest.raises(SqlError, match="does not encode a valid message id"):
        kind.decode_state("users", str(number))
    assert kind.decode_state("users", str(offset_of(2**63 - 1, 2**63 - 1, 5))).offset


@pytest.mark.parametrize(
    ("first", "told", "is_certain"),
    # A broker that answers slowly seems to have no message.
    [(None, "the partition has no messages now", False), (offset_of(7, 9, 0), "first message is 7:9:0", True)],
)
def test_a_run_at_an_emptied_partition_ends_with_the_partition(
    monkeypatch: pytest.MonkeyPatch, first: int | None, told: str, is_certain: bool
) -> None:
    class Emptied(Partition):
        def page(self, position: int, most: int) -> list[reader.RawMessage]:
            reader.require_whole(client.address_of(OPTIONS), "users", position)
            return []

    consumer = Consumer()
    monkeypatch.setattr(subscriptions, "_subscribed", lambda address, split, name: consumer)
    monkeypatch.setattr(reader, "first_message", lambda address, split: first)
    monkeypatch.setattr(poller, "PartitionReader", Emptied)
    kind: Any = connector("pulsar")
    states = {"users": SplitState(split="users", offset=offset_of(7, 3, 0) + 1)}
    with pytest.raises(LostRecordsError, match=told) as caught:
        kind.range_feed(OPTIONS, states, max_records=None)
    assert (caught.value.split, caught.value.is_certain) == ("users", is_certain)
