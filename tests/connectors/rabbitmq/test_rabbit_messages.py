"""Messages, chunks and names of RabbitMQ's streams, without a server."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from rw_sql.connectors.rabbitmq.chunks import chunk_of
from rw_sql.connectors.rabbitmq.client import RabbitError, servers_of
from rw_sql.connectors.rabbitmq.messages import content_of, parts_of
from rw_sql.connectors.rabbitmq.names import part_of, partition_split, split_of, stream_of
from tests.support.rabbitmq_server import amqp

DATA = b"\x00\x53\x75"
VALUE = b"\x00\x53\x77"
PROPERTIES = b"\x00\x53\x73"
APPLICATION = b"\x00\x53\x74"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
CODES = [
    bytes([code])
    for codes in ((0,), range(0x40, 0x46), range(0x50, 0x57), (0x60, 0x61), range(0x70, 0x75), range(0x80, 0x85),
                  (0x94, 0x98), range(0xA0, 0xA4), range(0xB0, 0xB4), (0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0))
    for code in codes
]  # fmt: skip
"""The codes of types, and some that no type has."""


def small_map(*items: bytes) -> bytes:
    body = b"".join(items)
    return b"\xc1" + bytes([len(body) + 1, len(items)]) + body


@pytest.mark.parametrize(
    ("message", "content"),
    [
        (DATA + b"\xa0\x03abc", b"abc"),
        (DATA + b"\xb0\x00\x00\x00\x03abc", b"abc"),
        (DATA + b"\xa0\x00", b""),
        # Several sections of bytes are one content.
        (DATA + b"\xa0\x01a" + DATA + b"\xa0\x01b", b"ab"),
        (VALUE + b"\xa1\x03abc", b"abc"),
        (VALUE + b"\xa0\x02\xff\x00", b"\xff\x00"),
        (VALUE + b"\x40", b""),
        (VALUE + b"\x41", b"true"),
        (VALUE + b"\x54\xfe", b"-2"),
        (VALUE + b"\x80" + bytes(7) + b"\x07", b"7"),
        (VALUE + b"\x82" + struct.pack(">d", 0.5), b"0.5"),
        (VALUE + small_map(b"\xa1\x01a", b"\x43"), b'{"a": 0}'),
        (VALUE + b"\xe0\x04\x02\x50\x01\x02", b"[1, 2]"),
        (b"\x00\x53\x76\xc0\x03\x02\x42\x44", b"[false, 0]"),
        # Bytes that are not AMQP 1.0, or only begin so.
        (b"", b""),
        (b'{"id": 1}', b'{"id": 1}'),
        (DATA + b"\xa0\x09abc", DATA + b"\xa0\x09abc"),
        (b"\x00\x53\x10\x40", b"\x00\x53\x10\x40"),
        (DATA, DATA),
        (VALUE + b"\x05", VALUE + b"\x05"),
        # Nested without an end.
        (VALUE + b"\x00" * 5_000, VALUE + b"\x00" * 5_000),
    ],
)
def test_the_content_of_a_message(message: bytes, content: bytes) -> None:
    assert content_of(memoryview(message)) == content
    assert parts_of(memoryview(message), with_headers=True)[0] == content


@pytest.mark.parametrize(
    "message",
    [
        # Contents that are texts and nulls, properties and headers that are neither a list nor a map.
        DATA + b"\xa1\x02hi",
        DATA + b"\x40",
        PROPERTIES + b"\x54\x05",
        PROPERTIES + b"\xa1\x02hi",
        PROPERTIES + small_map(b"\xa1\x01a", b"\x43"),
        APPLICATION + b"\x40",
        APPLICATION + b"\x45",
        # Numbers that are no characters, and names of headers that are surrogates.
        VALUE + b"\x73\xff\xff\xff\xff",
        VALUE + b"\x73\x00\x11\x00\x00",
        APPLICATION + small_map(b"\x73\x00\x00\xd8\x00", b"\x43"),
        # An array of four billion nulls.
        VALUE + b"\xf0" + struct.pack(">II", 5, 2**32 - 1) + b"\x40",
    ],
    ids=bytes.hex,
)
def test_sections_with_values_of_other_types_are_raw_bytes(message: bytes) -> None:
    assert parts_of(memoryview(message), with_headers=True) == (message, None, [])


def changed(message: bytes, random: Random) -> bytes:
    """A message with a few bytes that were replaced, inserted or removed."""
    made = bytearray(message)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(made) + 1)
        made[at : at + random.randint(0, 2)] = random.choice((*CODES, random.randbytes(3), b""))
    return bytes(made)


def test_any_bytes_are_a_message(seed: int) -> None:
    """No bytes of a message raise an exception, and what is read fits Arrow's columns."""
    random = Random(seed)
    whole = [
        amqp(b"x" * 300, message_id="k", headers={"a": "1", "b": "2"}),
        PROPERTIES
        + b"\xc0\x12\x01\x98"
        + bytes(16)
        + APPLICATION
        + small_map(b"\xa1\x01z", b"\x40")
        + DATA
        + b"\xa0\x02{}",
        VALUE + b"\xe0\x04\x02\x50\x01\x02",
        VALUE + small_map(b"\x73\x00\x00\x00a", b"\x82" + struct.pack(">d", 0.5)),
    ]
    sections = [b"\x00\x53" + bytes([number]) for number in range(0x70, 0x79)]
    for _ in range(5_000):
        message = random.choice(
            (
                changed(random.choice(whole), random),
                random.choice(sections) + random.choice(CODES) + random.randbytes(random.randint(0, 20)),
                random.choice(sections) + small_map(*(random.choice(CODES) + random.randbytes(4) for _ in range(4))),
                random.randbytes(random.randint(0, 40)),
            )
        )
        for with_headers in (True, False):
            content, key, headers = parts_of(memoryview(message), with_headers=with_headers)
            assert isinstance(content, bytes)
            assert key is None or isinstance(key, bytes)
            pa.array([headers], HEADERS)
        assert isinstance(content_of(memoryview(message)), bytes)


