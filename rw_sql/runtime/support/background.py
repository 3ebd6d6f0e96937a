"""Work beside the owner's loop, on daemon threads: the interpreter's exit never waits for an upstream."""

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
    """Begins ``work`` on a thread of its own; the future gives its result, or raises what it raised."""
    future: Future[T] = Future()

    def run() -> None:
        future.set_running_or_notify_cancel()
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the thread's edge: who asks for the result hears of it
            future.set_exception(error)

    threading.Thread(target=run, name=f"rw_sql-{name}", daemon=True).start()
    return future


def run_in_background(work: Callable[[], None], name: str) -> Future[None]:
    """Runs ``work`` on a thread of its own. An error that it did not expect is logged and kept in the future.

    Not a thread pool: the standard one joins its threads when the interpreter ends, before anything can stop them.
    """
    future: Future[None] = Future()

    def run() -> None:
        future.set_running_or_notify_cancel()
        try:
            work()
        except BaseException as error:
            # The thread's edge, sys.exit included: who waits for the future hears of it, and nobody else would.
            logger.error("%s failed unexpectedly", name, exc_info=error)
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=run, name=f"rw_sql-{name}", daemon=True).start()
    return future
