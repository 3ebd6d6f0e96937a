"""Decodes messages. Clients encode a message in sections of AMQP 1.0.

The servers accept any bytes as a message. If the bytes are not AMQP sections, all bytes count as the content, and the
message has no properties.

See OASIS AMQP 1.0, part 1 (types) and part 3.2 (message format).
"""

from __future__ import annotations

import json
import struct
from typing import Any, TypeVar
from uuid import UUID

_T = TypeVar("_T")

_ANNOTATIONS, _PROPERTIES, _APPLICATION, _DATA, _SEQUENCE, _VALUE = 0x72, 0x73, 0x74, 0x75, 0x76, 0x77
_SECTIONS = range(0x70, 0x79)

DATA_SECTION = b"\x00\x53\x75"
"""The descriptor that precedes the content if the content consists of bytes."""

Headers = list[dict[str, Any]]


def content_of(message: memoryview) -> bytes:
    """The content of a message."""
    # Nearly every message consists of a single section whose content is bytes.
    if message[:3].tobytes() == DATA_SECTION:
        kind = message[3] if len(message) > 3 else 0
        if kind == 0xA0 and len(message) > 4 and len(message) == 5 + message[4]:
            return bytes(message[5:])
        if kind == 0xB0 and len(message) == 8 + int.from_bytes(message[4:8], "big"):
            return bytes(message[8:])
    return parts_of(message, with_headers=False)[0]


def parts_of(message: memoryview, *, with_headers: bool) -> tuple[bytes, bytes | None, Headers | None]:
    """Returns the content of a message, its message-id as bytes, and its application properties and annotations.

    Raises no error, even if the message is malformed.
    """
    try:
        return _parts(message, with_headers=with_headers)
    except (IndexError, ValueError, struct.error, RecursionError):
        return bytes(message), None, [] if with_headers else None


def _parts(message: memoryview, *, with_headers: bool) -> tuple[bytes, bytes | None, Headers | None]:
    at, size = 0, len(message)
    contents: list[bytes] = []
    others: list[Any] = []
    key: bytes | None = None
    headers: Headers = []
    while at < size:
        section, at = _section(message, at)
        if section == _DATA:
            data, at = _value_of(bytes, message, at)
            contents.append(data)
        elif section in (_VALUE, _SEQUENCE):
            value, at = _value(message, at)
            others.append(value)
        elif section == _PROPERTIES:
            fields, at = _value_of(list, message, at)
            key = value_bytes(fields[0]) if fields else None
        elif section in (_ANNOTATIONS, _APPLICATION) and with_headers:
            found, at = _value_of(dict, message, at)
            headers += ({"key": _text(name), "value": value_bytes(value)} for name, value in found.items())
        else:
            at = _skip(message, at)
    if contents or not others:
        body = b"".join(contents)
    elif len(others) == 1:
        body = value_bytes(others[0]) or b""
    else:
        body = value_bytes(others) or b""
    return body, key, headers if with_headers else None


