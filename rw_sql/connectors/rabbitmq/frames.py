"""Encodes and decodes the frames of RabbitMQ's stream protocol. Only the frames that a reader needs are supported.

A frame consists of a length, a command, a version, a correlation id (in requests and responses only), and the command's
fields. All numbers are big-endian. A string begins with its length as a two-byte number. A list or map begins with its
length as a four-byte number.

See PROTOCOL.adoc of the plugin rabbitmq_stream.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Command(IntEnum):
    """The protocol's commands and their numbers."""

    DECLARE_PUBLISHER = 1
    PUBLISH = 2
    PUBLISH_CONFIRM = 3
    SUBSCRIBE = 7
    DELIVER = 8
    CREDIT = 9
    STORE_OFFSET = 10
    QUERY_OFFSET = 11
    UNSUBSCRIBE = 12
    CREATE = 13
    DELETE = 14
    METADATA = 15
    METADATA_UPDATE = 16
    PEER_PROPERTIES = 17
    SASL_HANDSHAKE = 18
    SASL_AUTHENTICATE = 19
    TUNE = 20
    OPEN = 21
    CLOSE = 22
    HEARTBEAT = 23
    PARTITIONS = 25


class Code(IntEnum):
    """The response codes that the reader treats differently."""

    OK = 1
    STREAM_MISSING = 2
    STREAM_UNAVAILABLE = 6
    MECHANISM_UNKNOWN = 7
    AUTHENTICATION_FAILED = 8
    LOOPBACK_ONLY = 11
    VHOST_REFUSED = 12
    ACCESS_REFUSED = 16
    NO_OFFSET = 19


RESPONSE = 0x8000
"""The bit of a command that marks a response."""

_VERSION = 1
NO_NODE = 0xFFFF
"""The reference that stands for an unknown node."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place at which a subscription begins. ``at`` is an offset, or a time in milliseconds since 1970; other
    kinds of places do not use it."""

    kind: int
    at: int = 0

    def encoded(self) -> bytes:
        """The place, encoded as the fields of a frame."""
        match self.kind:
            case 4:
                return struct.pack(">HQ", self.kind, self.at)
            case 5:
                return struct.pack(">Hq", self.kind, self.at)
            case _:
                return struct.pack(">H", self.kind)


FIRST, LAST = Place(1), Place(2)
"""The place of a stream's first chunk, and the place of a stream's last chunk that contains messages."""


def at_offset(offset: int) -> Place:
    """The place of the chunk that contains ``offset``. If ``offset`` precedes the first chunk, the place is that of
    the first chunk."""
    return Place(4, offset)


def at_time(milliseconds: int) -> Place:
    """The place of the first chunk that was written at or after ``milliseconds``."""
    return Place(5, milliseconds)


@dataclass(slots=True)
class Fields:
    """Reads the fields of a frame in order. Each method reads the next field."""

    data: bytes
    at: int = 0

    def number(self, size: int) -> int:
        """Reads a number that the frame stores in ``size`` bytes."""
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "big")

    def text(self) -> str:
        """Reads a string. Bytes that are not UTF-8 are replaced."""
        size = self.number(2)
        self.at += size
        return self.data[self.at - size : self.at].decode(errors="replace")

    def texts(self) -> tuple[str, ...]:
        """Reads a list of strings."""
        return tuple(self.text() for _ in range(self.number(4)))

    def mapping(self) -> dict[str, str]:
        """Reads a map of strings. Returns an empty map if the frame ends before the map."""
        return {self.text(): self.text() for _ in range(self.number(4))} if self.at < len(self.data) else {}


def text(value: str) -> bytes:
    """Encodes a string as a field. Raises ValueError if the string has more than 32,767 bytes."""
    data = value.encode()
    if len(data) > 0x7FFF:
        raise ValueError("a name has at most 32,767 bytes")
    return struct.pack(">H", len(data)) + data


def texts(values: Iterable[str]) -> bytes:
    """Encodes a list of strings as a field."""
    found = [text(value) for value in values]
    return struct.pack(">I", len(found)) + b"".join(found)


def mapping(values: Mapping[str, str]) -> bytes:
    """Encodes a map of strings as a field."""
    return struct.pack(">I", len(values)) + b"".join(text(key) + text(value) for key, value in values.items())


def frame(command: int, body: bytes, correlation: int | None = None) -> bytes:
    """Builds a frame, including its length. ``correlation`` is None for frames other than requests."""
    head = struct.pack(">HH", command, _VERSION)
    if correlation is not None:
        head += struct.pack(">I", correlation)
    return struct.pack(">I", len(head) + len(body)) + head + body


def subscribe(subscription: int, stream: str, place: Place, credit: int, *, is_raw: bool) -> bytes:
    """The fields of a request to subscribe. ``credit`` is the number of chunks that the server may then deliver.

    If ``is_raw`` is true, the server also delivers the chunks that it writes for its own use. Every offset is then in a
    delivered chunk.
    """
    asked = struct.pack(">B", subscription) + text(stream) + place.encoded() + struct.pack(">H", credit)
    return asked + mapping({"chunk_selector": "all"}) if is_raw else asked


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamNodes:
    """The location of a stream. ``code`` is the response code for this stream. ``leader`` is the host and port of
    the stream's leader; None if no leader is known."""

    code: int
    leader: tuple[str, int] | None = None


def stream_nodes(found: Fields) -> dict[str, StreamNodes]:
    """Decodes a response to METADATA. Returns the location of each stream by the stream's name."""
    nodes: dict[int, tuple[str, int]] = {}
    for _ in range(found.number(4)):
        reference = found.number(2)
        nodes[reference] = (found.text(), found.number(4))
    streams = {}
    for _ in range(found.number(4)):
        name, code, leader = found.text(), found.number(2), found.number(2)
        for _ in range(found.number(4)):
            found.number(2)
        streams[name] = StreamNodes(code=code, leader=nodes.get(leader) if leader != NO_NODE else None)
    return streams


@dataclass(frozen=True, slots=True)
class Request:
    """A request, with its command and the bytes of its fields."""

    command: Command
    body: bytes = b""


@dataclass(slots=True)
class Reply:
    """A response: its code, and the fields after the code. ``code`` is 0 if the response has no code."""

    code: int
    fields: Fields = field(default_factory=lambda: Fields(b""))
