"""Parses numbers from text. The result is either exact or NULL. This module uses only Spark expressions.

Spark's casts are not sufficient. Spark's casts round decimals to the column's scale, and return infinity for a float
that is too large. Spark's casts also accept Java's literals (``1d``, ``0x1p3``), digits of other scripts, and control
characters around a number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from rw_sql.runtime.decoding.json_text import let

if TYPE_CHECKING:
    from pyspark.sql import Column

WIDEST = 38
"""The maximum number of digits of Spark's decimals."""

# The quantifiers are possessive, because a pattern that backtracks needs minutes for a string of many digits that is
# not a number.
_WHOLE = r"^\s*+[+-]?[0-9]++\s*+\z"
_NUMBER = r"^\s*+[+-]?(?:[0-9]++[.]?[0-9]*+|[.][0-9]++)(?:[eE][+-]?[0-9]++)?\s*+\z"
_INFINITY = r"^\s*[+-]?(Infinity|inf|INF|Inf)\s*\z"
_OTHER_NUMBER = r"\"[-+0-9.eE]*+(?:[\p{Nd}\u2019&&[^0-9]]|\\u(?:0[6-9a-fA-F]|1|2019|[aA]|[fF]{2}))"
"""Matches the beginning of a JSON string that is not a decimal but that ``from_json`` may read as a decimal. Such a
string has digits of another script, or apostrophes between thousands, as in Switzerland."""

_MOST_BYTES = 16

_WIDEST_SCALE = 16_383
"""The greatest scale of PostgreSQL's numbers. The text of a number with a greater scale could exhaust the memory."""


def whole(text: Column, kind: str) -> Column:
    """An integer; NULL if the text has a fraction or an exponent, or if the number is too large."""
    return f.when(text.rlike(_WHOLE), text.try_cast(kind))


def floating(text: Column, kind: str) -> Column:
    """The nearest float; NULL if the nearest float is infinite but the text is a finite number."""
    number = f.when(text.rlike(_NUMBER) | (f.lower(f.trim(text)) == "nan"), text.try_cast(kind))
    finite = f.when(~is_infinite(number), number)
    return f.when(text.rlike(_INFINITY), text.try_cast(kind)).otherwise(finite)


def is_infinite(number: Column) -> Column:
    """True if a float is infinite."""
    return f.abs(number) == f.lit(float("inf"))


def decimal(text: Column, precision: int, scale: int) -> Column:
    """Returns a decimal; NULL if the number has more significant digits before or after the point than the column
    allows."""
    written = text.try_cast(f"decimal({precision}, {scale})")
    return f.when(text.rlike(_NUMBER) & _has_scale(text, scale), written)


def _has_scale(text: Column, scale: int) -> Column:
    point = f.instr(text, ".")
    has_exponent = text.contains("e") | text.contains("E")
    return (
        f.when(has_exponent, let(text, lambda text: _scale_of(text) <= scale))
        .when((point == 0) | (f.length(text) - point <= scale), f.lit(True))
        .otherwise(f.substr(text, point + f.lit(scale + 1)).rlike(r"^0*+\s*+\z"))
    )


def _scale_of(text: Column) -> Column:
    """For a number that is written with an exponent, returns the number of digits after the point in the notation
    without an exponent. Trailing zeros do not count. The result is negative for 1e3."""
    mantissa = f.regexp_replace(text, f.lit(r"[eE][\s\S]*+"), f.lit(""))
    point = f.instr(mantissa, ".")
    fraction = f.when(point > 0, f.length(mantissa) - point).otherwise(f.lit(0))
    digits = f.regexp_replace(mantissa, f.lit("[^0-9]"), f.lit(""))
    significant = f.rtrim(digits, f.lit("0"))
    # NULL for an exponent with more digits: Java would compute a power of ten of that size, which takes minutes.
    exponent = f.regexp_extract(text, r"[eE]([+-]?[0-9]{1,3})\s*\z", 1).try_cast("int")
    found = fraction - (f.length(digits) - f.length(significant)) - exponent
    return f.when((f.length(significant) == 0) & exponent.isNotNull(), f.lit(0)).otherwise(found)


