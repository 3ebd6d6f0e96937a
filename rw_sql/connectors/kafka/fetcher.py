"""Fetches small batches of Kafka records in this process.

One consumer reads all partitions and stays open between batches. Either it follows all partitions of a source, which
means that it fetches new records continuously, or it reads the ranges of each batch on request.

In contrast, Spark's reader uses one consumer, one task and three broker requests per partition and batch. If a batch
has one or two records per partition, this overhead takes nearly all of the batch's time.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from rw_sql.connectors.kafka.groups import GROUP, is_refused_group
from rw_sql.connectors.kafka.spark_reader import known_time, split_id, split_parts
from rw_sql.connectors.support.records.record_columns import RECORD_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confluent_kafka import Consumer, Message

T = TypeVar("T")

MOST_BYTES = 32 * 1024 * 1024
"""The maximum size of a batch, in bytes of keys and values.

Spark's reader reads larger batches, because the fetcher holds a whole batch in memory.
"""

_SECONDS = 5.0
_CONNECT_SECONDS = 0.2
_AT_ONCE = 5_000
_WAIT = 0.05

_FETCH_WAIT_MS = 50
"""The time in milliseconds after which the broker responds to a fetch request although it has no records. A consumer
that has read all its partitions to their ends sends requests at this interval. If the last offset of a range has a
transaction marker instead of a record, the consumer notices the end of the range with a delay of up to this time."""


_Part = tuple[str, int]
"""A partition: its topic and its number."""


class _GivenUpError(Exception):
    """Raised if Spark's reader should read the batch instead. If the brokers report an error, Spark's reader reports
    it."""


@dataclass(slots=True)
class _Received:
    """The messages that a consumer has delivered but that no fetch has returned yet. The messages of each partition are
    in the order of their offsets.

    ``starts`` are the offsets of the first records of the next fetch, by partition. Records at or after the offsets in
    ``limits`` are not kept.
    """

    starts: dict[_Part, int]
    limits: Mapping[_Part, int] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    size: int = 0
    ends: dict[_Part, int] = field(default_factory=dict)
    """For each partition that has advanced beyond its start: the offset before which all records have been
    delivered."""

    def add(self, message: Message) -> None:
        """Adds a record or the end of a partition. If the message is an error, raises _GivenUpError, unless the error
        concerns only the consumer group."""
        import confluent_kafka as ck

        part, fault, at = _part_of(message), message.error(), int(message.offset() or 0)
        if fault is not None and fault.code() != ck.KafkaError._PARTITION_EOF:
            if is_refused_group(fault):
                return
            raise _GivenUpError
        if part not in self.starts:
            return
        end = at
        if fault is None:
            end = at + 1
            limit = self.limits.get(part)
            if limit is None or at < limit:
                self.messages.append(message)
                self.size += _size_of(message)
        if end > self.starts[part]:
            self.ends[part] = max(end, self.ends.get(part, 0))

    def take(self, wanted: Mapping[_Part, tuple[int, int]]) -> list[Message]:
        """Removes and returns the delivered records of the ranges. The records after the ranges are kept."""
        taken: list[Message] = []
        left: list[Message] = []
        for message in self.messages:
            bounds = wanted.get(_part_of(message))
            is_before_end = bounds is not None and int(message.offset() or 0) < bounds[1]
            (taken if is_before_end else left).append(message)
        self.messages, self.size = left, sum(map(_size_of, left))
        self.starts |= {part: end for part, (_, end) in wanted.items()}
        self.ends = {part: end for part, end in self.ends.items() if end > self.starts[part]}
        return taken


@dataclass(slots=True)
class KafkaFetcher:
    """A fetcher whose consumer commits nothing. The fetcher returns exactly the requested records, or None.

    ``terms`` maps each split of the last fetch to the leader epoch of the split's newest record.
    """

    properties: Mapping[str, str]
    is_read_committed: bool
    with_headers: bool
    terms: Mapping[str, int] = field(default_factory=dict)
    _consumer: Consumer | None = None
    _received: _Received | None = None
    """The messages of the followed partitions; None while the fetcher does not follow any partitions."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_closing: bool = False

    def fetch(self, ranges: Mapping[str, tuple[int, int]]) -> pa.Table | None:
        """Fetches the records ``[start, end)`` of each split, with the columns of ``Connector.read_stream``.

        Records of the same split are in the order of their offsets.

        Returns None if Spark's reader should read the batch instead. There are four such cases: the first record does
        not exist any more, the brokers do not respond within 5 seconds or report an error, the batch is too large (see
        MOST_BYTES), or the source reads the headers of records.
        """
        if self.with_headers:
            # For a header whose name is not UTF-8, the client returns a tuple without a name, which crashes Python.
            return None
        wanted = {split_parts(split): bounds for split, bounds in ranges.items() if bounds[1] > bounds[0]}
        return self._try(lambda: self._table(self._read(wanted)))

    def connect(self, splits: Sequence[str]) -> None:
        """Connects to a broker of one of the splits. The first fetch is then faster.

        This method ignores errors and slow responses, because the first fetch reports errors.
        """
        if self.with_headers:
            return  # fetch does not use a consumer for records with headers.
        import confluent_kafka as ck

        with self._lock, suppress(ck.KafkaException):
            if splits and not self._is_closing:
                self._open().get_watermark_offsets(ck.TopicPartition(*split_parts(splits[0])), _CONNECT_SECONDS)

    @property
    def can_follow(self) -> bool:
        """True if the fetcher can follow partitions. False for records with headers, because only Spark's reader can
        read headers."""
        return not self.with_headers

    def follow(self, positions: Mapping[str, int]) -> None:
        """Assigns all partitions to the consumer, each from its position. Does nothing if the consumer already follows
        these partitions from these positions."""
        starts = {split_parts(split): offset for split, offset in positions.items()}

        def assign() -> None:
            if self._received is None or self._received.starts != starts:
                self._assign(starts)
                self._received = _Received(starts)

        self._try(assign)

    def arrived(self, seconds: float, *, most: int) -> Mapping[str, int] | None:
        """Waits at most ``seconds`` for new records of the followed partitions. Stops waiting when the fetcher holds
        more than ``most`` records. For each split that has advanced, returns the offset before which all records have
        been delivered. Returns None if the consumer fails."""
        return self._try(lambda: self._arrived(seconds, most))

    def unfollow(self) -> None:
        """Stops following the partitions. Closes the consumer, and discards the delivered records. Does nothing if no
        partitions are followed."""
        with self._lock:
            if self._received is not None:
                self._drop()

    def close(self) -> None:
        """Closes the connections. A fetch in progress returns None."""
        self._is_closing = True
        with self._lock:
            self._drop()

    def _try(self, act: Callable[[], T]) -> T | None:
        """Calls ``act`` and returns its result. If the call shows that Spark's reader should read the batch, closes the
        consumer and returns None."""
        import confluent_kafka as ck

        with self._lock:
            if self._is_closing:
                return None
            try:
                return act()
            except (_GivenUpError, ck.KafkaException):
                # After the error, the consumer may be in any state.
                self._drop()
                return None

    def _drop(self) -> None:
        self._received = None
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _open(self) -> Consumer:
        import confluent_kafka as ck

        if self._consumer is None:
            self._consumer = ck.Consumer(consumer_properties(self.properties, is_read_committed=self.is_read_committed))
        return self._consumer

    def _assign(self, starts: Mapping[_Part, int]) -> None:
        import confluent_kafka as ck

        self._received = None
        self._open().assign([ck.TopicPartition(*part, start) for part, start in starts.items()])

    def _poll(self, received: _Received, seconds: float) -> bool:
        """Receives the messages that have arrived, or waits for the first message; returns False if no message
        arrives."""
        consumer = self._open()
        # Requesting several messages would block until all have arrived or the time is over.
        first = consumer.poll(seconds)
        for message in () if first is None else (first, *consumer.consume(_AT_ONCE, 0)):
            received.add(message)
        return first is not None

    def _arrived(self, seconds: float, most: int) -> dict[str, int]:
        received = self._received
        if received is None:
            raise _GivenUpError
        while len(received.messages) <= most and received.size <= MOST_BYTES:
            if not self._poll(received, 0.0 if received.ends else seconds):
                break
        return {split_id(*part): end for part, end in received.ends.items()}

    def _read(self, wanted: Mapping[_Part, tuple[int, int]]) -> list[Message]:
        starts = {part: start for part, (start, _) in wanted.items()}
        received = self._received
        follows = received is not None and starts.items() <= received.starts.items()
        if received is None or not follows:
            self._assign(starts)
            received = _Received(starts, {part: end for part, (_, end) in wanted.items()})
        deadline = time.monotonic() + _SECONDS
        # The partition's end, or a record after the range, shows that the range has no further record.
        while any(received.ends.get(part, 0) < end for part, (_, end) in wanted.items()):
            if self._is_closing or time.monotonic() > deadline or received.size > 2 * MOST_BYTES:
                raise _GivenUpError
            self._poll(received, _WAIT)
        found = received.take(wanted)
        if not follows:
            self._open().unassign()
            if sum(map(_size_of, found)) > MOST_BYTES:
                raise _GivenUpError
        return found

    def _table(self, messages: list[Message]) -> pa.Table:
        epochs = {split_id(*_part_of(message)): message.leader_epoch() for message in messages}
        self.terms = {split: epoch for split, epoch in epochs.items() if epoch is not None and epoch >= 0}
        return table_of(messages)


