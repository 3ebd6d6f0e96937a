"""Runs background work on daemon threads, so that the interpreter's exit never waits for an upstream."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

T = TypeVar("T")


def prepare(work: Callable[[], T], name: str) -> Future[T]:
    """Starts ``work`` on its own thread; the future receives the result or the exception."""
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
    """Runs ``work`` on its own thread. An unexpected error is logged and stored in the returned future.

    The standard thread pool is not used, because it joins its threads at interpreter exit before anything can stop
    them.
    """
    future: Future[None] = Future()

    def run() -> None:
        future.set_running_or_notify_cancel()
        try:
            work()
        except BaseException as error:
            # Catches ``sys.exit`` too. A caller that waits for the future gets the error; otherwise only the log shows
            # it.
            logger.error("%s failed unexpectedly", name, exc_info=error)
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=run, name=f"rw_sql-{name}", daemon=True).start()
    return future
