"""Events of servers that the tests do not start, built from the bytes that these servers write."""

from __future__ import annotations

import struct

from rw_sql.connectors.mysql_cdc.decoder import KnownTable, Records, decode_rows
from rw_sql.connectors.mysql_cdc.events import parse_rows, parse_table_map
from rw_sql.connectors.mysql_cdc.values import reader_of

LATIN1, UTF8, BINARY = 8, 45, 63
INT, VARCHAR, VECTOR, BLOB = 3, 15, 242, 252


def text(word: bytes) -> bytes:
    return bytes([len(word)]) + word


def table_map(*columns: tuple[bytes, int, bytes, int | None]) -> bytes:
    """The body of a table map of ``d.t``. ``columns`` are name, type, metadata and collation."""
    metas = b"".join(meta for _, _, meta, _ in columns)
    names = b"".join(text(name) for name, _, _, _ in columns)
    collations = bytes(each for _, _, _, each in columns if each is not None)
    body = struct.pack("<IHH", 7, 0, 1) + text(b"d") + b"\0" + text(b"t") + b"\0"
    body += bytes([len(columns), *(kind for _, kind, _, _ in columns)])
    body += text(metas) + bytes((len(columns) + 7) // 8)
    dimensions = bytes(3 for _, kind, _, _ in columns if kind == VECTOR)
    return (
        body
        + b"".join(bytes([kind]) + text(part) for kind, part in ((1, b"\0"), (3, collations), (4, names)))
        + (bytes([13]) + text(dimensions))
    )


def test_a_vector_of_mysql_9() -> None:
    """It has one byte of metadata and a collation, and is stored like a BLOB with a length of four bytes."""
    found = parse_table_map(
        table_map(
            (b"v", VECTOR, b"\4", BINARY),
            (b"id", INT, b"", None),
            (b"word", VARCHAR, struct.pack("<H", 300), LATIN1),
            (b"empty", VECTOR, b"\4", BINARY),
            (b"note", BLOB, b"\2", UTF8),
        ),
        is_mariadb=False,
    )
    assert [(column.name, column.meta, column.collation) for column in found.columns] == [
        ("v", b"\4", BINARY),
        ("id", b"", None),
        ("word", b"\x2c\1", LATIN1),
        ("empty", b"\4", BINARY),
        ("note", b"\2", UTF8),
    ]
    decoders = {LATIN1: lambda part: part.decode("latin-1"), UTF8: bytes.decode}
    readers = tuple(reader_of(each, "", decoders.get(each.collation or 0)) for each in found.columns)
    names = ("v", "id", "word", "empty", "note")
    known = KnownTable("d.t", found.columns, names, readers, ("id",), frozenset({"v", "empty"}))
    vector = struct.pack("<Ifff", 12, 1.5, -2.0, 0.25)
    cells = struct.pack("<iH", 5, 2) + b"\xe4b" + struct.pack("<H", 3) + "äc".encode()
    for kind, rows in ((30, [b"\x08" + vector + cells]), (31, 2 * [b"\x08" + vector + cells]), (32, [b"\x09" + cells])):
        columns = bytes([5]) + b"\x1f" * len(rows)
        body = struct.pack("<IHH", 7, 0, 1) + struct.pack("<H", 2) + columns + b"".join(rows)
        into = Records("d")
        assert decode_rows(known, parse_rows(kind, body), into, 1, 0, 0, None) == 1
        key, row = '{"id": "5"}', '{"id": "5", "word": "äb", "note": "äc"}'
        assert (into.keys, into.rows) == (([key], [None]) if kind == 32 else ([None], [row]))
