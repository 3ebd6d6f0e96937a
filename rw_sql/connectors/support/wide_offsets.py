"""Handles offsets that are too large for 64 bits, such as the sequence numbers of Kinesis.

In Python, these offsets are integers. In a source's log, they are strings of equal length, whose order is that of the
numbers. The difference of two of these offsets is not the number of records between them.
"""

from __future__ import annotations

DIGITS = 60
"""The length of a stored offset, in decimal digits."""

MOST = 10**DIGITS - 1
"""The greatest offset."""

MOST_COUNTED = 2**63
"""If a range has at least this number of offsets, the number of its records is unknown."""


def number_of_records(offsets: int) -> str:
    """Returns text for users that states how many records a range with this number of offsets contains."""
    return f"{offsets} records" if offsets < MOST_COUNTED else "an unknown number of records"


def offset_text(offset: int) -> str:
    """The stored form of an offset. Raises ValueError if the offset has more than :data:`DIGITS` digits."""
    if not 0 <= offset <= MOST:
        raise ValueError(f"{offset} is no offset of {DIGITS} digits")
    return str(offset).zfill(DIGITS)


def plain_offset(column: str) -> str:
    """Returns the Spark expression that removes the leading zeros of a stored offset."""
    return f"regexp_replace({column}, '^0+(?=[0-9])', '')"
