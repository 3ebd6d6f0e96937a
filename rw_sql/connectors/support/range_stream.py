"""A stream without rows: its offsets contain the ranges of splits that each batch reads.

An offset names only the splits that its batch reads, so that a source with 100,000 files writes few of them per batch.
The stream runs in a process of the driver, never on an executor; private values are passed through a file that only
this user can read.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from rw_sql.connectors.support import pickled
from rw_sql.connectors.support.pickled import frozen, thawed
from rw_sql.connectors.support.private_files import private_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from rw_sql.connectors.base import SplitState, Stretch

MOST_SPLITS = 2_000
"""The maximum number of splits in one batch. The batch's commit names each of them."""

Part = tuple[str, int, int, bool]
"""The plain values of a Stretch: a split, its unread range, and whether one batch must read all of it."""


class Stretches(Protocol):
    """A connector that can list unread ranges, such as :class:`rw_sql.connectors.ranged.RangedConnector`."""

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """The ranges left to read from these positions, in reading order."""
        ...


def take(left: list[Part], most_offsets: int, most_splits: int = MOST_SPLITS) -> dict[str, tuple[int, int]]:
    """The ranges of the next batch, removed from the front of ``left``. Takes at least one range, if there is any."""
    taken: dict[str, tuple[int, int]] = {}
    room = most_offsets
    at = 0
    while at < len(left) and room > 0 and len(taken) < most_splits:
        split, start, end, is_whole = left[at]
        if is_whole and taken and end - start > room:
            break
        upto = end if is_whole else min(end, start + room)
        taken[split] = (start, upto)
        room -= upto - start
        if upto < end:
            left[at] = (split, upto, end, is_whole)
        else:
            at += 1
    del left[:at]
    return taken


class RangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Distributes the unread ranges over batches. Runs in a Python process of the driver."""

    def __init__(self, options: Mapping[str, str]) -> None:
        plan = json.loads(Path(options["plan"]).read_text(encoding="utf-8"))
        self._connector: Any = thawed(plan["connector"]) if plan["connector"] else None
        self._options: dict[str, str] = plan["options"]
        self._most: int = plan["most_offsets"]
        self._poll_seconds: float | None = plan["poll_seconds"]
        self._positions: dict[str, Any] = plan["positions"]
        self._left: list[Part] = [(split, start, end, whole) for split, start, end, whole in plan["left"]]
        self._last: dict[str, Any] = {"batch": 0, "ranges": {}}
        self._look_at = time.monotonic() + (self._poll_seconds or 0)
        self._is_frozen = False

    def initialOffset(self) -> dict[str, Any]:
        return self._last

    def prepareForTriggerAvailableNow(self) -> None:
        self._is_frozen = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if start["batch"] != self._last["batch"]:
            return self._last  # The previous batch was requested again.
        if not self._left and self._poll_seconds is not None and not self._is_frozen:
            self._look_again(self._poll_seconds)
        if self._left:
            ranges = take(self._left, self._most)
            for split, (_, end) in ranges.items():
                if self._poll_seconds is not None:
                    self._positions[split]["offset"] = end
            self._last = {"batch": self._last["batch"] + 1, "ranges": {s: list(r) for s, r in ranges.items()}}
        return self._last

    def _look_again(self, seconds: float) -> None:
        from rw_sql.connectors.base import SplitState

        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + seconds
        states = {split: SplitState(split=split, **state) for split, state in self._positions.items()}
        self._left = [_part(stretch) for stretch in self._connector.stretches(self._options, states)]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        yield from ()


class RangeDataSource(DataSource):
    """``spark.readStream.format("rw_sql_ranges")``."""

    @classmethod
    def name(cls) -> str:
        return "rw_sql_ranges"

    def schema(self) -> str:
        return "_rw_split string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return RangeStreamReader(self.options)


def read_stream(
    spark: SparkSession,
    connector: Stretches,
    options: Mapping[str, str],
    positions: Mapping[str, SplitState],
    left: Iterable[Stretch],
    *,
    most_offsets: int,
    poll_seconds: float | None,
) -> DataFrame:
    """A stream over the ranges in ``left``; with ``poll_seconds`` it polls the connector for more, starting at the
    positions."""
    states: dict[str, dict[str, object]] = {}
    if poll_seconds is not None:
        states = {
            split: {"offset": state.offset, "cluster": state.cluster, "incarnation": state.incarnation}
            for split, state in positions.items()
        }
    plan = {
        "connector": frozen(connector) if poll_seconds is not None else "",
        "options": dict(options) if poll_seconds is not None else {},
        "most_offsets": most_offsets,
        "poll_seconds": poll_seconds,
        "positions": states,
        "left": [_part(stretch) for stretch in left],
    }
    from pyspark import cloudpickle

    by_value: Any = cloudpickle.register_pickle_by_value
    for module in (pickled, sys.modules[__name__]):
        by_value(module)
    spark.dataSource.register(RangeDataSource)
    file = private_file(json.dumps(plan, separators=(",", ":")))
    return spark.readStream.format("rw_sql_ranges").option("plan", str(file)).load()


def _part(stretch: Stretch) -> Part:
    split, start, end, is_whole = astuple(stretch)
    return split, start, end, is_whole
