"""Events of servers that the tests do not start, built from the bytes that these servers write."""

from __future__ import annotations

import struct
import zlib

import pytest

from rw_sql.connectors.mysql_cdc.decoder import KnownTable, Records, decode_rows
from rw_sql.connectors.mysql_cdc.events import StreamColumn, parse_rows, parse_table_map
from rw_sql.connectors.mysql_cdc.tables import CatalogColumn, CatalogTable
from rw_sql.connectors.mysql_cdc.types import type_of
from rw_sql.connectors.mysql_cdc.values import reader_of, skip_of

LATIN1, UTF8, BINARY = 8, 45, 63
INT, VARCHAR, VECTOR, BLOB = 3, 15, 242, 252
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141


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


def raw(data: bytes) -> bytes:
    packed = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packed.compress(data) + packed.flush()


@pytest.mark.parametrize(
    ("stored", "value"),
    [
        (b"", ""),
        (b"\0short", "short"),
        (b"\x82\1\x2c" + zlib.compress(b"x" * 300), "x" * 300),
        (b"\x8a\1\x2c" + raw(b"x" * 300), "x" * 300),
    ],
    ids=["empty", "plain", "zlib", "deflate"],
)
@pytest.mark.parametrize(
    ("kind", "meta", "width"),
    [(BLOB_COMPRESSED, b"\3", 3), (VARCHAR_COMPRESSED, struct.pack("<H", 101), 1), (VARCHAR_COMPRESSED, b"\x85\3", 2)],
)
def test_a_column_that_mariadb_compresses(stored: bytes, value: str, kind: int, meta: bytes, width: int) -> None:
    column = StreamColumn(type=kind, meta=meta)
    read = reader_of(column, "", bytes.decode)
    cell = b"?" + len(stored).to_bytes(width, "little") + stored + b"?"
    assert read(cell, 1) == (f'"{value}"', len(cell) - 1)
    assert skip_of(column)(cell, 1) == len(cell) - 1


def test_a_compressed_value_of_an_unknown_method_is_an_error() -> None:
    read = reader_of(StreamColumn(type=BLOB_COMPRESSED, meta=b"\1"), "", bytes.decode)
    for stored in (b"\x91\1x", b"\x81\1x"):
        with pytest.raises(ValueError, match="compress"):
            read(bytes([len(stored)]) + stored, 0)


def test_the_collations_after_a_compressed_column_belong_to_their_columns() -> None:
    found = parse_table_map(
        table_map(
            (b"id", INT, b"", None),
            (b"packed", VARCHAR_COMPRESSED, struct.pack("<H", 300), UTF8),
            (b"word", VARCHAR, struct.pack("<H", 300), LATIN1),
        ),
        is_mariadb=True,
    )
    assert [column.collation for column in found.columns] == [None, UTF8, LATIN1]


def test_a_chunk_has_the_columns_that_the_log_s_rows_have() -> None:
    """Columns of types that rw_sql cannot read are in neither."""
    columns = tuple(
        CatalogColumn(
            name=name, type_name=written, type=type_of(written, written, None, None, is_json=False), data_type=written,
            charset=None, collation=None, default=None, is_nullable=True, is_generated=is_generated,
        )
        for name, written, is_generated in (("id", "int", False), ("v", "vector", False), ("made", "int", True))
    )  # fmt: skip
    table = CatalogTable(
        database="d", name="t", is_view=False, is_versioned=False, engine="InnoDB", rows_estimated=None,
        columns=columns, key=("id",),
    )  # fmt: skip
    assert table.types == {"id": "int"}
