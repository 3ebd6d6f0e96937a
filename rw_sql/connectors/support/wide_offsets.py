"""Handles offsets that are too large for 64 bits, such as the sequence numbers of Kinesis.

In Python, such offsets are integers. In a log, such offsets are strings of equal length, which sort in the same order
as the numbers. The difference of two such offsets does not show the number of records between them.
"""

from __future__ import annotations

DIGITS = 60
"""The number of decimal digits of a stored offset."""

MOST = 10**DIGITS - 1
"""The greatest offset."""

MOST_COUNTED = 2**63
"""A range of at least this many offsets contains an unknown number of records."""


def number_of_records(offsets: int) -> str:
    """Returns, as text for the user, the number of records in a range that has this number of offsets."""
    return f"{offsets} records" if offsets < MOST_COUNTED else "an unknown number of records"


def offset_text(offset: int) -> str:
    """An offset as it is stored. Raises ValueError if the offset has more than DIGITS digits."""
    if not 0 <= offset <= MOST:
        raise ValueError(f"{offset} is no offset of {DIGITS} digits")
    return str(offset).zfill(DIGITS)


def plain_offset(column: str) -> str:
    """Returns the Spark expression that converts a stored offset to the usual form without leading zeros."""
    return f"regexp_replace({column}, '^0+(?=[0-9])', '')"
