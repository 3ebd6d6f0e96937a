"""A source of very many small files: the time to list 100,000 files, and the time to read 5,000 files."""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter, sleep

from bench.harness import Case, Pair

FILES = 100_000
_READ = 5_000
PER_FOLDER = 100
_SETTINGS = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.driver.memory": "2g"}


@contextmanager
def folder_of(count: int) -> Iterator[Path]:
    """A folder with this many files of one line each."""
    root = Path(mkdtemp(prefix="rw_sql_bench_files_"))
    try:
        for at in range(0, count, PER_FOLDER):
            (root / f"{at:06}").mkdir()
            for number in range(at, min(count, at + PER_FOLDER)):
                (root / f"{at:06}" / f"part-{number:06}.json").write_text(f'{{"id":{number}}}\n')
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _open_listed() -> Iterator[Pair]:
    from rw_sql.connectors.registry import connector

    with folder_of(FILES) as root:
        kind, options = connector("posix_fs"), {"posix_fs.root": str(root)}

        def look() -> object:
            return kind.look(options)

        yield Pair(
            ours=lambda: {"many_files_listing": _milliseconds(look), "many_files_memory": _megabytes(look)},
            settings={"files": str(FILES)},
        )


def _milliseconds(act: Callable[[], object]) -> float:
    started = perf_counter()
    act()
    return (perf_counter() - started) * 1e3


def _megabytes(act: Callable[[], object]) -> float:
    """The peak memory of a call in MB, including its result."""
    tracemalloc.start()
    try:
        held = act()
        peak = tracemalloc.get_traced_memory()[1]
        del held
        return peak / 1e6
    finally:
        tracemalloc.stop()


@contextmanager
def _open_read() -> Iterator[Pair]:
    """Measures from CREATE SOURCE until every row of every file is in a view."""
    import rw_sql

    with folder_of(_READ) as root:
        warehouse = mkdtemp(prefix="rw_sql_bench_")
        spark = rw_sql.connect(warehouse, config=_SETTINGS)
        numbers = iter(range(1_000))

        def ours() -> float:
            at = next(numbers)
            started = perf_counter()
            spark.sql(
                f"CREATE SOURCE f{at} (id BIGINT) WITH (connector = 'posix_fs', posix_fs.root = '{root}') "
                "FORMAT PLAIN ENCODE JSON"
            ).collect()
            spark.sql(f"CREATE MATERIALIZED VIEW v{at} AS SELECT id FROM f{at}").collect()
            while spark.sql(f"SELECT count(*) FROM v{at}").collect()[0][0] < _READ:
                sleep(0.2)
            took = perf_counter() - started
            spark.sql(f"DROP SOURCE f{at} CASCADE").collect()
            return _READ / took

        try:
            spark.sql("SET statement_timeout = '3600s'")
            yield Pair(ours=ours, settings={"files": str(_READ), "a file": "one line of JSON"})
        finally:
            rw_sql.detach(spark)
            spark.stop()
            shutil.rmtree(warehouse, ignore_errors=True)


CASES = (
    Case(
        name="many_files_listing",
        title="listing 100,000 files on local disk",
        peer="",
        unit="ms",
        goal=2_000,
        open=_open_listed,
    ),
    Case(
        name="many_files_memory",
        title="listing 100,000 files on local disk: peak memory",
        peer="",
        unit="MB",
        goal=100,
        open=_open_listed,
    ),
    Case(
        name="many_files_read",
        title="5,000 files of one line, from CREATE SOURCE until all are in a view",
        peer="",
        unit="files/s",
        goal=500,
        open=_open_read,
        is_more_better=True,
    ),
)
