"""REFRESH TABLE of a million rows of which few differ, beside INSERT OVERWRITE of all of them; what dependents read."""

from __future__ import annotations

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

ROWS = 1_000_000
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    # What stages have read is summed up from the status store, which forgets the oldest of more than a thousand.
    "spark.ui.retainedStages": "100000",
    "spark.ui.retainedJobs": "100000",
}
_DIFFER = "1 % of the rows changed, 0.5 % gone, 0.5 % new"
_DEPENDENTS = {
    "per_region": "SELECT region, count(*) AS n, sum(amount) AS amount FROM t GROUP BY region",
    "large": "SELECT id, name, amount FROM t WHERE amount > 0.5",
}


@dataclass(slots=True)
class _Upstream:
    """A Delta table of a million rows, each time with some that differ."""

    path: str
    rows: pa.Table
    draw: np.random.Generator

    @staticmethod
    def at(folder: Path) -> _Upstream:
        made = _Upstream(path=str(folder / "upstream"), rows=_rows(0, ROWS), draw=np.random.default_rng(1))
        made.write()
        return made

    def write(self) -> None:
        write_deltalake(self.path, self.rows, mode="overwrite")

    def change(self) -> None:
        """1 % of the rows get another amount, 0.5 % go, and as many come."""
        count = self.rows.num_rows
        dice = pa.array(self.draw.permutation(count))
        amount = pc.if_else(
            pc.less(dice, count // 100), pc.add(self.rows["amount"], 0.001 * self.draw.random()), self.rows["amount"]
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
            "amount": pa.array(draw.random(count)),
            "note": pa.array([f"{key * 104_729 % 999_983:x} seen by nobody in particular" for key in ids]),
        }
    )


@contextmanager
def _opened(*, with_dependents: bool) -> Iterator[tuple[SparkSession, _Upstream, Path]]:
    import rw_sql

    folder = Path(mkdtemp(prefix="rw_sql_bench_"))
    spark = rw_sql.connect(str(folder / "warehouse"), config=_SETTINGS)
    try:
        upstream = _Upstream.at(folder)
        spark.sql("SET statement_timeout = '3600s'")
        spark.sql(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR, region VARCHAR, amount DOUBLE, note VARCHAR) "
            f"WITH (connector = 'delta', delta.path = '{upstream.path}', refresh_mode = 'FULL_RELOAD')"
        ).collect()
        for name, query in _DEPENDENTS.items() if with_dependents else ():
            spark.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}").collect()
        _refresh(spark)
        spark.sql("FLUSH").collect()
        yield spark, upstream, folder
    finally:
        rw_sql.detach(spark)
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _refresh(spark: SparkSession) -> float:
    started = perf_counter()
    spark.sql("REFRESH TABLE t").collect()
    (waited,) = spark.sql("WAIT TABLE t").collect()
    assert waited.change == "WAITED", waited
    return perf_counter() - started


@contextmanager
def _against_overwrite() -> Iterator[Pair]:
    with _opened(with_dependents=False) as (spark, upstream, folder):
        target = folder / "bare"
        columns = "id BIGINT, name STRING, region STRING, amount DOUBLE, note STRING"
        spark.sql(f"CREATE TABLE delta.`{target}` ({columns}) USING delta")

        def ours() -> float:
            upstream.change()
            took = _refresh(spark)
            assert spark.sql("SELECT count(*) FROM t").collect()[0][0] == upstream.rows.num_rows
            return took

        def peer() -> float:
            started = perf_counter()
            spark.sql(f"INSERT OVERWRITE delta.`{target}` SELECT * FROM delta.`{upstream.path}`").collect()
            return perf_counter() - started

        yield Pair(
            ours=ours,
            peer=peer,
            settings={
                "rows": f"{ROWS:,} of five columns in a Delta table, {_DIFFER}",
                "ours": "REFRESH TABLE t, WAIT TABLE t",
                "peer": "INSERT OVERWRITE of a Delta table by SELECT * of the same upstream",
            },
        )


@contextmanager
def _bytes_of_dependents() -> Iterator[Pair]:
    with _opened(with_dependents=True) as (spark, upstream, folder):
        (table,) = spark.sql("SELECT id FROM rw_catalog.rw_tables WHERE name = 't'").collect()
        views = [row.id for row in spark.sql("SELECT id FROM rw_catalog.rw_materialized_views").collect()]
        path = f"{folder / 'warehouse'}/data/{table.id}/1"

        def ours() -> float:
            upstream.change()
            before = _read_by(spark, views)
            _refresh(spark)
            spark.sql("FLUSH").collect()
            after = _read_by(spark, views)
            whole = sum(pa.table(DeltaTable(path).get_add_actions(flatten=True))["size_bytes"].to_pylist())
            shares = [(after[view] - before[view]) / whole for view in views]
            assert all(share > 0 for share in shares), shares
            return max(shares)

        yield Pair(
            ours=ours,
            settings={
                "rows": f"{ROWS:,} of five columns, {_DIFFER}",
                "dependents": "; ".join(_DEPENDENTS.values()),
                "ours": "bytes that Spark's tasks of a dependent read, by those of the table's files; the greater one",
            },
        )


def _read_by(spark: SparkSession, views: list[int]) -> dict[int, int]:
    """How many bytes the stages of each view's query have read so far."""
    context: Any = spark.sparkContext
    jvm, gateway = context._jvm, context._gateway
    store = context._jsc.sc().statusStore()
    stages = store.stageList(None, False, False, gateway.new_array(jvm.double, 0), jvm.java.util.ArrayList())
    read = dict.fromkeys(views, 0)
    for at in range(stages.size()):
        stage = stages.apply(at)
        told = stage.description()
        described = told.get() if told.isDefined() else ""
        for view in views:
            if described.startswith(f"mv-{view}<") or f"mv-{view}\n" in described:
                read[view] += stage.inputBytes()
    return read


CASES = (
    Case(
        name="refresh_1000000",
        title=f"REFRESH TABLE of 1,000,000 rows, {_DIFFER}",
        peer="INSERT OVERWRITE",
        unit="s",
        goal=2.0,
        open=_against_overwrite,
        warm_ups=1,
    ),
    Case(
        name="refresh_bytes_of_dependents",
        title=f"what a view on that table reads of it after a refresh, {_DIFFER}",
        peer="",
        unit="of the table's bytes",
        goal=0.05,
        open=_bytes_of_dependents,
        warm_ups=0,
    ),
)