def test_properties_and_headers() -> None:
    message = memoryview(amqp(b"x" * 300, message_id="k", headers={"a": "1"}))
    assert parts_of(message, with_headers=False) == (b"x" * 300, b"k", None)
    assert parts_of(message, with_headers=True) == (b"x" * 300, b"k", [{"key": "a", "value": b"1"}])
    # As the server writes a message of AMQP 0.9.1: header, annotations, properties, application properties.
    uuid = bytes(range(16))
    written = (
        b"\x00\x53\x70\xc0\x02\x01\x41"
        + b"\x00\x53\x72"
        + small_map(b"\xa3\x0dx-routing-key", b"\xa1\x02eu")
        + b"\x00\x53\x73\xc0\x12\x01\x98"
        + uuid
        + APPLICATION
        + small_map(b"\xa1\x01n", b"\x83" + struct.pack(">q", 5), b"\xa1\x01z", b"\x40")
        + DATA
        + b"\xa0\x02{}"
    )
    content, key, headers = parts_of(memoryview(written), with_headers=True)
    assert (content, key) == (b"{}", b"00010203-0405-0607-0809-0a0b0c0d0e0f")
    assert headers == [
        {"key": "x-routing-key", "value": b"eu"},
        {"key": "n", "value": b"5"},
        {"key": "z", "value": None},
    ]


def chunk(content: bytes, *, magic: int = 0x50, checksum: int | None = None, filtered: bytes = b"") -> memoryview:
    crc = zlib.crc32(content) if checksum is None else checksum
    size = len(content)
    return memoryview(
        struct.pack(">BBHIqQQIIIB3x", magic, 0, 1, 1, 7, 2, 40, crc, size, 0, len(filtered)) + filtered + content
    )


def test_a_chunk_and_one_that_is_broken() -> None:
    content = struct.pack(">I", 3) + b"abc"
    for given in (chunk(content), chunk(content, filtered=b"\x01\x02")):
        found = chunk_of(given)
        assert (found.first, found.end, found.milliseconds, found.epoch, found.is_user) == (40, 41, 7, 2, True)
        assert [bytes(message) for message in found.messages()] == [b"abc"]
    broken: list[tuple[Any, str]] = [
        (chunk(content, checksum=1), "its checksum differs"),
        (chunk(content)[:-1], "its checksum differs"),
        (chunk(content)[:20], "incomplete"),
        (chunk(content, magic=0x60), "unknown version"),
    ]
    for given, reason in broken:
        with pytest.raises(RabbitError, match=reason):
            chunk_of(given)


@pytest.mark.parametrize("codec", range(6))
def test_a_batch_of_messages_that_is_broken(codec: int, seed: int) -> None:
    """Producers compress their messages themselves, and the server does not read them."""
    random = Random(seed)

    def batch(data: bytes, count: int, plain: int) -> memoryview:
        return chunk(struct.pack(">BHII", 0x80 | codec << 4, count, plain, len(data)) + data)

    whole = (struct.pack(">I", 2) + b"ab") * 2
    given = [batch(whole[:size], count, len(whole)) for size, count in ((12, 3), (11, 2), (3, 1), (0, 1))]
    given += [chunk(struct.pack(">I", 9) + b"abc"), chunk(b"\x00"), batch(whole, 2, 12)[:-1]]
    given += [batch(random.randbytes(random.randint(0, 30)), 1, random.randint(0, 100)) for _ in range(300)]
    for data in given:
        with suppress(RabbitError):
            list(chunk_of(data).messages())
    if codec == 0:
        for data in given[:6]:
            with pytest.raises(RabbitError, match=r"broken|shorter"):
                list(chunk_of(data).messages())


@pytest.mark.parametrize("name", ["orders", "a:b", "50%", "%3A", "a:b:c%", "ü/x y"])
def test_names_of_splits_are_reversible(name: str) -> None:
    assert stream_of(split_of(name)) == name
    assert part_of(split_of(name)) == split_of(name)
    partition = partition_split(name, f"{name}-0")
    assert stream_of(partition) == f"{name}-0"
    assert part_of(partition) == split_of(name)


def test_addresses() -> None:
    assert servers_of("rabbitmq-stream://a:1, b ,RABBITMQ-STREAM+TLS://c/") == (
        ("rabbitmq-stream", "a", 1),
        ("rabbitmq-stream", "b", 5552),
        ("rabbitmq-stream+tls", "c", 5551),
    )
    assert servers_of("rabbitmq-stream://[::1]:7") == (("rabbitmq-stream", "::1", 7),)
    for wrong in ("", "amqp://a", "a:x", "a:0", "a:70000", "u:p@a:1", "a/b", "::1", "a,,b", "[::1"):
        with pytest.raises(ValueError, match=r"it is not|the port is not"):
            servers_of(wrong)
