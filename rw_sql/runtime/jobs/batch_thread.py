"""Writes batches without a streaming query. A thread of this process replaces Spark's query.

A query would plan and start Spark jobs for each batch, and would sleep between batches.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

_END_SECONDS = 1.0
"""The maximum time, in seconds, for which a stop waits for the batch in progress. If the batch takes longer, it
continues, but it can commit nothing after :meth:`StreamingRun.forbid`."""


INTERVAL_FACTOR = 3.0
"""The minimum time between the starts of two successive small batches of a source, as a multiple of the earlier batch's
duration. Without this minimum, the commits of a source could cause too many batches in the source's views. Records that
arrive continuously are written up to twenty times a second on idle cores, and less often on busy cores, where a batch
takes longer. A record that arrives alone is written at once."""

MOST_INTERVAL_SECONDS = 0.25
"""The upper limit, in seconds, of the minimum time that results from ``INTERVAL_FACTOR``."""


class BatchThread:
    """Writes one batch for each call of :meth:`announce`, one after another, until a batch fails or :meth:`stop` is
    called. Thread-safe."""

    def __init__(self, name: str, write: Callable[[str, int], None], *, interval_seconds: float = 0.0) -> None:
        """``write`` is a function that writes one batch. The function receives the batch's number twice: as text and as
        an integer. ``interval_seconds`` is the minimum time between the starts of two batches."""
        self._write = write
        self._interval_seconds = interval_seconds
        self._announced = 0
        self._is_stopped = False
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"rw_sql-batches-{name}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def announce(self) -> None:
        """Requests that one more batch be written."""
        with self._changed:
            self._announced += 1
            self._changed.notify_all()

    @property
    def is_active(self) -> bool:
        """True until a batch has failed or the thread was stopped."""
        return self._thread.is_alive() and not self._is_stopped

    @property
    def is_running(self) -> bool:
        """True while the thread runs. The thread may still run after :meth:`stop`, until the batch in progress has
        ended."""
        return self._thread.is_alive()

    @property
    def error(self) -> Exception | None:
        """The error of the failed batch; None if no batch has failed."""
        return self._error

    def stop(self) -> None:
        """Prevents further batches. Waits at most ``_END_SECONDS`` for the batch in progress, but does not interrupt
        it."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread() and self._thread.ident is not None:
            self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        batch, next_at = 0, 0.0
        try:
            while self._is_due(batch, next_at):
                began = time.monotonic()
                self._write(str(batch), batch)
                next_at = began + self._interval_after(time.monotonic() - began)
                batch += 1
        except Exception as error:
            if not self._is_stopped:
                self._error = error
                logger.debug("batch %d failed", batch, exc_info=True)

    def _interval_after(self, _taken_seconds: float) -> float:
        """The minimum time in seconds between the start of a batch that took ``_taken_seconds`` and the start of the
        next batch."""
        return self._interval_seconds

    def _is_due(self, batch: int, at: float) -> bool:
        """Waits until a batch is announced and may begin. Returns False if the thread was stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or self._announced > batch)
            self._changed.wait_for(lambda: self._is_stopped, max(0.0, at - time.monotonic()))
            return not self._is_stopped


class InputThread(BatchThread):
    """Writes a batch whenever ``has_input`` returns true, until a batch fails or :meth:`stop` is called.
    Thread-safe."""

    def __init__(
        self,
        name: str,
        write: Callable[[str, int], None],
        has_input: Callable[[], bool],
        *,
        look_seconds: float = 0.05,
        interval_seconds: float = 0.0,
        interval_factor: float = 0.0,
    ) -> None:
        """``has_input`` is called after each batch, after each :meth:`announce`, and every ``look_seconds``. If
        ``look_seconds`` is 0, there is no pause between two calls; ``has_input`` itself must then wait for input. The
        minimum time between the starts of two batches is ``interval_factor`` times the duration of the earlier batch,
        but at most 0.25 seconds. If ``interval_seconds`` is longer, it is the minimum time instead."""
        super().__init__(name, write, interval_seconds=interval_seconds)
        self._has_input = has_input
        self._look_seconds = look_seconds
        self._interval_factor = interval_factor

    def _interval_after(self, taken_seconds: float) -> float:
        return max(self._interval_seconds, min(self._interval_factor * taken_seconds, MOST_INTERVAL_SECONDS))

    def _is_due(self, batch: int, at: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped, max(0.0, at - time.monotonic()))
        while not self._is_stopped:
            seen = self._announced
            if self._has_input():
                return not self._is_stopped
            with self._changed:
                if not self._is_stopped and self._announced == seen and self._look_seconds:
                    self._changed.wait(self._look_seconds)
        return False
