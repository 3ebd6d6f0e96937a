"""What an attached session costs those who only use Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from bench.harness import Case, Pair

STATEMENTS = ("SELECT 1 AS one", "SELECT id, id * 2 AS twice FROM range(10) WHERE id > 3", "SHOW TABLES")
REPEATS = 40


@contextmanager
def _open_plain() -> Iterator[Pair]:
    from pyspark.sql import SparkSession

    bare: Callable[[Any, str], Any] = SparkSession.sql  # before attach wraps it

    from rw_sql.cli.spark_start import spark_for

    with tempfile.TemporaryDirectory(prefix="rw_sql_bench_") as folder, spark_for(folder) as spark:

        def milliseconds(run: Callable[[str], Any]) -> float:
            started = perf_counter()
            for _ in range(REPEATS):
                for statement in STATEMENTS:
                    run(statement)
            return (perf_counter() - started) / REPEATS / len(STATEMENTS) * 1e3

        yield Pair(
            ours=lambda: milliseconds(spark.sql),
            peer=lambda: milliseconds(lambda text: bare(spark, text)),
            settings={"statements": "; ".join(STATEMENTS), "repeats": str(REPEATS), "session": "one, both ways"},
        )


CASES = (
    Case(
        name="plain_statements",
        title="plain statements through an attached spark.sql",
        peer="bare spark.sql",
        unit="ms",
        goal=1.05,
        open=_open_plain,
        is_quick=True,
        runs=21,
        warm_ups=10,
    ),
)
