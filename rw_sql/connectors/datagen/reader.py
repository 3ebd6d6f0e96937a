"""The generator of rows as a Python data source of Spark. The offset of the stream is a JSON map from each split to its
next offset.

Spark's workers receive this module and :mod:`rw_sql.connectors.datagen.rows` by value, because rw_sql is not
necessarily installed there.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from rw_sql.connectors.datagen import rows as datagen_rows
from rw_sql.connectors.datagen.rows import SplitRange
from rw_sql.connectors.support.data_sources import register_source
from rw_sql.connectors.support.records.record_columns import RECORDS

try:
    from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # Spark 4.0 and 4.1, which do not pass a limit to latestOffset

    class SupportsTriggerAvailableNow: ...  # type: ignore[no-redef]

    class ReadLimit: ...  # type: ignore[no-redef]

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """A limit for the number of rows in a batch."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    GIVES_LIMITS = False
else:
    GIVES_LIMITS = True
    """True if Spark passes ``latestOffset`` the start of the next batch and its limit."""

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.datagen.rows import RowPlan

__all__ = [
    "DatagenStreamReader",
    "ReadLimit",
    "ReadMaxRows",
    "UnaskedStreamReader",
    "read_batch",
    "read_stream",
    "share_out",
]

DEFAULT_BATCH_ROWS = 100_000
_ROWS_PER_TASK = 50_000


def split_index(split: str) -> int:
    """The index of a split: 2 for ``4-2``."""
    return int(split.rpartition("-")[2])


class DatagenStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Generates the rows of a plan.

    If the source has a rate, rows become available at this rate, beginning with the first request for the latest
    offset.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._plan: RowPlan = datagen_rows.row_plan(options["plan"])
        self._positions: dict[str, int] = json.loads(options["positions"])
        self._rate = float(options["rate"]) if options["rate"] else None
        self._max_rows = int(options["maxrows"])
        self._tasks = max(1, int(options["tasks"]))
        self._began: tuple[float, dict[str, int]] | None = None
        self._is_frozen_at: float | None = None

    def initialOffset(self) -> dict[str, int]:
        return self._positions

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._is_frozen_at = time.monotonic()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        splits = list(start)
        begin = np.fromiter(start.values(), dtype=np.int64, count=len(splits))
        left = np.maximum(self._ends(splits, start) - begin, 0)
        if isinstance(limit, ReadMaxRows):
            left = share_out(left, limit.max_rows)
        return dict(zip(splits, (begin + left).tolist(), strict=True))

    def _ends(self, splits: list[str], start: dict[str, int]) -> NDArray[np.int64]:
        indexes = np.fromiter((split_index(split) for split in splits), dtype=np.int64, count=len(splits))
        plan = self._plan
        ends = np.full(len(splits), 2**62, dtype=np.int64)
        if plan.total is not None:
            ends = np.maximum(0, -((indexes - plan.total) // plan.splits))
        if self._rate is not None:
            if self._began is None:
                self._began = (time.monotonic(), dict(start))
            began, stood = self._began
            made = math.floor(((self._is_frozen_at or time.monotonic()) - began) * self._rate)
            base = np.fromiter((stood.get(split, at) for split, at in start.items()), dtype=np.int64, count=len(splits))
            ends = np.minimum(ends, base + np.maximum(0, -((indexes - made) // plan.splits)))
        return ends

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        ranges = [
            SplitRange(split, split_index(split), start.get(split, 0), upto)
            for split, upto in end.items()
            if upto > start.get(split, 0)
        ]
        rows = sum(given.end - given.start for given in ranges)
        tasks = min(self._tasks, -(-rows // _ROWS_PER_TASK))
        # The ranges are passed as plain tuples, because a worker without this package cannot unpickle the package's
        # classes.
        return [InputPartition([astuple(given) for given in part]) for part in _dealt(ranges, rows, tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from datagen_rows.make_batches(self._plan, [SplitRange(*given) for given in partition.value])


class UnaskedStreamReader(DatagenStreamReader):
    """The reader for Spark 4.0 and 4.1, where ``latestOffset`` has no arguments. Each batch of this reader starts at
    the end of the last batch that Spark planned.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._planned = self._positions

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        return super().latestOffset(self._planned, ReadMaxRows(self._max_rows))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self._planned = end
        return super().partitions(start, end)


class DatagenReader(DataSourceReader):
    """Generates the rows of given ranges, for a batch read."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._plan: RowPlan = datagen_rows.row_plan(options["plan"])
        self._ranges: dict[str, list[int]] = json.loads(options["ranges"])
        self._tasks = max(1, int(options["tasks"]))

    def partitions(self) -> Sequence[InputPartition]:
        ranges = [
            SplitRange(split, split_index(split), start, end)
            for split, (start, end) in self._ranges.items()
            if end > start
        ]
        rows = sum(given.end - given.start for given in ranges)
        tasks = min(self._tasks, -(-rows // _ROWS_PER_TASK))
        # Spark requires at least one partition.
        return [InputPartition([astuple(given) for given in part]) for part in _dealt(ranges, rows, tasks)] or [
            InputPartition([])
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from datagen_rows.make_batches(self._plan, [SplitRange(*given) for given in partition.value])


class DatagenDataSource(DataSource):
    """The data source ``format("rw_sql_datagen")`` for ``spark.readStream`` and ``spark.read``."""

    @classmethod
    def name(cls) -> str:
        return "rw_sql_datagen"

    def schema(self) -> str:
        return RECORDS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return (DatagenStreamReader if GIVES_LIMITS else UnaskedStreamReader)(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return DatagenReader(self.options)


def share_out(left: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Distributes at most ``most`` rows evenly among the splits, and returns the number of rows for each split.
    ``left`` contains the number of rows that each split can still generate. No split gets more rows than this
    number."""
    if int(left.sum()) <= most:
        return left
    low, high = 0, int(left.max())
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if int(np.minimum(left, middle).sum()) <= most else (low, middle - 1)
    shared = np.minimum(left, low)
    more = np.flatnonzero(left > low)[: most - int(shared.sum())]
    shared[more] += 1
    return shared


def read_stream(
    spark: SparkSession,
    plan: RowPlan,
    rate: int | None,
    positions: Mapping[str, SplitState],
    *,
    max_records: int | None,
) -> DataFrame:
    """A stream of a plan's rows that begins at these positions."""
    if not positions:
        raise ValueError("a reader needs at least one split")
    _register(spark)
    return (
        spark.readStream.format("rw_sql_datagen")
        .option("plan", plan.to_json())
        .option("positions", json.dumps({split: state.offset for split, state in positions.items()}))
        .option("rate", "" if rate is None else str(rate))
        .option("maxrows", str(max_records or DEFAULT_BATCH_ROWS))
        .option("tasks", str(spark.sparkContext.defaultParallelism))
        .load()
    )


def read_batch(spark: SparkSession, plan: RowPlan, ranges: Mapping[str, tuple[int, int]]) -> DataFrame:
    """A DataFrame of a plan's rows in these ranges of offsets."""
    _register(spark)
    return (
        spark.read.format("rw_sql_datagen")
        .option("plan", plan.to_json())
        .option("ranges", json.dumps(ranges))
        .option("tasks", str(spark.sparkContext.defaultParallelism))
        .load()
    )


def _register(spark: SparkSession) -> None:
    import sys

    from pyspark import cloudpickle

    by_value: Any = cloudpickle.register_pickle_by_value
    for module in (datagen_rows, sys.modules[__name__]):
        by_value(module)
    register_source(spark, DatagenDataSource)


def _dealt(ranges: list[SplitRange], rows: int, tasks: int) -> Iterator[tuple[SplitRange, ...]]:
    """Divides the ranges into at most ``tasks`` parts with about the same number of rows. A long range may be divided
    among several parts."""
    if not ranges:
        return
    size = -(-rows // tasks)
    part: list[SplitRange] = []
    room = size
    for given in ranges:
        at = given.start
        while at < given.end:
            taken = min(room, given.end - at)
            part.append(SplitRange(given.split, given.index, at, at + taken))
            at, room = at + taken, room - taken
            if room == 0:
                yield tuple(part)
                part, room = [], size
    if part:
        yield tuple(part)
