"""Ctrl-C ends the one statement that runs in the main thread: its Spark jobs, its waiting, nothing of the streams.

PySpark's own handler cancels *all* jobs, and does so over the very connection that waits for an answer, which then
belongs to no call any more. Here the handler only notes the interruption while a call into the JVM is under way:
another thread cancels the jobs that carry the main thread's tag, and KeyboardInterrupt is raised once the call has
returned. A call that does not return within some seconds is left behind with its connection; the next statement opens
another.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j import java_gateway
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rw_sql.runtime.spark.jvm import gateway_client, is_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_TAG = f"rw_sql-main-{os.getpid()}"
_CANCEL_SECONDS = 0.1
_FINALIZER_SECONDS = 0.02
_FINALIZER = java_gateway._garbage_collect_object.__code__
"""What py4j runs when Python has let go of a Java object."""

"""How often a statement's jobs are cancelled until its call returns: it may be about to start another one."""

_ANSWER_SECONDS = 3.0
"""How long a call may take to return that has nothing to cancel, as where Spark plans or waits for a file system."""


class StatementInterrupted(KeyboardInterrupt):
    """Ctrl-C of which there is something to say: its text, such as that the statement is committed."""

    def _render_traceback_(self) -> list[str]:
        """IPython's hook: a notebook shows the message and no traceback."""
        return [f"cancelled: {self}"]


@dataclass(slots=True)
class _Main:
    """What the handler must know of the main thread; only that thread writes, but for ``context``."""

    context: SparkContext | None = None
    client: Any = None
    call: int = 0
    is_calling: bool = False
    is_tagged: bool = False
    is_interrupted: bool = False
    depth: int = 0
    shields: int = 0
    ident: int = field(default_factory=lambda: threading.main_thread().ident or 0)


_main = _Main()


def watch(spark: SparkSession) -> None:
    """Prepares Ctrl-C for a session: from the main thread also at a prompt, where PySpark's handler is replaced."""
    context = spark.sparkContext
    client = gateway_client(context)
    if _main.context is not context:
        _main.context, _main.is_tagged = context, False
    if _main.client is not client:
        _main.client = client
        client.send_command = _guarded(client.send_command)
    logging.getLogger().addFilter(_is_no_left_call)
    if not _is_main():
        return
    if not _main.is_tagged:
        _tag()
    if _is_pysparks(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, _on_interrupt)


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C inside ends what the main thread does in Spark. A handler of the program's own is left in place."""
    handler = signal.getsignal(signal.SIGINT) if _is_main() else None
    if handler is not _on_interrupt and handler is not signal.default_int_handler and not _is_pysparks(handler):
        yield
        return
    if not _main.is_tagged:
        _tag()
    _main.depth += 1
    signal.signal(signal.SIGINT, _on_interrupt)
    try:
        yield
        if _main.depth == 1:
            _raise_if_interrupted()
    finally:
        _main.depth -= 1
        if _main.depth == 0:
            _main.is_interrupted = False
        signal.signal(signal.SIGINT, handler)


@contextmanager
def shielded() -> Iterator[None]:
    """Ctrl-C inside is raised at the end: for what must not be broken off in the middle.

    It is where the handler is this module's, as inside of :func:`interruptible`.
    """
    if not _is_main():
        yield
        return
    _main.shields += 1
    try:
        yield
    finally:
        _main.shields -= 1
        _raise_if_interrupted()


def _is_main() -> bool:
    return threading.get_ident() == _main.ident


def _is_pysparks(handler: object) -> bool:
    return getattr(handler, "__module__", None) == "pyspark.core.context"


def _tag() -> None:
    """Marks the jobs that the main thread starts from now on; streams are started by other threads."""
    if _main.context is not None and not is_stopped(_main.context):
        _main.context.addJobTag(_TAG)
        _main.is_tagged = True


def _on_interrupt(_number: int, frame: FrameType | None) -> None:
    if _main.shields:
        _main.is_interrupted = True
        return
    if not _main.is_calling:
        if _is_in_finalizer(frame):
            # Python would print what is raised here and go on. The signal comes again when the callback has returned.
            again = threading.Timer(_FINALIZER_SECONDS, signal.pthread_kill, (_main.ident, signal.SIGINT))
            again.daemon = True
            again.start()
            return
        # Other callbacks swallow an exception too: the next call into the JVM, or the end of the statement, raises it
        # again then.
        _main.is_interrupted = _main.depth > 0
        raise KeyboardInterrupt
    if not _main.is_interrupted:
        _main.is_interrupted = True
        threading.Thread(target=_cancel, args=(_main.call,), name="rw_sql-cancel", daemon=True).start()
        return
    _leave_call()
    raise KeyboardInterrupt


def _is_in_finalizer(frame: FrameType | None) -> bool:
    """Whether py4j is telling the JVM that Python has let go of an object: the callback of a weak reference."""
    while frame is not None:
        if frame.f_code is _FINALIZER:
            return True
        frame = frame.f_back
    return False


def _cancel(call: int) -> None:
    """Cancels the main thread's jobs until its call returns, or leaves the call behind."""
    context = _main.context
    assert context is not None
    deadline = time.monotonic() + _ANSWER_SECONDS
    while _main.is_calling and _main.call == call:
        try:
            context.cancelJobsWithTag(_TAG)
        except (Py4JError, PySparkException, OSError):
            return  # the JVM is gone: the call ends by itself
        if time.monotonic() > deadline:
            if _main.is_calling and _main.call == call:
                signal.pthread_kill(_main.ident, signal.SIGINT)
            return
        time.sleep(_CANCEL_SECONDS)


def _leave_call() -> None:
    """Gives up the main thread's connection, on which an answer will come that nobody reads."""
    _main.is_calling = _main.is_interrupted = _main.is_tagged = False
    connection = _main.client.get_thread_connection()
    if connection is not None:
        del _main.client.thread_connection.connection
        connection.close()


def _is_no_left_call(record: logging.LogRecord) -> bool:
    """False of what py4j logs, with a traceback, of a call that an interruption left behind: it is no news."""
    raised = record.exc_info[0] if record.exc_info else None
    return raised is not KeyboardInterrupt or "while sending command" not in str(record.msg)


def _raise_if_interrupted() -> None:
    if _main.is_interrupted and not _main.shields:
        _main.is_interrupted = False
        raise KeyboardInterrupt from None  # what the cancelled call says is no news


def _guarded(send: Callable[..., Any]) -> Callable[..., Any]:
    """``send_command``, during which Ctrl-C in the main thread is noted instead of raised."""

    def send_command(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != _main.ident or _main.is_calling:
            return send(*args, **kwargs)
        _raise_if_interrupted()
        _main.call += 1
        _main.is_calling = True
        try:
            return send(*args, **kwargs)
        finally:
            _main.is_calling = False
            _raise_if_interrupted()

    return send_command
