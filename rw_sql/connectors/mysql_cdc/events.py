"""Parses the events of the binary log as MySQL 5.7 to 9 and MariaDB write them.

See the documentation of MySQL's source, "Replication Protocol, Binlog Events", and of MariaDB, "Replication Protocol".
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

QUERY, STOP, ROTATE, FORMAT, XID, EXECUTE_LOAD, TABLE_MAP, HEARTBEAT = 2, 3, 4, 15, 16, 18, 19, 27
GTID, ANONYMOUS_GTID, TAGGED_GTID, XA_PREPARE, PARTIAL_UPDATE, PAYLOAD, HEARTBEAT_2 = 33, 34, 42, 38, 39, 40, 41
MARIADB_GTID, MARIADB_QUERY_COMPRESSED = 162, 165

WRITE, UPDATE, DELETE = "write", "update", "delete"
ROWS = {
    23: (WRITE, 1),
    24: (UPDATE, 1),
    25: (DELETE, 1),
    30: (WRITE, 2),
    31: (UPDATE, 2),
    32: (DELETE, 2),
    166: (WRITE, 1),
    167: (UPDATE, 1),
    168: (DELETE, 1),
    169: (WRITE, 2),
    170: (UPDATE, 2),
    171: (DELETE, 2),
}
"""Maps the type of each event that contains rows to the kind of change and to the version of the event's format."""

_FIRST_COMPRESSED = 165
STANDALONE, PREPARED_XA = 1, 64
_HEADER = struct.Struct("<IBIIIH")
HEADER_BYTES = _HEADER.size
_CHECKSUM_BYTES = 4
_COMMITTED, _COMMITTED_BYTES = 42, 7
"""The place of the commit's time in the body of a GTID event, after the flags, the GTID and the logical clocks."""

_TINY, _SHORT, _LONG, _FLOAT, _DOUBLE, _LONGLONG, _INT24, _YEAR = 1, 2, 3, 4, 5, 8, 9, 13
_TIMESTAMP2, _DATETIME2, _TIME2, _JSON, _NEWDECIMAL, _ENUM, _SET = 17, 18, 19, 245, 246, 247, 248
_VARCHAR, _BIT, _VECTOR, _BLOB, _VAR_STRING, _STRING, _GEOMETRY = 15, 16, 242, 252, 253, 254, 255
_BLOB_COMPRESSED, _VARCHAR_COMPRESSED = 140, 141
_NUMBERS = frozenset({_TINY, _SHORT, _LONG, _FLOAT, _DOUBLE, _LONGLONG, _INT24, _NEWDECIMAL})
_TEXTS = frozenset({_VARCHAR, _BLOB, _VAR_STRING, _STRING, _VECTOR, _BLOB_COMPRESSED, _VARCHAR_COMPRESSED})
"""The types of columns for which the log states a collation. MySQL 9 also states a collation for VECTOR columns."""

_ONE_BYTE = frozenset(
    {_FLOAT, _DOUBLE, _BLOB, _GEOMETRY, _VECTOR, _JSON, _TIME2, _DATETIME2, _TIMESTAMP2, _BLOB_COMPRESSED}
)
_TWO_BYTES = frozenset({_VARCHAR, _BIT, _NEWDECIMAL, _VAR_STRING, _STRING, _ENUM, _SET, _VARCHAR_COMPRESSED})


class BrokenEventError(ValueError):
    """Raised if an event violates the protocol."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of an event. ``end`` is the position in the log file after the event; 0 for an event that the server
    sends although no log file contains the event."""

    time: int
    kind: int
    server: int
    size: int
    end: int
    flags: int


def parse_header(packet: bytes) -> Header:
    """Parses the header of an event in a packet, after the packet's first byte."""
    return Header(*_HEADER.unpack_from(packet, 1))


def states_checksum(packet: bytes) -> bool:
    """True if a format event states that the events after it have checksums."""
    return packet[-5] == 1


def body_of(packet: bytes, *, has_checksum: bool) -> bytes:
    """The body of the event in a packet, without the event's checksum."""
    start = 1 + HEADER_BYTES
    return packet[start : len(packet) - _CHECKSUM_BYTES] if has_checksum else packet[start:]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamColumn:
    """A column as the log describes it. ``meta`` are the parameters of the column's type, such as a precision.

    ``name``, ``is_unsigned``, ``collation`` (an id) and ``labels`` are None if the log omits them.
    """

    type: int
    meta: bytes
    name: str | None = None
    is_unsigned: bool | None = None
    collation: int | None = None
    labels: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMap:
    """The log's description of a table. In the log, the description precedes the table's rows. Equal descriptions have
    equal values of ``signature``."""

    id: int
    database: str
    table: str
    columns: tuple[StreamColumn, ...]
    signature: bytes = field(repr=False)
    signs: tuple[bool, ...] = ()

    def with_signs(self, *, counts_years: bool) -> tuple[StreamColumn, ...]:
        """Returns the columns, with ``is_unsigned`` set from the log. The log has one bit per number column. If
        ``counts_years`` is true, YEAR columns have a bit too, as in MariaDB and some versions of MySQL."""
        numbers = _NUMBERS | {_YEAR} if counts_years else _NUMBERS
        at = 0
        made = []
        for column in self.columns:
            if column.type in numbers:
                made.append(replace(column, is_unsigned=self.signs[at] if at < len(self.signs) else None))
                at += 1
            else:
                made.append(column)
        return tuple(made)


