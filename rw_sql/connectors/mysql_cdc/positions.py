"""Represents positions in the binary log as whole numbers.

A number contains the sequence number of the log file (20 bits), the position in the file (32 bits), and a count of the
batches that ended at this position (11 bits). Because a position contains this count, batches of a snapshot have
different positions even while the log does not grow.
"""

from __future__ import annotations

import re

from rw_sql.connectors.changes import CaptureError
from rw_sql.errors import UPSTREAM_MISSING

STEPS = 1 << 11
"""The maximum number of batches that may end at one position."""

FIRST = 4
"""The position of the first event of a file."""

_POSITIONS = 1 << 32
_MOST_FILES = 1 << 20
_TEXT = re.compile(r"(?:.*\.)?([0-9]{1,10}):([0-9]{1,12})(?:\+([0-9]{1,4}))?")
_SUFFIX = re.compile(r".*\.([0-9]+)")


def number_of(sequence: int, at: int, step: int = 0) -> int:
    """The number of a position. Raises CaptureError for a file that has no number.

    A position above 4 GiB becomes the beginning of the next file, because a transaction that ends above 4 GiB is the
    last transaction of its file.
    """
    if at >= _POSITIONS:
        sequence, at = sequence + 1, FIRST
    if sequence >= _MOST_FILES:
        raise CaptureError(
            UPSTREAM_MISSING,
            f"the binary log has reached file {sequence}, but positions can only name files up to {_MOST_FILES - 1}",
            hint="after RESET MASTER, the server's files begin at 1 again; then read the tables again",
        )
    return (sequence * _POSITIONS + at) * STEPS + step


def parts_of(number: int) -> tuple[int, int, int]:
    """The file's sequence number, the position in the file, and the number of earlier batches that ended at this
    position."""
    place, step = divmod(number, STEPS)
    sequence, at = divmod(place, _POSITIONS)
    return sequence, at, step


def shown(number: int) -> str:
    """A position as ``000003:1234``: the suffix of the file's name and the position in the file."""
    sequence, at, step = parts_of(number)
    return f"{sequence:06d}:{at}" + (f"+{step}" if step else "")


def parse(text: str) -> int | None:
    """Parses a position that is written like ``mysql-bin.000003:1234`` or as :func:`shown` writes it; None for any
    other text."""
    found = _TEXT.fullmatch(text)
    if found is None or int(found[3] or 0) >= STEPS:
        return None
    return number_of(int(found[1]), int(found[2]), int(found[3] or 0))


def sequence_of(file: str) -> int:
    """The sequence number of a log file's name."""
    found = _SUFFIX.fullmatch(file)
    if found is None:
        raise CaptureError(UPSTREAM_MISSING, f'the server\'s log file "{file}" has no number')
    return int(found[1])


class LogPlace:
    """The place in the log up to which a connection has received events.

    ``sequence`` is the sequence number of the file, and ``at`` is the position in the file. Events state only the lower
    32 bits of their end.
    """

    def __init__(self, sequence: int = 0, at: int = 0) -> None:
        self.sequence = sequence
        self.at = at

    def rotate(self, file: str, at: int) -> None:
        """Moves the place to the position ``at`` of another file, or of the same file."""
        self.sequence, self.at = sequence_of(file), at

    def advance(self, end: int) -> int:
        """Moves the place to the end of an event, given its stated end. Returns the number of this position."""
        wraps, last = divmod(self.at, _POSITIONS)
        if end < last:  # After 4 GiB, the stated position begins at 0 again.
            wraps += 1
        self.at = wraps * _POSITIONS + end
        return number_of(self.sequence, self.at)
