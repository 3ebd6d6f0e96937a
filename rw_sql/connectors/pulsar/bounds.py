"""Finds the first and the last message of a partition. Because the broker does not list message ids, this module reads
messages to find them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import UpstreamSplit
from rw_sql.connectors.pulsar.client import NothingError, next_message, reader_at, repeated, told
from rw_sql.connectors.pulsar.ids import BEGINNING, entry_of, offset_of
from rw_sql.connectors.pulsar.names import full_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.connectors.pulsar.client import Address

ANSWER_SECONDS = 8.0
THREADS = 8
_WAIT_SECONDS = 1.0
_WINDOWS_SECONDS = (10, 600, 86_400)
_KEPT = 10_000


class _Tails:
    """The last message that this process has read in each partition. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[Address, str], int] = {}

    def get(self, address: Address, split: str) -> int | None:
        with self._lock:
            return self._known.get((address, split))

    def note(self, address: Address, split: str, last: int) -> None:
        with self._lock:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[address, split] = last


TAILS = _Tails()


def bounds(address: Address, splits: Iterable[str]) -> dict[str, UpstreamSplit]:
    """The partitions as splits with their bounds. Raises PulsarError.

    The call has no time limit for all partitions together: each request has its own limit.
    """
    names = tuple(splits)
    failed: list[Exception] = []
    with ThreadPoolExecutor(min(THREADS, max(1, len(names)))) as threads:
        return {split.split: split for split in threads.map(partial(_bounds_or_fail, address, failed), names)}


def _bounds_or_fail(address: Address, failed: list[Exception], split: str) -> UpstreamSplit:
    """The bounds of a partition. If ``failed`` contains an earlier failure, raises this failure and makes no request.
    Adds a new failure to ``failed``."""
    if failed:
        raise failed[0]
    try:
        return _bounds(address, split)
    except Exception as error:
        failed.append(error)
        raise


def _bounds(address: Address, split: str) -> UpstreamSplit:
    first = first_message(address, split)
    if first is None:
        return UpstreamSplit(split=split, start=BEGINNING, end=BEGINNING, is_empty=True, has_open_start=True)
    last = last_message(address, split, first)
    return UpstreamSplit(split=split, start=first, end=max(first, last + 1), has_open_start=True)


@repeated
def first_message(address: Address, split: str) -> int | None:
    """The offset of the oldest existing message; None if the partition has no message."""
    import pulsar

    with reader_at(address, full_name(split), pulsar.MessageId.earliest, queue=10) as reader:
        try:
            return _offset(next_message(address, reader, ANSWER_SECONDS))
        except NothingError:
            return None


@repeated
def last_message(address: Address, split: str, first: int) -> int:
    """The offset of the newest message. ``first`` is the offset of an existing message. If no faster method finds the
    newest message, all messages from ``first`` or from the last known message on are read."""
    import pulsar

    known = TAILS.get(address, split)
    with reader_at(address, full_name(split), pulsar.MessageId.latest, queue=100) as reader:
        found = _read_to_end(address, reader)
        if found is not None:
            TAILS.note(address, split, found)
            return found
        # The partition's last entry is a part of an incomplete message, or not a message at all. A search by time finds
        # the last message before that entry.
        for window in _WINDOWS_SECONDS:
            with told(address):
                reader.seek(int((time.time() - window) * 1000))
            found = _read_to_end(address, reader)
            if found is not None:
                TAILS.note(address, split, found)
                return found
    at = entry_of(known if known is not None and known > first else first)
    start = pulsar.MessageId(-1, at.ledger, at.entry, -1)
    with reader_at(address, full_name(split), start, queue=1000) as reader:
        found = _read_to_end(address, reader)
    found = first if found is None else found
    TAILS.note(address, split, found)
    return found


@repeated
def first_at(address: Address, split: str, milliseconds: int) -> int | None:
    """The offset of the first message that was published at or after ``milliseconds``; None if no such message
    exists."""
    import pulsar

    with reader_at(address, full_name(split), pulsar.MessageId.latest, queue=100) as reader:
        with told(address):
            reader.seek(milliseconds)
        while True:
            try:
                message = next_message(address, reader, _WAIT_SECONDS)
            except NothingError:
                return None
            if message is None or message.publish_timestamp() >= milliseconds:
                return _offset(message)


@repeated
def time_of(address: Address, split: str, offset: int) -> int | None:
    """The publish time of the first message at or after ``offset``, in milliseconds since 1970; None if no such message
    exists."""
    import pulsar

    at = entry_of(offset)
    start: Any = pulsar.MessageId.earliest
    if offset != BEGINNING:
        start = pulsar.MessageId(-1, at.ledger, at.entry, -1)
    with reader_at(address, full_name(split), start, queue=10) as reader:
        while True:
            try:
                message = next_message(address, reader, _WAIT_SECONDS)
            except NothingError:
                return None
            if message is None:
                return None
            if (_offset(message) or 0) >= offset:
                return int(message.publish_timestamp())


def _read_to_end(address: Address, reader: Any) -> int | None:
    found = None
    while True:
        try:
            message = next_message(address, reader, _WAIT_SECONDS)
        except NothingError:
            return found
        if message is None:
            return found
        found = _offset(message)


def _offset(message: Any) -> int | None:
    if message is None:
        return None
    id_ = message.message_id()
    return offset_of(id_.ledger_id(), id_.entry_id(), id_.batch_index())
