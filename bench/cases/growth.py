"""What many objects cost: attaching to a warehouse of thousands of sources beside one of ten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from bench.cases.metastore import metastore_of
from bench.harness import Case, Pair
from bench.streaming import SETTINGS

FEW, MANY = 10, 10_000


@contextmanager
def _open() -> Iterator[Pair]:
    from pathlib import Path
    from tempfile import TemporaryDirectory

    import rw_sql

    with TemporaryDirectory(prefix="rw_sql_bench_") as unused, metastore_of(FEW) as few, metastore_of(MANY) as many:
        spark = rw_sql.connect(unused, config=SETTINGS, run_jobs=False)
        rw_sql.detach(spark)

        def attach(directory: str) -> Callable[[], float]:
            warehouse = str(Path(directory).parent)

            def timed() -> float:
                started = perf_counter()
                rw_sql.attach(spark, warehouse, run_jobs=False)
                took = (perf_counter() - started) * 1e3
                rw_sql.detach(spark)
                return took

            return timed

        try:
            yield Pair(
                ours=attach(many.directory),
                peer=attach(few.directory),
                settings={"ours": f"{MANY:,} sources, none running", "peer": f"{FEW} sources, none running"},
            )
        finally:
            spark.stop()


CASES = (
    Case(
        name="attach_10000",
        title="attach to a warehouse of 10,000 sources",
        peer="one of 10 sources",
        unit="ms",
        goal=20.0,
        open=_open,
    ),
)
