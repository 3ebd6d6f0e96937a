"""Runs background work on daemon threads. The interpreter's exit therefore never waits for an upstream."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TYPE_CHECKING, Generic, TypeVar

from rw_sql.runtime.support.failures import log_error

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

logger = logging.getLogger(__name__)

K = TypeVar("K", bound="Hashable")
T = TypeVar("T")


def prepare(work: Callable[[], T], name: str) -> Future[T]:
    """Starts ``work`` on a new thread. The returned future receives the result or the exception of ``work``. Unlike
    :func:`run_in_background`, logs no errors."""
    future: Future[T] = Future()

    def run() -> None:
        future.set_running_or_notify_cancel()
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again for the caller that requests the result
            future.set_exception(error)

    threading.Thread(target=run, name=f"rw_sql-{name}", daemon=True).start()
    return future


def run_in_background(work: Callable[[], None], name: str) -> Future[None]:
    """Starts ``work`` on a new thread. If ``work`` raises an exception, the exception is logged and stored in the
    returned future.

    Python's thread pool is not used, because at the exit of the interpreter, the pool waits for its threads before
    rw_sql has a chance to stop them.
    """
    future: Future[None] = Future()

    def run() -> None:
        future.set_running_or_notify_cancel()
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - log_error logs it
            # Catches ``sys.exit`` too. A caller that waits for the future gets the error. If no caller waits, only the
            # log shows the error.
            log_error(logger, f"{name} failed unexpectedly", error)
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=run, name=f"rw_sql-{name}", daemon=True).start()
    return future


class KeyedWork(Generic[K, T]):
    """On background threads, runs functions that may take long. For each key, at most one function runs at a time.
    Thread-safe.

    Therefore, if a caller requests a result again before the function for the result has ended, no further thread is
    started.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: dict[K, Future[T]] = {}
        self._lock = threading.Lock()

    def results(self, works: Mapping[K, Callable[[], T]], seconds: float) -> dict[K, T]:
        """Runs the functions ``works`` in parallel, and returns the results that arrive within ``seconds``. If a
        function that has ended raised an exception, raises this exception.

        If an earlier function is still running for a key, the new function for this key starts when the earlier
        function ends. If the earlier function does not end within ``seconds``, the new function is not started.
        """
        deadline = time.monotonic() + seconds
        left, begun = dict(works), {}
        while left:
            with self._lock:
                self._running = {key: work for key, work in self._running.items() if not work.done()}
                for key in [key for key in left if key not in self._running]:
                    begun[key] = self._running[key] = prepare(left.pop(key), self._name)
                earlier = [self._running[key] for key in left]
            if earlier and not wait(earlier, max(0.0, deadline - time.monotonic()), FIRST_COMPLETED).done:
                break
        wait(begun.values(), max(0.0, deadline - time.monotonic()))
        return {key: work.result() for key, work in begun.items() if work.done()}
