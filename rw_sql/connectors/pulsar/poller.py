"""Finds the next ranges of a run by reading their messages, because a broker does not list message ids.

This process keeps the messages of a range in memory for the batch that reads this range. If newer messages have
displaced them from memory, the batch reads them from the broker again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from rw_sql.connectors.base import Stretch
from rw_sql.connectors.pulsar.bounds import TAILS, THREADS
from rw_sql.connectors.pulsar.client import PulsarError, address_of
from rw_sql.connectors.pulsar.reader import (
    FETCHED,
    PAGE_MESSAGES,
    PartitionReader,
    RangeLostError,
    fetched_key,
    table_of,
)
from rw_sql.connectors.pulsar.subscriptions import Subscriptions
from rw_sql.connectors.support.records.range_stream import LostRecordsError, RangeFeed
from rw_sql.connectors.support.wide_offsets import MOST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.pulsar.client import Address
    from rw_sql.connectors.pulsar.reader import RawMessage

_MOST_BYTES = 64 * 1024 * 1024
"""When the messages read for the next batch have this size in bytes, the poller reads no further partitions for that
batch."""


class Poller:
    """Reads the partitions of one run. Implements
    :class:`rw_sql.connectors.support.records.range_stream.Stretches`. One thread at a time uses a poller."""

    def __init__(self, *, max_records: int, is_compacted: bool) -> None:
        self._max_records, self._is_compacted = max_records, is_compacted
        self._readers: dict[str, PartitionReader] = {}
        self._turn = 0

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """The next range of each partition that has new messages. Raises OSError, or LostRecordsError if a partition
        may have lost unread messages."""
        address = address_of(options)
        splits = sorted(positions)
        at = self._turn * THREADS % max(1, len(splits))
        splits = splits[at:] + splits[:at]
        most = max(1, min(PAGE_MESSAGES, -(-self._max_records // max(1, len(splits)))))
        found: list[Stretch] = []
        size = 0
        read = partial(self._read, address, positions, most)
        try:
            for first in range(0, len(splits), THREADS):
                some = splits[first : first + THREADS]
                for split, messages in zip(some, _all(read, some), strict=True):
                    size += sum(len(message.data or b"") for message in messages)
                    if messages:
                        found.append(self._kept(address, split, positions[split].offset, messages))
                if size > _MOST_BYTES:
                    break
        except RangeLostError as error:
            self.close()
            raise LostRecordsError(str(error), error.split, is_certain=error.is_certain) from error
        except PulsarError as error:
            self.close()
            raise OSError(str(error)) from error
        self._turn += 1
        return tuple(found)

    def close(self) -> None:
        """Closes all readers. Raises no error."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _read(self, address: Address, positions: Mapping[str, SplitState], most: int, split: str) -> list[RawMessage]:
        reader = self._readers.get(split)
        if reader is None:
            reader = self._readers[split] = PartitionReader(address, split, is_compacted=self._is_compacted)
        return reader.page(positions[split].offset, most)

    def _kept(self, address: Address, split: str, start: int, messages: Sequence[RawMessage]) -> Stretch:
        """Keeps the messages of a page until a batch reads them, and returns the range of these messages."""
        last = messages[-1].offset
        TAILS.note(address, split, last)
        key = fetched_key(address, split, is_compacted=self._is_compacted)
        FETCHED.put(key, start, last + 1, table_of(split, messages))
        return Stretch(split=split, start=start, end=last + 1, is_whole=True)


def _all(read: partial[list[RawMessage]], splits: Sequence[str]) -> list[list[RawMessage]]:
    if len(splits) == 1:
        return [read(splits[0])]
    with ThreadPoolExecutor(len(splits)) as threads:
        return list(threads.map(read, splits))


class PulsarFeed(RangeFeed):
    """Finds the ranges of offsets that a run reads, by reading messages. Acknowledges committed messages."""

    def __init__(
        self,
        options: Mapping[str, str],
        positions: Mapping[str, SplitState],
        *,
        subscription: str,
        max_records: int,
        is_compacted: bool,
        poll_seconds: float,
    ) -> None:
        self._poller = Poller(max_records=max_records, is_compacted=is_compacted)
        self._subscriptions = Subscriptions(address_of(options), subscription)
        try:
            # Subscribes before the first message is read, so that the broker keeps all messages from then on.
            self._subscriptions.open({split: state.offset for split, state in positions.items()})
            first = self._poller.stretches(options, positions)
        except PulsarError as error:
            raise OSError(str(error)) from error
        except BaseException:
            self._subscriptions.close()
            raise
        super().__init__(self._poller, options, positions, first, most_offsets=MOST**2, poll_seconds=poll_seconds)

    def committed(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Acknowledges the committed messages, except those in the entry of the last one (see ``subscriptions``)."""
        # A commit names all partitions, even those without new messages.
        self._subscriptions.acknowledge({split: end for split, (start, end) in ranges.items() if end > start})

    def close(self) -> None:
        """Ends the thread and the connections."""
        super().close()
        self._subscriptions.close()
        if self._add is None:  # The thread, which closes the readers when it ends, was never started.
            self._poller.close()

    def _run(self) -> None:
        try:
            super()._run()
        finally:
            self._poller.close()
