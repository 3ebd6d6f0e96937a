"""Two thousand small batches. The number of files, the size of the logs, the memory and the time of a batch stop
growing."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

import rw_sql
from proof.course import Course, resident_mb
from proof.harness import Facts, Proof
from rw_sql.runtime.delta.delta_log import job_commits
from rw_sql.runtime.spark.sessions import jvm_pid
from rw_sql.runtime.support.warehouse import Warehouse

BATCHES = 2000
_SAMPLE_EVERY = 20
_MEMORY_EVERY = 100
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
}
_SOURCE = """CREATE SOURCE clicks (id INT, page INT) WITH (connector = 'datagen', datagen.rows.per.second = '500',
  fields.id.kind = 'sequence', fields.page.max = '100', barrier_interval_ms = '400')"""
_VIEW = "CREATE MATERIALIZED VIEW pages AS SELECT page, count(*) AS n FROM clicks GROUP BY page"


def _newest_batch(warehouse: Warehouse, table: str) -> int:
    return max((commit.batch for _, commit in _first(job_commits(warehouse, table))), default=-1)


def _first(found: Any) -> list[Any]:
    return [each for each, _ in zip(found, range(1), strict=False)]


def _sizes(table: str) -> tuple[int, int]:
    """The number of live files, and the bytes of the Delta log."""
    log = Path(table) / "_delta_log"
    return len(DeltaTable(table).file_uris()), sum(_size(file) for file in log.iterdir())


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # the clean-up has just removed the file
        return 0


def _heap(spark: Any) -> Callable[[], float]:
    """The JVM's heap in MB after a garbage collection."""

    def measured() -> float:
        spark._jvm.System.gc()
        runtime = spark._jvm.Runtime.getRuntime()
        return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6

    return measured


def _cpu_seconds(pids: tuple[int, ...]) -> float:
    """The CPU time of the processes so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _check(seed: int, folder: Path) -> Facts:
    place = str(folder / "warehouse")
    spark = rw_sql.connect(place, config=_SETTINGS)
    try:
        spark.sql(_SOURCE).collect()
        spark.sql(_VIEW).collect()
        warehouse = Warehouse.at(place)
        log, view = warehouse.data(1, 1), warehouse.data(2, 1)
        heap = _heap(spark)
        pids = (os.getpid(), jvm_pid(spark))
        course = Course()
        began = since = time.monotonic()
        at, spent = 0, _cpu_seconds(pids)
        while at < BATCHES:
            time.sleep(0.05)
            batch = _newest_batch(warehouse, log)
            if batch < at + _SAMPLE_EVERY:
                continue
            wall, cpu = (time.monotonic() - since) * 1000, (_cpu_seconds(pids) - spent) * 1000
            course.note(batch, wall_ms=wall / (batch - at), cpu_ms=cpu / (batch - at))
            files, log_bytes = _sizes(log)
            view_files, view_bytes = _sizes(view)
            course.note(batch, files=files + view_files, log_bytes=log_bytes + view_bytes)
            if batch // _MEMORY_EVERY != at // _MEMORY_EVERY:
                course.note(batch, heap_mb=heap(), resident_mb=resident_mb())
            at, since, spent = batch, time.monotonic(), _cpu_seconds(pids)
        spark.sql("PAUSE SOURCE clicks").collect()
        spark.sql("FLUSH").collect()
        (rows,) = spark.sql("SELECT sum(n) FROM pages").collect()[0]
        assert rows == len(DeltaTable(log).to_pyarrow_table(columns=["id"])), "the view has not every row once"
    finally:
        rw_sql.detach(spark)
        spark.stop()
        shutil.rmtree(folder / "warehouse", ignore_errors=True)
    seconds = round(time.monotonic() - began)
    # The wall time of a batch is reported, but may grow, because it depends on the other work of the machine.
    return {"batches": BATCHES, "seconds": seconds, **course.require_level(BATCHES, besides=("wall_ms",))}


PROOF = Proof(
    name="small-batches",
    claim="After 2,000 small batches nothing grows: live files, Delta logs, time per batch and memory stay within 5 %.",
    method="A source of 500 rows a second, its log, and a keyed view on it write one batch every 0.4 s. The pace is "
    "fixed because a Delta log keeps the commits of its last seconds, so that its size would otherwise depend on "
    "the machine's speed. The live files of both tables, the bytes of both Delta logs and the time per batch (wall "
    "time, and CPU time of both processes) are measured every 20 batches; the process's memory and the JVM's heap "
    "after a garbage collection are measured every 100 batches. The mean of the last quarter is compared with the "
    "mean of the third quarter.",
    seeds=range(1),
    check=_check,
)
