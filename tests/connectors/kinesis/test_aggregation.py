"""Packed records that are broken."""

from __future__ import annotations

import hashlib

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
