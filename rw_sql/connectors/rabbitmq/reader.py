"""Reads the bounds and ranges of streams, in chunks.

A subscription begins with the chunk that contains the requested offset. If this chunk was removed, the server silently
begins with a later chunk. To detect this, the reader also requests the chunks that the server writes for its own use.
These chunks and the chunks with messages cover all offsets of a stream. A gap between two chunks therefore shows that
messages were removed.

A server processes the requests of a connection in order. Before it responds to a request that follows a subscription,
it delivers the chunks that are available for the subscription. If this response arrives before any chunk, no chunk is
available.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rw_sql.connectors.rabbitmq import frames
from rw_sql.connectors.rabbitmq.chunks import chunk_of
from rw_sql.connectors.rabbitmq.client import (
    RabbitClient,
    RabbitError,
    StreamMissingError,
    at_leader,
    leader_of,
    require_ok,
)
from rw_sql.connectors.rabbitmq.frames import Command, Request
from rw_sql.connectors.rabbitmq.messages import DATA_SECTION, content_of, parts_of
from rw_sql.connectors.support.records.record_columns import HEADERS, RECORD_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.connectors.rabbitmq.chunks import Chunk
    from rw_sql.connectors.rabbitmq.client import Address
    from rw_sql.connectors.rabbitmq.frames import Place

AT_ONCE_BYTES = 8 * 1024 * 1024
"""When the messages in a table reach this size in bytes, the reader begins another table. One table contains all
messages of a chunk, so a table may be larger."""

_ANSWER_SECONDS = 10.0
_MOST_CREDIT = 64
_EPOCH_BITS = 16


class RangeLostError(RabbitError):
    """Raised if the range cannot be read completely: its messages were removed, or the stream was deleted and
    created again."""


def term_of(chunk: Chunk) -> int:
    """Returns the term of a stream whose last chunk is ``chunk``. The term consists of the time of the chunk, and of
    the epoch of the leader that wrote the chunk.

    After a stream is deleted and created again, all of its chunks have later times than this chunk. After a stream
    loses messages, its new chunks have a greater epoch.
    """
    return chunk.milliseconds << _EPOCH_BITS | min(chunk.epoch, (1 << _EPOCH_BITS) - 1)


def _is_after(chunk: Chunk, term: int) -> bool:
    return chunk.milliseconds > term >> _EPOCH_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBounds:
    """The bounds of a stream at one moment: the stream has the offsets ``[start, end)``.

    ``term`` is the stream's term; None if the stream has no messages. ``birth`` is the time of the chunk at offset 0,
    which distinguishes the stream from an earlier stream of the same name; None if that chunk does not exist yet or has
    been removed.

    ``is_empty`` is True if the leader delivers no chunk. Either the stream is new, or its leader is new. A new leader
    delivers no messages until the stream's other servers have contacted it, because only then does it know which
    messages are confirmed.
    """

    start: int
    end: int
    term: int | None
    birth: str | None = None
    is_empty: bool = False


def bounds_of(address: Address, stream: str, timeout: float) -> StreamBounds:
    """The bounds of a stream. Raises StreamMissingError or RabbitError."""

    def ask(client: RabbitClient) -> StreamBounds:
        # The chunks that the server writes for itself have offsets too. If such chunks follow the last message, they do
        # not count.
        first, last = _peek(client, stream, (frames.FIRST, True), (frames.LAST, False))
        if first is None and last is None:
            return StreamBounds(start=0, end=0, term=None, is_empty=True)
        birth = _time_text(first.milliseconds) if first is not None and first.first == 0 else None
        if last is None:
            assert first is not None
            if first.is_user:
                raise RabbitError(f"stream {stream} has messages, but its leader does not deliver the last one")
            return StreamBounds(start=first.first, end=first.first, term=None, birth=birth)
        start = last.first if first is None else min(first.first, last.first)
        return StreamBounds(start=start, end=last.end, term=term_of(last), birth=birth)

    return at_leader(address, stream, timeout, ask)


def birth_of(address: Address, stream: str, timeout: float) -> str | None:
    """The value of ``StreamBounds.birth`` for a stream. Raises StreamMissingError or RabbitError."""
    (first,) = at_leader(address, stream, timeout, lambda client: _peek(client, stream, (frames.FIRST, True)))
    return _time_text(first.milliseconds) if first is not None and first.first == 0 else None


def _time_text(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def last_of(address: Address, stream: str, timeout: float) -> Chunk | None:
    """The last chunk with messages; None if there is no such chunk. Raises StreamMissingError or RabbitError."""
    return at_leader(address, stream, timeout, lambda client: _peek(client, stream, (frames.LAST, False))[0])


def has_any_from(address: Address, stream: str, offset: int, timeout: float) -> bool:
    """True if the stream has messages at or after ``offset``. Raises StreamMissingError or RabbitError."""
    place = (frames.at_offset(offset), False)
    return at_leader(address, stream, timeout, lambda client: _peek(client, stream, place)[0]) is not None


def first_at(address: Address, stream: str, milliseconds: int, timeout: float) -> int:
    """The offset of the first message at or after ``milliseconds``; the stream's end if no such message exists."""

    def ask(client: RabbitClient) -> int | None:
        # Requests the last chunk first: a message that arrives between the two requests is then not missed.
        last, found = _peek(client, stream, (frames.LAST, False), (frames.at_time(milliseconds), False))
        if found is not None and found.milliseconds >= milliseconds:
            return found.first
        return None if last is None else last.end

    found = at_leader(address, stream, timeout, ask)
    return bounds_of(address, stream, timeout).end if found is None else found


