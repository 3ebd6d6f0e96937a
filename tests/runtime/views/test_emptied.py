"""The keys that a repeated snapshot has seen, from which the rows follow that no longer exist upstream."""

from __future__ import annotations

import datetime as dt
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rw_sql.metastore.records import LivePosition
from rw_sql.model.definitions import KEPT_TIME, definition_of, log_columns, source_definition
from rw_sql.model.job_specs import ViewSpec, desired_jobs
from rw_sql.runtime.decoding.cdc_rows import cdc_frame
from rw_sql.runtime.spark.sessions import register_view
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.views.emptied import _seen
from rw_sql.runtime.views.keyed import settled
from rw_sql.runtime.views.unchanged import with_unknown
from tests.plan.statements.table.test_cdc_tables import cdc_world, source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

_KINDS = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "BINARY": pa.binary(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "ARRAY<STRING>": pa.list_(pa.string()),
}

HOUR = 1_700_000_000_000 // 3_600_000


class LogOfRows:
    """A log of a source, written row by row, and the job of a table that reads it."""

    def __init__(self, path: Path, options: str = "", columns: str = "id INT PRIMARY KEY") -> None:
        self.world = cdc_world(f"CREATE TABLE orders ({columns}) {options} FROM pg TABLE 'public.orders'")
        (self.spec,) = [spec for spec in desired_jobs(self.world.snapshot).values() if isinstance(spec, ViewSpec)]
        self.warehouse = Warehouse.at(str(path))
        run: Any = SimpleNamespace(spec=self.spec, context=SimpleNamespace(warehouse=self.warehouse))
        self.run = run
        self.path = self.warehouse.data(source(self.world).id, 1)
        of_log = log_columns(definition_of(source(self.world)))
        self.schema = pa.schema([(name, _KINDS[kind]) for name, kind in of_log])
        self.rows: list[dict[str, object]] = []

    def add(
        self,
        op: str,
        id_: int | str | None,
        *,
        run: int = 1,
        batch: int = 0,
        offset: int = 0x6000,
        fields: dict[str, str] | None = None,
        **more: object,
    ) -> None:
        row = None if id_ is None else json.dumps({"id": str(id_)} | (fields or {}))
        made: dict[str, object] = {"table_name": "public.orders", "op": op, "row": row, "_rw_split": "shop"}
        made |= {"key": row if op == "d" else None, "_rw_offset": offset, "_rw_run": run, "_rw_batch": batch}
        self.rows.append({**made, "_rw_since": 1, "_rw_index": len(self.rows), "_rw_bucket": HOUR, **more})

    def write(self) -> None:
        write_deltalake(self.path, pa.Table.from_pylist(self.rows, self.schema))

    def seen(self, spark: SparkSession, *, run: int, batch: int) -> list[int]:
        end: Any = {"_rw_run": run, "_rw_batch": batch}
        return sorted(row["id"] for row in _seen(self.run, ["`id`"], spark, end).collect())

    def frame(self, spark: SparkSession, live_from: LivePosition | None = None) -> DataFrame:
        """The rows of the table, in the order of the log."""
        (given,) = self.spec.inputs
        live_from = live_from or given.live_from
        assert live_from is not None
        log = spark.read.format("delta").load(self.path)
        return cdc_frame(log, source_definition(given.decoded_by), live_from).orderBy("_rw_index")


@pytest.fixture(autouse=True)
def without_views(spark: SparkSession) -> Iterator[None]:
    """Other tests of this process create sources of the same name, which a temporary view would hide."""
    yield
    spark.catalog.dropTempView("pg")


def test_keys_from_before_a_repeated_snapshot_are_not_seen_by_it(spark: SparkSession, tmp_path: Path) -> None:
    log = LogOfRows(tmp_path)
    at = 0x6000
    for id_ in (1, 2, 3):
        log.add("r", id_, run=1, batch=0, offset=at)
    log.add("b", None, run=2, batch=0, offset=at + 20)
    log.add("c", 4, run=2, batch=0, offset=at + 10)  # A change of the batch with which the snapshot begins.
    log.add("r", 1, run=2, batch=1, offset=at + 30)
    log.add("s", None, run=2, batch=1, offset=at + 30)
    log.add("b", None, run=3, batch=0, offset=at + 40)
    log.add("r", 2, run=3, batch=0, offset=at + 40)
    log.add("s", None, run=3, batch=0, offset=at + 40)
    log.write()
    assert log.seen(spark, run=2, batch=1) == [1, 2, 4]
    assert log.seen(spark, run=3, batch=0) == [2]
    with pytest.raises(StalledError, match="RETENTION"):
        log.seen(spark, run=1, batch=0)


