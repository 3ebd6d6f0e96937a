"""Starts Spark for a command, and hides the roughly one hundred lines of messages that Spark prints while it starts."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from rw_sql.cli.process_cleanup import MARK
from rw_sql.cli.terminal.output import console_for
from rw_sql.cli.terminal.status_line import own_stderr
from rw_sql.session.java import check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rw_sql.cli.terminal.status_line import StatusLine
    from rw_sql.plan.ports.queries import AnalyzedQuery, QueryAnalysis
    from rw_sql.session.class_archive import ClassArchive


STARTING = "starting Spark (the first start downloads Delta Lake)"

_LINE_AFTER = 5.0
"""The time in seconds after which the first status line about the start of Spark is printed on a stream that cannot be
redrawn in place, such as a log file."""


@contextmanager
def spark_for(
    warehouse: str | None,
    *,
    run_jobs: bool = True,
    config: Mapping[str, str] | None = None,
    status: StatusLine | None = None,
    uses_archive: bool = True,
) -> Iterator[SparkSession]:
    """A context manager that yields an attached session for a command.

    The messages of Spark and of the JVM do not reach the terminal.

    The JVM's standard error goes to a temporary file. The content of this file is printed only if Spark does not start
    or cannot attach to the warehouse.

    If ``run_jobs`` is False, this process does not run the warehouse's jobs. ``config`` contains additional Spark
    settings. If ``uses_archive`` is True, the JVM may load its classes from an archive, or write one
    (:mod:`rw_sql.session.class_archive`). ``status`` shows that Spark is starting. If ``status`` is None and standard
    error is a terminal, one line is printed instead.

    Raises SqlError RW404 if Java is missing. Java is checked before Spark's Python modules are loaded, because loading
    these modules takes seconds on a slow machine.
    """
    check_java()
    stderr = console_for(sys.stderr)
    if stderr.is_terminal and status is None:
        stderr.print(Text(STARTING, style="dim"))
    with nullcontext() if status is None else status.running(line_after=_LINE_AFTER):
        spark = start_spark(
            warehouse, run_jobs=run_jobs, config=config, on_failure=sys.stderr.write, uses_archive=uses_archive
        )
    try:
        yield spark
    finally:
        stop_spark(spark)


def start_spark(
    warehouse: str | None,
    *,
    run_jobs: bool = True,
    config: Mapping[str, str] | None = None,
    on_failure: Callable[[str], object],
    is_beside_prompt: bool = False,
    uses_archive: bool = True,
) -> SparkSession:
    """Starts Spark and attaches to a warehouse. If one of these steps fails, ``on_failure`` receives what the JVM wrote
    to standard error.

    ``is_beside_prompt`` is True if another thread uses the terminal at the same time, in a block of
    :func:`beside_prompt`.
    """
    from rw_sql.runtime.spark.jar_cache import CLASS_PATH
    from rw_sql.runtime.spark.jvm import gateway
    from rw_sql.session.attach import connect, initial_jars
    from rw_sql.session.class_archive import class_archive, with_archive

    archive: ClassArchive | None = None
    if uses_archive and gateway() is None:
        jars = initial_jars(warehouse, config or {}).get(CLASS_PATH, "")
        archive = class_archive(config or {}, [Path(jar) for jar in jars.split(os.pathsep) if jar])
    if is_beside_prompt and archive is not None and archive.is_made:
        archive = None  # At its end, a JVM that makes an archive would write to the terminal's standard output.
    config = with_archive(config or {}, archive)
    with tempfile.TemporaryFile() as messages, _outliving(archive is not None and archive.is_made):
        saved = os.dup(2)
        # The JVM inherits the file as its standard error and keeps the file open. The standard error of this process is
        # restored afterwards.
        os.dup2(messages.fileno(), 2)
        has_started = False
        try:
            spark = connect(warehouse, run_jobs=run_jobs, config=config)
            has_started = True
            if archive is not None:
                archive.remember(spark)
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            if not has_started:
                messages.seek(0)
                on_failure(messages.read().decode(errors="replace"))
    return spark


@contextmanager
def beside_prompt() -> Iterator[None]:
    """A context manager for a thread that uses the terminal while another thread calls :func:`start_spark`.

    While Spark starts, the file descriptor of standard error is redirected to a temporary file. Inside the block,
    ``sys.stderr`` is therefore a copy that still writes to the terminal. Only the thread that shows the prompt may
    replace ``sys.stderr``, because prompt_toolkit also replaces ``sys.stderr`` while it shows a prompt. Another thread
    could later restore the stream of a prompt that has ended, and the text written to this stream would be lost.
    """
    before = sys.stderr
    sys.stderr = own_stderr()
    try:
        yield
    finally:
        sys.stderr = before


@contextmanager
def _outliving(is_needed: bool) -> Iterator[None]:
    """A context manager for starting a JVM that writes its archive after this process has ended. Does nothing if
    ``is_needed`` is false.

    The standard output of the JVM is the null device. Otherwise, a program that reads this process's standard output
    would wait for the end of the JVM. The JVM does not inherit the environment variable MARK, because the keeper of
    this process would stop a JVM with this variable.
    """
    if not is_needed:
        yield
        return
    mark = os.environ.pop(MARK, None)
    sys.stdout.flush()
    saved: int | None
    try:
        saved = os.dup(1)
    except OSError:  # Standard output is closed.
        saved = None
    if saved is not None:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 1)
    try:
        yield
    finally:
        if saved is not None:
            sys.stdout.flush()
            os.dup2(saved, 1)
            os.close(saved)
        if mark is not None:
            os.environ[MARK] = mark


def stop_spark(spark: SparkSession) -> None:
    """Stops the warehouse's jobs and Spark. Ctrl-C is delayed until the jobs and Spark have stopped."""
    from rw_sql.runtime.spark.interrupts import interruptible, shielded
    from rw_sql.session.attach import detach

    with interruptible(), shielded():
        detach(spark)
        spark.stop()


@contextmanager
def query_analyzer() -> Iterator[Callable[[AnalyzedQuery], QueryAnalysis | None]]:
    """A context manager that yields a function. The function analyzes a query with a local Spark, on a temporary
    warehouse without jobs. The function returns None if the columns of one of the query's inputs, or the types of these
    columns, are unknown."""
    from rw_sql.plan.offline.query_answers import UNKNOWN_TYPE

    with tempfile.TemporaryDirectory() as folder, spark_for(folder, run_jobs=False) as spark:
        from rw_sql.runtime.spark.query_analysis import analyze
        from rw_sql.runtime.spark.sessions import SparkSessions

        sessions = SparkSessions(spark, is_local=True)

        def ask(request: AnalyzedQuery) -> QueryAnalysis | None:
            columns = [column for relation in request.relations for column in relation.columns]
            if not all(relation.columns for relation in request.relations):
                return None
            return None if any(kind == UNKNOWN_TYPE for _, kind in columns) else analyze(sessions, request)

        yield ask
