"""Finds the first and the last record of each shard, because Kinesis does not list these records.

To find the newest record of a shard, the module first searches the last seconds, then the last minutes, and so on. The
next search in the shard begins at the record that this search has found. The module searches for the first record only
if the shard may have lost records because of the stream's retention.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from rw_sql.connectors.base import UpstreamSplit
from rw_sql.connectors.kinesis.client import (
    IteratorExpiredError,
    KinesisError,
    NotANumberError,
    iterator,
    iterator_at,
    next_page,
)
from rw_sql.connectors.support.wide_offsets import MOST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rw_sql.connectors.kinesis.client import Address, RawRecord, Shard, Stream

T = TypeVar("T")

ENDED = MOST
"""The end of a closed shard, and the position of a shard that was read completely. All sequence numbers are smaller
than this number."""

AT_ONCE = 10_000
"""The maximum number of records that one request returns. Kinesis also limits the size of a response to 10 MiB."""

_PROBE_BYTES = 16 * 1024
_MOST_PROBED = 100
"""The limits of a request that only determines whether a shard has records: the approximate size of the returned
records in bytes, and the maximum number of these records. After a response of 10 MiB, the shard refuses all requests of
all its consumers for five seconds."""

_PAGE_BYTES, _PAGE_RECORDS = 512 * 1024, 1_000
"""The approximate size in bytes and the maximum number of the records of a request that probably returns all wanted
records. In a second, a shard accepts up to 1,000 written records, but only five read requests."""

THREADS = 8
_WINDOWS_SECONDS = (10, 120, 1_800, 21_600, 86_400, 8_784 * 3_600)
_NARROW_SECONDS = 10.0
"""The bisection of the newest record's age ends when the bounds of the age differ by at most this number of seconds."""

_KEPT = 10_000
_APART_SECONDS, _MOST_ENDS = 900.0, 100
"""The process remembers each shard's end at several times. The two values are the interval between these times in
seconds, and the maximum number of times. Together, these times cover a day."""


LEAST_RETENTION_SECONDS = 23 * 3_600.0
"""The time in seconds for which a record certainly stays in its shard. Kinesis keeps records for 24 hours or more."""


class _Tails:
    """The newest record that this process has seen in each shard. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[Address, str, str, str], int] = {}
        self._ends: dict[tuple[Address, str, str, str], list[tuple[int, float]]] = {}

    def get(self, address: Address, stream: Stream, shard: str) -> int | None:
        with self._lock:
            return self._known.get((address, stream.arn, stream.created, shard))

    def note(self, address: Address, stream: Stream, shard: str, last: int) -> None:
        key = (address, stream.arn, stream.created, shard)
        with self._lock:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[key] = max(last, self._known.get(key, 0))

    def note_end(self, address: Address, stream: Stream, shard: str, end: int, at: float) -> None:
        """Stores that at the time ``at`` (in seconds since 1970), all sequence numbers in the shard were smaller than
        ``end``."""
        key = (address, stream.arn, stream.created, shard)
        with self._lock:
            if len(self._ends) >= _KEPT:
                self._ends.clear()
            seen = self._ends.setdefault(key, [])
            if seen and (seen[-1][0] == end or (len(seen) > 1 and seen[-1][1] < seen[-2][1] + _APART_SECONDS)):
                seen.pop()
            seen.append((end, at))
            del seen[:-_MOST_ENDS]

    def is_whole(self, address: Address, stream: Stream, shard: str, offset: int) -> bool:
        """True if all records at or after ``offset`` arrived so recently that none of them can have been removed."""
        with self._lock:
            seen = tuple(self._ends.get((address, stream.arn, stream.created, shard), ()))
        now = time.time()
        return any(offset >= end and 0.0 <= now - at < LEAST_RETENTION_SECONDS for end, at in seen)

    def forget(self) -> None:
        """Removes all stored records and ends. Afterwards, this process is in the state of a new process."""
        with self._lock:
            self._known.clear()
            self._ends.clear()


TAILS = _Tails()


def bounds(address: Address, name: str, stream: Stream, timeout: float) -> dict[str, UpstreamSplit]:
    """The stream's shards as splits with their bounds. Raises KinesisError."""
    deadline = time.monotonic() + timeout
    return found_in(tuple(stream.shards.values()), partial(_bounds, address, name, stream, deadline))