def wider_scale(precision: int, scale: int) -> int:
    """The scale of the decimal type in which a column's numbers are read. This type has as many digits as possible.

    The additional digits show which numbers do not fit the column.

    A number that has more digits before the point than this type allows is read as text.
    """
    return max(scale, WIDEST - min(precision - scale, 14))


def has_long_number(text: Column, digits: int) -> Column:
    """True if a JSON text may contain a number that has more digits after the point than ``digits``, or an exponent so
    large that Java would compute for minutes.

    The text is searched with a regular expression, so digits inside a JSON string may count as a number too.
    """
    point = rf"(?<=[.])[0-9]{{{max(0, digits - 8)}}}(?:[0-9]{{9}}|[0-9]*+[eE]-)"
    exponent = r"(?<=[0-9.][eE])(?:-[0-9]{2}|[+]?[0-9]{4})[0-9]*+(?=[ \t\r\n\"\],}])"
    return f.coalesce(text.rlike(rf"[.eE](?:{point}|{exponent})"), f.lit(False))


def has_other_number(text: Column) -> Column:
    """True if a JSON text contains a string that ``from_json`` may read as a decimal, but :func:`decimal` does not."""
    return f.coalesce(text.rlike(_OTHER_NUMBER), f.lit(False))


def plain_decimal(encoded: Column, scale: Column) -> Column:
    """Returns the text of a decimal. The input is the decimal's scale, and the base64 of the decimal's unscaled value
    (big-endian two's complement).

    The result is NULL if the decimal has more than 38 digits, or if the scale is NULL or beyond ±16,383.
    """
    return decimal_of_bytes(f.try_to_binary(encoded, f.lit("base64")), scale)


def decimal_of_bytes(unscaled: Column, scale: Column) -> Column:
    """Does the same as :func:`plain_decimal`, but takes the bytes of the unscaled value."""
    both = f.struct(f.hex(unscaled).alias("digits"), scale.alias("scale"))
    text = let(both, lambda parts: _plain(parts.getField("digits"), parts.getField("scale")))
    return f.when(scale.between(-_WIDEST_SCALE, _WIDEST_SCALE), text)


def _plain(digits: Column, scale: Column) -> Column:
    is_negative = f.substring(digits, 1, 1) >= "8"
    flipped = f.when(is_negative, f.translate(digits, "0123456789ABCDEF", "FEDCBA9876543210")).otherwise(digits)
    padded = f.when(f.length(digits).between(1, 2 * _MOST_BYTES), f.lpad(flipped, 2 * _MOST_BYTES, "0"))
    high, low = _part(padded, 1, 16), _part(padded, 17, 16)
    found = f.try_add(f.try_multiply(high, f.lit(str(2**64)).cast("decimal(20, 0)")), low)
    size = f.when(is_negative, f.try_add(found, f.lit(1).cast("decimal(38, 0)"))).otherwise(found).cast("string")
    sign = f.when(is_negative, f.lit("-")).otherwise(f.lit(""))
    return f.concat(sign, let(size, lambda text: _pointed(text, scale)))


def _pointed(text: Column, scale: Column) -> Column:
    """The digits of an unscaled value, with the decimal point inserted."""
    padded = f.lpad(text, f.greatest(f.length(text), scale + 1), "0")
    whole_part = f.substr(padded, f.lit(1), f.length(padded) - scale)
    zeros = f.repeat(f.lit("0"), -scale)
    return f.when(scale > 0, f.concat(whole_part, f.lit("."), f.right(padded, scale))).otherwise(f.concat(text, zeros))


def _part(digits: Column, start: int, length: int) -> Column:
    return f.conv(f.substring(digits, start, length), 16, 10).cast("decimal(20, 0)")
