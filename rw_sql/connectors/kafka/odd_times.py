"""Reads records with timestamps that Spark's reader cannot represent.

A producer may wrongly write nanoseconds as a timestamp, which Kafka defines in milliseconds. Spark's reader converts
the timestamp of each record to microseconds, whether or not a query selects the timestamp, and fails if the number of
microseconds has more than 64 bits. From the first such record of a partition on, all records of the partition are
therefore read with librdkafka, in Spark's Python processes. A timestamp that Spark's reader cannot represent becomes
NULL.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.fetching import UnreadableRecordError
from rw_sql.connectors.kafka.groups import is_refused_group
from rw_sql.connectors.kafka.spark_reader import split_parts

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    import pyarrow as pa
    from confluent_kafka import Message
    from pyspark.sql import DataFrame, SparkSession

FIRST_MS = (2**63 - 1) // 1000 + 1
"""The first timestamp that Spark's reader cannot represent. For each partition, a broker can report the first record
with this timestamp or a later timestamp."""

_PART_OFFSETS = 100_000
_AT_ONCE = 5_000
_POLL_SECONDS = 0.5
_SILENT_SECONDS = 60.0


def cut(
    ranges: Mapping[str, tuple[int, int]], odd: Mapping[str, int]
) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    """Divides each range at the first record whose timestamp Spark's reader cannot represent. Returns the parts before
    these records, and the parts that begin with these records. ``odd`` maps the splits to the offsets of these
    records."""
    before: dict[str, tuple[int, int]] = {}
    after: dict[str, tuple[int, int]] = {}
    for split, (start, end) in ranges.items():
        at = min(max(start, odd.get(split, end)), end)
        if at > start or split not in odd:
            before[split] = (start, at)
        if at < end:
            after[split] = (at, end)
    return before, after


def require_none(
    properties: Mapping[str, str],
    ranges: Mapping[str, tuple[int, int]],
    odd: Mapping[str, int],
    reader: str,
    *,
    is_read_committed: bool,
) -> None:
    """Raises UnreadableRecordError if a range contains a record with a timestamp that Spark's reader cannot represent,
    because the reader would fail at this record. ``odd`` has the same meaning as in :func:`cut`. A range that the
    brokers do not deliver is skipped, because Spark's reader then reports the reason.

    ``properties`` are the properties of librdkafka. ``reader`` is the subject of the error message: the object that
    needs Spark's reader.
    """
    parts = KafkaPartReader(is_read_committed=is_read_committed)
    for split, first in sorted(odd.items()):
        start, end = ranges[split]
        at: int | None = first
        if first < start:  # The brokers report only the first such record of the partition.
            try:
                at = parts.first_odd(properties, (split, start, end))
            except OSError:
                continue  # Spark's reader then reports the reason.
        if at is not None and at < end:
            why = f"the timestamp of the record at offset {at} has more digits than Spark's reader accepts"
            raise UnreadableRecordError(split, at, f"{why}, and {reader} needs that reader")


def read_batch(
    spark: SparkSession,
    properties: Mapping[str, str],
    ranges: Mapping[str, tuple[int, int]],
    *,
    is_read_committed: bool,
) -> DataFrame:
    """The records of these ranges, with the columns of ``Connector.read_stream``. ``properties`` are the properties of
    librdkafka."""
    from rw_sql.connectors.support.records.record_columns import RECORDS
    from rw_sql.connectors.support.table_reader import read_parts

    parts = [
        (split, at, min(at + _PART_OFFSETS, end))
        for split, (start, end) in ranges.items()
        for at in range(start, end, _PART_OFFSETS)
    ]
    reader = KafkaPartReader(is_read_committed=is_read_committed)
    return read_parts(spark, reader, without_files(properties), parts, RECORDS)


def without_files(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of librdkafka, with the text of certificates and keys in place of the names of their
    files. The executors do not necessarily have these files. Raises OSError if a file cannot be read."""
    made = dict(properties)
    for part in ("ca", "certificate", "key"):
        path = made.pop(f"ssl.{part}.location", None)
        if path is not None:
            made[f"ssl.{part}.pem"] = Path(path.strip()).read_text(encoding="utf-8")
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPartReader:
    """Reads parts ``(split, start, end)``. See :class:`rw_sql.connectors.support.table_reader.PartReader`."""

    is_read_committed: bool

    def read(self, options: Mapping[str, str], part: Any) -> Iterator[pa.Table]:
        """Reads exactly the records of one part. Raises OSError if the brokers do not deliver the records."""
        from rw_sql.connectors.kafka.fetcher import table_of

        yield from map(table_of, self._messages(options, part))

    def first_odd(self, options: Mapping[str, str], part: Any) -> int | None:
        """The offset of the part's first record with a timestamp that Spark's reader cannot represent. None if the part
        has no such record. Reads the part up to this record; raises OSError if the brokers do not deliver the
        record."""
        with closing(self._messages(options, part)) as found:
            messages = (message for some in found for message in some)
            return next((message.offset() for message in messages if message.timestamp()[1] >= FIRST_MS), None)

    def _messages(self, options: Mapping[str, str], part: Any) -> Generator[list[Message]]:
        import confluent_kafka as ck

        from rw_sql.connectors.kafka.fetcher import consumer_properties

        split, at, end = part
        consumer = ck.Consumer(consumer_properties(options, is_read_committed=self.is_read_committed))
        try:
            consumer.assign([ck.TopicPartition(*split_parts(split), at)])
            heard = time.monotonic()
            while at < end:
                first = consumer.poll(_POLL_SECONDS)
                if first is None:
                    if time.monotonic() > heard + _SILENT_SECONDS:
                        raise OSError(f"{split}: the brokers deliver no record after offset {at}")
                    continue
                heard = time.monotonic()
                kept: list[Message] = []
                for message in (first, *consumer.consume(_AT_ONCE, 0)):
                    if is_refused_group(message.error()):
                        continue
                    at = self._end(message, split)
                    if message.error() is None and at <= end:
                        kept.append(message)
                if kept:
                    yield kept
        except ck.KafkaException as error:
            raise OSError(f"{split}: {error}") from error
        finally:
            consumer.close()

    def _end(self, message: Message, split: str) -> int:
        """The offset before which all records have been delivered, according to ``message``: a record, or the end of
        the partition. Raises OSError for any other message."""
        import confluent_kafka as ck

        fault, offset = message.error(), int(message.offset() or 0)
        if fault is None:
            return offset + 1
        if fault.code() != ck.KafkaError._PARTITION_EOF:
            raise OSError(f"{split}: {fault.str()}")
        return offset
