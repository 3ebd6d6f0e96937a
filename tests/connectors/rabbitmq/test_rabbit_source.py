"""The RabbitMQ connector on a real server, without Spark: exact ranges, holes, retention, streams created again."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rw_sql.connectors.base import AT_MOST, SplitState, TermConnector
from rw_sql.connectors.rabbitmq import reader
from rw_sql.connectors.rabbitmq.client import address_of
from rw_sql.connectors.rabbitmq.poller import Poller
from rw_sql.connectors.rabbitmq.source import RabbitConnector, RabbitPartReader
from rw_sql.errors import SqlError
from tests.support.rabbitmq_server import PARTITIONS, SUPER, RabbitServer, amqp
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.rabbitmq

RABBIT = RabbitConnector()


def options(server: RabbitServer, stream: str, **more: str) -> dict[str, str]:
    made = {"url": server.url, "stream": stream, **more}
    RABBIT.check_options(made)
    return made


def read(given: Mapping[str, str], split: str, start: int, end: int) -> list[dict[str, Any]]:
    tables = list(RabbitPartReader(with_headers=True).read(given, (split, start, end)))
    rows: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist() if tables else []
    return rows


def offsets(given: Mapping[str, str], split: str, start: int, end: int) -> list[int]:
    return [row["_rw_offset"] for row in read(given, split, start, end)]


def bounds(given: Mapping[str, str], split: str) -> tuple[int, int]:
    found = RABBIT.look(given)
    assert found.error is None, found.error
    return found.splits[split].start, found.splits[split].end


def test_a_range_is_read_exactly_and_again(rabbit_server: RabbitServer, stream: str) -> None:
    rabbit_server.create(stream)
    given_ = options(rabbit_server, stream)
    assert bounds(given_, stream) == (0, 0)
    sent = [b'{"n": %d}' % number for number in range(12_001)]
    rabbit_server.publish(stream, sent)
    assert bounds(given_, stream) == (0, 12_001)
    # Ranges that begin and end anywhere, mostly within chunks.
    for start, end in ((0, 12_001), (0, 1), (12_000, 12_001), (4_999, 10_003), (5_000, 5_001), (7, 7)):
        rows = read(given_, stream, start, end)
        assert [row["_rw_offset"] for row in rows] == list(range(start, end))
        assert [row["value"] for row in rows] == sent[start:end]
        assert rows == read(given_, stream, start, end)
    row = read(given_, stream, 3, 4)[0]
    assert (row["_rw_split"], row["partition"], row["key"], row["headers"]) == (stream, stream, None, [])
    with pytest.raises(OSError, match=f"AHEAD {stream}: it has no message at 12001 or later"):
        read(given_, stream, 12_001, 12_002)


def test_a_chunk_per_message_and_messages_of_any_size(rabbit_server: RabbitServer, stream: str) -> None:
    rabbit_server.create(stream)
    sent = [bytes([number % 256]) * size for number, size in enumerate((0, 1, 255, 256, 70_000, 900_000, 3))]
    for content in sent:
        rabbit_server.publish(stream, [content])
    given_ = options(rabbit_server, stream)
    assert [row["value"] for row in read(given_, stream, 0, 7)] == sent
    # A table ends with the chunk that exceeds the limit.
    table, at = reader.read_range(address_of(given_), stream, 1, 7, most_bytes=60_000)
    assert (table.num_rows, at) == (4, 5)
    table, at = reader.read_range(address_of(given_), stream, 5, 7, most_bytes=1)
    assert (table.num_rows, at) == (1, 6)


def test_batches_of_messages_with_and_without_compression(rabbit_server: RabbitServer, stream: str) -> None:
    rabbit_server.create(stream)
    messages = [amqp(b"m%d" % number, message_id=str(number)) for number in range(50)]
    rabbit_server.publish_raw(stream, messages[:20], batch="none")
    rabbit_server.publish_raw(stream, messages[20:30])
    rabbit_server.publish_raw(stream, messages[30:], batch="gzip")
    given_ = options(rabbit_server, stream)
    assert bounds(given_, stream) == (0, 50)
    rows = read(given_, stream, 7, 47)
    assert [row["value"] for row in rows] == [b"m%d" % number for number in range(7, 47)]
    assert [row["key"] for row in rows] == [b"%d" % number for number in range(7, 47)]


@pytest.mark.parametrize(("codec", "name"), [(3, "lz4"), (4, "zstd"), (2, "snappy")])
def test_compressions_of_other_clients(rabbit_server: RabbitServer, stream: str, codec: int, name: str) -> None:
    rabbit_server.create(stream)
    entries = b"".join(struct.pack(">I", 3) + b"abc" for _ in range(2_000))
    packed = bytes(pa.compress(entries, codec=name))
    if name == "snappy":
        # Snappy's framing format: a header, a compressed piece, and a piece as it is.
        half = len(entries) // 2
        piece = bytes(pa.compress(entries[:half], codec=name))
        packed = b"\xff\x06\x00\x00sNaPpY"
        packed += b"\x00" + (len(piece) + 4).to_bytes(3, "little") + bytes(4) + piece
        packed += b"\x01" + (half + 4).to_bytes(3, "little") + bytes(4) + entries[half:]
    entry = struct.pack(">BHII", 0x80 | codec << 4, 2_000, len(entries), len(packed)) + packed
    rabbit_server.publish_entries(stream, [entry])
    given_ = options(rabbit_server, stream)
    assert bounds(given_, stream) == (0, 2_000)
    assert {row["value"] for row in read(given_, stream, 0, 2_000)} == {b"abc"}


def test_a_batch_that_cannot_be_decompressed(rabbit_server: RabbitServer, stream: str) -> None:
    rabbit_server.create(stream)
    rabbit_server.publish_entries(stream, [struct.pack(">BHII", 0x80 | 1 << 4, 3, 12, 4) + b"junk"])
    with pytest.raises(OSError, match=r"cannot be decompressed \(codec 1: "):
        read(options(rabbit_server, stream), stream, 0, 3)


def test_stored_offsets_of_consumers_are_holes(rabbit_server: RabbitServer, stream: str) -> None:
    rabbit_server.create(stream)
    given_ = options(rabbit_server, stream)
    rabbit_server.publish(stream, [b"1"] * 5)
    rabbit_server.store_offset(stream, "worker", 3)
    # After the last message, what the server writes for itself does not count.
    assert bounds(given_, stream) == (0, 5)
    assert RABBIT.stretches(given_, {stream: SplitState(split=stream, offset=5)}) == ()
    rabbit_server.publish(stream, [b"2"] * 5)
    assert bounds(given_, stream) == (0, 11)
    assert offsets(given_, stream, 0, 11) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert offsets(given_, stream, 5, 6) == []
    assert offsets(given_, stream, 5, 7) == [6]
    assert RABBIT.offsets_count == AT_MOST
    assert stream in RABBIT.sparse_topics(given_)
    assert RABBIT.group_offsets(given_, "worker", [stream]).offsets == {stream: 4}
    assert RABBIT.group_offsets(given_, "walker", [stream]).offsets == {}


def test_retention_is_never_a_silent_skip(rabbit_server: RabbitServer, stream: str) -> None:
    rabbit_server.create(stream, max_length_bytes=20_000, stream_max_segment_size_bytes=5_000)
    given_ = options(rabbit_server, stream)
    rabbit_server.publish(stream, [b"x" * 100] * 20)
    first = RABBIT.look(given_).splits[stream]

    def trimmed() -> bool:
        rabbit_server.publish(stream, [b"x" * 100] * 20)
        return bounds(given_, stream)[0] > 100

    wait_until(trimmed, "the server removes messages")
    start, end = bounds(given_, stream)
    state = SplitState(split=stream, offset=50, term=first.term)
    with pytest.raises(OSError, match=f"EXPIRED {stream}: its first message is [0-9]+, after the position 50"):
        RABBIT.stretches(given_, {stream: state})
    with pytest.raises(OSError, match=f"EXPIRED {stream}: its first message is [0-9]+, after the position 50"):
        read(given_, stream, 50, end)
    assert RABBIT.look(given_).splits[stream].has_lost(50)
    assert offsets(given_, stream, start, end) == list(range(start, end))
    # Nothing was lost before a position that is the first message.
    assert RABBIT.diverged(given_, {stream: SplitState(split=stream, offset=start, term=first.term)}) == {}


def test_messages_that_go_while_a_range_is_read(
    rabbit_server: RabbitServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rabbit_server.create(stream, max_length_bytes=20_000, stream_max_segment_size_bytes=5_000)
    given_ = options(rabbit_server, stream)
    for _ in range(8):
        rabbit_server.publish(stream, [b"x" * 100] * 20)
    start, end = bounds(given_, stream)
    noted = reader._Range._note
    seen: list[int] = []

    def trim_after_the_first(self: Any, chunk: Any) -> None:
        if not seen:
            for _ in range(30):
                rabbit_server.publish(stream, [b"x" * 100] * 20)
            wait_until(lambda: bounds(given_, stream)[0] >= end, "everything is removed")
        seen.append(chunk.first)
        noted(self, chunk)

    monkeypatch.setattr(reader._Range, "_note", trim_after_the_first)
    # The server may deliver what it has opened already; it never leaves out what comes next.
    found: list[int] = []
    reason = ""
    try:
        found = offsets(given_, stream, start, end)
    except OSError as error:
        reason = str(error)
    assert f"EXPIRED {stream}" in reason or found == list(range(start, end))


def test_a_stream_created_again_is_another_one(rabbit_server: RabbitServer, stream: str) -> None:
    rabbit_server.create(stream)
    rabbit_server.publish(stream, [b"1"] * 5)
    given_ = options(rabbit_server, stream)
    old, birth = RABBIT.look(given_).splits[stream].term, RABBIT.look(given_).splits[stream].incarnation
    assert old is not None
    assert RABBIT.terms(given_, [stream]) == {stream: old}
    here = SplitState(split=stream, offset=5, term=old)
    assert isinstance(RABBIT, TermConnector)
    assert RABBIT.diverged(given_, {stream: here}) == {}
    # Newer messages do not make the ones before them others.
    rabbit_server.publish(stream, [b"1"] * 5)
    assert RABBIT.diverged(given_, {stream: here}) == {}
    assert RABBIT.diverged(given_, {stream: SplitState(split=stream, offset=10, term=old)}) == {}
    rabbit_server.delete(stream)
    assert RABBIT.look(given_).missing == (stream,)
    for act in (
        lambda: RABBIT.stretches(given_, {stream: here}),
        lambda: read(given_, stream, 0, 5),
        lambda: RABBIT.terms(given_, [stream]),
    ):
        with pytest.raises(OSError, match=f"MISSING stream {stream}"):
            act()
    rabbit_server.create(stream)
    # A stream without messages may also be one whose new leader does not know yet which are confirmed.
    assert RABBIT.look(given_).splits[stream].is_empty
    assert RABBIT.stretches(given_, {stream: here}) == ()
    rabbit_server.publish(stream, [b"2"] * 4)
    with pytest.raises(OSError, match=f"AHEAD {stream}: its end is 4, before the position 5"):
        RABBIT.stretches(given_, {stream: here})
    rabbit_server.publish(stream, [b"2"] * 4)
    assert RABBIT.diverged(given_, {stream: here}) == {stream: 0}
    new = RABBIT.look(given_).splits[stream].incarnation
    assert None not in (new, birth)
    assert new != birth
    watch = RABBIT.watch(given_)
    assert watch is not None
    assert watch.incarnations([stream, "none"]) == {stream: new}
    watch.close()
    known = SplitState(split=stream, offset=5, incarnation=birth)
    with pytest.raises(OSError, match=f"RECREATED {stream}: the stream's first message is from "):
        RABBIT.stretches(given_, {stream: known})
    assert RABBIT.diverged(given_, {stream: SplitState(split=stream, offset=5, term=None)}) == {}
    assert RABBIT.diverged(given_, {stream: SplitState(split=stream, offset=0, term=old)}) == {}
    # A position that the new stream does not reach is found by its end.
    assert RABBIT.diverged(given_, {stream: SplitState(split=stream, offset=50, term=old)}) == {}


def test_a_log_that_lost_messages_in_an_earlier_epoch(rabbit_server: RabbitServer, stream: str) -> None:
    """A leader of a later epoch writes other messages at the offsets of those that it lacks."""
    rabbit_server.create(stream)
    rabbit_server.publish(stream, [b"1"] * 5)
    given_ = options(rabbit_server, stream)
    first = RABBIT.terms(given_, [stream])[stream]
    rabbit_server.publish(stream, [b"2"] * 5)
    # As if the term at position 10 had been that of the first five messages, in an earlier epoch.
    earlier = first >> 16 << 16
    assert RABBIT.diverged(given_, {stream: SplitState(split=stream, offset=10, term=earlier)}) == {stream: 5}
    assert RABBIT.diverged(given_, {stream: SplitState(split=stream, offset=5, term=earlier)}) == {}


def test_a_poller_finds_new_messages_and_other_streams(
    rabbit_server: RabbitServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rabbit_server.create(stream)
    given_ = options(rabbit_server, stream)
    poller = Poller()

    def found(offset: int) -> list[tuple[int, int]]:
        return [
            (each.start, each.end)
            for each in poller.stretches(given_, {stream: SplitState(split=stream, offset=offset)})
        ]

    assert found(0) == []
    rabbit_server.publish(stream, [b"1"] * 5)
    assert found(0) == [(0, 5)]
    assert found(5) == []
    asked: list[str] = []
    whole = reader.bounds_of

    def noted(address: Any, stream: str, timeout: float) -> Any:
        asked.append(stream)
        return whole(address, stream, timeout)

    monkeypatch.setattr(reader, "bounds_of", noted)
    assert found(5) == []
    assert asked == []
    rabbit_server.publish(stream, [b"1"] * 3)
    assert found(5) == [(5, 8)]
    assert found(8) == []
    rabbit_server.delete(stream)
    with pytest.raises(OSError, match=f"MISSING stream {stream}"):
        found(8)
    rabbit_server.create(stream)
    rabbit_server.publish(stream, [b"1"] * 3)
    monkeypatch.setattr(poller, "quiet", {})
    with pytest.raises(OSError, match=f"AHEAD {stream}"):
        found(8)


def test_times(rabbit_server: RabbitServer, stream: str) -> None:
    rabbit_server.create(stream)
    given_ = options(rabbit_server, stream)
    assert RABBIT.offsets_at(given_, 0, [stream]) == {stream: 0}
    rabbit_server.publish(stream, [b"1"] * 3)
    now = time.time()
    wait_until(lambda: time.time() > now + 0.01, "chunks have times in milliseconds")
    rabbit_server.publish(stream, [b"2"])
    rows = read(given_, stream, 0, 4)
    times = [int(row["timestamp"].timestamp() * 1000) for row in rows]
    assert times == sorted(times)
    assert times[0] == times[2] < times[3]
    assert RABBIT.record_times(given_, {stream: 1}) == {stream: times[1]}
    assert RABBIT.record_times(given_, {stream: 4}) == {}
    assert RABBIT.offsets_at(given_, 0, [stream]) == {stream: 0}
    assert RABBIT.offsets_at(given_, times[0], [stream]) == {stream: 0}
    assert RABBIT.offsets_at(given_, times[0] + 1, [stream]) == {stream: 3}
    assert RABBIT.offsets_at(given_, times[3] + 3_600_000, [stream]) == {stream: 4}
    with pytest.raises(SqlError, match="the stream does not exist"):
        RABBIT.offsets_at(given_, 0, ["none"])
    timed = options(
        rabbit_server, stream, **{"scan.startup.mode": "timestamp", "scan.startup.timestamp.millis": str(times[3])}
    )
    split = RABBIT.look(timed).splits[stream]
    assert RABBIT.startup_time(timed) == times[3]
    assert RABBIT.start_offset(timed, split, {stream: 3}) == 3
    assert RABBIT.start_offset(options(rabbit_server, stream, **{"scan.startup.mode": "latest"}), split, {}) == 4


def test_keys_headers_and_messages_without_sections(rabbit_server: RabbitServer, stream: str) -> None:
    rabbit_server.create(stream)
    rabbit_server.publish(stream, [b"{}"], message_id="k7", headers={"trace": "äb 7", "n": ""})
    rabbit_server.publish_raw(stream, [b"no AMQP", b"\x00\x53\x75\xa0", b""])
    rows = read(options(rabbit_server, stream), stream, 0, 4)
    assert [row["value"] for row in rows] == [b"{}", b"no AMQP", b"\x00\x53\x75\xa0", b""]
    assert [row["key"] for row in rows] == [b"k7", None, None, None]
    assert rows[0]["headers"] == [{"key": "trace", "value": "äb 7".encode()}, {"key": "n", "value": b""}]
    assert rows[1]["headers"] == []
    (plain,) = RabbitPartReader().read(options(rabbit_server, stream), (stream, 0, 1))
    assert plain.to_pylist()[0]["headers"] is None


def test_partitions_of_a_super_stream(rabbit_server: RabbitServer) -> None:
    given_ = {"url": rabbit_server.url, "super_stream": SUPER}
    RABBIT.check_options(given_)
    splits = [f"{SUPER}:{partition}" for partition in PARTITIONS]
    assert sorted(RABBIT.look(given_).splits) == splits
    before = bounds(given_, splits[1])[1]
    rabbit_server.publish(PARTITIONS[1], [b"1"] * 3)
    assert bounds(given_, splits[1])[1] == before + 3
    (row, *_) = read(given_, splits[1], before, before + 3)
    assert (row["_rw_split"], row["partition"]) == (splits[1], PARTITIONS[1])
    assert {RABBIT.split_topic(split) for split in splits} == set(RABBIT.named_topics(given_)) == {SUPER}
    for written in ("1", PARTITIONS[1], splits[1]):
        assert RABBIT.resolve_split(given_, written) == splits[1]
    with pytest.raises(SqlError, match="is not a split of a RabbitMQ source"):
        RABBIT.resolve_split(given_, "other:other-1")
    missing = RABBIT.look({**given_, "super_stream": "none"})
    assert (missing.part, missing.missing) == ("super stream", ("none",))


def test_streams_that_take_turns(rabbit_server: RabbitServer, stream: str) -> None:
    other = f"{stream}: 50%"
    for name in (stream, other):
        rabbit_server.create(name)
        rabbit_server.publish(name, [name.encode()] * 3)
    try:
        given_ = options(rabbit_server, f"{stream}, {other}")
        quoted = f"{stream}%3A 50%25"
        assert sorted(RABBIT.look(given_).splits) == sorted([stream, quoted])
        assert RABBIT.named_topics(given_) == (stream, quoted)
        table = RabbitPartReader().few(given_, [(stream, 1, 3), (quoted, 2, 3)])
        assert table is not None
        found = [(row["_rw_split"], row["partition"], row["_rw_offset"]) for row in table.to_pylist()]
        assert found == [(stream, stream, 1), (stream, stream, 2), (quoted, other, 2)]
        assert RABBIT.resolve_split(given_, other) == RABBIT.resolve_split(given_, quoted) == quoted
        assert RABBIT.resolve_split(options(rabbit_server, stream), "0") == stream
        with pytest.raises(SqlError, match="is not a split of a RabbitMQ source"):
            RABBIT.resolve_split(given_, " ")
    finally:
        rabbit_server.delete(other)


def test_more_than_one_process_reads_is_left_to_spark(
    rabbit_server: RabbitServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rw_sql.connectors.rabbitmq import source

    rabbit_server.create(stream)
    rabbit_server.publish(stream, [b"x" * 1000] * 20)
    given_ = options(rabbit_server, stream)
    assert RabbitPartReader().few(given_, [(stream, 0, 20)]) is not None
    monkeypatch.setattr(source, "SMALL_BYTES", 10_000)
    assert RabbitPartReader().few(given_, [(stream, 0, 20)]) is None
