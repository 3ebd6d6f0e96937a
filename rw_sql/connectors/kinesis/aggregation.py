"""Unpacks records of the Kinesis Producer Library, which packs several user records under one sequence number.

The format consists of four magic bytes, a Protobuf message, and the MD5 sum of this message. The message has a table of
partition keys (field 1), a table of explicit hash keys (field 2), and the records (field 3). Each of these records has
an index into each of the two tables (fields 1 and 2), and the data (field 3).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"\xf3\x89\x9a\xc2"
_SUM_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecord:
    """One of the user records that are packed in a record. ``hash_key`` determines the shard to which the user record
    belongs."""

    key: str
    data: bytes
    hash_key: int


def unpacked(data: bytes) -> tuple[UserRecord, ...] | None:
    """The user records, in the order in which they were packed; None if the data is not a packed record."""
    body, check = data[len(MAGIC) : -_SUM_BYTES], data[-_SUM_BYTES:]
    is_packed = data.startswith(MAGIC) and len(data) > len(MAGIC) + _SUM_BYTES
    if not is_packed or hashlib.md5(body, usedforsecurity=False).digest() != check:
        return None
    keys: list[str] = []
    hashes: list[str] = []
    found: list[bytes] = []
    try:
        for number, value in _fields(body):
            if isinstance(value, bytes):
                if number == 1:
                    keys.append(value.decode())
                elif number == 2:
                    hashes.append(value.decode())
                elif number == 3:
                    found.append(value)
        return tuple(_record(each, keys, hashes) for each in found)
    except (IndexError, ValueError):
        return None


def hash_of(key: str) -> int:
    """The hash key that Kinesis computes from a partition key."""
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest())


def _record(body: bytes, keys: list[str], hashes: list[str]) -> UserRecord:
    key, hash_key, data = "", None, b""
    for number, value in _fields(body):
        if number == 1 and isinstance(value, int):
            key = keys[value]
        elif number == 2 and isinstance(value, int):
            hash_key = int(hashes[value])
        elif number == 3 and isinstance(value, bytes):
            data = value
    return UserRecord(key=key, data=data, hash_key=hash_of(key) if hash_key is None else hash_key)


def _fields(body: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a Protobuf message: their numbers, and their values as a number or bytes."""
    at = 0
    while at < len(body):
        tag, at = _varint(body, at)
        match tag & 7:
            case 0:
                number, at = _varint(body, at)
                yield tag >> 3, number
            case 2:
                size, at = _varint(body, at)
                if at + size > len(body):
                    raise ValueError("a field is cut off")
                yield tag >> 3, body[at : at + size]
                at += size
            case 1 | 5 as kind:
                at += 8 if kind == 1 else 4
            case other:
                raise ValueError(f"wire type {other}")


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            # Without this limit, decoding a number of very many bytes would take hours.
            raise ValueError("a number has more than 64 bits")
