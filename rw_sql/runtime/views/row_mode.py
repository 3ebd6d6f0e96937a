"""Decides whether a streaming query or a thread writes the batches of a row-by-row view, and changes between the two.

The thread writes small batches (:mod:`rw_sql.runtime.views.row_batches`). For a batch that is not small, or that it
cannot compute, it starts a query. Once the query has read all of its input in small batches, a thread takes its place
again. A run begins with a query only if the thread cannot continue at the checkpoint's position.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.jobs.batch_thread import InputThread
from rw_sql.runtime.jobs.streaming_run import BrokenOffError
from rw_sql.runtime.positions.checkpoint_batches import end_of_batch
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.views.row_batches import LeftToSparkError, PreparedRows, RowBatches, may_have_row_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from rw_sql.runtime.jobs.streaming_run import StreamingRun
    from rw_sql.runtime.positions.planned_rows import Planned
    from rw_sql.runtime.views.strategy import ViewRun

logger = logging.getLogger(__name__)

_MOST_NEEDED = 64
"""The maximum number of successive small batches after which a thread takes the query's place. The number is one at
first, and is doubled whenever the thread starts a query, because starting a query takes as long as several batches."""

_LOOK_SECONDS = 0.005
_END_SECONDS = 10.0
"""The maximum time in seconds for which the thread waits until the query has completed its last batch."""

_ENDING_SECONDS = 1.0
"""The maximum time in seconds for which a batch of a query that is about to be stopped waits for the stop."""


@dataclass(slots=True)
class RowMode:
    """How one run of a view writes its batches. Changes between the two ways are made one at a time, and none once the
    run is being stopped.

    ``start_query`` starts a query at the checkpoint's position, ``end_query`` ends it. ``write`` writes a batch of the
    thread; it receives the batch and its rows.
    """

    run: ViewRun
    streaming: StreamingRun
    start_query: Callable[[], None]
    end_query: Callable[[], None]
    write: Callable[[RowBatches, pa.Table], None]
    _is_possible: bool = field(init=False)
    _session: SparkSession | None = field(default=None, init=False)
    _prepared: PreparedRows | None = field(default=None, init=False)
    _rows: RowBatches | None = field(default=None, init=False)
    _last_of_query: int | None = field(default=None, init=False)
    """The last batch of a query whose place a thread is taking."""
    _small: int = field(default=0, init=False)
    _needed: int = field(default=1, init=False)
    _changing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self._is_possible = may_have_row_batches(self.run.context.warehouse, self.run.spec)

    def begin(self) -> bool:
        """Starts a thread; returns False if the run must begin with a query."""
        if not self._is_possible or not RowBatches.may_begin(self.run) or not self._prepare():
            return False
        self._rows = self._open()
        try:
            if self._rows is None:
                return False
            self._rows.has_next()
        except LeftToSparkError:
            return False
        fault("view.before_query")
        self._start_thread()
        fault("view.after_query")
        return True

    def require_query(self) -> None:
        """Must precede each batch of the query. Raises BrokenOffError if a thread is taking the query's place."""
        if self._last_of_query is None:
            return
        # Spark logs the errors of a batch only until the stop of its query has begun.
        query, limit = self.streaming.query, time.monotonic() + _ENDING_SECONDS
        while query is not None and query.isActive and time.monotonic() < limit:
            time.sleep(_LOOK_SECONDS)
        raise BrokenOffError

    def after_batch(self, batch: int, planned: Planned) -> None:
        """Must follow each batch of the query, which has read ``planned`` rows. A thread takes the query's place if the
        query has read all of its input in small batches."""
        if not self._is_possible:
            return
        end = end_of_batch(self.run.context.warehouse, self.run.checkpoint, batch) if planned.is_small else None
        newest = latest_version(self.run.context.warehouse, self._table)
        self._small = self._small + 1 if end is not None and newest < end else 0
        if self._small < self._needed:
            return
        if not self._prepare():
            self._is_possible = False
            return
        with self._change() as may_change:
            if may_change:
                self._small = 0
                self._last_of_query = batch
                self._start_thread()

    def stop(self) -> None:
        """Stops the query or the thread. The batch in progress has a short time to finish."""
        with self._changing:
            self.streaming.stop()
        self._end_announcements()
        if self._session is not None:
            with suppress(Py4JError):  # Without a JVM, there is nothing to release.
                self.run.context.sessions.release(self._session)
            self._session = self._prepared = None

    @property
    def _table(self) -> str:
        return self.run.table_of(self.run.spec.inputs[0])

    def _prepare(self) -> bool:
        """Prepares the query once; returns False if it is not row-by-row."""
        if self._prepared is None:
            session = self.run.context.sessions.new((), self.run.spec.parallelism)
            self._prepared = PreparedRows.of(self.run, session)
            if self._prepared is None:
                self.run.context.sessions.release(session)
            else:
                self._session = session
        return self._prepared is not None

    def _open(self) -> RowBatches | None:
        return None if self._prepared is None else RowBatches.of(self.run, self._prepared)

    def _start_thread(self) -> None:
        thread = InputThread(self.run.spec.job, self.streaming.guarded(self._write_next), self._has_next)
        self.streaming.thread = thread
        self.run.context.wakes.follow(self.run.spec.inputs[0].id, self._announce)
        thread.start()

    def _end_announcements(self) -> None:
        for given in self.run.spec.inputs:
            self.run.context.wakes.unfollow(given.id, self._announce)

    def _announce(self) -> None:
        thread = self.streaming.thread
        if thread is not None:
            thread.announce()

    def _has_next(self) -> bool:
        if self._last_of_query is not None:
            self._replace_query(self._last_of_query)
        try:
            return self._rows is not None and self._rows.has_next()
        except LeftToSparkError as reason:
            self._leave(reason)
            return False

    def _write_next(self, _entry: str, _batch: int) -> None:
        if self._rows is None:
            return
        try:
            self.write(self._rows, self._rows.compute())
        except LeftToSparkError as reason:
            self._leave(reason)

    def _replace_query(self, last: int) -> None:
        """Ends the query after its batch ``last``, in the thread that takes its place."""
        limit = time.monotonic() + _END_SECONDS
        commit = f"{self.run.checkpoint}/commits/{last}"
        while not self.run.context.warehouse.exists(commit) and time.monotonic() < limit:
            if self.streaming.is_stopping:
                return
            time.sleep(_LOOK_SECONDS)
        with self._change() as may_change:
            if not may_change:
                return
            self.end_query()
            self._last_of_query = None
            self._rows = self._open()
            if self._rows is None:
                self._start_query()

    def _leave(self, reason: LeftToSparkError) -> None:
        """Starts a query in the place of this thread."""
        logger.debug("%s continues with a streaming query: %s", self.run.spec.job, reason)
        self._is_possible = not reason.is_final
        with self._change() as may_change:
            if may_change:
                self._start_query()

    def _start_query(self) -> None:
        self._needed = min(2 * self._needed, _MOST_NEEDED)
        thread, self._rows = self.streaming.thread, None
        self._end_announcements()
        self.start_query()
        self.streaming.thread = None
        if thread is not None:
            thread.stop()

    @contextmanager
    def _change(self) -> Iterator[bool]:
        """A context manager for a change; its value is False, and nothing may be changed, once the run is being
        stopped."""
        while not self._changing.acquire(timeout=_LOOK_SECONDS):
            if self.streaming.is_stopping:
                yield False
                return
        try:
            yield not self.streaming.is_stopping and not self.streaming.is_over
        finally:
            self._changing.release()