def lenenc(data: bytes, at: int) -> tuple[int, int]:
    """Decodes a length-encoded number. Returns the number, and the offset of its end."""
    first = data[at]
    if first < 251:
        return first, at + 1
    if first == 252:
        return int.from_bytes(data[at + 1 : at + 3], "little"), at + 3
    if first == 253:
        return int.from_bytes(data[at + 1 : at + 4], "little"), at + 4
    if first == 254:
        return int.from_bytes(data[at + 1 : at + 9], "little"), at + 9
    raise BrokenEventError(f"a length that begins with {first}")


def committed_at(kind: int, body: bytes) -> int | None:
    """The time when a transaction was committed, in seconds since 1970, according to the event with which the
    transaction begins. None if the event does not state the time of the commit, as in MySQL 5.7 and MariaDB."""
    if kind not in (GTID, ANONYMOUS_GTID) or len(body) < _COMMITTED + _COMMITTED_BYTES:
        return None
    # The highest bit states whether the time of the commit on another server follows.
    micros = int.from_bytes(body[_COMMITTED : _COMMITTED + _COMMITTED_BYTES], "little") & ((1 << 55) - 1)
    return micros // 1_000_000


def table_id(body: bytes) -> int:
    """The number of the table to which a table map event or an event with rows belongs."""
    return int.from_bytes(body[:6], "little")


def parse_table_map(body: bytes, *, is_mariadb: bool) -> TableMap:
    """Parses a table map event. Raises BrokenEventError."""
    try:
        return _table_map(body, is_mariadb)
    except (IndexError, UnicodeDecodeError) as error:
        raise BrokenEventError(f"a table map that cannot be read: {error}") from error


def _table_map(body: bytes, is_mariadb: bool) -> TableMap:
    number = table_id(body)
    at = 8
    size = body[at]
    database = body[at + 1 : at + 1 + size].decode()
    at += size + 2
    size = body[at]
    table = body[at + 1 : at + 1 + size].decode()
    at += size + 2
    count, at = lenenc(body, at)
    types = body[at : at + count]
    at += count
    size, at = lenenc(body, at)
    metas = body[at : at + size]
    at += size + (count + 7) // 8
    columns: list[StreamColumn] = []
    place = 0
    for kind in types:
        width = 1 if kind in _ONE_BYTE else 2 if kind in _TWO_BYTES else 0
        meta = metas[place : place + width]
        place += width
        real = meta[0] if kind == _STRING and meta[0] in (_ENUM, _SET) else kind
        columns.append(StreamColumn(type=real, meta=meta))
    told = _optional(body[at:])
    named = tuple(_with_optional(columns, told, is_mariadb=is_mariadb))
    return TableMap(
        id=number, database=database, table=table, columns=named, signature=body[8:], signs=tuple(told.unsigned)
    )


@dataclass(slots=True)
class _Optional:
    """The optional metadata of a table map. Each list describes one kind of column, and has one entry for each column
    of this kind."""

    names: list[str] = field(default_factory=list)
    unsigned: list[bool] = field(default_factory=list)
    collations: dict[str, list[int] | tuple[int, dict[int, int]]] = field(default_factory=dict)
    sets: list[tuple[bytes, ...]] = field(default_factory=list)
    enums: list[tuple[bytes, ...]] = field(default_factory=list)

    def collation(self, group: str, at: int) -> int | None:
        found = self.collations.get(group)
        if found is None:
            return None
        if isinstance(found, list):
            return found[at]
        default, others = found
        return others.get(at, default)


def _with_optional(columns: list[StreamColumn], told: _Optional, *, is_mariadb: bool) -> Iterator[StreamColumn]:
    text = label = sets = enums = 0
    for at, column in enumerate(columns):
        collation: int | None = None
        labels: tuple[bytes, ...] | None = None
        if column.type in _TEXTS or (is_mariadb and column.type == _GEOMETRY):
            collation = told.collation("text", text)
            text += 1
        elif column.type in (_ENUM, _SET):
            collation = told.collation("label", label)
            label += 1
            if column.type == _SET:
                labels = told.sets[sets] if sets < len(told.sets) else None
                sets += 1
            else:
                labels = told.enums[enums] if enums < len(told.enums) else None
                enums += 1
        yield StreamColumn(
            type=column.type,
            meta=column.meta,
            name=told.names[at] if at < len(told.names) else None,
            collation=collation,
            labels=labels,
        )


