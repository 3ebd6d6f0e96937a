"""Converts cells of the log and of a SELECT to members of a JSON object, so that equal values have equal text.

A :data:`Reader` receives the bytes of an event's rows and the offset of a cell, and returns the cell as JSON and the
offset of the cell's end. A reader raises ValueError for a value that it cannot read.
"""

from __future__ import annotations

import ipaddress
import struct
import uuid
import zlib
from datetime import date
from json.encoder import encode_basestring
from typing import TYPE_CHECKING

from rw_sql.connectors.mysql_cdc.json_values import json_text
from rw_sql.connectors.mysql_cdc.numbers_text import (
    clock_text,
    date_text,
    decimal_size,
    decimal_text,
    double_text,
    float_bytes,
    float_text,
    fraction,
)
from rw_sql.connectors.mysql_cdc.types import BIT, BYTES, FLOAT, TIMESTAMPTZ, bits_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.connectors.mysql_cdc.events import StreamColumn

    Reader = Callable[[bytes, int], tuple[str, int]]
    Cell = Callable[[bytes], str]

_INTS = {1: 1, 2: 2, 9: 3, 3: 4, 8: 8}
_EPOCH_DAYS = 719_163
"""1970-01-01 as a proleptic Gregorian ordinal."""


def reader_of(column: StreamColumn, data_type: str, decode: Callable[[bytes], str] | None) -> Reader:
    """Returns the reader of a column of the log. ``decode`` is the function that decodes the column's text and labels;
    None for bytes. ``data_type`` is the type in the server's catalog. The catalog distinguishes types that the log
    writes in the same way. Raises ValueError for an unknown type."""
    kind, meta = column.type, column.meta
    if kind in _INTS:
        return _whole(_INTS[kind], is_signed=not column.is_unsigned)
    match kind:
        case 4:
            return lambda data, at: (f'"{float_bytes(data, at)}"', at + 4)
        case 5:
            unpack = struct.Struct("<d").unpack_from
            return lambda data, at: (f'"{double_text(unpack(data, at)[0])}"', at + 8)
        case 246:
            return _decimal(meta[0], meta[1])
        case 16:
            return _bit(meta[1] * 8 + meta[0])
        case 10 | 14:
            return _date
        case 13:
            return lambda data, at: (f'"{1900 + data[at] if data[at] else 0:04d}"', at + 1)
        case 18:
            return _datetime(meta[0])
        case 17:
            return _timestamp(meta[0])
        case 19:
            return _time(meta[0])
        case 12:
            return _old_datetime
        case 7:
            return lambda data, at: (f'"{_stamp(int.from_bytes(data[at : at + 4], "little"))}+00"', at + 4)
        case 11:
            return _old_time
        case 247 | 248:
            return _labels(column, meta[1], decode)
        case 245:
            return _with_length(meta[0], lambda part: encode_basestring(json_text(part)))
        case 242 | 249 | 250 | 251 | 252 | 255:
            return _with_length(meta[0], _text_cell(decode))
        case 15:
            return _with_length(_width_of(int.from_bytes(meta, "little")), _text_cell(decode))
        case 140:
            return _with_length(meta[0], _uncompressed(_text_cell(decode)))
        case 141:
            return _with_length(_width_of(int.from_bytes(meta, "little")), _uncompressed(_text_cell(decode)))
        case 253 | 254:
            return _string(meta, data_type, decode)
    raise _unsupported(kind)


def skip_of(column: StreamColumn) -> Callable[[bytes, int], int]:
    """A function that returns the offset of a cell's end without converting its value. Raises ValueError for an unknown
    type."""
    kind, meta = column.type, column.meta
    sizes = {**_INTS, 4: 4, 5: 8, 7: 4, 10: 3, 11: 3, 12: 8, 13: 1, 14: 3}
    if kind == 246:
        sizes[kind] = decimal_size(meta[0], meta[1])
    elif kind == 16:
        sizes[kind] = (meta[1] * 8 + meta[0] + 7) // 8
    elif kind in (17, 18, 19):
        sizes[kind] = {17: 4, 18: 5, 19: 3}[kind] + (meta[0] + 1) // 2
    elif kind in (247, 248):
        sizes[kind] = meta[1]
    if kind in sizes:
        size = sizes[kind]
        return lambda _data, at: at + size
    if kind in (140, 242, 245, 249, 250, 251, 252, 255):
        width = meta[0]
    elif kind in (15, 141):
        width = _width_of(int.from_bytes(meta, "little"))
    elif kind in (253, 254):
        width = _width_of(_longest_of(meta))
    else:
        raise _unsupported(kind)
    if width == 1:
        return lambda data, at: at + 1 + data[at]
    return lambda data, at: at + width + int.from_bytes(data[at : at + width], "little")


