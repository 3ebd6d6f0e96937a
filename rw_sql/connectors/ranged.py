"""A base for connectors whose upstream can be asked for any stretch of offsets: files, tables, most things with an API.

What such a connector has to say is little: which options it takes, which splits there are (``look``), and the records
of a stretch of them (``read_batch``). The stream of a source then only carries which stretches a batch has, and each
batch is read by ``read_batch``, as a view's history and ``SELECT … FROM source`` are.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

# Connectors of other packages import these two from here.
from rw_sql.connectors.base import Record as Record
from rw_sql.connectors.base import Stretch as Stretch
from rw_sql.connectors.plain import PlainConnector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import SplitState

MOST_RECORDS = 400_000
"""The most records of a batch, where nobody says."""


def batch_offset(batch: int, ranges: Mapping[str, tuple[int, int]]) -> str:
    """The stream's offset after a batch that read these ranges: it names no other split."""
    return json.dumps({"batch": batch, "ranges": ranges}, separators=(",", ":"))


def batch_ends(source_offset: str) -> dict[str, int]:
    """Where a batch leaves the splits that it moves."""
    return {split: int(end) for split, (_, end) in json.loads(source_offset)["ranges"].items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """What ENCODE says of the records: its name, upper case, and the options in its brackets.

    ``row`` is the source's own columns as Spark writes a schema, for records that have types of their own.
    """

    encode: str = "BYTES"
    options: Mapping[str, str] = field(default_factory=dict)
    row: str = ""


class RangedConnector(PlainConnector):
    """See :class:`rw_sql.connectors.base.Connector` for what each method promises.

    ``offsets_per_record`` is how many offsets a record takes up about: files count bytes. Without ``has_small_batches``
    nothing can be said of how many records few offsets are. ``poll_seconds`` is how often a reader looks for more in
    splits that grow; None where a split never does.
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
        """The records whose offset is in ``[start, end)`` of its split: each is in one of any stretches side by side.

        ``encoding`` is the source's. ``lives`` are the incarnations that the splits are known in: reading another one
        fails. With ENCODE PARQUET the DataFrame has ``_rw_row`` too, a struct of the columns, and ``_rw_fault``, why
        a record could not be read.
        """

    def is_finished(self, state: SplitState) -> bool:
        """Whether nothing of a split is unread even if it is gone now."""
        return False

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """What is left to read from these positions on, in the order in which it is read."""
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
        """Always: one reader serves all views."""
        return True

    def split_topic(self, split: str) -> str:
        """The empty text: all splits belong together."""
        return ""

    def named_topics(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """What :meth:`split_topic` says of all splits."""
        return ("",)

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """The id as it is written."""
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
        """A stream without rows, whose batches say in their offsets what :meth:`read_batch` shall read."""
        from rw_sql.connectors.support import range_stream

        most = (max_records or MOST_RECORDS) * self.offsets_per_record
        return range_stream.read_stream(
            spark,
            self,
            options,
            positions,
            self.stretches(options, positions),
            most_offsets=most,
            poll_seconds=self.poll_seconds,
        )

    def read_positions(self, source_offset: str) -> dict[str, int]:
        """The next offset of those splits that a batch moved."""
        return batch_ends(source_offset)

    def write_positions(self, positions: Mapping[str, int]) -> str:
        """The entry that :meth:`read_positions` reads."""
        return batch_offset(0, {split: (at, at) for split, at in positions.items()})


class PythonConnector(RangedConnector):
    """A connector whose records a method of Python gives: all that one of your own has to be.

    It needs ``spec``, :meth:`look` and :meth:`records`, and is made without arguments. Spark's Python processes get
    it with its package by value; what that imports they must have.
    """

    @abstractmethod
    def records(self, options: Mapping[str, str], split: str, start: int, end: int) -> Iterator[Record]:
        """The records of a split whose offset is in ``[start, end)``, in order. Called in any process."""

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
        """What :meth:`records` gives, a task a split."""
        from rw_sql.connectors.support import record_reader

        return record_reader.read_batch(spark, self, options, ranges)
