"""A base class for connectors whose upstream can return any range of offsets. Files, tables and most APIs are such
upstreams.

A subclass defines its options, its splits (``look``), and the records of a range (``read_batch``). The Spark stream of
a source contains no records: it only starts batches, and ``read_batch`` reads the ranges of each batch. Backfills of
views and ``SELECT … FROM source`` also call ``read_batch``.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

# Connectors of other packages import these names from here.
from rw_sql.connectors.base import Record as Record
from rw_sql.connectors.base import Stretch as Stretch
from rw_sql.connectors.plain import PlainConnector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.support.records.range_stream import RangeFeed

MOST_RECORDS = 400_000
"""The default maximum number of records in a batch."""


def batch_offset(batch: int, ranges: Mapping[str, tuple[int, int]]) -> str:
    """Returns the offset of Spark's stream after a batch with these ranges: JSON with the batch's number and ranges."""
    return json.dumps({"batch": batch, "ranges": ranges}, separators=(",", ":"))


def batch_ends(source_offset: str) -> dict[str, int]:
    """The end offset of each split in a batch. ``source_offset`` is a result of :func:`batch_offset`."""
    return {split: int(end) for split, (_, end) in json.loads(source_offset)["ranges"].items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """The ENCODE of the records, with its name in upper case and its options.

    ``row`` is the Spark schema of the source's columns. Only encodings with typed values, such as PARQUET, need
    ``row``.
    """

    encode: str = "BYTES"
    options: Mapping[str, str] = field(default_factory=dict)
    row: str = ""


class RangedConnector(PlainConnector):
    """A connector that reads ranges of offsets. See :class:`rw_sql.connectors.base.Connector` for the contract of each
    method.

    ``offsets_per_record`` is the approximate number of offsets per record. It is greater than 1 for files, whose
    offsets count bytes. ``has_small_batches`` is True if the number of offsets in a range limits the number of its
    records. ``poll_seconds`` is the interval at which a reader checks splits for new records; None if splits never
    grow.
    """

    offsets_per_record = 1
    has_small_batches = True
    poll_seconds: float | None = 1.0

    @abstractmethod
    def read_batch(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        ranges: Mapping[str, tuple[int, int]],
        *,
        with_headers: bool = False,
        columns: Mapping[str, str] | None = None,
        encoding: Encoding | None = None,
        lives: Mapping[str, str | None] | None = None,
    ) -> DataFrame:
        """Returns, for each split, the records whose offsets are in the split's range ``[start, end)``. Adjacent ranges
        neither repeat nor omit a record.

        ``encoding`` is the encoding of the source's records. ``lives`` maps a split to its expected incarnation. If the
        split now has a different incarnation, the read fails. With ENCODE PARQUET, the DataFrame also has ``_rw_row``,
        a struct of the columns, and ``_rw_fault``, the error of a record that could not be read.
        """

    def record_count(self, options: Mapping[str, str], ranges: Mapping[str, tuple[int, int]]) -> int:
        """The approximate number of records in these ranges. The caller uses this number for rate limits, and to
        choose how it writes the batch."""
        return -(-sum(end - start for start, end in ranges.values()) // self.offsets_per_record)

    def end_of(self, state: SplitState) -> int | None:
        """Returns the split's end if the state alone determines it; otherwise None. The split may already be
        deleted."""
        return None

    def is_finished(self, state: SplitState) -> bool:
        """True if the split was read completely and cannot grow. The split may already be deleted."""
        return False

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """The unread ranges after these positions, in the order in which they must be read. Raises OSError if the
        upstream cannot be read."""
        upstream = self.look(options)
        if upstream.error is not None:
            raise OSError(upstream.error)
        ends = {split: upstream.splits[split].end for split in positions if split in upstream.splits}
        return tuple(
            Stretch(split=split, start=positions[split].offset, end=end)
            for split, end in sorted(ends.items())
            if end > positions[split].offset
        )

    def is_shareable(self) -> bool:
        """Returns True: one reader can serve all views of a source."""
        return True

    def split_topic(self, split: str) -> str:
        """Returns the empty string: the upstream has only one part, to which all splits belong."""
        return ""

    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """Returns only the empty string, the name of the upstream's one part (see :meth:`split_topic`)."""
        return ("",)

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """Returns the split id unchanged, as it is written in the statement."""
        return written

    def read_stream(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        positions: Mapping[str, SplitState],
        *,
        max_records: int | None,
        with_headers: bool = False,
        columns: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """Opens a stream whose batches have ranges of offsets instead of rows. rw_sql itself calls :meth:`range_feed`
        instead of this method."""
        return self.range_feed(options, positions, max_records=max_records).open(spark)

    def range_feed(
        self, options: Mapping[str, str], positions: Mapping[str, SplitState], *, max_records: int | None
    ) -> RangeFeed:
        """Returns a feed that distributes the unread ranges after these positions over the batches of a stream."""
        from rw_sql.connectors.support.records.range_stream import RangeFeed

        most = (max_records or MOST_RECORDS) * self.offsets_per_record
        return RangeFeed(
            self,
            options,
            positions,
            self.stretches(options, positions),
            most_offsets=most,
            poll_seconds=self.poll_seconds,
        )

    def read_positions(self, source_offset: str) -> dict[str, int]:
        """Decodes a string from :meth:`write_positions`. Returns the next offset of each split in the batch."""
        return batch_ends(source_offset)

    def write_positions(self, positions: Mapping[str, int]) -> str:
        """Returns the string that :meth:`read_positions` reads."""
        return batch_offset(0, {split: (at, at) for split, at in positions.items()})


class PythonConnector(RangedConnector):
    """A connector whose Python method :meth:`records` yields the records. This is the simplest base class for
    third-party connectors.

    A subclass defines ``spec``, :meth:`look` and :meth:`records`, and has a constructor without arguments. Spark's
    Python processes receive the connector and its package by value. rw_sql and all other packages that the connector
    imports must be installed on the executors' machines. Before a reader starts, rw_sql checks that the packages in
    ``executor_packages`` are installed there.
    """

    executor_packages: tuple[str, ...] = ("rw_sql", "pyarrow")

    @abstractmethod
    def records(self, options: Mapping[str, str], split: str, start: int, end: int) -> Iterator[Record]:
        """Yields the records of a split with offsets in ``[start, end)``, in the order of their offsets. Spark's
        Python processes and the driver may call this method."""

    def read_batch(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        ranges: Mapping[str, tuple[int, int]],
        *,
        with_headers: bool = False,
        columns: Mapping[str, str] | None = None,
        encoding: Encoding | None = None,
        lives: Mapping[str, str | None] | None = None,
    ) -> DataFrame:
        """Returns the records that :meth:`records` yields. Spark runs one task per split."""
        from rw_sql.connectors.support.records import record_reader

        return record_reader.read_batch(spark, self, options, ranges)