def _unsupported(kind: int) -> ValueError:
    return ValueError(f"the log has values of type {kind}, which rw_sql does not support")


def _width_of(longest: int) -> int:
    """The number of bytes of a value's length. ``longest`` is the length of the longest possible value in bytes."""
    return 2 if longest > 255 else 1


def _longest_of(meta: bytes) -> int:
    """The maximum length of the values of a CHAR or BINARY column in bytes."""
    first, second = meta
    return second if first & 0x30 == 0x30 else second | ((first & 0x30) ^ 0x30) << 4


def _whole(size: int, *, is_signed: bool) -> Reader:
    formats = {1: "b", 2: "h", 4: "i", 8: "q"}
    if size in formats:
        letter = formats[size] if is_signed else formats[size].upper()
        unpack = struct.Struct(f"<{letter}").unpack_from
        return lambda data, at: (f'"{unpack(data, at)[0]}"', at + size)
    return lambda data, at: (f'"{int.from_bytes(data[at : at + size], "little", signed=is_signed)}"', at + size)


def _decimal(precision: int, scale: int) -> Reader:
    size = decimal_size(precision, scale)
    return lambda data, at: (f'"{decimal_text(data[at : at + size], precision, scale)}"', at + size)


def _bit(bits: int) -> Reader:
    size = (bits + 7) // 8
    if bits == 1:
        return lambda data, at: (f'"{data[at] & 1}"', at + 1)
    return lambda data, at: (f'"\\\\x{data[at : at + size].hex()}"', at + size)


def _date(data: bytes, at: int) -> tuple[str, int]:
    packed = int.from_bytes(data[at : at + 3], "little")
    return f'"{packed >> 9:04d}-{packed >> 5 & 0xF:02d}-{packed & 0x1F:02d}"', at + 3


def _datetime(digits: int) -> Reader:
    size = (digits + 1) // 2

    def read(data: bytes, at: int) -> tuple[str, int]:
        packed = int.from_bytes(data[at : at + 5], "big") - 0x8000000000
        part = fraction(int.from_bytes(data[at + 5 : at + 5 + size], "big"), size, digits)
        return f'"{date_text(packed >> 17)} {clock_text(packed & 0x1FFFF)}{part}"', at + 5 + size

    return read


def _stamp(seconds: int) -> str:
    """The text of a point in time, in UTC. A value of 0 seconds denotes MySQL's zero date."""
    if not seconds:
        return "0000-00-00 00:00:00"
    days, rest = divmod(seconds, 86_400)
    return f"{_day(days)} {rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def _day(days: int) -> str:
    return date.fromordinal(_EPOCH_DAYS + days).isoformat()


def _timestamp(digits: int) -> Reader:
    size = (digits + 1) // 2

    def read(data: bytes, at: int) -> tuple[str, int]:
        seconds = int.from_bytes(data[at : at + 4], "big")
        part = fraction(int.from_bytes(data[at + 4 : at + 4 + size], "big"), size, digits)
        return f'"{_stamp(seconds)}{part}+00"', at + 4 + size

    return read


def _time(digits: int) -> Reader:
    size = (digits + 1) // 2
    width = 3 + size
    middle = 1 << (8 * width - 1)

    def read(data: bytes, at: int) -> tuple[str, int]:
        packed = int.from_bytes(data[at : at + width], "big") - middle
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        whole = packed >> (8 * size)
        part = fraction(packed & ((1 << (8 * size)) - 1), size, digits)
        return f'"{sign}{whole >> 12 & 0x3FF:02d}:{whole >> 6 & 0x3F:02d}:{whole & 0x3F:02d}{part}"', at + width

    return read


def _old_datetime(data: bytes, at: int) -> tuple[str, int]:
    """Reads a DATETIME of a table that was created before MySQL 5.6."""
    day, clock = divmod(int.from_bytes(data[at : at + 8], "little"), 1_000_000)
    text = f"{day // 10_000:04d}-{day // 100 % 100:02d}-{day % 100:02d}"
    return f'"{text} {clock // 10_000:02d}:{clock // 100 % 100:02d}:{clock % 100:02d}"', at + 8


def _old_time(data: bytes, at: int) -> tuple[str, int]:
    """Reads a TIME of a table that was created before MySQL 5.6."""
    packed = int.from_bytes(data[at : at + 3], "little", signed=True)
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    return f'"{sign}{packed // 10_000:02d}:{packed // 100 % 100:02d}:{packed % 100:02d}"', at + 3


