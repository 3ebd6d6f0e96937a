"""Writes a record to Kafka as bytes: clients for Python cannot write the name of a header that is not UTF-8."""

from __future__ import annotations

import socket
import struct
import time

from tests.support.waits import wait_until

_PRODUCE, _VERSION = 0, 3
_WITHOUT_LEADER = (3, 5, 6)
"""The errors of a partition whose leader the broker does not know yet; other producers try again too."""

_ALL_REPLICAS, _TIMEOUT_MS = -1, 30_000


def produce_raw(
    bootstrap: str, topic: str, value: bytes, headers: list[tuple[bytes, bytes]], partition: int = 0
) -> None:
    """Writes one record to a partition and waits until the broker has stored it."""
    batch = _batch(value, headers)
    body = struct.pack(">hhih", _PRODUCE, _VERSION, 1, -1)  # api, version, correlation id, no client id
    body += struct.pack(">hhii", -1, _ALL_REPLICAS, _TIMEOUT_MS, 1)  # no transaction; one topic
    body += struct.pack(">h", len(topic)) + topic.encode()
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    host, _, port = bootstrap.rpartition(":")

    def sent() -> int:
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", _received(connection, 4))
            answer = _received(connection, size)
        # correlation id, number of topics, name, number of partitions, partition, error
        (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
        assert error == 0 or error in _WITHOUT_LEADER, f"the broker refused the record: error {error}"
        return int(error)

    wait_until(lambda: sent() == 0, "a new topic has a leader")


def _received(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        got = connection.recv(size - len(found))
        assert got
        found += got
    return found


def _batch(value: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """A batch of one record, in format 2."""
    record = b"\0" + _varint(0) + _varint(0) + _varint(-1) + _varint(len(value)) + value + _varint(len(headers))
    for name, content in headers:
        record += _varint(len(name)) + name + _varint(len(content)) + content
    record = _varint(len(record)) + record
    at = int(time.time() * 1000)
    checked = struct.pack(">hiqqqhii", 0, 0, at, at, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, _crc32c(checked)) + checked


def _varint(number: int) -> bytes:
    """A number in zigzag form, seven bits per byte."""
    left = (number << 1) ^ (number >> 63)
    found = b""
    while left > 0x7F:
        found += bytes([left & 0x7F | 0x80])
        left >>= 7
    return found + bytes([left])


def _crc32c(content: bytes) -> int:
    """The checksum of Kafka's batches (Castagnoli)."""
    found = 0xFFFFFFFF
    for byte in content:
        found ^= byte
        for _ in range(8):
            found = found >> 1 ^ (0x82F63B78 if found & 1 else 0)
    return found ^ 0xFFFFFFFF