def time_of(address: Address, stream: str, offset: int, timeout: float) -> int | None:
    """The time of a message in milliseconds since 1970; None if the message does not exist."""
    place = (frames.at_offset(offset), False)
    found = at_leader(address, stream, timeout, lambda client: _peek(client, stream, place)[0])
    return found.milliseconds if found is not None and found.first <= offset < found.end else None


def diverged_at(address: Address, stream: str, offset: int, term: int, timeout: float) -> int | None:
    """Returns the first offset whose message may have changed since ``term``. Returns None if no existing message
    before ``offset`` has changed.

    Raises StreamMissingError or RabbitError.
    """
    if offset <= 0:
        return None

    def ask(client: RabbitClient) -> int | None:
        first, before = _peek(client, stream, (frames.FIRST, True), (frames.at_offset(offset - 1), True))
        if first is None or before is None or not before.first < offset <= before.end:
            return None
        if _is_after(first, term):
            return first.first
        if before.epoch <= term & (1 << _EPOCH_BITS) - 1 or not _is_after(before, term):
            return None
        (later,) = _peek(client, stream, (frames.at_time((term >> _EPOCH_BITS) + 1), True))
        return before.first if later is None else min(later.first, before.first)

    return at_leader(address, stream, timeout, ask)


def stored_offset(address: Address, stream: str, name: str, timeout: float) -> int | None:
    """The offset that a consumer has stored in the stream under a name; None if no offset is stored under this name."""

    def ask(client: RabbitClient) -> int | None:
        (reply,) = client.ask(Request(Command.QUERY_OFFSET, frames.text(name) + frames.text(stream)))
        if reply.code == frames.Code.NO_OFFSET:
            return None
        require_ok(reply, stream)
        return reply.fields.number(8)

    return at_leader(address, stream, timeout, ask)


def partitions_of(client: RabbitClient, name: str) -> tuple[str, ...]:
    """The streams of a super stream, in the order of its partitions. Raises StreamMissingError or RabbitError."""
    (reply,) = client.ask(Request(Command.PARTITIONS, frames.text(name)))
    require_ok(reply, name)
    found = reply.fields.texts()
    if not found:
        raise StreamMissingError(name)
    return found


def _peek(client: RabbitClient, stream: str, *places: tuple[Place, bool]) -> list[Chunk | None]:
    """Returns the first chunk that a subscription at each place receives; None for a place without a chunk. Each of
    ``places`` is a pair: the place, and ``is_raw`` (see :func:`frames.subscribe`)."""
    requests = []
    for number, (place, is_raw) in enumerate(places):
        asked = frames.subscribe(number, stream, place, 1, is_raw=is_raw)
        requests += [Request(Command.SUBSCRIBE, asked), Request(Command.UNSUBSCRIBE, bytes([number]))]
    replies = client.ask(*requests)
    found = {delivery.subscription: delivery for delivery in client.deliveries()}
    for reply in replies[::2]:
        require_ok(reply, stream)
    for reply in replies[1::2]:
        require_ok(reply, stream)
    return [chunk_of(found[number].chunk) if number in found else None for number in range(len(places))]


def read_range(
    address: Address,
    stream: str,
    start: int,
    end: int,
    *,
    split: str | None = None,
    with_headers: bool = False,
    most_bytes: int = AT_ONCE_BYTES,
) -> tuple[pa.Table, int]:
    """Reads the messages ``[start, end)`` of a stream, in the order of their offsets. Also returns the offset at which
    the next read must begin.

    The returned offset is ``end``, unless the messages reached ``most_bytes`` earlier. At least one chunk is read.
    ``split`` is the name of the split; if it is None, the stream's name is used. Raises RangeLostError if messages of
    the range were removed, StreamMissingError if there is no such stream, and RabbitError if the server does not
    respond.
    """
    found = _Range(
        stream=stream, split=split or stream, start=start, end=end, with_headers=with_headers, most_bytes=most_bytes
    )
    if end <= start:
        return RECORD_SCHEMA.empty_table(), end
    at_leader(address, stream, _ANSWER_SECONDS, found.read)
    return found.table(), found.at


