"""Statements in an open session, compared with the same change in a catalog that Spark SQL maintains in a Delta
table."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from tempfile import mkdtemp
from time import perf_counter

from bench.harness import Case, Pair
from bench.streaming import COLUMNS, SETTINGS

_MERGE = (
    "MERGE INTO catalog t USING (SELECT {0} AS id, 'source' AS kind, 's{0}' AS name, '{1}' AS definition) s "
    "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def create_source(number: int) -> str:
    """The statement that creates a source of generated rows, which needs no other system."""
    return (
        f"CREATE SOURCE s{number} ({COLUMNS}) WITH (connector = 'datagen', datagen.rows.per.second = '1', "
        "datagen.split.num = '4', paused = 'true')"
    )


STATEMENTS: Mapping[str, tuple[str, Callable[[int], str]]] = {
    "create_source": ("CREATE SOURCE", create_source),
    "unsafe_set": (
        "ALTER SOURCE … UNSAFE SET",
        lambda number: f"ALTER SOURCE s0 UNSAFE SET (datagen.rows.per.second = '{number + 1}') WITH (VALIDATE = false)",
    ),
    "reset_splits": ("RESET SOURCE SPLITS", lambda _: "RESET SOURCE SPLITS s0"),
    "inject_offsets": (
        "INJECT SOURCE OFFSETS",
        lambda number: f"INJECT SOURCE OFFSETS s0 TO OFFSET {number} ALLOW GAPS, DUPLICATES",
    ),
}


@contextmanager
def _open() -> Iterator[Pair]:
    import rw_sql

    warehouse = mkdtemp(prefix="rw_sql_bench_")
    spark = rw_sql.connect(warehouse, config=SETTINGS, run_jobs=False)
    try:
        spark.sql("CREATE TABLE catalog (id INT, kind STRING, name STRING, definition STRING) USING delta")
        for text in ("ALTER SYSTEM SET enable_unsafe_ops = true", create_source(0)):
            spark.sql(text).collect()
        numbers = count(1)

        def timed(text: str) -> float:
            spark.sql("SET unsafe_confirmation = 'yes'").collect()
            started = perf_counter()
            spark.sql(text).collect()
            return (perf_counter() - started) * 1e3

        def ours() -> Mapping[str, float]:
            number = next(numbers)
            took = {name: timed(statement(number)) for name, (_, statement) in STATEMENTS.items()}
            return took | {f"{name}_ms": figure for name, figure in took.items()}

        took_by_merge: list[float] = []

        def peer() -> Mapping[str, float]:
            took_by_merge.append(timed(_MERGE.format(next(numbers), create_source(0).replace("'", "''"))))
            return dict.fromkeys(STATEMENTS, took_by_merge[-1])

        yield Pair(
            ours=ours,
            peer=peer,
            beside=lambda: took_by_merge[-1],
            settings={
                "both": "one session, local[2], 2 GB, 2 shuffle and 2 snapshot partitions; until the rows are there",
                "ours": "planned, previewed, committed with its operation; datagen, no validation upstream",
                "peer": "MERGE of one row into a Delta table of four columns",
                "rounds": "the bare times are compared with the MERGE of the same runs",
            },
        )
    finally:
        rw_sql.detach(spark)
        spark.stop()
        shutil.rmtree(warehouse, ignore_errors=True)


def _cases(name: str, title: str) -> tuple[Case, Case]:
    beside = Case(name=name, title=title, peer="MERGE", unit="ms", goal=0.1, open=_open, runs=15, warm_ups=8)
    return beside, replace(beside, name=f"{name}_ms", peer="", goal=50.0)


CASES = tuple(case for name, (title, _) in STATEMENTS.items() for case in _cases(name, title))
