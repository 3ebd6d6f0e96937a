"""Manages the streaming query of one run of a job: the batches, the end and the stop of the query.

Each run of a reader, view or sink has one :class:`StreamingRun`. A :class:`StreamingRun` passes through these states:
created, running (:attr:`StreamingRun.query` is set), being stopped (:meth:`StreamingRun.cancel`), over
(:meth:`StreamingRun.forbid`).
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from rw_sql.runtime.delta.job_output import FencedError
from rw_sql.runtime.spark.jvm import thrown_by
from rw_sql.runtime.spark.work_progress import WorkerThread
from rw_sql.runtime.support.failures import Failure, StalledError, cause_line
from rw_sql.runtime.support.processes import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql.streaming.query import StreamingQuery

    from rw_sql.runtime.jobs.batch_thread import BatchThread

logger = logging.getLogger(__name__)

T = TypeVar("T")

_ACTIVE_SECONDS = 0.1
"""After a check has found a query active, the query counts as active for this time in seconds without another check.
Each check is a call to the JVM, and both the reconciler's passes and the job's status need the result."""

GRACE_SECONDS = 1.0
"""The time in seconds for which a stop waits for the running batch before it cancels the batch. A cancelled batch
commits nothing."""

_FIRST_PLAN_SECONDS = 600.0
"""For this number of seconds after the run's :class:`StreamingRun` was created, a query without any batch is assumed to
be planning its first batch. After this time, the query is assumed to have no data to read."""


class BrokenOffError(Exception):
    """Raised if a batch ended because the batch's query was being stopped. The immediate cause may have been any error.

    Spark recognizes an interrupted Python batch by Py4J's wording in the traceback. Spark's regular expression for this
    wording (``StreamExecution.PROXY_ERROR``) overflows the stack on long tracebacks. This exception is therefore short
    and contains exactly that wording.
    """

    def __init__(self) -> None:
        super().__init__(
            "py4j.protocol.Py4JJavaError: An error occurred while calling a batch: java.lang.InterruptedException"
        )


class StreamingRun:
    """The query of one run, or the thread that writes the run's batches in place of a query. The batches run in one
    separate thread. Any other thread may stop the run."""

    def __init__(self, job_id: str, note: Callable[[str, int, float], None] | None = None) -> None:
        """``note`` is called after each successful batch. ``note`` receives the job, the end of the batch in
        milliseconds since 1970, and the duration of the batch in seconds."""
        self.query: StreamingQuery | None = None
        self.thread: BatchThread | None = None
        """The thread that writes the batches in place of a query."""
        self.stall: StalledError | None = None
        """The error of a batch that ended because the job must stall; None if no batch has ended for this reason."""
        self.worker: WorkerThread | None = None
        """The thread that wrote the last batch or writes the batch in progress; None if no batch has begun."""
        self._job_id = job_id
        self._note = note
        self._idle = threading.Event()
        self._idle.set()
        self._turn = threading.Lock()
        self._is_stopping = False
        self._is_over = False
        self._has_begun = False
        self._has_ended = False
        self._busy_since: float | None = None
        self._made_at = time.monotonic()
        self._active_at = -_ACTIVE_SECONDS

    def guarded(self, write: Callable[[T, int], None]) -> Callable[[T, int], None]:
        """Wraps ``write`` for ``foreachBatch``. The returned function raises BrokenOffError if a stop of the query
        interrupts the batch."""

        def guarded(content: T, batch: int) -> None:
            self.worker = WorkerThread.of_spark()
            began = self._busy_since = time.monotonic()
            self._has_begun = True
            try:
                write(content, batch)
            except Exception as error:
                if not self._is_stopping:
                    if isinstance(error, StalledError):
                        self.stall = error
                    raise
                logger.debug("batch %d was interrupted", batch, exc_info=True)
            else:
                if self._note is not None:
                    self._note(self._job_id, now_ms(), time.monotonic() - began)
                return
            finally:
                self._busy_since = None
            # The exception is raised outside the handler, because the original error must not be in the traceback.
            raise BrokenOffError

        return guarded

    @contextmanager
    def batch(self) -> Iterator[None]:
        """A context manager for writing a batch. A stop waits up to GRACE_SECONDS for the end of the ``with`` block
        (:meth:`wait_idle`)."""
        self._idle.clear()
        try:
            yield
            self._has_ended = True
        finally:
            self._idle.set()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A context manager for a commit. :meth:`forbid` waits for the end of the ``with`` block.

        Raises FencedError if :meth:`forbid` has been called.
        """
        with self._turn:
            if self._is_over:
                raise FencedError(f"{self._job_id} was stopped")
            yield

    @property
    def is_unproven(self) -> bool:
        """True while a batch is being written and no batch of the run has succeeded yet."""
        return not self._has_ended and not self._idle.is_set()

    @property
    def is_before_first(self) -> bool:
        """True if no batch has begun and the query may still be planning its first batch."""
        return not self._has_begun and time.monotonic() - self._made_at < _FIRST_PLAN_SECONDS

    @property
    def is_begun(self) -> bool:
        """True if the run has something to stop: a query, or a thread in its place."""
        return self.query is not None or self.thread is not None

    @property
    def is_stopping(self) -> bool:
        """True after a stop of the query has begun."""
        return self._is_stopping

    @property
    def is_over(self) -> bool:
        """True if the run can commit nothing any more."""
        return self._is_over

    @property
    def busy_seconds(self) -> float:
        """The time in seconds that the batch in progress has taken so far; 0 if no batch is in progress."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def failure(self) -> Failure | None:
        """The reason why the query, or the thread in its place, ended although nothing stopped it; None while it is
        active.

        The end of a query may be noticed up to 0.1 seconds late.
        """
        if self.thread is not None:
            return self._failure_of(self.thread)
        if self.query is None:
            return Failure(reason="the query was never started")
        if self.stall is None and time.monotonic() - self._active_at < _ACTIVE_SECONDS:
            return None
        if self.query.isActive:
            self._active_at = time.monotonic()
            return None
        if self.stall is not None:
            return self.stall.failure
        thrown = thrown_by(self.query)
        return Failure(reason="the query ended without an error" if thrown is None else _innermost(thrown))

    def _failure_of(self, thread: BatchThread) -> Failure | None:
        if thread.is_active:
            return None
        if self.stall is not None:
            return self.stall.failure
        error = thread.error
        reason = "its thread ended without an error" if error is None else f"{type(error).__name__}: {error}"
        return Failure(reason=cause_line(reason))

    def wait_idle(self, seconds: float) -> bool:
        """Waits at most ``seconds`` until no batch is being written; returns False if a batch is still being
        written."""
        return self._idle.wait(seconds)

    def expect_stop(self) -> None:
        """Marks the query as being stopped. Errors that the query's batch raises afterwards do not count as
        failures."""
        self._is_stopping = True

    def end_query(self) -> None:
        """Ends the query. A thread calls this method when it takes the query's place."""
        query, self.query = self.query, None
        if query is not None:
            query.stop()

    def cancel(self) -> None:
        """Stops the query, and cancels the batch in progress. Returns after Spark has ended the query."""
        self.expect_stop()
        if self.thread is not None:
            self.thread.stop()
        if self.query is not None:
            self.query.stop()

    def stop(self) -> None:
        """Stops the query. The batch in progress has GRACE_SECONDS to finish. After this time, the batch is
        cancelled."""
        self.wait_idle(GRACE_SECONDS)
        self.cancel()

    def forbid(self, seconds: float = -1) -> bool:
        """Waits for a commit in progress, and prevents further commits.

        If the wait takes longer than ``seconds``, returns False and prevents nothing. The default -1 means that there
        is no limit.
        """
        if not self._turn.acquire(timeout=seconds):
            return False
        self._is_over = True
        self._turn.release()
        return True


def _innermost(thrown: Any) -> str:
    """The message of an error's innermost cause. The outer exceptions only state that a query failed."""
    said = ""
    while thrown is not None:
        said = thrown.getMessage() or said
        thrown = thrown.getCause()
    return cause_line(said)
