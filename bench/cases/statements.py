"""Statements in an open session, beside the same change of a catalog that is kept by Spark SQL in a Delta table."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from tempfile import mkdtemp
from time import perf_counter

from bench.harness import Case, Pair
from bench.streaming import COLUMNS, SETTINGS

_MERGE = (
    "MERGE INTO catalog t USING (SELECT {0} AS id, 'source' AS kind, 's{0}' AS name, '{1}' AS definition) s "
    "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def _create(number: int) -> str:
    return (
        f"CREATE SOURCE s{number} ({COLUMNS}) WITH (connector = 'datagen', datagen.rows.per.second = '1', "
        "datagen.split.num = '4', paused = 'true')"
    )


def _pair(statement: Callable[[int], str]) -> Callable[[], AbstractContextManager[Pair]]:
    @contextmanager
    def opened() -> Iterator[Pair]:
        import rw_sql

        warehouse = mkdtemp(prefix="rw_sql_bench_")
        spark = rw_sql.connect(warehouse, config=SETTINGS, run_jobs=False)
        try:
            spark.sql("CREATE TABLE catalog (id INT, kind STRING, name STRING, definition STRING) USING delta")
            for text in ("ALTER SYSTEM SET enable_unsafe_ops = true", "SET unsafe_confirmation = 'yes'", _create(0)):
                spark.sql(text).collect()
            numbers = count(1)

            def timed(text: str) -> float:
                started = perf_counter()
                spark.sql(text).collect()
                return (perf_counter() - started) * 1e3

            yield Pair(
                ours=lambda: timed(statement(next(numbers))),
                peer=lambda: timed(_MERGE.format(next(numbers), _create(0).replace("'", "''"))),
                settings={
                    "ours": "planned, previewed, committed with its operation; datagen, no validation upstream",
                    "peer": "MERGE of one row into a Delta table of four columns",
                },
            )
        finally:
            rw_sql.detach(spark)
            spark.stop()
            shutil.rmtree(warehouse, ignore_errors=True)

    return opened


def _case(name: str, title: str, statement: Callable[[int], str]) -> Case:
    return Case(name=name, title=title, peer="MERGE", unit="ms", goal=0.1, open=_pair(statement), runs=15, warm_ups=3)


CASES = (
    _case("create_source", "CREATE SOURCE", _create),
    _case(
        "unsafe_set",
        "ALTER SOURCE … UNSAFE SET",
        lambda number: f"ALTER SOURCE s0 UNSAFE SET (datagen.rows.per.second = '{number + 1}') WITH (VALIDATE = false)",
    ),
    _case("reset_splits", "RESET SOURCE SPLITS", lambda _: "RESET SOURCE SPLITS s0"),
    _case(
        "inject_offsets",
        "INJECT SOURCE OFFSETS",
        lambda number: f"INJECT SOURCE OFFSETS s0 TO OFFSET {number} ALLOW GAPS, DUPLICATES",
    ),
)
