"""Fetches small batches of Kafka records in this process.

One consumer reads all partitions and stays open between batches.

Spark's reader uses one consumer, one task and three broker requests per partition and batch. With one or two records
per partition, this overhead takes nearly all of the batch's time.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rw_sql.connectors.kafka.spark_reader import known_time, split_id, split_parts
from rw_sql.connectors.support.records.record_columns import RECORD_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confluent_kafka import Consumer, Message

MOST_BYTES = 32 * 1024 * 1024
"""The maximum size of a batch, in bytes of keys and values.

Spark's reader reads larger batches, because the fetcher holds a whole batch in memory.
"""

_SECONDS = 5.0
_CONNECT_SECONDS = 0.2
_AT_ONCE = 5_000
_WAIT = 0.05


class _GivenUpError(Exception):
    """Raised if Spark's reader should read the batch instead. If there is an error, Spark's reader reports it."""


@dataclass(slots=True)
class KafkaFetcher:
    """A consumer without a group. It returns exactly the requested records, or None.

    ``terms`` are the leader epochs of the last fetch's newest records, by split.
    """

    properties: Mapping[str, str]
    is_read_committed: bool
    with_headers: bool
    terms: Mapping[str, int] = field(default_factory=dict)
    _consumer: Consumer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_closing: bool = False

    def fetch(self, ranges: Mapping[str, tuple[int, int]]) -> pa.Table | None:
        """The records ``[start, end)`` of each split, with the columns of ``Connector.read_stream``.

        Records of the same split are in the order of their offsets.

        Returns None if Spark's reader should read the batch instead: if the first record no longer exists, if the
        brokers do not respond within 5 seconds or report an error, if the batch is too large for memory, or if headers
        are requested.
        """
        import confluent_kafka as ck

        if self.with_headers:
            # For a header whose name is not UTF-8, the client returns a tuple without a name, which crashes Python.
            return None
        wanted = {split_parts(split): bounds for split, bounds in ranges.items() if bounds[1] > bounds[0]}
        with self._lock:
            if self._is_closing:
                return None
            try:
                return self._table(self._read(wanted))
            except (_GivenUpError, ck.KafkaException):
                # After the error, the consumer may be in any state.
                self._drop()
                return None

    def connect(self, splits: Sequence[str]) -> None:
        """Connects to a broker of one of the splits, so that the first fetch is faster.

        Errors and slow answers are ignored; the first fetch reports them.
        """
        if self.with_headers:
            return  # fetch does not use a consumer for records with headers.
        import confluent_kafka as ck

        with self._lock, suppress(ck.KafkaException):
            if splits and not self._is_closing:
                self._open().get_watermark_offsets(ck.TopicPartition(*split_parts(splits[0])), _CONNECT_SECONDS)

    def close(self) -> None:
        """Closes the connections; a fetch in progress ends without a result."""
        self._is_closing = True
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _open(self) -> Consumer:
        import confluent_kafka as ck

        if self._consumer is None:
            self._consumer = ck.Consumer(
                {
                    **self.properties,
                    "group.id": "rw_sql-fetch",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",
                    "isolation.level": "read_committed" if self.is_read_committed else "read_uncommitted",
                    "fetch.wait.max.ms": 5,
                    # Limits the number of prefetched records, because records after the batch are discarded.
                    "queued.max.messages.kbytes": 16384,
                    "log_level": 0,
                }
            )
        return self._consumer

    def _read(self, wanted: Mapping[tuple[str, int], tuple[int, int]]) -> list[Message]:
        import confluent_kafka as ck

        consumer = self._open()
        consumer.assign([ck.TopicPartition(*part, start) for part, (start, _) in wanted.items()])
        waiting = {part: end for part, (_, end) in wanted.items()}
        found: list[Message] = []
        size = 0
        deadline = time.monotonic() + _SECONDS
        while waiting:
            if self._is_closing or time.monotonic() > deadline:
                raise _GivenUpError
            # Requesting several messages would block until all have arrived or the time is over.
            first = consumer.poll(_WAIT)
            for message in () if first is None else (first, *consumer.consume(_AT_ONCE, 0)):
                fault = message.error()
                if fault is not None and fault.code() != ck.KafkaError._PARTITION_EOF:
                    raise _GivenUpError
                part = (str(message.topic()), int(message.partition() or 0))
                end = waiting.get(part)
                if end is None:
                    continue
                at = int(message.offset() or 0)
                if fault is None and at < end:
                    found.append(message)
                    size += len(message.value() or b"") + len(message.key() or b"")
                # The partition's end, or a record after the range, shows that the range has no further record.
                if (at + 1 if fault is None else at) >= end:
                    del waiting[part]
            if size > MOST_BYTES:
                raise _GivenUpError
        consumer.unassign()
        return found

    def _table(self, messages: list[Message]) -> pa.Table:
        columns: dict[str, list[Any]] = {name: [] for name in RECORD_SCHEMA.names}
        epochs: dict[str, int | None] = {}
        for message in messages:
            number = int(message.partition() or 0)
            split = split_id(str(message.topic()), number)
            epochs[split] = message.leader_epoch()
            columns["_rw_split"].append(split)
            columns["_rw_offset"].append(message.offset())
            columns["key"].append(message.key())
            columns["value"].append(message.value())
            columns["partition"].append(str(number))
            at = known_time(message.timestamp()[1])
            columns["timestamp"].append(None if at is None else at * 1000)
            columns["headers"].append(None)
        self.terms = {split: epoch for split, epoch in epochs.items() if epoch is not None and epoch >= 0}
        arrays = [
            pa.array(columns[field_.name], pa.int64()).cast(field_.type)
            if pa.types.is_timestamp(field_.type)
            else pa.array(columns[field_.name], field_.type)
            for field_ in RECORD_SCHEMA
        ]
        return pa.Table.from_arrays(arrays, schema=RECORD_SCHEMA)
