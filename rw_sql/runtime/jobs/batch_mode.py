"""Switches one run of a job between two ways of writing batches: a streaming query and a thread.

The thread writes small batches without planning and starting Spark's jobs. If a batch is not small, or if the thread
cannot write it, a query takes the thread's place. After one or more successive small batches (see ``MOST_NEEDED``), a
thread takes the query's place again.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.runtime.jobs.batch_thread import InputThread
from rw_sql.runtime.jobs.streaming_run import BrokenOffError
from rw_sql.runtime.support.failures import StalledError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rw_sql.runtime.jobs.streaming_run import StreamingRun

logger = logging.getLogger(__name__)

MOST_NEEDED = 64
"""The upper limit of the number of successive small batches after which a thread takes the query's place. At first, one
small batch is sufficient. Whenever the thread starts a query, this number is doubled up to the limit, because starting
a query takes as long as several batches."""

_LOOK_SECONDS = 0.005
_END_SECONDS = 10.0
"""The maximum time, in seconds, for which the thread waits for the query to complete its last batch."""

_ENDING_SECONDS = 1.0
"""The maximum time, in seconds, for which a query's next batch waits until the thread has stopped the query."""


class LeftToSparkError(Exception):
    """Raised if a streaming query must write the next batch, because of the batch's size or content. If ``is_final`` is
    true, a query must also write all following batches."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


@dataclass(slots=True, kw_only=True)
class BatchMode:
    """Determines whether one run of a job writes its batches with a query or with a thread. Changes between query and
    thread happen one at a time. After a stop of the run has begun, no change happens.

    ``start_query`` starts a query at the run's position, and ``end_query`` ends the query. ``has_completed`` returns
    True if the query has completed the batch with the given number. (A query completes a batch some time after it has
    written the batch.) ``open`` prepares the thread's first batch after a query, and returns False if a query must
    continue. ``has_next`` looks for the thread's next batch, and ``write_next`` writes this batch. Both functions may
    raise LeftToSparkError. After a call of ``has_next`` that finds no batch, the thread waits ``look_seconds`` before
    the next call. ``interval_seconds`` and ``interval_factor`` determine the minimum time between two batches of the
    thread (see :class:`InputThread`). ``is_possible`` is False if no thread can write the run's batches.
    """

    job: str
    streaming: StreamingRun
    start_query: Callable[[], None]
    end_query: Callable[[], None]
    has_completed: Callable[[int], bool]
    open: Callable[[], bool]
    has_next: Callable[[], bool]
    write_next: Callable[[], None]
    look_seconds: float = 0.05
    interval_seconds: float = 0.0
    interval_factor: float = 0.0
    is_possible: bool = True
    _last_of_query: int | None = field(default=None, init=False)
    """The query's last batch if a thread is taking the query's place; otherwise None."""
    _small: int = field(default=0, init=False)
    _needed: int = field(default=1, init=False)
    _changing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def announce(self) -> None:
        """If a thread writes the batches, makes this thread look for input at once."""
        thread = self.streaming.thread
        if thread is not None:
            thread.announce()

    def require_query(self) -> None:
        """Must be called before each batch of the query. Raises BrokenOffError if a thread is taking the query's
        place."""
        if self._last_of_query is None:
            return
        # Once the stop of a query has begun, Spark does not log the errors of the query's batch.
        query, limit = self.streaming.query, time.monotonic() + _ENDING_SECONDS
        while query is not None and query.isActive and time.monotonic() < limit:
            time.sleep(_LOOK_SECONDS)
        raise BrokenOffError

    def after_batch(self, batch: int, *, is_small: bool, prepare: Callable[[], bool] | None = None) -> None:
        """Must be called after each batch of the query. ``is_small`` is true if the batch was small and the query's
        unread input, if known, is at most a small batch too. After the required number of such batches in succession, a
        thread takes the query's place.

        If ``prepare`` is given, it is called before the thread starts. If ``prepare`` returns False, the query writes
        all further batches of this run.
        """
        if not self.is_possible:
            return
        self._small = self._small + 1 if is_small else 0
        if self._small < self._needed:
            return
        if prepare is not None and not prepare():
            self.is_possible = False
            return
        with self._change() as may_change:
            if may_change:
                self._small = 0
                self._last_of_query = batch
                self.start_thread()

    def stop(self) -> None:
        """Stops the query or the thread. The batch in progress has ``GRACE_SECONDS`` to finish."""
        with self._changing:
            self.streaming.stop()

    def cancel(self) -> None:
        """Stops the query or the thread, and cancels the batch in progress."""
        self.streaming.expect_stop()
        with self._changing:
            self.streaming.cancel()

    def start_thread(self) -> None:
        """Starts a thread that writes the run's batches, either from the start of the run or in place of the query."""
        self.streaming.thread = InputThread(
            self.job,
            self._write_next,
            self._has_next,
            look_seconds=self.look_seconds,
            interval_seconds=self.interval_seconds,
            interval_factor=self.interval_factor,
        )
        self.streaming.thread.start()

    def _has_next(self) -> bool:
        if self._last_of_query is not None:
            self._replace_query(self._last_of_query)
        if self.streaming.query is not None or self.streaming.is_stopping:
            time.sleep(_LOOK_SECONDS)
            return False
        try:
            return self.has_next()
        except LeftToSparkError as reason:
            self.leave(reason)
            return False
        except StalledError as error:
            self.streaming.stall = error
            raise

    def _write_next(self, entry: str, batch: int) -> None:
        try:
            self.streaming.guarded(lambda *_: self.write_next())(entry, batch)
        except LeftToSparkError as reason:
            self.leave(reason)

    def _replace_query(self, last: int) -> None:
        """Waits until the query has completed its last batch ``last``, and then ends the query. This method runs in the
        thread that takes the query's place."""
        limit = time.monotonic() + _END_SECONDS
        while not self.has_completed(last) and time.monotonic() < limit:
            if self.streaming.is_stopping:
                return
            time.sleep(_LOOK_SECONDS)
        with self._change() as may_change:
            if not may_change:
                return
            self.end_query()
            self._last_of_query = None
            if not self.open():
                self._start_query()

    def leave(self, reason: LeftToSparkError) -> None:
        """Starts a query in the place of this thread."""
        logger.debug("%s continues with a streaming query: %s", self.job, reason)
        self.is_possible = not reason.is_final
        with self._change() as may_change:
            if may_change:
                self._start_query()

    def _start_query(self) -> None:
        self._needed = min(2 * self._needed, MOST_NEEDED)
        thread = self.streaming.thread
        self.start_query()
        self.streaming.thread = None
        if thread is not None:
            thread.stop()

    @contextmanager
    def _change(self) -> Iterator[bool]:
        """A context manager for a change between query and thread. The value of the context manager is False after a
        stop of the run has begun. The caller must then not make the change."""
        while not self._changing.acquire(timeout=_LOOK_SECONDS):
            if self.streaming.is_stopping:
                yield False
                return
        try:
            yield not self.streaming.is_stopping and not self.streaming.is_over
        finally:
            self._changing.release()
