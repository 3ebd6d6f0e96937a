"""Makes Ctrl-C end the statement that runs in the main thread, together with the statement's Spark jobs and waits.
Streaming queries continue.

PySpark's own handler of Ctrl-C cancels *all* jobs. PySpark's handler also uses the JVM connection on which the main
thread is waiting for a response, and thus corrupts this connection. During a call to the JVM, the handler of this
module only records the interruption. Another thread cancels the jobs with the main thread's tag, and KeyboardInterrupt
is raised after the call has returned. If a call does not return within a few seconds, the call and its connection are
abandoned. The next statement opens another connection.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j import java_gateway
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rw_sql.runtime.spark.jvm import gateway_client, is_stopped, task_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_TAG = f"rw_sql-main-{os.getpid()}"
_CANCEL_SECONDS = 0.1
"""The interval in seconds at which an interrupted statement's jobs are cancelled. The cancellation is repeated until
the statement's call to the JVM returns, because the call may start further jobs."""

_FINALIZER_SECONDS = 0.02
"""If an interrupt arrives inside a finalizer of py4j, the interrupt is sent again after this time in seconds."""

_FINALIZER = java_gateway._garbage_collect_object.__code__
"""The function that py4j runs when Python has released a Java object."""

_ANSWER_SECONDS = 3.0
"""The time in seconds within which an interrupted call to the JVM must return. After this time, the call is abandoned.
A call may exceed the time if it runs no jobs, because it is planning or waiting for a file system."""


class StatementInterrupted(KeyboardInterrupt):
    """A KeyboardInterrupt with a message, which may state, for example, that the statement was already committed."""

    def _render_traceback_(self) -> list[str]:
        """IPython's hook: a notebook shows the message without a traceback."""
        return [f"cancelled: {self}"]


@dataclass(slots=True)
class _Main:
    """The handler's state in the main thread. Only the main thread writes the attributes of this object, except
    ``context``."""

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
    """Replaces PySpark's handler of Ctrl-C in the main thread until the process ends. The replacement therefore also
    applies at interactive prompts."""
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
    """A context manager inside which Ctrl-C ends the main thread's work in Spark.

    If the embedding program has its own handler, that handler is kept.
    """
    handler = signal.getsignal(signal.SIGINT) if _is_main() else None
    if not _is_replaceable(handler):
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
    """A context manager that delays Ctrl-C until the end of the ``with`` block. The block contains work that must not
    be interrupted.

    If Ctrl-C was pressed, KeyboardInterrupt is raised at the end of the block. This KeyboardInterrupt replaces any
    error that the block has raised. If the embedding program has its own handler, that handler is kept, and Ctrl-C is
    not delayed.
    """
    handler = signal.getsignal(signal.SIGINT) if _is_main() else None
    if not _is_replaceable(handler):
        yield
        return
    _forget_handled()
    signal.signal(signal.SIGINT, _on_interrupt)
    _main.shields += 1
    try:
        yield
    finally:
        _main.shields -= 1
        signal.signal(signal.SIGINT, handler)
        _raise_if_interrupted()


def running_tasks() -> tuple[int, int]:
    """Returns the number of finished tasks and the number of all known tasks in the Spark jobs that the main thread
    runs. Both numbers are 0 if the main thread runs no Spark job."""
    context = _main.context
    if context is None or not _main.is_calling or is_stopped(context):
        return 0, 0
    return task_counts(context, _TAG)


def _is_main() -> bool:
    return threading.get_ident() == _main.ident


def _is_replaceable(handler: object) -> bool:
    """True if a handler of Ctrl-C belongs to this module, to Python or to PySpark; False if it belongs to the embedding
    program."""
    return handler is _on_interrupt or handler is signal.default_int_handler or _is_pysparks(handler)


def _is_pysparks(handler: object) -> bool:
    return getattr(handler, "__module__", None) == "pyspark.core.context"


def _tag() -> None:
    """Adds a tag to all Spark jobs that the main thread starts from now on.

    Streaming queries are not affected, because other threads start their jobs.
    """
    if _main.context is not None and not is_stopped(_main.context):
        _main.context.addJobTag(_TAG)
        _main.is_tagged = True


def _on_interrupt(_number: int, frame: FrameType | None) -> None:
    if _main.shields:
        _main.is_interrupted = True
        return
    if not _main.is_calling:
        if _is_in_finalizer(frame):
            # Python would print an exception raised here and continue. The signal is sent again after the callback.
            again = threading.Timer(_FINALIZER_SECONDS, signal.pthread_kill, (_main.ident, signal.SIGINT))
            again.daemon = True
            again.start()
            return
        # Python ignores exceptions in other callbacks too. The next call to the JVM, or the end of the statement, then
        # raises KeyboardInterrupt again.
        _main.is_interrupted = _main.depth > 0
        raise KeyboardInterrupt
    if not _main.is_interrupted:
        _main.is_interrupted = True
        threading.Thread(target=_cancel, args=(_main.call,), name="rw_sql-cancel", daemon=True).start()
        return
    _leave_call()
    raise KeyboardInterrupt


def _is_in_finalizer(frame: FrameType | None) -> bool:
    """True while py4j, in the callback of a weak reference, notifies the JVM that Python has released an object."""
    while frame is not None:
        if frame.f_code is _FINALIZER:
            return True
        frame = frame.f_back
    return False


def _cancel(call: int) -> None:
    """Cancels the main thread's jobs repeatedly until the thread's call returns. If the call does not return in time,
    makes the main thread abandon the call."""
    context = _main.context
    assert context is not None
    deadline = time.monotonic() + _ANSWER_SECONDS
    while _main.is_calling and _main.call == call:
        try:
            context.cancelJobsWithTag(_TAG)
        except (Py4JError, PySparkException, OSError):
            return  # The JVM has ended, so the call ends by itself.
        if time.monotonic() > deadline:
            if _main.is_calling and _main.call == call:
                signal.pthread_kill(_main.ident, signal.SIGINT)
            return
        time.sleep(_CANCEL_SECONDS)


def _leave_call() -> None:
    """Abandons the main thread's connection to the JVM. The response that is pending on this connection is never
    read."""
    _main.is_calling = _main.is_interrupted = _main.is_tagged = False
    connection = _main.client.get_thread_connection()
    if connection is not None:
        del _main.client.thread_connection.connection
        connection.close()


def _is_no_left_call(record: logging.LogRecord) -> bool:
    """A filter for log records: False for the traceback that py4j logs for an abandoned call, because this traceback
    contains no useful information."""
    raised = record.exc_info[0] if record.exc_info else None
    return raised is not KeyboardInterrupt or "while sending command" not in str(record.msg)


def _raise_if_interrupted() -> None:
    if _main.is_interrupted and not _main.shields:
        _main.is_interrupted = False
        raise KeyboardInterrupt from None  # The error of the cancelled call contains no information.


def _forget_handled() -> None:
    """Discards the record of an interrupt that is already being handled. If the record remained, the interrupt would be
    raised again in the middle of a cleanup."""
    if isinstance(sys.exception(), KeyboardInterrupt) and not _main.shields:
        _main.is_interrupted = False


def _guarded(send: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps py4j's ``send_command``. If Ctrl-C is pressed during a call of the main thread, the wrapper records this
    instead of raising KeyboardInterrupt."""

    def send_command(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != _main.ident or _main.is_calling:
            return send(*args, **kwargs)
        _forget_handled()
        _raise_if_interrupted()
        _main.call += 1
        _main.is_calling = True
        try:
            return send(*args, **kwargs)
        finally:
            _main.is_calling = False
            _raise_if_interrupted()

    return send_command
