"""What Spark's analyzer makes of queries, for ``rw-sql check --spark``: a session without a warehouse of its own."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rw_sql.cli.spark_start import spark_for
from rw_sql.plan.offline.query_answers import UNKNOWN_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rw_sql.plan.requests.queries import AnalyzeQuery, QueryAnalysis


@contextmanager
def query_analyzer() -> Iterator[Callable[[AnalyzeQuery], QueryAnalysis | None]]:
    """Asks a local Spark, on a throwaway warehouse without jobs. None where an input's columns are not known."""
    with tempfile.TemporaryDirectory() as folder, spark_for(folder, run_jobs=False) as spark:
        from rw_sql.runtime.spark.query_analysis import analyze
        from rw_sql.runtime.spark.sessions import SparkSessions

        sessions = SparkSessions(spark, is_local=True)

        def ask(request: AnalyzeQuery) -> QueryAnalysis | None:
            columns = [column for relation in request.relations for column in relation.columns]
            if not all(relation.columns for relation in request.relations):
                return None
            return None if any(kind == UNKNOWN_TYPE for _, kind in columns) else analyze(sessions, request)

        yield ask
