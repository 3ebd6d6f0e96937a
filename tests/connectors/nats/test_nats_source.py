"""The NATS connector on a real server, without Spark: exact ranges, holes, purges, streams, subjects."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.base import AT_MOST, SplitState
from rw_sql.connectors.nats import client as nats_client
from rw_sql.connectors.nats import reader
from rw_sql.connectors.nats.source import NatsConnector, NatsPartReader
from rw_sql.errors import SqlError
from tests.support.nats_server import NatsServer, nats_cluster_running
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

pytestmark = pytest.mark.nats

NATS = NatsConnector()


def options(server: NatsServer, stream: str, subject: str = ">", **more: str) -> dict[str, str]:
    made = {"server_url": server.url, "stream": stream, "subject": subject, **more}
    NATS.check_options(made)
    return made


def read(
    given: Mapping[str, str], stream: str, start: int, end: int, created: str | None = None
) -> list[dict[str, Any]]:
    (table,) = NatsPartReader(with_headers=True).read(given, (stream, start, end, created))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def offsets(given: Mapping[str, str], stream: str, start: int, end: int) -> list[int]:
    return [row["_rw_offset"] for row in read(given, stream, start, end)]


def bounds(given: Mapping[str, str], stream: str) -> tuple[int, int]:
    split = NATS.look(given).splits[stream]
    return split.start, split.end


def test_a_range_is_read_exactly_and_again(nats_server: NatsServer, stream: str) -> None:
    nats_server.create(stream, f"{stream}.>")
    given_ = options(nats_server, stream)
    assert bounds(given_, stream) == (1, 1)
    sent = [json.dumps({"n": number}).encode() for number in range(12_001)]
    assert nats_server.publish(f"{stream}.a", sent) == list(range(1, 12_002))
    assert bounds(given_, stream) == (1, 12_002)
    # More than one request of messages, and ranges that begin and end anywhere.
    for start, end in ((1, 12_002), (1, 2), (12_001, 12_002), (4_999, 10_003), (5_000, 5_001), (7, 7)):
        rows = read(given_, stream, start, end)
        assert [row["_rw_offset"] for row in rows] == list(range(start, end))
        assert [row["value"] for row in rows] == sent[start - 1 : end - 1]
        assert rows == read(given_, stream, start, end)
    row = read(given_, stream, 3, 4)[0]
    assert (row["_rw_split"], row["partition"], row["subject"]) == (stream, stream, f"{stream}.a")
    # No state at the server remains but the stream itself.
    assert nats_server.do(lambda js: js.stream_info(stream)).state.consumer_count == 0


def test_large_messages_come_in_several_requests(nats_server: NatsServer, stream: str) -> None:
    nats_server.create(stream)
    sent = [bytes([number]) * 900_000 for number in range(20)]
    nats_server.publish(stream, sent)
    given_ = options(nats_server, stream)
    assert [row["value"] for row in read(given_, stream, 1, 21)] == sent
    # Too much for the driver: Spark's processes read it, in parts of about 32 MiB.
    few = NatsPartReader()
    assert few.few(given_, [(stream, 1, 21, None)]) is not None
    with pytest.raises(reader.TooLargeError):
        reader.read_range(
            nats_client.address_of(given_),
            reader.StreamRange(stream=stream, start=1, end=21),
            (">",),
            most_bytes=1_000_000,
        )


def test_a_message_larger_than_a_request_s_limit(
    nats_server: NatsServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "AT_ONCE_BYTES", 1_000)
    nats_server.create(stream)
    sent = [b"a" * 10, b"b" * 5_000, b"c" * 6_000, b"d" * 10]
    nats_server.publish(stream, sent)
    assert [row["value"] for row in read(options(nats_server, stream), stream, 1, 5)] == sent


def test_deleted_messages_are_holes(nats_server: NatsServer, stream: str) -> None:
    nats_server.create(stream)
    nats_server.publish(stream, [b"{}"] * 10)
    nats_server.delete_messages(stream, 3, 4, 7, 10)
    given_ = options(nats_server, stream)
    assert bounds(given_, stream) == (1, 11)
    assert offsets(given_, stream, 1, 11) == [1, 2, 5, 6, 8, 9]
    assert offsets(given_, stream, 3, 5) == []
    assert offsets(given_, stream, 7, 9) == [8]
    assert offsets(given_, stream, 10, 11) == []
    assert NATS.offsets_count == AT_MOST
    assert NATS.sparse_topics(given_) == {stream: "messages were deleted"}
    assert NATS.record_times(given_, {stream: 3}) == {}


def test_messages_that_were_all_replaced_are_reported_as_removed(nats_server: NatsServer, stream: str) -> None:
    """The server does not report why its first message is after the position."""
    nats_server.create(stream, f"{stream}.*", max_msgs_per_subject=1)
    given_ = options(nats_server, stream)
    for subject in ("a", "b", "a", "a"):
        nats_server.publish(f"{stream}.{subject}", [b"{}"])
    assert bounds(given_, stream) == (2, 5)
    assert offsets(given_, stream, 2, 5) == [2, 4]
    state = SplitState(split=stream, offset=3, incarnation=NATS.look(given_).splits[stream].incarnation)
    (left,) = NATS.stretches(given_, {stream: state})
    assert (left.start, left.end) == (3, 5)
    nats_server.publish(f"{stream}.b", [b"{}"])
    assert bounds(given_, stream) == (4, 6)
    with pytest.raises(OSError, match=f"EXPIRED {stream}: the stream's first message is 4, after the position 3"):
        NATS.stretches(given_, {stream: state})


def test_a_purge_is_never_a_silent_skip(nats_server: NatsServer, stream: str) -> None:
    nats_server.create(stream)
    nats_server.publish(stream, [b"{}"] * 10)
    given_ = options(nats_server, stream)
    here = NATS.look(given_).splits[stream].incarnation
    nats_server.purge(stream, seq=6)
    assert bounds(given_, stream) == (6, 11)
    state = SplitState(split=stream, offset=4, incarnation=here)
    with pytest.raises(OSError, match=f"EXPIRED {stream}: the stream's first message is 6, after the position 4"):
        NATS.stretches(given_, {stream: state})
    with pytest.raises(OSError, match=f"EXPIRED {stream}"):
        read(given_, stream, 4, 11, here)
    with pytest.raises(OSError, match=f"EXPIRED {stream}"):
        read(given_, stream, 1, 3, here)
    assert offsets(given_, stream, 6, 11) == [6, 7, 8, 9, 10]
    nats_server.purge(stream)
    assert bounds(given_, stream) == (11, 11)
    assert NATS.stretches(given_, {stream: SplitState(split=stream, offset=11, incarnation=here)}) == ()
    with pytest.raises(OSError, match="EXPIRED"):
        read(given_, stream, 8, 11, here)
    with pytest.raises(OSError, match=f"AHEAD {stream}"):
        NATS.stretches(given_, {stream: SplitState(split=stream, offset=12, incarnation=here)})


def test_a_limit_that_removes_unread_messages_is_reported(nats_server: NatsServer, stream: str) -> None:
    nats_server.create(stream, max_msgs=5)
    nats_server.publish(stream, [b"{}"] * 9)
    given_ = options(nats_server, stream)
    assert bounds(given_, stream) == (5, 10)
    with pytest.raises(OSError, match=f"EXPIRED {stream}: the stream's first message is 5, after the position 1"):
        NATS.stretches(given_, {stream: SplitState(split=stream, offset=1)})


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_stream_that_its_consumers_trim_is_refused(nats_server: NatsServer, stream: str, retention: str) -> None:
    nats_server.create(stream, retention=retention)
    told = NATS.look(options(nats_server, stream)).error
    assert told is not None
    assert told.startswith(f"stream {stream} has the retention {retention}")


def test_messages_that_go_while_a_range_is_read(
    nats_server: NatsServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nats_server.create(stream)
    nats_server.publish(stream, [b"{}"] * 10)
    given_ = options(nats_server, stream)
    drained = reader._Found._drain

    async def purge_before(self: Any, pull: Any) -> None:
        js = pull._nc.jetstream()
        await js.purge_stream(stream, seq=4)
        await drained(self, pull)

    monkeypatch.setattr(reader._Found, "_drain", purge_before)
    with pytest.raises(OSError, match="EXPIRED"):
        read(given_, stream, 1, 11)

    async def purge_after(self: Any, pull: Any) -> None:
        await drained(self, pull)
        await pull._nc.jetstream().purge_stream(stream, seq=9)

    # Everything was read before it went: nothing is missing.
    monkeypatch.setattr(reader._Found, "_drain", purge_after)
    assert offsets(given_, stream, 4, 11) == [4, 5, 6, 7, 8, 9, 10]


def test_a_stream_created_again_while_a_range_is_read(
    nats_server: NatsServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nats_server.create(stream)
    nats_server.publish(stream, [b"1"] * 5)
    given_ = options(nats_server, stream)
    old = NATS.look(given_).splits[stream].incarnation
    drained = reader._Found._drain

    async def then_again(self: Any, pull: Any) -> None:
        await drained(self, pull)
        js = pull._nc.jetstream()
        await js.delete_stream(stream)
        await js.add_stream(name=stream, subjects=[stream])

    monkeypatch.setattr(reader._Found, "_drain", then_again)
    with pytest.raises(OSError, match=f"RECREATED {stream}"):
        read(given_, stream, 1, 6, old)


def test_a_stream_created_again_is_another_one(nats_server: NatsServer, stream: str) -> None:
    nats_server.create(stream)
    nats_server.publish(stream, [b"1"] * 5)
    given_ = options(nats_server, stream)
    old = NATS.look(given_).splits[stream].incarnation
    nats_server.delete(stream)
    assert NATS.look(given_).missing == (stream,)
    with pytest.raises(OSError, match="not found"):
        read(given_, stream, 1, 6, old)
    nats_server.create(stream)
    nats_server.publish(stream, [b"2"] * 8)
    new = NATS.look(given_).splits[stream].incarnation
    assert new != old
    # Fraction and all: a stream that is created again at once has another time.
    assert new is not None
    assert len(new) > len("2026-01-31T08:00:00.000000Z")
    told = (
        f"RECREATED {stream}: the stream was deleted, and created again at {new}. "
        f"The source has read the stream that was created at {old}"
    )
    with pytest.raises(OSError, match=told):
        NATS.stretches(given_, {stream: SplitState(split=stream, offset=6, incarnation=old)})
    with pytest.raises(OSError, match=f"RECREATED {stream}"):
        read(given_, stream, 1, 6, old)
    assert [row["value"] for row in read(given_, stream, 1, 3, new)] == [b"2", b"2"]


def test_subjects_and_wildcards(nats_server: NatsServer, stream: str) -> None:
    nats_server.create(stream, f"{stream}.a.>", f"{stream}.b")
    for subject in ("a.x", "a.y", "b", "a.x.z", "a.y"):
        nats_server.publish(f"{stream}.{subject}", [b"{}"])
    wanted = {
        ">": [1, 2, 3, 4, 5],
        f"{stream}.>": [1, 2, 3, 4, 5],
        f"{stream}.a.*": [1, 2, 5],
        f"{stream}.*.x": [1],
        f"*.*.y, {stream}.b": [2, 3, 5],
        # These overlap: each message once, in order.
        f"{stream}.a.x.>, {stream}.a.>, *.a.y": [1, 2, 4, 5],
        f"{stream}.c": [],
    }
    for subject, found in wanted.items():
        assert offsets(options(nats_server, stream, subject), stream, 1, 6) == found, subject
    everything = options(nats_server, stream)
    assert NATS.sparse_topics(everything) == {}
    some = options(nats_server, stream, f"{stream}.a.*")
    assert NATS.sparse_topics(some) == {stream: "messages of other subjects have offsets too"}
    told = NATS.look(options(nats_server, stream, f"{stream}.c"))
    assert (told.part, told.missing) == ("subject", (f"{stream}.c",))
    assert f"{stream}.b" in told.present


def test_a_stream_whose_subjects_change_while_it_has_messages(nats_server: NatsServer, stream: str) -> None:
    eu, us, x = (f"{stream}.{part}" for part in ("o.eu", "o.us", "x"))
    nats_server.create(stream, eu, us, x)
    for subject in (eu, us, x, eu, us, x):
        nats_server.publish(subject, [b"{}"])
    wanted = {
        eu: [1, 4],
        us: [2, 5],
        f"{stream}.o.>": [1, 2, 4, 5],
        f"{eu}, {x}": [1, 3, 4, 6],
        ">": [1, 2, 3, 4, 5, 6],
    }

    def changed(listed: list[str]) -> Callable[[Any], Awaitable[None]]:
        async def change(js: Any) -> None:
            config = (await js.stream_info(stream)).config
            config.subjects = listed
            await js.update_stream(config)

        return change

    for listed in ([eu, us, x], [eu, x], [eu], [f"{stream}.o.*"], [f"{stream}.other"]):
        nats_server.do(changed(listed))
        for subject, found in wanted.items():
            assert offsets(options(nats_server, stream, subject), stream, 1, 7) == found, (subject, listed)


def test_a_server_that_catches_up_hides_no_message(stream: str) -> None:
    """A restarted server of a cluster runs consumers before it has all messages of the stream."""
    with nats_cluster_running() as cluster:
        leader, (other, _) = cluster.create(stream)
        server = cluster.servers[leader]
        cluster.kill(other)
        server.publish(stream, [b"x" * 400_000] * 250)
        cluster.start(other)
        given_ = options(server, stream)
        first, end = bounds(given_, stream)
        assert (first, end) == (1, 251)
        reads = 0
        is_behind = True
        while is_behind or reads < 20:
            reads += 1
            assert offsets(given_, stream, end - 10, end) == list(range(end - 10, end))
            assert NATS.offsets_at(given_, 0, [stream]) == {stream: 1}
            replicas = server.do(lambda js: js.stream_info(stream)).cluster.replicas
            is_behind = not all(replica.current for replica in replicas)


def test_a_mirror_has_subjects_that_it_does_not_list(nats_server: NatsServer, stream: str) -> None:
    from nats.js.api import StreamSource

    nats_server.create(stream, f"{stream}.*")
    nats_server.publish(f"{stream}.a", [b"{}"] * 3)
    nats_server.publish(f"{stream}.b", [b"{}"])
    mirror = f"{stream}m"
    nats_server.do(lambda js: js.add_stream(name=mirror, mirror=StreamSource(name=stream)))
    try:
        given_ = options(nats_server, mirror, f"{stream}.b")
        wait_until(lambda: bounds(given_, mirror) == (1, 5), "the mirror has everything")
        assert offsets(given_, mirror, 1, 5) == [4]
        assert mirror in NATS.sparse_topics(given_)
    finally:
        nats_server.delete(mirror)


def test_times(nats_server: NatsServer, stream: str) -> None:
    nats_server.create(stream)
    nats_server.publish(stream, [b"{}"] * 3)
    nats_server.delete_messages(stream, 1)
    given_ = options(nats_server, stream)
    (second,) = read(given_, stream, 2, 3)
    at = NATS.record_times(given_, {stream: 2})[stream]
    assert at == int(second["timestamp"].timestamp() * 1000)
    assert NATS.offsets_at(given_, 0, [stream]) == {stream: 2}
    assert NATS.offsets_at(given_, at, [stream])[stream] in (2, 3)
    assert NATS.offsets_at(given_, at + 3_600_000, [stream]) == {stream: 4}
    timed = options(nats_server, stream, **{"scan.startup.mode": "timestamp", "scan.startup.timestamp.millis": str(at)})
    split = NATS.look(timed).splits[stream]
    assert NATS.startup_time(timed) == at
    assert NATS.start_offset(timed, split, {stream: 2}) == 2
    assert NATS.start_offset(options(nats_server, stream, **{"scan.startup.mode": "latest"}), split, {}) == 4
    with pytest.raises(SqlError, match="the stream does not exist"):
        NATS.offsets_at(given_, 0, ["none"])


def test_headers_and_what_is_not_in_a_message(nats_server: NatsServer, stream: str) -> None:
    nats_server.create(stream)
    nats_server.publish(stream, [b"", b"\x00\xff"], headers={"trace": "äb 7"})
    nats_server.publish(stream, [b"{}"])
    rows = read(options(nats_server, stream), stream, 1, 4)
    assert [row["value"] for row in rows] == [b"", b"\x00\xff", b"{}"]
    assert rows[0]["headers"] == [{"key": "trace", "value": "äb 7".encode()}]
    assert rows[2]["headers"] is None
    assert rows[0]["key"] is None


def test_subjects_and_headers_of_any_bytes(nats_server: NatsServer, stream: str) -> None:
    """A server forwards them as they are; nats-py's reader ended at bytes that are not UTF-8."""
    nats_server.create(stream, f"{stream}.>")
    name = stream.encode()
    publish_raw(
        nats_server,
        (name + b".a", b"", b"1"),
        (name + b".\xff\xfe.b", b"", b"2"),
        (name + ".ü".encode(), b"", b"3"),
        (name + b".c", b"NATS/1.0\r\n\xff: \xfe\xff\r\n\r\n", b"4"),
        (name + b".\xff", b"NATS/1.0 503 \xff\r\n\r\n", b"5"),
        (name + b".z", b"", b"6"),
        # Whitespace in Python, but not in the protocol.
        (name + b".v\x0b1", b"", b"7"),
        (name + b".f\x0c1", b"NATS/1.0\r\na: b\r\n\r\n", b"8"),
        (name + ".\x85\u2003.b".encode(), b"", b"9"),
        (name + b".y", b"", b"10"),
    )
    wait_until(lambda: bounds(options(nats_server, stream), stream) == (1, 11), "the messages")
    rows = read(options(nats_server, stream), stream, 1, 11)
    assert [row["value"] for row in rows] == [b"%d" % number for number in range(1, 11)]
    subjects_read = [row["subject"].removeprefix(f"{stream}.") for row in rows]
    assert subjects_read == ["a", "\ufffd\ufffd.b", "ü", "c", "\ufffd", "z", "v\x0b1", "f\x0c1", "\x85\u2003.b", "y"]
    only = options(nats_server, stream, f"{stream}.*.b, {stream}.z, {stream}.v\x0b1")
    assert [row["value"] for row in read(only, stream, 1, 11)] == [b"2", b"6", b"7", b"9"]


