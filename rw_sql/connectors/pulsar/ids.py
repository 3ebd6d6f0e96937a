"""Represents message ids as offsets. An offset is a whole number of up to 48 digits. Offsets have the order of the
message ids.

From left to right, the digits are the ledger, 19 digits for the entry, and 10 digits for the message's place in the
entry's batch. If a message was sent alone, its place is 0. The position N denotes the first message whose offset is at
least N.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PLACES = 10**10
_ENTRIES = 10**19
_TEXT = re.compile(r"([0-9]{1,19}):([0-9]{1,19})(?::(-1|[0-9]{1,9}))?(?::(-1|[0-9]{1,9}))?")

BEGINNING = 0
"""The position before the first message of any topic."""

_MOST = 2**63


@dataclass(frozen=True, slots=True, order=True)
class EntryId:
    """An entry of a ledger: one message, or a batch of messages."""

    ledger: int
    entry: int


def offset_of(ledger: int, entry: int, place: int) -> int:
    """The offset of a message. ``place`` is the message's index in its batch; -1 if the message was sent alone."""
    return (ledger * _ENTRIES + entry) * _PLACES + max(0, place)


def entry_of(offset: int) -> EntryId:
    """The entry that contains ``offset``."""
    whole = offset // _PLACES
    return EntryId(whole // _ENTRIES, whole % _ENTRIES)


def place_of(offset: int) -> int:
    """The index that the message with this offset has in its batch; 0 if the message was sent alone."""
    return offset % _PLACES


def is_offset(number: int) -> bool:
    """True if the ledger and the entry in ``number`` are valid for a broker, which means that both are non-negative
    64-bit integers."""
    entry = entry_of(number)
    return entry.ledger < _MOST and entry.entry < _MOST


def offset_from_text(text: str) -> int | None:
    """The offset that ``text`` denotes in the form ``ledger:entry``, ``ledger:entry:partition`` or
    ``ledger:entry:partition:batch``; None for any other string."""
    match = _TEXT.fullmatch(text)
    if match is None or int(match[1]) >= _MOST or int(match[2]) >= _MOST:
        return None
    return offset_of(int(match[1]), int(match[2]), int(match[4] or -1))