def found_in(shards: Sequence[Shard], find: Callable[[Shard], T]) -> dict[str, T]:
    """Calls ``find`` with each shard, in several threads. Returns the results by the shards' ids."""
    if len(shards) == 1:
        return {shards[0].id: find(shards[0])}
    with ThreadPoolExecutor(min(THREADS, max(1, len(shards)))) as threads:
        return dict(zip((shard.id for shard in shards), threads.map(find, shards), strict=True))


def is_young(stream: Stream, shard: Shard, retention_ms: float | None = None) -> bool:
    """True if the shard has lost no records because of the retention: the stream is younger than its retention, or
    still lists a parent of the shard.

    A parent is listed until its last record is older than the retention, and all records of the shard are younger than
    this record. ``retention_ms``, if given, is used instead of the stream's retention.
    """
    age = time.time() * 1000 - stream.created_ms
    retention = stream.retention_ms if retention_ms is None else retention_ms
    return age < retention or any(parent in stream.shards for parent in shard.parents)


def is_surely_whole(stream: Stream, shard: Shard) -> bool:
    """True if no record of the shard can have been removed, even if the stream's retention was shorter at an earlier
    time. (Raising the retention does not restore removed records.)"""
    return is_young(stream, shard, min(stream.retention_ms, LEAST_RETENTION_SECONDS * 1000))


def _bounds(address: Address, name: str, stream: Stream, deadline: float, shard: Shard) -> UpstreamSplit:
    def split(start: int, end: int, *, is_empty: bool = False) -> UpstreamSplit:
        return UpstreamSplit(
            split=shard.id,
            start=start,
            end=end,
            cluster=stream.arn,
            incarnation=stream.created,
            is_empty=is_empty,
        )

    first = shard.start
    if not is_young(stream, shard):
        found = first_record(address, name, shard, shard.start, deadline)
        if found is None:
            return split(shard.start, shard.start if shard.is_open else ENDED, is_empty=True)
        first = found
    if not shard.is_open:
        return split(first, ENDED)
    last = _last_record(address, name, stream, shard, deadline)
    return split(first, shard.start, is_empty=True) if last is None else split(first, max(first, last + 1))


def first_record(address: Address, name: str, shard: Shard, offset: int, deadline: float) -> int | None:
    """The number of the first record that exists at or after ``offset``; None if no such record exists."""
    at = iterator_at(address, name, shard, offset, _left(deadline))
    return next((each.number for each in _records(address, at, deadline, 1) if each.number >= offset), None)


def first_at(address: Address, name: str, shard: Shard, milliseconds: int, deadline: float) -> int | None:
    """The number of the first record that arrived at or after ``milliseconds``; None if no such record exists."""
    at = _at_time(address, name, shard, milliseconds / 1000, deadline)
    records = _records(address, at, deadline, 1)
    return next((each.number for each in records if each.at_us >= milliseconds * 1000), None)


