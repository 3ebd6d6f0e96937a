"""Parses numbers from text. The result is either exact or NULL; only a floating-point number may be rounded. This
module uses only Spark expressions.

The casts of Spark alone are not sufficient. They round decimals to the column's scale, and return infinity for a float
that is too large. They also accept Java's literals (``1d``, ``0x1p3``), digits of other scripts, and control characters
around a number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from rw_sql.runtime.decoding.json_text import let

if TYPE_CHECKING:
    from pyspark.sql import Column

WIDEST = 38
"""The maximum number of digits in a decimal of Spark."""

# The quantifiers are possessive, because a pattern that backtracks needs minutes for a string of many digits that is
# not a number.
_WHOLE = r"^\s*+[+-]?[0-9]++\s*+\z"
_NUMBER = r"^\s*+[+-]?(?:[0-9]++[.]?[0-9]*+|[.][0-9]++)(?:[eE][+-]?[0-9]++)?\s*+\z"
_INFINITY = r"^\s*[+-]?(Infinity|inf|INF|Inf)\s*\z"
_OTHER_NUMBER = r"\"[-+0-9.eE]*+(?:[\p{Nd}\u2019&&[^0-9]]|\\u(?:0[6-9a-fA-F]|1|2019|[aA]|[fF]{2}))"
"""Matches the beginning of a JSON string that is not a decimal, although ``from_json`` may read it as one. Such a
string contains digits of another script, or an apostrophe (U+2019) between groups of digits, as is usual in
Switzerland."""

_MOST_BYTES = 16

_WIDEST_SCALE = 16_383
"""The greatest scale of a number in PostgreSQL. Numbers with a greater scale are not read, because their text could
exhaust the memory."""


def whole(text: Column, kind: str) -> Column:
    """Returns an integer of the type ``kind``; NULL if the text is not a number, has a fraction or an exponent, or does
    not fit the type."""
    return f.when(text.rlike(_WHOLE), text.try_cast(kind))


def floating(text: Column, kind: str) -> Column:
    """Returns the value of the floating-point type ``kind`` that is nearest to the number in ``text``. The result is
    NULL if the text is not a number, or if the number is finite but its nearest value is infinite."""
    number = f.when(text.rlike(_NUMBER) | (f.lower(f.trim(text)) == "nan"), text.try_cast(kind))
    finite = f.when(~is_infinite(number), number)
    return f.when(text.rlike(_INFINITY), text.try_cast(kind)).otherwise(finite)


def is_infinite(number: Column) -> Column:
    """True if a float is infinite."""
    return f.abs(number) == f.lit(float("inf"))


def decimal(text: Column, precision: int, scale: int) -> Column:
    """Returns a decimal; NULL if the text is not a number, or if the number has more significant digits before or after
    the point than the column allows."""
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
    """Returns the number of digits after the point that a number has when it is written without an exponent. ``text``
    is a number with an exponent. Trailing zeros do not count. The result is -3 for 1e3."""
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
    """Returns the scale of the type DECIMAL(38, scale) with which ``from_json`` reads the numbers of a decimal column.
    ``precision`` and ``scale`` are those of the column.

    This type has more digits after the point than the column, so digits that do not fit the column are read and can be
    detected. A number with more digits before the point than this type allows is read as text.
    """
    return max(scale, WIDEST - min(precision - scale, 14))


def has_long_number(text: Column, digits: int) -> Column:
    """True if a JSON text may contain a number with more than ``digits`` digits after the point, or with an exponent so
    large that Java would need minutes for the number.

    The text is searched with a regular expression, which may also find digits inside a JSON string.
    """
    point = rf"(?<=[.])[0-9]{{{max(0, digits - 8)}}}(?:[0-9]{{9}}|[0-9]*+[eE]-)"
    exponent = r"(?<=[0-9.][eE])(?:-[0-9]{2}|[+]?[0-9]{4})[0-9]*+(?=[ \t\r\n\"\],}])"
    return f.coalesce(text.rlike(rf"[.eE](?:{point}|{exponent})"), f.lit(False))


def has_other_number(text: Column) -> Column:
    """True if a JSON text contains a string that ``from_json`` may read as a decimal, although :func:`decimal` would
    return NULL for it."""
    return f.coalesce(text.rlike(_OTHER_NUMBER), f.lit(False))


def plain_decimal(encoded: Column, scale: Column) -> Column:
    """Returns the text of a decimal. ``encoded`` is the base64 of the decimal's unscaled value (a big-endian two's
    complement), and ``scale`` is the decimal's scale.

    The result is NULL if ``encoded`` is not base64, if the decimal has more than 38 digits, or if the scale is NULL or
    not between -16,383 and 16,383.
    """
    return decimal_of_bytes(f.try_to_binary(encoded, f.lit("base64")), scale)


def decimal_of_bytes(unscaled: Column, scale: Column) -> Column:
    """Does the same as :func:`plain_decimal`, but takes the unscaled value as bytes instead of base64."""
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
    """Inserts the decimal point into the digits of an unscaled value."""
    padded = f.lpad(text, f.greatest(f.length(text), scale + 1), "0")
    whole_part = f.substr(padded, f.lit(1), f.length(padded) - scale)
    zeros = f.repeat(f.lit("0"), -scale)
    return f.when(scale > 0, f.concat(whole_part, f.lit("."), f.right(padded, scale))).otherwise(f.concat(text, zeros))


def _part(digits: Column, start: int, length: int) -> Column:
    return f.conv(f.substring(digits, start, length), 16, 10).cast("decimal(20, 0)")