def value_bytes(value: Any) -> bytes | None:
    """Returns a value as bytes. A string becomes UTF-8 bytes, and other values become JSON text. Returns None for a
    null."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, default=_text, ensure_ascii=False).encode()


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _section(data: memoryview, at: int) -> tuple[int, int]:
    """Reads the number of the section at the offset ``at``. Also returns the offset after the section's descriptor.
    Raises ValueError."""
    if data[at] != 0x00:
        raise ValueError("no descriptor")
    section, after = _value(data, at + 1)
    if not isinstance(section, int) or section not in _SECTIONS:
        raise ValueError("not a section")
    return section, after


# Maps the code of each type with a fixed size to the type's format for struct.
_FIXED = {
    0x50: ">B",
    0x51: ">b",
    0x52: ">B",
    0x53: ">B",
    0x54: ">b",
    0x55: ">b",
    0x60: ">H",
    0x61: ">h",
    0x70: ">I",
    0x71: ">i",
    0x72: ">f",
    0x80: ">Q",
    0x81: ">q",
    0x82: ">d",
    0x83: ">q",
}
_CONSTANT: dict[int, Any] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}


def _skip(data: memoryview, at: int) -> int:
    """The offset after the value that begins at ``at``."""
    kind = data[at]
    if kind >> 4 in (0xA, 0xC, 0xE):
        return _within(data, at + 2 + data[at + 1])
    if kind >> 4 in (0xB, 0xD, 0xF):
        return _within(data, at + 5 + int.from_bytes(data[at + 1 : at + 5], "big"))
    return _value(data, at)[1]


def _within(data: memoryview, at: int) -> int:
    if at > len(data):
        raise ValueError("a value ends after the message")
    return at


def _value(data: memoryview, at: int) -> tuple[Any, int]:
    """Decodes the value at the offset ``at``. Also returns the offset after the value. Raises ValueError, IndexError or
    struct.error."""
    return _typed(data[at], data, at + 1)


def _value_of(kind: type[_T], data: memoryview, at: int) -> tuple[_T, int]:
    """Does the same as :func:`_value`, but also raises ValueError if the value's type is not ``kind``."""
    value, after = _value(data, at)
    if not isinstance(value, kind):
        raise ValueError(f"a value of another type than {kind.__name__}")
    return value, after


def _typed(kind: int, data: memoryview, at: int) -> tuple[Any, int]:
    """Decodes the value at the offset ``at``, if its type has the code ``kind``."""
    if kind in _FIXED:
        form = _FIXED[kind]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    if kind in _CONSTANT:
        return _CONSTANT[kind], at
    group = kind >> 4
    if group in (0xA, 0xB):
        wide = 1 if group == 0xA else 4
        begin = at + wide
        end = _within(data, begin + int.from_bytes(data[at:begin], "big"))
        found = bytes(data[begin:end])
        return (found if kind & 0xF == 0 else found.decode(errors="replace")), end
    if kind in (0x45, 0xC0, 0xD0):
        if kind == 0x45:
            return [], at
        return _items(data, at, 1 if kind == 0xC0 else 4)
    if kind in (0xC1, 0xD1):
        items, after = _items(data, at, 1 if kind == 0xC1 else 4)
        return {_text(name): value for name, value in zip(items[::2], items[1::2], strict=True)}, after
    if kind == 0x00:
        _, at = _value(data, at)
        return _value(data, at)
    if kind == 0x56:
        return data[at] == 1, _within(data, at + 1)
    if kind == 0x73:
        return bytes(data[at : at + 4]).decode("utf-32-be"), _within(data, at + 4)
    if kind == 0x98:
        return str(UUID(bytes=bytes(data[at : at + 16]))), _within(data, at + 16)
    if kind in (0x74, 0x84, 0x94):
        wide = 1 << (kind >> 4) - 5
        return bytes(data[at : at + wide]).hex(), _within(data, at + wide)
    if kind in (0xE0, 0xF0):
        return _array(data, at, 1 if kind == 0xE0 else 4)
    raise ValueError(f"unknown type {kind:#x}")


def _items(data: memoryview, at: int, wide: int) -> tuple[list[Any], int]:
    size = int.from_bytes(data[at : at + wide], "big")
    count = int.from_bytes(data[at + wide : at + 2 * wide], "big")
    end = _within(data, at + wide + size)
    at += 2 * wide
    found = []
    for _ in range(count):
        value, at = _value(data, at)
        found.append(value)
    if at != end:
        raise ValueError("a list has another size than it says")
    return found, end


def _array(data: memoryview, at: int, wide: int) -> tuple[list[Any], int]:
    """Decodes an array. All items have one type, which is stored once, before the items."""
    end = _within(data, at + wide + int.from_bytes(data[at : at + wide], "big"))
    count = int.from_bytes(data[at + wide : at + 2 * wide], "big")
    if count > end - at:
        # Items of some types, such as null, take no bytes. The size of the message therefore does not limit the number
        # of such items.
        raise ValueError("an array has more items than bytes")
    kind, place = data[at + 2 * wide], at + 2 * wide + 1
    found = []
    for _ in range(count):
        value, place = _typed(kind, data, place)
        found.append(value)
    return found, end