def _labels(column: StreamColumn, size: int, decode: Callable[[bytes], str] | None) -> Reader:
    if column.labels is None or decode is None:
        raise ValueError("the log does not name the labels")
    labels = tuple(map(decode, column.labels))
    is_set = column.type == 248

    def read(data: bytes, at: int) -> tuple[str, int]:
        number = int.from_bytes(data[at : at + size], "little")
        if is_set:
            text = ",".join(label for bit, label in enumerate(labels) if number >> bit & 1)
        elif number > len(labels):
            raise ValueError(f"is label {number} of {len(labels)}")
        else:
            text = labels[number - 1] if number else ""
        return encode_basestring(text), at + size

    return read


def _hex_cell(part: bytes) -> str:
    return f'"\\\\x{part.hex()}"'


def _text_cell(decode: Callable[[bytes], str] | None) -> Cell:
    if decode is None:
        return _hex_cell
    return lambda part: encode_basestring(decode(part))


def _uncompressed(cell: Cell) -> Cell:
    """Reads a value of a column that MariaDB compresses (COMPRESSED). An empty value consists of no bytes. If the first
    byte is 0, the value after it is not compressed. If the high four bits of the first byte are 8, the value is
    compressed with zlib. The lowest three bits of the first byte are then the number of bytes of the value's length,
    which follows the first byte. Bit 3 is set if the data has no zlib header."""

    def read(part: bytes) -> str:
        if not part:
            return cell(part)
        first, method = part[0], part[0] >> 4
        if not method:
            return cell(part[1:])
        if method != 8:
            raise ValueError(f"has the unknown compression {method}")
        try:
            return cell(zlib.decompress(part[1 + (first & 7) :], -zlib.MAX_WBITS if first & 8 else zlib.MAX_WBITS))
        except zlib.error as error:
            raise ValueError(f"cannot be decompressed: {error}") from error

    return read


def _with_length(width: int, cell: Cell) -> Reader:
    if width == 1:

        def read_short(data: bytes, at: int) -> tuple[str, int]:
            end = at + 1 + data[at]
            return cell(data[at + 1 : end]), end

        return read_short

    def read(data: bytes, at: int) -> tuple[str, int]:
        start = at + width
        end = start + int.from_bytes(data[at:start], "little")
        return cell(data[start:end]), end

    return read


def _string(meta: bytes, data_type: str, decode: Callable[[bytes], str] | None) -> Reader:
    longest = _longest_of(meta)
    width = _width_of(longest)
    if decode is not None:
        return _with_length(width, _text_cell(decode))
    match data_type:
        case "uuid":
            return _with_length(width, lambda part: f'"{uuid.UUID(bytes=part.ljust(16, bytes(1)))}"')
        case "inet6":
            return _with_length(width, lambda part: f'"{_inet6(part.ljust(16, bytes(1)))}"')
        case "inet4":
            return _with_length(width, lambda part: f'"{ipaddress.IPv4Address(part.ljust(4, bytes(1)))}"')
    # For BINARY(n), the log omits zeros at the end, but a SELECT does not.
    return _with_length(width, lambda part: _hex_cell(part.ljust(longest, bytes(1))))


def _inet6(part: bytes) -> str:
    """The text of an address in MariaDB's form, which differs from RFC 5952. The first longest run of zero groups is
    omitted, even if the run is a single group. The last four bytes are written as an IPv4 address if they follow
    exactly six zero groups, or five zero groups and ``ffff``."""
    groups = struct.unpack(">8H", part)
    start, length = -1, 0
    for at in range(8):
        end = at
        while end < 8 and groups[end] == 0:
            end += 1
        if end - at > length:
            start, length = at, end - at
    if start == 0 and (length == 6 or (length == 5 and groups[5] == 0xFFFF)):
        return f"::{'ffff:' if length == 5 else ''}{ipaddress.IPv4Address(part[12:])}"
    words = [f"{group:x}" for group in groups]
    if not length:
        return ":".join(words)
    return f"{':'.join(words[:start])}::{':'.join(words[start + length :])}"


def select_of(quoted: str, column_type: str, family: str) -> str:
    """The expression that selects a column with all its digits. If the expression were only the name of a FLOAT column,
    MySQL would return only six digits."""
    if family == FLOAT:
        return f"({quoted} + 0e0)"
    return f"({quoted} + 0)" if family == BIT or "zerofill" in column_type.lower() else quoted


def cell_of(column_type: str, family: str) -> Cell:
    """The function that converts the text of :func:`select_of` to the member of a JSON object."""
    written = column_type.lower()
    if family == BYTES:
        return _hex_cell
    if family == FLOAT:
        text = float_text if written.startswith("float") else double_text
        return lambda part: f'"{text(float(part))}"'
    if family == BIT:
        bits = bits_of(written)
        if bits == 1:
            return lambda part: f'"{int(part)}"'
        return lambda part: _hex_cell(int(part).to_bytes((bits + 7) // 8, "big"))
    if family == TIMESTAMPTZ:
        return lambda part: f'"{part.decode()}+00"'
    return lambda part: encode_basestring(part.decode())
