"""The keys that a repeated snapshot has seen, from which the rows follow that no longer exist upstream."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rw_sql.model.definitions import definition_of, log_columns, source_definition
from rw_sql.model.job_specs import ViewSpec, desired_jobs
from rw_sql.runtime.decoding.cdc_rows import cdc_frame
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.views.emptied import _seen
from tests.plan.statements.table.test_cdc_tables import cdc_world, source, table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

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

    def add(self, op: str, id_: int | None, *, run: int, batch: int, offset: int) -> None:
        row = None if id_ is None else json.dumps({"id": str(id_)})
        made: dict[str, object] = {"table_name": "public.orders", "op": op, "row": row, "_rw_split": "shop"}
        made |= {"key": row if op == "d" else None, "_rw_offset": offset, "_rw_run": run, "_rw_batch": batch}
        self.rows.append({**made, "_rw_since": 1, "_rw_index": len(self.rows), "_rw_bucket": HOUR})

    def write(self) -> None:
        write_deltalake(self.path, pa.Table.from_pylist(self.rows, self.schema))

    def seen(self, spark: SparkSession, *, run: int, batch: int) -> list[int]:
        end: Any = {"_rw_run": run, "_rw_batch": batch}
        return sorted(row["id"] for row in _seen(self.run, ["`id`"], spark, end).collect())


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
    (given,) = log.spec.inputs
    live_from = table(log.world, "orders").live_from
    assert live_from is not None
    rows = cdc_frame(spark.read.format("delta").load(log.path), source_definition(given.decoded_by), live_from)
    assert [row["_rw_op"] for row in rows.orderBy("_rw_index").collect()] == [1, -1, -2]
