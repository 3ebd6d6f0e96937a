"""REFRESH TABLE of a table in which few rows differ, compared with INSERT OVERWRITE of all rows. Also measures the
number of bytes that dependents read after a refresh."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from bench.harness import Case, Pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIME, BYTES = "refresh_1000000", "refresh_bytes_of_dependents"
ROWS = 1_000_000
_FEWER = 300_000
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    # The bytes that scans read are summed from Spark's status store, which keeps only the newest thousand executions.
    "spark.sql.ui.retainedExecutions": "100000",
}
_DIFFER = "1 % changed, 0.5 % removed, 0.5 % added"
_DEPENDENTS = {
    "per_region": "SELECT region, count(*) AS n, sum(amount) AS amount FROM t GROUP BY region",
    "large": "SELECT id, name, amount FROM t WHERE amount > 5000",
}
"""The queries of the dependent views. Both views are maintained incrementally; a view with a sum of floating-point
numbers would be recomputed."""

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(slots=True)
class _Upstream:
    """A Delta table in which some rows change for each refresh."""

    path: str
    rows: pa.Table
    draw: np.random.Generator

    @staticmethod
    def at(folder: Path, rows: int) -> _Upstream:
        made = _Upstream(path=str(folder), rows=_rows(0, rows), draw=np.random.default_rng(1))
        made.write()
        return made

    def write(self) -> None:
        write_deltalake(self.path, self.rows, mode="overwrite")

    def change(self) -> None:
        """Changes the amount in 1 % of the rows, removes 0.5 % of the rows, and adds the same number of rows."""
        count = self.rows.num_rows
        dice = pa.array(self.draw.permutation(count))
        amount = pc.if_else(
            pc.less(dice, count // 100),
            pc.add(self.rows["amount"], int(self.draw.integers(1, 100))),
            self.rows["amount"],
        )
        changed = self.rows.set_column(self.rows.schema.get_field_index("amount"), "amount", amount)
        kept = changed.filter(pc.less(dice, count - count // 200))
        start = pc.max(kept["id"]).as_py() + 1
        self.rows = pa.concat_tables([kept, _rows(start, count // 200)])
        self.write()


def _rows(start: int, count: int) -> pa.Table:
    ids = np.arange(start, start + count)
    draw = np.random.default_rng(start + 7)
    return pa.table(
        {
            "id": pa.array(ids),
            "name": pa.array([f"customer {key * 7919 % 1_000_003:06d}" for key in ids]),
            "region": pa.array([f"region {key % 40}" for key in ids]),
            "amount": pa.array(draw.integers(0, 10_000, count)),
            "note": pa.array([f"{key * 104_729 % 999_983:x} seen by nobody in particular" for key in ids]),
        }
    )


def _create(spark: SparkSession, table: str, upstream: _Upstream) -> None:
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, name VARCHAR, region VARCHAR, amount BIGINT, note VARCHAR) "
        f"WITH (connector = 'delta', delta.path = '{upstream.path}', refresh_mode = 'FULL_RELOAD')"
    ).collect()


def _refresh(spark: SparkSession, table: str) -> float:
    started = perf_counter()
    spark.sql(f"REFRESH TABLE {table}").collect()
    (waited,) = spark.sql(f"WAIT TABLE {table}").collect()
    assert waited.change == "WAITED", waited
    return perf_counter() - started


@contextmanager
def _open() -> Iterator[Pair]:
    import rw_sql

    folder = Path(mkdtemp(prefix="rw_sql_bench_"))
    spark = rw_sql.connect(str(folder / "warehouse"), config=_SETTINGS)
    try:
        spark.sql("SET statement_timeout = '3600s'")
        of_alone, of_read = _Upstream.at(folder / "alone", ROWS), _Upstream.at(folder / "read", _FEWER)
        for table, upstream in (("alone", of_alone), ("t", of_read)):
            _create(spark, table, upstream)
        for name, query in _DEPENDENTS.items():
            spark.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}").collect()
        for table in ("alone", "t"):
            _refresh(spark, table)
        spark.sql("FLUSH").collect()
        target = folder / "bare"
        columns = "id BIGINT, name STRING, region STRING, amount BIGINT, note STRING"
        spark.sql(f"CREATE TABLE delta.`{target}` ({columns}) USING delta")
        (table_id,) = spark.sql("SELECT id FROM rw_catalog.rw_tables WHERE name = 't'").collect()[0]
        views = [row.id for row in spark.sql("SELECT id FROM rw_catalog.rw_materialized_views").collect()]
        path = f"{folder / 'warehouse'}/data/{table_id}/1"

        def refreshed() -> float:
            of_alone.change()
            took = _refresh(spark, "alone")
            assert spark.sql("SELECT count(*) FROM alone").collect()[0][0] == of_alone.rows.num_rows
            return took

        def overwritten() -> float:
            started = perf_counter()
            spark.sql(f"INSERT OVERWRITE delta.`{target}` SELECT * FROM delta.`{of_alone.path}`").collect()
            return perf_counter() - started

        def read_by_dependents() -> float:
            of_read.change()
            before = _read_of(spark, path, views)
            _refresh(spark, "t")
            spark.sql("FLUSH").collect()
            after = _read_of(spark, path, views)
            whole = sum(pa.table(DeltaTable(path).get_add_actions(flatten=True))["size_bytes"].to_pylist())
            shares = [(after[view] - before[view]) / whole for view in views]
            assert all(share > 0 for share in shares), shares
            return max(shares)

        yield Pair(
            ours=lambda: {TIME: refreshed(), BYTES: read_by_dependents()},
            peer=lambda: {TIME: overwritten()},
            settings={
                "rows": f"{ROWS:,} with five columns in a Delta table, {_DIFFER}; for dependents another table of "
                f"{_FEWER:,}",
                "ours": "REFRESH TABLE, WAIT TABLE",
                "peer": "INSERT OVERWRITE of a Delta table with SELECT * from the same upstream",
                "dependents": "; ".join(_DEPENDENTS.values()),
                "bytes": "total size of the files and change files of the table that a dependent's queries opened, "
                "divided by the size of the table's files; the greater of both dependents",
            },
        )
    finally:
        rw_sql.detach(spark)
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _read_of(spark: SparkSession, path: str, views: list[int]) -> dict[int, int]:
    """For each view, the size in bytes of the files below ``path`` that the view's queries have opened so far.

    The sizes are those of the metric ``size of files read`` of each scan. The input size that Spark reports for a task
    cannot be used: it omits reads of the vectored Parquet reader, and includes rows that a batch keeps in memory.
    """
    session: Any = spark._jsparkSession
    store = session.sharedState().statusStore()
    read = dict.fromkeys(views, 0)
    executions = store.executionsList()
    for at in range(executions.size()):
        execution = executions.apply(at)
        view = next((view for view in views if re.match(rf"mv-{view}\b", execution.description())), None)
        if view is None:
            continue
        values = store.executionMetrics(execution.executionId())
        nodes = store.planGraph(execution.executionId()).allNodes()
        for number in range(nodes.size()):
            node = nodes.apply(number)
            if f"{path}]" not in node.desc() and f"{path}/part-" not in node.desc():
                continue
            for place in range(node.metrics().size()):
                metric = node.metrics().apply(place)
                told = values.get(metric.accumulatorId())
                if metric.name() == "size of files read" and told.isDefined():
                    read[view] += _bytes(told.get())
    return read


def _bytes(told: str) -> int:
    """A size in bytes from Spark's text, such as ``844.4 KiB``."""
    number, unit = told.split()
    return round(float(number.replace(",", "")) * _UNITS[unit])


CASES = (
    Case(
        name=TIME,
        title=f"REFRESH TABLE of 1,000,000 rows: {_DIFFER}",
        peer="INSERT OVERWRITE",
        unit="s",
        goal=1.0,
        open=_open,
    ),
    Case(
        name=BYTES,
        title=f"share of a table of {_FEWER:,} rows that a view reads after a refresh: {_DIFFER}",
        peer="",
        unit="of the table's bytes",
        goal=0.05,
        open=_open,
    ),
)
