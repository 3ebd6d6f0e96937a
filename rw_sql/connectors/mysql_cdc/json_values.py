"""Converts MySQL's binary JSON to the text that a SELECT returns. See MySQL's source, ``sql-common/json_binary.h``."""

from __future__ import annotations

import json
import struct
from base64 import b64encode

from rw_sql.connectors.mysql_cdc.numbers_text import datetime_packed, decimal_text, double_text, time_packed

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = 0, 1, 2, 3, 4
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING, _OPAQUE = 5, 6, 7, 8, 9, 10, 11, 12, 15
_LITERALS = {0: "null", 1: "true", 2: "false"}
_INTS = {_INT16: ("<h", 2), _UINT16: ("<H", 2), _INT32: ("<i", 4), _UINT32: ("<I", 4), _INT64: ("<q", 8),
         _UINT64: ("<Q", 8)}  # fmt: skip
_NEWDECIMAL, _DATE, _TIME, _DATETIME, _TIMESTAMP = 246, 10, 11, 12, 7


def json_text(data: bytes) -> str:
    """The text of a value. Raises ValueError for bytes that are not JSON."""
    if not data:
        return "null"
    try:
        return _value(data[0], data, 1)
    except (IndexError, struct.error, UnicodeDecodeError, KeyError) as error:
        raise ValueError(f"no JSON: {error}") from error


def _value(kind: int, data: bytes, at: int) -> str:
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT):
        return _container(data, at, 2 if kind == _SMALL_OBJECT else 4, is_object=True)
    if kind in (_SMALL_ARRAY, _LARGE_ARRAY):
        return _container(data, at, 2 if kind == _SMALL_ARRAY else 4, is_object=False)
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind in _INTS:
        return str(struct.unpack_from(_INTS[kind][0], data, at)[0])
    if kind == _DOUBLE:
        text = double_text(struct.unpack_from("<d", data, at)[0])
        return text if any(letter in text for letter in ".e") else text + ".0"
    if kind == _STRING:
        size, at = _length(data, at)
        return json.dumps(data[at : at + size].decode(), ensure_ascii=False)
    if kind == _OPAQUE:
        size, start = _length(data, at + 1)
        return _opaque(data[at], data[start : start + size])
    raise ValueError(f"a value of the unknown kind {kind}")


def _length(data: bytes, at: int) -> tuple[int, int]:
    made = shift = 0
    while True:
        byte = data[at]
        at += 1
        made |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return made, at
        shift += 7


def _container(data: bytes, start: int, width: int, *, is_object: bool) -> str:
    def number(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], "little")

    count = number(start, width)
    at = start + 2 * width
    keys = []
    if is_object:
        for _ in range(count):
            place, size = start + number(at, width), number(at + width, 2)
            keys.append(json.dumps(data[place : place + size].decode(), ensure_ascii=False))
            at += width + 2
    values = []
    for _ in range(count):
        kind = data[at]
        is_inline = kind in (_LITERAL, _INT16, _UINT16) or (width == 4 and kind in (_INT32, _UINT32))
        values.append(_value(kind, data, at + 1 if is_inline else start + number(at + 1, width)))
        at += 1 + width
    if is_object:
        return "{" + ", ".join(f"{key}: {value}" for key, value in zip(keys, values, strict=True)) + "}"
    return "[" + ", ".join(values) + "]"


def _opaque(kind: int, data: bytes) -> str:
    """Converts a value of a type that JSON does not have. Decimals become numbers, times become strings, and other
    bytes get the form that MySQL shows."""
    if kind == _NEWDECIMAL:
        return decimal_text(data[2:], data[0], data[1])
    if kind in (_DATE, _DATETIME, _TIMESTAMP):
        return json.dumps(datetime_packed(int.from_bytes(data, "little", signed=True), has_time=kind != _DATE))
    if kind == _TIME:
        return json.dumps(time_packed(int.from_bytes(data, "little", signed=True)))
    return json.dumps(f"base64:type{kind}:{b64encode(data).decode()}")
