"""Reads ranges of a shard's sequence numbers as Arrow tables. A range can be read again until its records expire."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa

from rw_sql.connectors.kinesis.aggregation import MAGIC, unpacked
from rw_sql.connectors.kinesis.client import (
    IteratorExpiredError,
    KinesisError,
    iterator_at,
    next_page,
    stream_of,
)
from rw_sql.connectors.kinesis.shards import AT_ONCE, ENDED, TAILS, first_record, is_surely_whole, is_young
from rw_sql.connectors.support.records.fetched_ranges import FetchedRanges
from rw_sql.connectors.support.records.record_columns import HEADERS, record_ddl, record_schema
from rw_sql.connectors.support.wide_offsets import offset_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rw_sql.connectors.kinesis.client import Address, Page, RawRecord, Shard, Stream

ANSWER_SECONDS = 60.0
"""The time limit in seconds for a request with all its retries."""

SCHEMA = record_schema(pa.string())
"""The Arrow schema of records: the columns of ``Connector.read_stream``, with the offset as text."""

RECORDS = record_ddl(SCHEMA)
"""The schema of records as Spark's DDL."""


class RangeLostError(KinesisError):
    """Raised if records of the range were removed before they were read, or if the stream was re-created. ``split`` is
    the shard."""

    def __init__(self, message: str, split: str) -> None:
        super().__init__(message)
        self.split = split


def read_range(
    address: Address, name: str, split: str, start: int, end: int, created: str | None = None
) -> Iterator[pa.Table]:
    """Reads the records of a shard in ``[start, end)``, in the order of their sequence numbers, one table per page.
    ``created`` is the expected creation time of the stream; None accepts any.

    Raises RangeLostError if some of the records no longer exist, and KinesisError if the service does not respond.
    """
    if end <= start:
        return
    stream = stream_of(address, name, ANSWER_SECONDS)
    if created is not None and stream.created != created:
        raise RangeLostError(
            f"RECREATED {name}: the stream was deleted, and created again at {stream.created}. "
            f"The source has read the stream that was created at {created}",
            split,
        )
    shard = stream.shards.get(split)
    if shard is None:
        raise RangeLostError(f"EXPIRED {split}: the shard and all its records were removed", split)
    at = start
    is_checked = is_passed = False
    for page in _pages(address, name, shard, start, end):
        if not is_checked:
            require_whole(address, name, stream, shard, start)
            is_checked = True
        records = [record for record in page.records if start <= record.number < end]
        if records:
            at = records[-1].number + 1
            yield table_of(shard, records)
        is_passed = is_passed or any(record.number >= end for record in page.records)
    # The end of a range is one more than the number of the last record in the range, or the number of the first record
    # after the range.
    if end != ENDED and at != end and not is_passed:
        raise RangeLostError(f"EXPIRED {split}: record {end - 1} was removed before it was read", split)


def require_whole(address: Address, name: str, stream: Stream, shard: Shard, offset: int) -> None:
    """Checks that no record at or after ``offset`` was removed. Raises RangeLostError.

    Without this check, Kinesis would silently begin at the oldest remaining record. Kinesis removes the oldest records
    first. Therefore, if a record before the offset still exists, no record after the offset was removed. The check
    makes no request if it is known that no such record can be older than the retention.
    """
    is_new = is_surely_whole(stream, shard) if offset > shard.start else is_young(stream, shard)
    if is_new or TAILS.is_whole(address, stream, shard.id, offset):
        return
    first = first_record(address, name, shard, shard.start, time.monotonic() + ANSWER_SECONDS)
    if first is None and offset > shard.start:
        raise RangeLostError(
            f"EXPIRED {shard.id}: the shard has no records now, so records after the position {offset} may have been "
            "removed",
            shard.id,
        )
    if first is not None and first > offset:
        raise RangeLostError(
            f"EXPIRED {shard.id}: the shard's first record is {first}, after the position {offset}", shard.id
        )


def _pages(address: Address, name: str, shard: Shard, start: int, end: int) -> Iterator[Page]:
    """The pages of a range, up to the page that reaches the end of the range or of the shard."""
    at = iterator_at(address, name, shard, start, ANSWER_SECONDS)
    position = start
    while True:
        try:
            page = next_page(address, at, AT_ONCE, ANSWER_SECONDS)
        except IteratorExpiredError:
            at = iterator_at(address, name, shard, position, ANSWER_SECONDS)
            continue
        yield page
        if page.records:
            position = page.records[-1].number + 1
        is_at_end = not page.records and page.behind_ms == 0
        if position >= end or page.next is None or is_at_end:
            return
        at = page.next


def table_of(shard: Shard, records: Sequence[RawRecord]) -> pa.Table:
    """Returns the records as a table. If a record packs several user records, the table contains the user records
    instead of that record.

    The table omits a packed user record whose hash key belongs to another shard, because the producer sends that user
    record to the other shard again.
    """
    offsets: list[str] = []
    keys: list[bytes] = []
    values: list[bytes] = []
    times: list[int] = []
    for record in records:
        offset = offset_text(record.number)
        packed = unpacked(record.data) if record.data.startswith(MAGIC) else None
        if packed is None:
            offsets.append(offset)
            keys.append(record.key.encode())
            values.append(record.data)
            times.append(record.at_us)
            continue
        for index, each in enumerate(packed):
            if shard.low <= each.hash_key <= shard.high:
                offsets.append(f"{offset}/{index:06d}")
                keys.append(each.key.encode())
                values.append(each.data)
                times.append(record.at_us)
    count = len(offsets)
    return pa.Table.from_arrays(
        [
            pa.array([shard.id] * count, pa.string()),
            pa.array(offsets, pa.string()),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array([shard.id] * count, pa.string()),
            pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            pa.nulls(count, HEADERS),
        ],
        schema=SCHEMA,
    )


FETCHED = FetchedRanges(SCHEMA, 256 * 1024 * 1024)
