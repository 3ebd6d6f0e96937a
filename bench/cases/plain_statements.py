"""The cost of an attached session for users who only use Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
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
        ways: tuple[Callable[[str], Any], ...] = (spark.sql, lambda text: bare(spark, text))
        beside = 0.0
        order = Random(1)

        def ours() -> float:
            """Runs each statement both with and without rw_sql, in direct succession. Returns the milliseconds of a
            statement."""
            nonlocal beside
            took = [0.0, 0.0]
            for _ in range(REPEATS):
                for statement in STATEMENTS:
                    # The order is random. In a fixed order, the garbage of one side would always be collected during
                    # the statements of the other side.
                    for way in order.sample((0, 1), 2):
                        started = perf_counter()
                        ways[way](statement)
                        took[way] += perf_counter() - started
            attached, beside = (seconds / REPEATS / len(STATEMENTS) * 1e3 for seconds in took)
            return attached

        yield Pair(
            ours=ours,
            peer=lambda: beside,
            settings={
                "statements": "; ".join(STATEMENTS),
                "repeats": f"{REPEATS}, each both ways, in random order",
                "session": "one, both ways",
            },
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
