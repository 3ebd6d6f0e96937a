"""Starts Spark for a command without its hundred lines of start-up messages."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.text import Text

from rw_sql.cli.output import console_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rw_sql.plan.ports.queries import AnalyzedQuery, QueryAnalysis


@contextmanager
def spark_for(
    warehouse: str | None, *, run_jobs: bool = True, config: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """An attached session while a command runs. Spark's own output does not reach the terminal.

    With ``run_jobs=False`` the process runs no jobs; ``config`` adds Spark settings. The JVM writes to a temporary
    file, which is printed if the JVM does not start and is otherwise removed with the command.
    """
    from rw_sql.runtime.spark.interrupts import interruptible, shielded
    from rw_sql.session.attach import connect, detach

    stderr = console_for(sys.stderr)
    if stderr.is_terminal:
        stderr.print(Text("starting Spark (the first time, it fetches Delta Lake)", style="dim"))
    with tempfile.TemporaryFile() as messages:
        saved = os.dup(2)
        # The JVM, a child process, keeps the file as its standard error; Python's own is restored.
        os.dup2(messages.fileno(), 2)
        has_started = False
        try:
            spark = connect(warehouse, run_jobs=run_jobs, config=config)
            has_started = True
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            if not has_started:
                messages.seek(0)
                sys.stderr.write(messages.read().decode(errors="replace"))
        try:
            yield spark
        finally:
            with interruptible(), shielded():
                detach(spark)
                spark.stop()


@contextmanager
def query_analyzer() -> Iterator[Callable[[AnalyzedQuery], QueryAnalysis | None]]:
    """Analyzes queries with a local Spark, on a throwaway warehouse without jobs. Returns None if an input's columns
    are unknown."""
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
