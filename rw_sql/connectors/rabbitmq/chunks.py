"""Decodes chunks, which are the units in which a stream stores and delivers its messages.

The header of a chunk contains the chunk's first offset, its number of messages, the time when the stream's leader wrote
it, and the leader's epoch. The entries of a chunk are single messages, or batches of messages that a producer may have
compressed. The time of a message is the time of its chunk.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.connectors.rabbitmq.client import RabbitError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER = struct.Struct(">BBHIqQQIIIB3x")
_BATCH = struct.Struct(">BHII")
_SIZE = struct.Struct(">I")
_MAGIC = 0x50
_MESSAGES = 0

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk with the offsets ``[first, end)``. ``milliseconds`` is the chunk's time, and ``epoch`` is the epoch of
    the leader that wrote the chunk.

    ``is_user`` is true if the chunk contains messages of producers. If it is false, the server wrote the chunk for its
    own use.
    """

    first: int
    end: int
    milliseconds: int
    epoch: int
    is_user: bool
    entries: int
    data: memoryview

    def messages(self) -> Iterator[memoryview]:
        """The messages in the order of their offsets. The chunk has as many messages as offsets. Raises RabbitError for
        a broken chunk."""
        data, at = self.data, 0
        unpack = _SIZE.unpack_from
        for _ in range(self.entries):
            try:
                (size,) = unpack(data, at)
                if size & 0x80000000:
                    kind, count, plain, size = _BATCH.unpack_from(data, at)
                    at += _BATCH.size + size
                    yield from _batch(_cut(data, at - size, at), kind >> 4 & 7, count, plain)
                else:
                    at += 4 + size
                    yield _cut(data, at - size, at)
            except struct.error as error:
                raise RabbitError(f"the chunk at offset {self.first} is broken: {error}") from error


def chunk_of(data: memoryview) -> Chunk:
    """The chunk that a server delivered. Raises RabbitError if the chunk is broken."""
    if len(data) < _HEADER.size:
        raise RabbitError("the server delivered an incomplete chunk")
    magic, kind, entries, records, time_ms, epoch, first, checksum, size, _, filtered = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise RabbitError(f"the server delivered a chunk of an unknown version ({magic:#x})")
    content = data[_HEADER.size : _HEADER.size + size]
    if filtered and zlib.crc32(content) != checksum:
        content = data[_HEADER.size + filtered : _HEADER.size + filtered + size]
    if len(content) != size or zlib.crc32(content) != checksum:
        raise RabbitError(f"the chunk at offset {first} is broken: its checksum differs")
    return Chunk(first, first + records, time_ms, epoch, kind == _MESSAGES, entries, content)


def _cut(data: memoryview, start: int, end: int) -> memoryview:
    if end > len(data):
        raise RabbitError("a chunk or a batch of messages is shorter than its messages")
    return data[start:end]


def _batch(data: memoryview, codec: int, count: int, plain: int) -> Iterator[memoryview]:
    """The messages of a batch. ``plain`` is the batch's uncompressed size in bytes."""
    content, at = memoryview(_uncompressed(data, codec, plain)), 0
    for _ in range(count):
        (size,) = _SIZE.unpack_from(content, at)
        at += 4 + size
        yield _cut(content, at - size, at)


def _uncompressed(data: memoryview, codec: int, plain: int) -> bytes | memoryview:
    import pyarrow as pa

    try:
        match _CODECS[codec]:
            case "none":
                return data
            case "gzip":
                return gzip.decompress(data)
            case "snappy":
                return _unframed_snappy(data)
            case name:
                return bytes(pa.decompress(data, decompressed_size=plain, codec=name))
    except (IndexError, ValueError, OSError, EOFError, MemoryError, zlib.error, struct.error) as error:
        raise RabbitError(f"a batch of messages cannot be decompressed (codec {codec}: {error})") from error


def _unframed_snappy(data: memoryview) -> bytes:
    """Decompresses data in Snappy's framing format, which clients use for batches.

    See Snappy's ``framing_format.txt``. A piece of the data consists of a type (one byte), a size (three bytes), a
    checksum (four bytes), and the data.
    """
    import pyarrow as pa

    found, at = [], 0
    while at < len(data):
        kind, size = data[at], int.from_bytes(data[at + 1 : at + 4], "little")
        piece = data[at + 4 : at + 4 + size]
        at += 4 + size
        if kind == 0:
            content = piece[4:]
            found.append(bytes(pa.decompress(content, decompressed_size=_snappy_size(content), codec="snappy")))
        elif kind == 1:
            found.append(bytes(piece[4:]))
        elif kind < 0x80:
            raise OSError(f"unknown piece {kind}")
    return b"".join(found)


def _snappy_size(content: memoryview) -> int:
    size = shift = 0
    for byte in content[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return size