def test_a_table_without_a_snapshot_reads_no_rows_of_another_table_s(spark: SparkSession, tmp_path: Path) -> None:
    log = LogOfRows(tmp_path, "WITH (snapshot = 'false')")
    for op, id_ in (("b", None), ("r", 1), ("c", 2), ("s", None), ("d", 3), ("t", None)):
        log.add(op, id_, run=1, batch=0, offset=0x6000)
    log.write()
    assert [row["_rw_op"] for row in log.frame(spark).collect()] == [1, -1, -2]


def test_a_row_with_a_value_that_does_not_fit_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    log = LogOfRows(tmp_path, columns="id INT PRIMARY KEY, amount NUMERIC(10, 2)")
    log.add("b", None)
    for id_, amount in ((1, "1.50"), (2, "NaN"), ("none", "2.50")):
        log.add("r", id_, fields={"amount": amount})
    log.add("s", None)
    log.write()
    assert [row["_rw_error"] is None for row in log.frame(spark).collect()] == [True, False, False, True]
    assert log.seen(spark, run=1, batch=0) == [1, 2]


def test_positions_of_other_epochs_are_not_compared(spark: SparkSession, tmp_path: Path) -> None:
    log = LogOfRows(tmp_path)
    log.add("c", 1, offset=0x9000, _rw_since=1)  # Read before the source's position was set to a lower one.
    log.add("c", 2, offset=0x5000, _rw_since=7)
    log.add("c", 3, offset=0x5001, _rw_since=7)
    log.add("c", 4, offset=0x1000, _rw_since=9)
    log.write()
    place = LivePosition(since=7, offset=0x5000, hour=HOUR, split="shop", run=3)
    assert [row["id"] for row in log.frame(spark, place).collect()] == [3, 4]
    # A table of an earlier version of rw_sql.
    assert [row["id"] for row in log.frame(spark, place._replace(split="", run=-1)).collect()] == [1, 3, 4]


def test_only_later_runs_read_changes_of_another_split(spark: SparkSession, tmp_path: Path) -> None:
    log = LogOfRows(tmp_path)
    # The source read the database "other", at higher positions, before the table was created over "shop".
    log.add("c", 1, run=2, offset=0x9000, _rw_since=1, _rw_split="other")
    log.add("c", 2, run=2, offset=0x9000, _rw_since=8, _rw_split="other")
    log.add("c", 3, run=3, offset=0x3001, _rw_since=7)
    # It is moved back, and continues with the older epoch and at lower or higher positions.
    log.add("c", 4, run=4, offset=0x1000, _rw_since=1, _rw_split="other")
    log.add("c", 5, run=4, offset=0x9001, _rw_since=8, _rw_split="other")
    log.add("c", 6, run=5, offset=0x3000, _rw_since=7)
    log.write()
    place = LivePosition(since=7, offset=0x3000, hour=HOUR, split="shop", run=3)
    assert [row["id"] for row in log.frame(spark, place).collect()] == [3, 4, 5]
    # The database was not known when the table was created.
    assert [row["id"] for row in log.frame(spark, place._replace(split="")).collect()] == [4, 5, 6]
    # The source had not run when the table was created, so the log has only later changes of other databases.
    assert [row["id"] for row in log.frame(spark, place._replace(run=0)).collect()] == [1, 2, 3, 4, 5]


def test_rows_that_are_read_again_keep_their_times(spark: SparkSession, tmp_path: Path) -> None:
    log = LogOfRows(tmp_path, "INCLUDE timestamp AS at", "id INT PRIMARY KEY, word VARCHAR")
    none, then = (dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (1970, 2024))
    for id_, op, unchanged in ((1, "r", [KEPT_TIME]), (2, "r", [KEPT_TIME]), (3, "r", None), (4, "u", ["word"])):
        time = none if op == "r" else then
        log.add(op, id_, fields={"word": "new"}, timestamp=time, _rw_unchanged=unchanged)
    log.write()
    rows = log.frame(spark)
    assert [row["_rw_unchanged"] for row in rows.collect()] == [[KEPT_TIME], [KEPT_TIME], None, ["word"]]
    (given,) = log.spec.inputs
    register_view(rows.selectExpr(*given.selected), given.name)
    assert log.spec.keyed is not None
    assert dict(log.spec.keyed.paths)["at"] == KEPT_TIME
    own = spark.createDataFrame(
        [(id_, "old", then, None) for id_ in (1, 3, 4)],
        "id INT, word STRING, at TIMESTAMP, _rw_unknown ARRAY<STRING>",
    )
    changes = settled(with_unknown(spark.sql(log.spec.query)), own, log.spec.keyed)
    found = changes.selectExpr("id", "word", "year(at) AS year", "_rw_unknown").orderBy("id").collect()
    assert [tuple(row) for row in found] == [(1, "new", 2024, None), (2, "new", 1970, None), (3, "new", 1970, None)]
