"""Finds the next ranges of a run by reading their records, because Kinesis does not list sequence numbers.

This process keeps the records of a range in memory for the batch that reads this range. If newer records have displaced
them from memory, the batch reads them from Kinesis again.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from rw_sql.connectors.base import Stretch
from rw_sql.connectors.kinesis.client import (
    IteratorExpiredError,
    KinesisError,
    address_of,
    iterator_at,
    next_page,
    stream_of,
)
from rw_sql.connectors.kinesis.reader import ANSWER_SECONDS, FETCHED, RangeLostError, require_whole, table_of
from rw_sql.connectors.kinesis.shards import AT_ONCE, ENDED, TAILS, THREADS
from rw_sql.connectors.support.records.range_stream import LostRecordsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.kinesis.client import Address, Page, Shard, Stream

MOST_BYTES = 64 * 1024 * 1024
"""When the records read for the next batch have this size in bytes, the poller reads no further shards for that
batch."""

_LIST_SECONDS = 2.0


@dataclass(slots=True)
class Poller:
    """Reads the shards of one run. Implements :class:`rw_sql.connectors.support.records.range_stream.Stretches`. One
    thread at a time uses a poller.

    The poller reads a shard only after all its parents, because the parents contain the earlier records of the same
    partition keys.
    """

    max_records: int
    stream: Stream | None = None
    listed_at: float = 0.0
    iterators: dict[str, tuple[int, str]] = field(default_factory=dict)
    turn: int = 0

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """The next range of each shard that has new records or has ended. Raises OSError, or LostRecordsError if a
        shard may have lost unread records."""
        address, name = address_of(options), options["stream"]
        try:
            stream = self._listed(address, name, positions)
            ready = self._ready(stream, positions)
            found: list[Stretch] = []
            size = 0
            limit = max(1, min(AT_ONCE, -(-self.max_records // max(1, len(ready)))))
            for first in range(0, len(ready), THREADS):
                some = ready[first : first + THREADS]
                read = partial(self._read, address, name, stream, positions, limit)
                if len(some) == 1:
                    pages = [read(some[0])]
                else:
                    with ThreadPoolExecutor(len(some)) as threads:
                        pages = list(threads.map(read, some))
                for shard, page in zip(some, pages, strict=True):
                    size += sum(len(record.data) for record in page.records)
                    found += self._kept(address, name, stream, shard, positions[shard.id].offset, page)
                if size > MOST_BYTES:
                    break
        except RangeLostError as error:
            self.iterators.clear()
            raise LostRecordsError(str(error), error.split, is_certain=True) from error
        except KinesisError as error:
            self.iterators.clear()
            raise OSError(str(error)) from error
        self.turn += 1
        return tuple(found)

    def _listed(self, address: Address, name: str, positions: Mapping[str, SplitState]) -> Stream:
        """The stream with its shards. Requests them from Kinesis again after _LIST_SECONDS, because shards end, and
        because the stream may be deleted and created again. Raises OSError if a position no longer applies to the
        stream."""
        now = time.monotonic()
        is_old = now - self.listed_at > _LIST_SECONDS
        if self.stream is None or is_old or not positions.keys() <= self.stream.shards.keys():
            self.stream, self.listed_at = stream_of(address, name, ANSWER_SECONDS), now
        stream = self.stream
        for split, state in positions.items():
            # Each of these errors ends the run. When the reader starts again, it makes the same checks and shows the
            # statement that fixes the problem.
            if state.cluster is not None and state.cluster != stream.arn:
                raise OSError(
                    f"OTHER_CLUSTER {split}: the position belongs to {state.cluster}, but the stream is {stream.arn}"
                )
            if state.incarnation is not None and state.incarnation != stream.created:
                raise OSError(
                    f"RECREATED {name}: the stream was deleted, and created again at {stream.created}. "
                    f"The source has read the stream that was created at {state.incarnation}"
                )
            if split not in stream.shards and state.offset != ENDED:
                raise OSError(f"EXPIRED {split}: the shard was removed before it was read completely")
        return stream

    def _ready(self, stream: Stream, positions: Mapping[str, SplitState]) -> list[Shard]:
        """The shards to read in this turn, beginning with a different shard in each turn. The result omits shards that
        were read completely, and shards whose parents were not read completely."""

        def is_read(parent: str) -> bool:
            return parent not in stream.shards or parent not in positions or positions[parent].offset == ENDED

        ready = [
            stream.shards[split]
            for split, state in sorted(positions.items())
            if state.offset != ENDED and all(map(is_read, stream.shards[split].parents))
        ]
        at = self.turn * THREADS % max(1, len(ready))
        return ready[at:] + ready[:at]

    def _read(
        self,
        address: Address,
        name: str,
        stream: Stream,
        positions: Mapping[str, SplitState],
        limit: int,
        shard: Shard,
    ) -> Page:
        offset, began = positions[shard.id].offset, time.time()
        known = self.iterators.get(shard.id)
        is_new = known is None or known[0] != offset
        at = iterator_at(address, name, shard, offset, ANSWER_SECONDS) if known is None or is_new else known[1]
        try:
            page = next_page(address, at, limit, ANSWER_SECONDS)
        except IteratorExpiredError:
            at = iterator_at(address, name, shard, offset, ANSWER_SECONDS)
            page, is_new = next_page(address, at, limit, ANSWER_SECONDS), True
        if is_new:
            # The check follows the read, because records that exist after the read also existed during the read.
            require_whole(address, name, stream, shard, offset)
        if not page.behind_ms and len(page.records) < limit:
            end = page.records[-1].number + 1 if page.records else offset
            TAILS.note_end(address, stream, shard.id, max(offset, end), began)
        return page

    def _kept(self, address: Address, name: str, stream: Stream, shard: Shard, start: int, page: Page) -> list[Stretch]:
        """Keeps a page's new records until a batch reads them. Returns a list with the range of these records; the list
        is empty if the page has no new record and the shard has not ended."""
        records = [record for record in page.records if record.number >= start]
        has_ended = page.next is None or (not shard.is_open and not page.records and page.behind_ms == 0)
        end = ENDED if has_ended else records[-1].number + 1 if records else start
        if page.next is None:
            self.iterators.pop(shard.id, None)
        else:
            self.iterators[shard.id] = (end, page.next)
        if records:
            TAILS.note(address, stream, shard.id, records[-1].number)
        if end == start:
            return []
        FETCHED.put((address, name, shard.id), start, end, table_of(shard, records), stream.created)
        return [Stretch(split=shard.id, start=start, end=end, is_whole=True)]