@dataclass(slots=True)
class _Range:
    """Collects the messages of a range during a read. ``at`` is the next offset to read."""

    stream: str
    split: str
    start: int
    end: int
    with_headers: bool
    most_bytes: int
    at: int = 0
    size: int = 0
    offsets: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)

    def read(self, client: RabbitClient) -> None:
        """Reads the range. If its messages reach ``most_bytes``, only the beginning of the range is read."""
        self.at = self.start
        self.size = 0
        for column in (self.offsets, self.keys, self.values, self.times, self.headers):
            column.clear()
        asked = frames.subscribe(1, self.stream, frames.at_offset(self.start), 1, is_raw=True)
        subscribed, metadata = client.ask(
            Request(Command.SUBSCRIBE, asked), Request(Command.METADATA, frames.texts((self.stream,)))
        )
        require_ok(subscribed, self.stream)
        leader_of(self.stream, metadata)
        arrived = client.deliveries()
        if not arrived:
            raise RangeLostError(f"AHEAD {self.stream}: it has no message at {self.start} or later")
        granted = 0
        while True:
            delivery = arrived.pop(0) if arrived else client.next_delivery()
            if delivery.subscription != 1:
                continue
            chunk = chunk_of(delivery.chunk)
            self._note(chunk)
            granted = max(0, granted - 1)
            if self.at >= self.end or self.size >= self.most_bytes:
                break
            # Requests the number of chunks that the rest of the range needs if all of its chunks are as large as this
            # chunk.
            wanted = min(_MOST_CREDIT, -(-(self.end - self.at) // max(1, chunk.end - chunk.first)), self._room(chunk))
            if wanted > granted:
                client.credit(1, wanted - granted)
                granted = wanted
        client.ask(Request(Command.UNSUBSCRIBE, b"\x01"))
        client.deliveries()

    def _room(self, chunk: Chunk) -> int:
        return max(1, (self.most_bytes - self.size) // max(1, len(chunk.data)))

    def _note(self, chunk: Chunk) -> None:
        if chunk.first > self.at:
            raise RangeLostError(
                f"EXPIRED {self.stream}: its first message is {chunk.first}, after the position {self.at}"
            )
        if chunk.end <= self.at:
            raise RangeLostError(f"AHEAD {self.stream}: its end is {chunk.end}, before the position {self.at}")
        upto = min(chunk.end, self.end)
        if chunk.is_user:
            self._take(chunk, upto)
        self.at = upto

    def _take(self, chunk: Chunk, upto: int) -> None:
        skipped, count = self.at - chunk.first, upto - self.at
        values, keys = self.values, self.keys
        before = len(values)
        for number, message in enumerate(chunk.messages()):
            if number < skipped:
                continue
            if number >= skipped + count:
                break
            self.size += len(message)
            if message[:3].tobytes() == DATA_SECTION:
                # The message has no properties, because properties would precede the content.
                values.append(content_of(message))
                keys.append(None)
                if self.with_headers:
                    self.headers.append([])
                continue
            content, key, headers = parts_of(message, with_headers=self.with_headers)
            values.append(content)
            keys.append(key)
            if self.with_headers:
                self.headers.append(headers)
        if len(values) - before != count:
            raise RabbitError(f"the chunk at offset {chunk.first} of stream {self.stream} lacks messages")
        self.offsets.extend(range(self.at, upto))
        self.times.extend([chunk.milliseconds] * count)

    def table(self) -> pa.Table:
        """The collected messages as an Arrow table, in the order of their offsets."""
        count = len(self.values)
        return pa.Table.from_arrays(
            [
                _repeated(self.split, count),
                pa.array(self.offsets, pa.int64()),
                pa.array(self.keys, pa.binary()),
                pa.array(self.values, pa.binary()),
                _repeated(self.stream, count),
                pa.array(self.times, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC")),
                pa.array(self.headers, HEADERS) if self.with_headers else pa.nulls(count, HEADERS),
            ],
            schema=RECORD_SCHEMA,
        )


def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def whole_table(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of several tables, in the order of the tables."""
    return pa.concat_tables(tables) if tables else RECORD_SCHEMA.empty_table()
