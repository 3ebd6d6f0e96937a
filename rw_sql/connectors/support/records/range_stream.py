"""Provides a Spark stream that contains no records. The stream only starts batches; this process decides which ranges
of splits each batch reads.

The stream's offset is a number that counts the batches. The alternative, a streaming source in Python, would be slower:
Spark would start four Python processes per source, one after the other, to compute ranges that this process already
knows.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import SplitState, Stretch

logger = logging.getLogger(__name__)

MOST_SPLITS = 2_000
"""The maximum number of splits in one batch. It limits the size of the batch's commit, which contains the name of
each split."""


class LostRecordsError(OSError):
    """Raised if unread records of a split may have been removed. If ``is_certain`` is false, the upstream may merely
    be slow."""

    def __init__(self, message: str, split: str, *, is_certain: bool) -> None:
        super().__init__(message)
        self.split = split
        self.is_certain = is_certain


Ranges = dict[str, tuple[int, int]]
"""Maps each split to a range ``[start, end)`` of its offsets."""

Part = tuple[str, int, int, bool]
"""The fields of a :class:`~rw_sql.connectors.base.Stretch` as a tuple: the split, the start and the end of an unread
range, and ``is_whole``. If ``is_whole`` is true, one batch must read the complete range."""


class Stretches(Protocol):
    """An object that can list unread ranges, such as a :class:`rw_sql.connectors.ranged.RangedConnector`."""

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """The unread ranges after these positions, in the order in which they must be read."""
        ...


def take(left: list[Part], most_offsets: int, most_splits: int = MOST_SPLITS) -> dict[str, tuple[int, int]]:
    """Removes the ranges for the next batch from the beginning of ``left``, and returns them. The batch contains at
    most ``most_splits`` ranges and at most ``most_offsets`` offsets. Only a first range that must be read as a whole
    may exceed ``most_offsets``. Returns at least one range, unless ``left`` is empty.

    A batch has one range per split: a second range of a split extends the first range if it begins at its end, and
    waits for the next batch otherwise.
    """
    taken: dict[str, tuple[int, int]] = {}
    room = most_offsets
    at = 0
    while at < len(left) and room > 0 and len(taken) < most_splits:
        split, start, end, is_whole = left[at]
        if is_whole and taken and end - start > room:
            break
        first, last = taken.get(split, (start, start))
        if start != last:
            break
        upto = end if is_whole else min(end, start + room)
        taken[split] = (first, upto)
        room -= upto - start
        if upto < end:
            left[at] = (split, upto, end, is_whole)
        else:
            at += 1
    del left[:at]
    return taken


def entry_stream(spark: SparkSession) -> tuple[DataFrame, Callable[[], None]]:
    """Returns a Spark stream, and a function that adds one entry to the stream. An entry is an empty row that makes
    Spark start a batch."""
    session: Any = spark

    def named(name: str) -> Any:
        # Passes the whole name in one call. If each part of the name were passed separately, Java would look in every
        # jar for a class with the name of the part.
        return getattr(session._jvm, name)

    text = named("org.apache.spark.sql.Encoders").STRING()
    package = "org.apache.spark.sql.execution.streaming"
    # Another package since Spark 4.1.
    memory = named(f"{package}.MemoryStream" if spark.version.startswith("4.0.") else f"{package}.runtime.MemoryStream")
    stream = memory.apply(text, session._jsparkSession)
    entry = named("org.apache.spark.api.python.PythonUtils").toSeq(named("java.util.List").of(""))
    from pyspark.sql import DataFrame

    made: Any = DataFrame
    frame: DataFrame = made(stream.toDF(), spark)
    return frame, lambda: stream.addData(entry)


class RangeFeed:
    """Distributes the unread ranges over the entries of a stream, one entry per batch.

    At most one entry waits behind the running batch. If ``poll_seconds`` is not None and all known ranges were read, a
    thread polls the upstream for new ranges at this interval. :meth:`close` ends the thread. The ranges of an entry are
    kept only in memory. This is sufficient, because each run of a reader begins at explicit positions with a new
    checkpoint.
    """

    def __init__(
        self,
        connector: Stretches,
        options: Mapping[str, str],
        positions: Mapping[str, SplitState],
        left: Iterable[Stretch],
        *,
        most_offsets: int,
        poll_seconds: float | None,
    ) -> None:
        self._connector = connector
        self._options = dict(options)
        self._positions = dict(positions)
        self._left = [_part(stretch) for stretch in left]
        self._most = most_offsets
        self._poll_seconds = poll_seconds
        self._add: Callable[[], None] | None = None
        self._ranges: dict[int, Ranges] = {}
        self._added = self._taken = -1
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._is_closed = threading.Event()

    def begin(self, add: Callable[[], None]) -> None:
        """Adds the first entry by calling ``add``, and starts the thread that adds later entries."""
        self._add = add
        self._offer()
        if self._left or self._poll_seconds is not None:
            threading.Thread(target=self._run, name="rw_sql-ranges", daemon=True).start()

    def open(self, spark: SparkSession) -> DataFrame:
        """Creates Spark's stream of entries and calls :meth:`begin`."""
        frame, add = entry_stream(spark)
        self.begin(add)
        return frame

    def take(self, source_offset: str) -> Ranges:
        """Returns the ranges of a batch.

        ``source_offset`` is Spark's offset at the batch's end: the number of the batch's last entry.

        If a poll of the upstream fails, the feed adds one more entry. For the batch of this entry, this method raises
        the poll's error.
        """
        upto = int(source_offset)
        with self._changed:
            taken: Ranges = {}
            for entry in range(self._taken + 1, upto + 1):
                for split, (start, end) in self._ranges.pop(entry, {}).items():
                    taken[split] = (taken.get(split, (start, end))[0], end)
            self._taken = max(self._taken, upto)
            self._changed.notify_all()
            if self._error is not None and self._taken >= self._added:
                raise self._error
            return taken

    def committed(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        """The caller calls this method after it has committed a batch with these ranges. It may repeat the call for
        one batch. This implementation does nothing; a subclass may acknowledge the records upstream."""

    def close(self) -> None:
        """Ends the thread. Does not wait until a running poll has ended."""
        self._is_closed.set()
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        while not self._is_closed.is_set() and self._error is None:
            with self._changed:
                self._changed.wait_for(lambda: self._taken >= self._added or self._is_closed.is_set())
            if not self._left:
                if self._poll_seconds is None or self._is_closed.wait(self._poll_seconds):
                    return
                self._look()
            self._offer()

    def _look(self) -> None:
        try:
            self._left = [_part(stretch) for stretch in self._connector.stretches(self._options, self._positions)]
        except Exception as error:  # noqa: BLE001 - raised again in the batch that is added for this error
            self._error = error

    def _offer(self) -> None:
        """Adds the next entry, if there are unread ranges or an error to raise."""
        from rw_sql.connectors.base import SplitState

        if self._is_closed.is_set() or (not self._left and self._error is None):
            return
        ranges = take(self._left, self._most)
        for split, (_, end) in ranges.items():
            known = self._positions.get(split, SplitState(split=split, offset=0))
            self._positions[split] = replace(known, offset=end)
        with self._changed:
            self._added += 1
            self._ranges[self._added] = ranges
        try:
            if self._add is not None:
                self._add()
        except Exception:
            # Spark has ended. The code that runs the batches reports that.
            logger.debug("an entry could not be added", exc_info=True)
            self._is_closed.set()


def _part(stretch: Stretch) -> Part:
    split, start, end, is_whole = astuple(stretch)
    return split, start, end, is_whole
