"""Packs several records into one record of a Kinesis stream, as Amazon's producer library does."""

from __future__ import annotations

import hashlib

from rw_sql.connectors.kinesis.aggregation import MAGIC


def varint(number: int) -> bytes:
    """A number as Protobuf writes it."""
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def field(number: int, value: bytes) -> bytes:
    """A field of bytes, as Protobuf writes it."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def packed(*of: tuple[str, bytes]) -> bytes:
    """One record that contains several records. Each of the records is a pair of a key and its data."""
    keys = sorted({key for key, _ in of})
    body = b"".join(field(1, key.encode()) for key in keys)
    body += b"".join(field(3, varint(1 << 3) + varint(keys.index(key)) + field(3, data)) for key, data in of)
    return MAGIC + body + hashlib.md5(body).digest()
