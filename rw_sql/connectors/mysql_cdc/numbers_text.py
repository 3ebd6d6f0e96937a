"""Converts numbers and times of the binary log to the text that a SELECT returns."""

from __future__ import annotations

import struct

import numpy as np

_DIGITS_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""The number of bytes for 0 to 9 decimal digits."""


def decimal_size(precision: int, scale: int) -> int:
    """The number of bytes that a DECIMAL takes in the log."""
    whole = precision - scale
    return whole // 9 * 4 + _DIGITS_BYTES[whole % 9] + scale // 9 * 4 + _DIGITS_BYTES[scale % 9]


def decimal_text(data: bytes, precision: int, scale: int) -> str:
    """The text of a DECIMAL, with all digits of its scale."""
    whole_digits = precision - scale
    is_negative = not data[0] & 0x80
    number = int.from_bytes(data, "big") ^ (1 << (8 * len(data) - 1))
    if is_negative:
        number ^= (1 << (8 * len(data))) - 1
    bits = number.to_bytes(len(data), "big")
    at = 0
    whole = fraction = ""
    first = whole_digits % 9
    if first:
        size = _DIGITS_BYTES[first]
        whole = str(int.from_bytes(bits[:size], "big"))
        at = size
    for _ in range(whole_digits // 9):
        whole += f"{int.from_bytes(bits[at : at + 4], 'big'):09d}"
        at += 4
    for _ in range(scale // 9):
        fraction += f"{int.from_bytes(bits[at : at + 4], 'big'):09d}"
        at += 4
    last = scale % 9
    if last:
        size = _DIGITS_BYTES[last]
        fraction += f"{int.from_bytes(bits[at : at + size], 'big'):0{last}d}"
    text = (whole.lstrip("0") or "0") + (f".{fraction}" if scale else "")
    return f"-{text}" if is_negative else text


def double_text(value: float) -> str:
    """The shortest text that denotes this 64-bit number and no other 64-bit number."""
    text = repr(value)
    return text.removesuffix(".0")


def float_text(value: float) -> str:
    """The shortest text that denotes this 32-bit number and no other 32-bit number."""
    text = str(np.float32(value))
    return text.removesuffix(".0")


def float_bytes(data: bytes, at: int) -> str:
    """The text of a FLOAT in the log."""
    return float_text(struct.unpack_from("<f", data, at)[0])


def fraction(value: int, size: int, digits: int) -> str:
    """The fractional digits of a time's seconds, with the decimal point. ``size`` is the number of bytes that contain
    these digits."""
    return f".{value:0{2 * size}d}"[: digits + 1] if digits else ""


def datetime_packed(packed: int, *, has_time: bool) -> str:
    """The text of a DATETIME, or of a DATE, inside binary JSON."""
    whole, micros = packed >> 24, packed & 0xFFFFFF
    date = date_text(whole >> 17)
    return f"{date} {clock_text(whole & 0x1FFFF)}.{micros:06d}" if has_time else date


def time_packed(packed: int) -> str:
    """The text of a TIME inside binary JSON."""
    size = abs(packed)
    whole, micros = size >> 24, size & 0xFFFFFF
    sign = "-" if packed < 0 else ""
    return f"{sign}{whole >> 12 & 0x3FF:02d}:{whole >> 6 & 0x3F:02d}:{whole & 0x3F:02d}.{micros:06d}"


def date_text(packed: int) -> str:
    """The text of a DATETIME's date, which is stored as year times 13 plus month, followed by five bits for the day."""
    year, month = divmod(packed >> 5, 13)
    return f"{year:04d}-{month:02d}-{packed & 0x1F:02d}"


def clock_text(packed: int) -> str:
    """The text of a DATETIME's hours, minutes and seconds, which are stored in 17 bits."""
    return f"{packed >> 12:02d}:{packed >> 6 & 0x3F:02d}:{packed & 0x3F:02d}"


def exact_float(text: str, *, is_short: bool) -> str:
    """The literal that equals a stored number, from the text of :func:`float_text` or :func:`double_text`."""
    return repr(float(np.float32(text)) if is_short else float(text))