def publish_raw(server: NatsServer, *messages: tuple[bytes, bytes, bytes]) -> None:
    """Publishes messages (subject, headers, data) as they are, and waits until the server has taken them."""
    commands = [
        b"HPUB %s %d %d\r\n%s%s\r\n" % (subject, len(headers), len(headers + data), headers, data)
        if headers
        else b"PUB %s %d\r\n%s\r\n" % (subject, len(data), data)
        for subject, headers, data in messages
    ]
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(
            b'CONNECT {"verbose": false, "headers": true, "no_responders": true}\r\n' + b"".join(commands) + b"PING\r\n"
        )
        found = b""
        while b"PONG" not in found:
            got = connection.recv(4096)
            assert got, found
            found += got
        assert b"-ERR" not in found


def test_the_offsets_of_a_durable_consumer(nats_server: NatsServer, stream: str) -> None:
    nats_server.create(stream)
    nats_server.publish(stream, [b"{}"] * 5)

    async def work(js: Any) -> None:
        taken = await js.pull_subscribe(stream, durable="worker", stream=stream)
        for message in await taken.fetch(3):
            await message.ack_sync()

    nats_server.do(work)
    given_ = options(nats_server, stream)
    assert NATS.group_offsets(given_, "worker", [stream]).offsets == {stream: 4}
    unknown = NATS.group_offsets(given_, "walker", [stream])
    assert (unknown.offsets, unknown.groups) == ({}, ("worker",))


def test_streams_that_take_turns(nats_server: NatsServer, stream: str) -> None:
    other = f"{stream}b"
    for name in (stream, other):
        nats_server.create(name)
        nats_server.publish(name, [name.encode()] * 3)
    try:
        given_ = options(nats_server, f"{stream}, {other}", f"{stream}, {other}")
        assert sorted(NATS.look(given_).splits) == [stream, other]
        table = NatsPartReader().few(given_, [(stream, 1, 3, None), (other, 2, 4, None)])
        assert table is not None
        found = [(row["_rw_split"], row["_rw_offset"], row["value"].decode()) for row in table.to_pylist()]
        assert found == [(stream, 1, stream), (stream, 2, stream), (other, 2, other), (other, 3, other)]
        with pytest.raises(SqlError, match="is not a split of a NATS source"):
            NATS.resolve_split(given_, "a b")
        assert NATS.resolve_split(options(nats_server, stream), "0") == stream
    finally:
        nats_server.delete(other)
