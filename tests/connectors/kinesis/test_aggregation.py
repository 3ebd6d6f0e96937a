"""Packed records that are broken."""

from __future__ import annotations

import hashlib
from random import Random

from rw_sql.connectors.kinesis.aggregation import MAGIC, unpacked
from tests.support.packed_records import field, packed, varint


def test_what_is_no_packed_record() -> None:
    whole = packed(("k", b"data"))
    assert unpacked(whole) is not None
    assert unpacked(b"") is None
    for cut in range(len(whole)):
        assert unpacked(whole[:cut]) is None
    body = field(3, varint(1 << 3) + varint(7) + field(3, b"no such key"))
    assert unpacked(MAGIC + body + hashlib.md5(body).digest()) is None


def test_any_bytes_with_the_right_sum_are_read_quickly(seed: int) -> None:
    random = Random(seed)
    whole = packed(("k", b"data"), ("l", b"more"))[4:-16]
    given = [b"\xff" * (1 << 20), b"\x08" + b"\x80" * (1 << 20) + b"\1"]
    for _ in range(3_000):
        at = random.randrange(len(whole))
        given.append(whole[:at] + random.randbytes(random.randint(0, 12)) + whole[at + random.randint(0, 3) :])
    for body in given:
        found = unpacked(MAGIC + body + hashlib.md5(body).digest())
        assert found is None or all(isinstance(each.data, bytes) for each in found)
    assert unpacked(MAGIC + given[0] + hashlib.md5(given[0]).digest()) is None