def _optional(data: bytes) -> _Optional:
    made = _Optional()
    at = 0
    while at < len(data):
        kind = data[at]
        size, at = lenenc(data, at + 1)
        part = data[at : at + size]
        at += size
        match kind:
            case 1:
                made.unsigned = [bool(byte & (0x80 >> bit)) for byte in part for bit in range(8)]
            case 2 | 10:
                numbers = list(_numbers(part))
                pairs = dict(zip(numbers[1::2], numbers[2::2], strict=True))
                made.collations["text" if kind == 2 else "label"] = (numbers[0], pairs)
            case 3 | 11:
                made.collations["text" if kind == 3 else "label"] = list(_numbers(part))
            case 4:
                made.names = [name.decode() for name in _texts(part)]
            case 5:
                made.sets = list(_label_lists(part))
            case 6:
                made.enums = list(_label_lists(part))
    return made


def _numbers(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        number, at = lenenc(data, at)
        yield number


def _texts(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size, at = lenenc(data, at)
        yield data[at : at + size]
        at += size


def _label_lists(data: bytes) -> Iterator[tuple[bytes, ...]]:
    at = 0
    while at < len(data):
        count, at = lenenc(data, at)
        made = []
        for _ in range(count):
            size, at = lenenc(data, at)
            made.append(data[at : at + size])
            at += size
        yield tuple(made)


@dataclass(frozen=True, slots=True)
class RowsPart:
    """The rows of an event. The first row begins at offset ``at`` of ``data``. ``is_full`` is true if every row has all
    columns.
    """

    table_id: int
    what: str
    data: bytes
    at: int
    count: int
    is_full: bool


def parse_rows(kind: int, body: bytes) -> RowsPart:
    """Parses an event with rows. Raises BrokenEventError."""
    what, version = ROWS[kind]
    try:
        number = table_id(body)
        at = 8
        if version == 2:
            at += int.from_bytes(body[8:10], "little")
        count, at = lenenc(body, at)
        width = (count + 7) // 8
        present = body[at : at + width * (2 if what == UPDATE else 1)]
        at += len(present)
        # The bits after the last column may be set, depending on the server's version.
        full = (1 << count) - 1
        masks = [int.from_bytes(present[start : start + width], "little") for start in range(0, len(present), width)]
        data = body
        if kind > _FIRST_COMPRESSED:
            data, at = uncompressed(body[at:]), 0
    except (IndexError, zlib.error) as error:
        raise BrokenEventError(f"rows that cannot be read: {error}") from error
    return RowsPart(number, what, data, at, count, all(mask & full == full for mask in masks))


def uncompressed(data: bytes) -> bytes:
    """Decompresses data that ``log_bin_compress`` compressed. The data consists of one byte, whose lowest three
    bits are the number of bytes of the uncompressed length, then the uncompressed length, and then zlib data.
    """
    if not data[0] & 0x80 or data[0] & 0x70:
        raise BrokenEventError("an unknown compression")
    return zlib.decompress(data[1 + (data[0] & 0x07) :])


def parse_query(kind: int, body: bytes) -> tuple[str, str]:
    """Parses an event with a statement. Returns the default database and the statement's text."""
    database_size = body[8]
    status_size = int.from_bytes(body[11:13], "little")
    at = 13 + status_size
    database = body[at : at + database_size].decode(errors="replace")
    text = body[at + database_size + 1 :]
    if kind == MARIADB_QUERY_COMPRESSED:
        text = uncompressed(text)
    return database, text.decode(errors="replace")


def parse_load(body: bytes) -> tuple[str, str]:
    """Parses an event with a LOAD DATA statement. Returns the default database and the statement's text."""
    return parse_query(QUERY, body[:13] + body[26:])


def parse_rotate(body: bytes) -> tuple[str, int]:
    """Parses a rotate event. Returns the name of the next log file, and the position in that file at which the stream
    continues."""
    return body[8:].decode(), int.from_bytes(body[:8], "little")


def parse_xa_prepare(body: bytes) -> tuple[bool, bytes]:
    """Parses an event with XA PREPARE. Returns True if the event also commits the transaction (ONE PHASE), and the xid,
    which consists of format, gtrid and bqual."""
    form, first, second = struct.unpack_from("<III", body, 1)
    data = body[13 : 13 + first + second]
    return bool(body[0]), xid_key(form, data[:first], data[first:])


def xid_key(form: int, gtrid: bytes, bqual: bytes) -> bytes:
    """Converts an xid to the form in which the reader compares the xids of events with the xids of statements."""
    return b"%d:%s:%s" % (form, gtrid.hex().encode(), bqual.hex().encode())


_XA = re.compile(r"XA\s+(COMMIT|ROLLBACK)\s+X'([0-9a-fA-F]*)'\s*,\s*X'([0-9a-fA-F]*)'\s*,\s*([0-9]+)", re.IGNORECASE)


def parse_xa_end(text: str) -> tuple[bool, bytes] | None:
    """Parses the statement that ends an XA transaction. Returns (True, xid) for XA COMMIT, (False, xid) for XA
    ROLLBACK, and None for any other statement."""
    found = _XA.match(text)
    if found is None:
        return None
    return found[1].upper() == "COMMIT", xid_key(int(found[4]), bytes.fromhex(found[2]), bytes.fromhex(found[3]))