def time_of(address: Address, name: str, shard: Shard, offset: int, deadline: float) -> int | None:
    """The time of arrival of the first record at or after ``offset``, in milliseconds since 1970; None if no such
    record exists."""
    at = iterator_at(address, name, shard, offset, _left(deadline))
    return next((each.at_us // 1000 for each in _records(address, at, deadline, 1) if each.number >= offset), None)


def _last_record(address: Address, name: str, stream: Stream, shard: Shard, deadline: float) -> int | None:
    """The number of the newest record of an open shard; None if the shard has no record."""
    known, began = TAILS.get(address, stream, shard.id), time.time()
    if known is not None:
        try:
            at = iterator(
                address,
                name,
                shard.id,
                "AFTER_SEQUENCE_NUMBER",
                _left(deadline),
                StartingSequenceNumber=str(known),
            )
            last = _read_to_the_end(address, at, deadline) or known
        except (NotANumberError, IteratorExpiredError):
            last = None
        if last is not None:
            TAILS.note(address, stream, shard.id, last)
            TAILS.note_end(address, stream, shard.id, last + 1, began)
            return last
    now, oldest = time.time(), (time.time() * 1000 - stream.created_ms) / 1000
    nothing_since = 0.0
    for window in _WINDOWS_SECONDS:
        last = _last_within(address, name, shard, now, (nothing_since, min(window, oldest)), deadline)
        if last is not None:
            TAILS.note(address, stream, shard.id, last)
            TAILS.note_end(address, stream, shard.id, last + 1, began)
            return last
        if window >= oldest:
            break
        nothing_since = window
    return None


def _last_within(
    address: Address, name: str, shard: Shard, now: float, ages: tuple[float, float], deadline: float
) -> int | None:
    """The number of the newest record, if the record's age in seconds is between the two ``ages``. The caller must have
    checked that no record is younger than the first of these two ages.

    A shard returns 2 MB per second, so all records of an hour could not be read within the time limit. The age of the
    newest record is therefore found by bisection, with requests for a few records each.
    """
    younger, older = ages
    last = None
    if older - younger > _NARROW_SECONDS:
        first, _ = _first_page(address, name, shard, now - older, 1, deadline)
        if first is None:
            return None
        # If the shard has got few records since then, one page of moderate size reaches the newest record. Bisection
        # would make more requests than a shard accepts within two seconds.
        size = max(1, len(first.data))
        most = max(1, min(_PAGE_RECORDS, AT_ONCE, _PAGE_BYTES // size))
        found, is_end = _first_page(address, name, shard, now - older, most, deadline)
        last = first.number if found is None else found.number
        if is_end:
            return last
        if found is not None:
            older = max(younger, min(older, now - found.at_us / 1e6))
        limit = max(1, min(_MOST_PROBED, AT_ONCE, _PROBE_BYTES // size))
    while older - younger > _NARROW_SECONDS:
        middle = (younger + older) / 2
        found, is_end = _first_page(address, name, shard, now - middle, limit, deadline)
        if found is None:
            younger = middle
            continue
        if is_end:
            return found.number
        older, last = max(younger, min(middle, now - found.at_us / 1e6)), found.number
    return _read_to_the_end(address, _at_time(address, name, shard, now - older, deadline), deadline) or last


def _first_page(
    address: Address, name: str, shard: Shard, seconds: float, limit: int, deadline: float
) -> tuple[RawRecord | None, bool]:
    """Returns the last record of the first page that contains records from ``seconds`` (since 1970) or later; None if
    there are no such records. The second value is True if the page reaches the shard's newest record. A page has at
    most ``limit`` records."""
    next_at: str | None = _at_time(address, name, shard, seconds, deadline)
    while next_at is not None:
        page = next_page(address, next_at, limit, _left(deadline))
        is_end = page.next is None or not (page.behind_ms or len(page.records) >= limit)
        if page.records or is_end:
            return (page.records[-1] if page.records else None), is_end
        next_at = page.next
    return None, True


def _at_time(address: Address, name: str, shard: Shard, seconds: float, deadline: float) -> str:
    moment = datetime.fromtimestamp(max(0.0, seconds), UTC)
    return iterator(address, name, shard.id, "AT_TIMESTAMP", _left(deadline), Timestamp=moment)


def _read_to_the_end(address: Address, at: str, deadline: float) -> int | None:
    """Reads to the newest record and returns its sequence number; None if there is no record."""
    last = None
    for record in _records(address, at, deadline):
        last = record.number
    return last


def _records(address: Address, at: str, deadline: float, limit: int | None = None) -> Iterator[RawRecord]:
    """The records from an iterator up to the newest record. ``limit`` is the maximum number of records of the first
    request that returns a record. Later requests return more records, because a shard accepts few requests per second.
    (Old versions of botocore send times in whole seconds, so the first records may be too old for the caller.)

    The function ends after the page that reaches the newest record. Otherwise, the function would never end in a shard
    that gets records all the time.
    """
    next_at: str | None = at
    most = AT_ONCE if limit is None else limit
    while next_at is not None:
        page = next_page(address, next_at, most, _left(deadline))
        yield from page.records
        next_at = page.next if page.behind_ms or len(page.records) >= most else None
        most = max(most, min(_PAGE_RECORDS, AT_ONCE)) if page.records else most


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise KinesisError("the service does not answer in time")
    return left