def consumer_properties(properties: Mapping[str, str], *, is_read_committed: bool) -> dict[str, Any]:
    """The properties of a consumer that reads only assigned partitions. The consumer group is GROUP, unless
    ``properties`` contains ``group.id``."""
    return {
        "group.id": GROUP,
        **properties,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed" if is_read_committed else "read_uncommitted",
        "fetch.wait.max.ms": _FETCH_WAIT_MS,
        # Limits the memory for prefetched records.
        "queued.max.messages.kbytes": 16384,
        "log_level": 0,
    }


def table_of(messages: Sequence[Message]) -> pa.Table:
    """The records as a table, without their headers."""
    columns: dict[str, list[Any]] = {name: [] for name in RECORD_SCHEMA.names}
    for message in messages:
        topic, number = _part_of(message)
        columns["_rw_split"].append(split_id(topic, number))
        columns["_rw_offset"].append(message.offset())
        columns["key"].append(message.key())
        columns["value"].append(message.value())
        columns["partition"].append(str(number))
        at = known_time(message.timestamp()[1])
        columns["timestamp"].append(None if at is None else at * 1000)
        columns["headers"].append(None)
    arrays = [
        pa.array(columns[field_.name], pa.int64()).cast(field_.type)
        if pa.types.is_timestamp(field_.type)
        else pa.array(columns[field_.name], field_.type)
        for field_ in RECORD_SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=RECORD_SCHEMA)


def _part_of(message: Message) -> _Part:
    return str(message.topic()), int(message.partition() or 0)


def _size_of(message: Message) -> int:
    return len(message.value() or b"") + len(message.key() or b"")
