"""A running job: one run of a streaming query, from its run number to its stop."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from rw_sql.runtime.spark.jvm import thrown_by
from rw_sql.runtime.support.failures import Failure, StalledError, cause_line
from rw_sql.runtime.support.processes import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from rw_sql.model.job_specs import JobSpec

logger = logging.getLogger(__name__)

GRACE_SECONDS = 1.0
"""How long a stop waits before it cancels the running batch, in seconds; a cancelled batch leaves nothing behind."""


class Job(Protocol):
    """One run of a job."""

    @property
    def spec(self) -> JobSpec:
        """The spec that it was started for."""
        ...

    @property
    def run(self) -> int:
        """Its run number."""
        ...

    @property
    def is_unproven(self) -> bool:
        """True while its first batch is in progress and none has succeeded yet."""
        ...

    def failure(self) -> Failure | None:
        """The reason why the run ended by itself; None while it runs."""
        ...

    def stop(self) -> None:
        """Stops the run; after that, no part of it runs in this process."""
        ...


_FIRST_PLAN_SECONDS = 600.0
"""A query that has had no batch for longer than this counts as one without data, not as one that is still planning."""


class BrokenOffError(Exception):
    """A batch ended because its query was being stopped, whatever error was raised first.

    Spark detects an interrupted Python batch by Py4J's words in the traceback, with a pattern
    (``StreamExecution.PROXY_ERROR``) whose recursion overflows the stack on long tracebacks. This exception is
    therefore short and contains exactly these words.
    """

    def __init__(self) -> None:
        super().__init__(
            "py4j.protocol.Py4JJavaError: An error occurred while calling a batch: java.lang.InterruptedException"
        )


class BatchGate:
    """Tracks whether a batch is being written, so that a stop can wait for it briefly."""

    def __init__(self) -> None:
        self._idle = threading.Event()
        self._idle.set()
        self._has_ended = False
        self._is_stopping = False
        self.stall: StalledError | None = None
        """The reason why a batch refused to continue; None if none refused."""
        self._busy_since: float | None = None
        self._made_at = time.monotonic()
        self._has_begun = False

    def close(self) -> None:
        """Marks the query as being stopped: later errors of its batch are not failures."""
        self._is_stopping = True

    def guarded(
        self,
        write: Callable[[DataFrame, int], None],
        note: Callable[[int, float], None] = lambda _at_ms, _seconds: None,
    ) -> Callable[[DataFrame, int], None]:
        """The function for ``foreachBatch``. Raises BrokenOffError if the stop of its query interrupts the batch.

        ``note`` receives the end of each successful batch, in milliseconds since 1970, and its seconds.
        """

        def guarded(frame: DataFrame, batch: int) -> None:
            began = self._busy_since = time.monotonic()
            self._has_begun = True
            try:
                write(frame, batch)
            except Exception as error:
                if not self._is_stopping:
                    if isinstance(error, StalledError):
                        self.stall = error
                    raise
                logger.debug("batch %d was broken off", batch, exc_info=True)
            else:
                if note is not None:
                    note(now_ms(), time.monotonic() - began)
                return
            finally:
                self._busy_since = None
            # Outside the handler: the original error must not be in the traceback.
            raise BrokenOffError

        return guarded

    def __enter__(self) -> None:
        self._idle.clear()

    def __exit__(self, error: type[BaseException] | None = None, *_: object) -> None:
        self._has_ended = self._has_ended or error is None
        self._idle.set()

    @property
    def is_in_first(self) -> bool:
        """True while a batch is being written and none has succeeded yet."""
        return not self._has_ended and not self._idle.is_set()

    @property
    def is_before_first(self) -> bool:
        """True if no batch has begun and the query may still be planning its first one."""
        return not self._has_begun and time.monotonic() - self._made_at < _FIRST_PLAN_SECONDS

    @property
    def busy_seconds(self) -> float:
        """The seconds that the batch in progress has taken so far; 0 if there is none."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def wait_idle(self, seconds: float) -> bool:
        """Waits until no batch is being written; False if one still is."""
        return self._idle.wait(seconds)


def stop_query(query: StreamingQuery, gate: BatchGate) -> None:
    """Stops a query: the running batch has GRACE_SECONDS to end, then it is cancelled."""
    gate.wait_idle(GRACE_SECONDS)
    gate.close()
    query.stop()


def failure_of(query: StreamingQuery | None, stall: StalledError | None) -> Failure | None:
    """The reason why a query ended; None while it is active. ``stall`` is the reason given by its batch, if any."""
    if query is None:
        return Failure(reason="it was never started")
    if query.isActive:
        return None
    if stall is not None:
        return stall.failure
    thrown = thrown_by(query)
    return Failure(reason="the query ended without an error" if thrown is None else _innermost(thrown))


def _innermost(thrown: Any) -> str:
    """The message of the innermost cause; the outer ones only say that a query failed."""
    said = ""
    while thrown is not None:
        said = thrown.getMessage() or said
        thrown = thrown.getCause()
    return cause_line(said)
