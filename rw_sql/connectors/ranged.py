"""A base for connectors whose upstream can read any range of offsets: files, tables, and most APIs.

A subclass defines its options, its splits (``look``), and the records of a range (``read_batch``). Spark's stream of a
source determines only which ranges each batch reads, and ``read_batch`` reads the records of these ranges. Backfills of
views and ``SELECT … FROM source`` call ``read_batch`` too.
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
    """Returns the stream's offset after a batch that read these ranges. The offset is JSON that contains only the
    splits of the batch."""
    return json.dumps({"batch": batch, "ranges": ranges}, separators=(",", ":"))


def batch_ends(source_offset: str) -> dict[str, int]:
    """The end offset of each split of a batch, from the string of :func:`batch_offset`."""
    return {split: int(end) for split, (_, end) in json.loads(source_offset)["ranges"].items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """The ENCODE of the records, with its name in upper case and its options.

    ``row`` is the Spark schema of the source's columns, for records with typed values.
    """

    encode: str = "BYTES"
    options: Mapping[str, str] = field(default_factory=dict)
    row: str = ""


class RangedConnector(PlainConnector):
    """A connector that reads ranges of offsets. See :class:`rw_sql.connectors.base.Connector` for the contract of each
    method.

    ``offsets_per_record`` is the approximate number of offsets per record; this number is above 1 for files, whose
    offsets count bytes. ``has_small_batches`` is True if a small range of offsets contains only few records.
    ``poll_seconds`` is the interval at which a reader checks growing splits for new records; None if splits never grow.
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

        ``encoding`` is the encoding of the source's records. ``lives`` maps a split to its expected incarnation;
        reading fails if the split has another incarnation. With ENCODE PARQUET, the DataFrame also has ``_rw_row``, a
        struct of the columns, and ``_rw_fault``, the error of a record that could not be read.
        """

    def record_count(self, options: Mapping[str, str], ranges: Mapping[str, tuple[int, int]]) -> int:
        """The approximate number of records in a batch with these ranges. The caller uses this number to limit the
        rate, and to choose how the batch is written."""
        return -(-sum(end - start for start, end in ranges.values()) // self.offsets_per_record)

    def end_of(self, state: SplitState) -> int | None:
        """Returns the end of the split if the end can be determined from the state alone; otherwise None. The split
        need not exist any more."""
        return None

    def is_finished(self, state: SplitState) -> bool:
        """True if the split was read completely. The split need not exist any more."""
        return False

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """The ranges left to read from these positions, in reading order."""
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
        """Returns True, because one reader serves all views."""
        return True

    def split_topic(self, split: str) -> str:
        """Returns the empty string, because all splits belong to the same part."""
        return ""

    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """The only part: the empty string that :meth:`split_topic` returns."""
        return ("",)

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """The split id as it is written in the statement."""
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
        """Returns a feed of the ranges left to read from these positions, distributed over the batches of a stream."""
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
        """Reads the next offset of each split of a batch from the string that :meth:`write_positions` returned."""
        return batch_ends(source_offset)

    def write_positions(self, positions: Mapping[str, int]) -> str:
        """Returns the string that :meth:`read_positions` reads."""
        return batch_offset(0, {split: (at, at) for split, at in positions.items()})


class PythonConnector(RangedConnector):
    """A connector whose Python method :meth:`records` yields the records. This is the simplest base class for
    third-party connectors.

    A subclass defines ``spec``, :meth:`look` and :meth:`records`, and has a constructor without arguments. Spark's
    Python processes receive the connector and its package by value. The machines of these processes must have rw_sql
    and the other packages that the connector imports. If the other packages are listed in ``executor_packages``, rw_sql
    checks before a reader starts that these machines have them.
    """

    executor_packages: tuple[str, ...] = ("rw_sql", "pyarrow")

    @abstractmethod
    def records(self, options: Mapping[str, str], split: str, start: int, end: int) -> Iterator[Record]:
        """The records of a split with offsets in ``[start, end)``, in the order of their offsets. May be called in any
        process."""

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
        """The records that :meth:`records` yields. Spark runs one task per split."""
        from rw_sql.connectors.support.records import record_reader

        return record_reader.read_batch(spark, self, options, ranges)
