"""Large batches as files that Spark writes and delta-rs commits: what they hold, and what their statistics say."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.runtime.delta_log import read_actions
from rw_sql.runtime.output import JobOutput
from rw_sql.runtime.spark_sessions import SparkSessions
from rw_sql.runtime.storage import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ALL_TYPES = (
    "`a long` BIGINT, `a.b` INT, small SMALLINT, d DOUBLE, r FLOAT, dec DECIMAL(12, 3), s STRING, b BINARY, t BOOLEAN, "
    "day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, list ARRAY<INT>, map MAP<STRING, BIGINT>, "
    "inner STRUCT<x: INT, at: TIMESTAMP, `y z`: ARRAY<STRUCT<w: STRING>>>"
)
AT = datetime(2026, 2, 3, 4, 5, 6, 789123, tzinfo=UTC)
LOCAL = AT.replace(tzinfo=None)
LONG_AGO = datetime(1500, 1, 1, tzinfo=UTC)
ROW = (
    *(1 << 40, 2, 3, 1.5, 0.25, Decimal("1234.567"), "é" * 100, b"\x00\xff", True, date(2026, 2, 3), AT, LOCAL),
    *([1, None], {"k": 2}, (7, AT, [("q",)])),
)
NULLS = (None,) * len(ROW)


def opened(folder: Path, spark_schema: str, **more: Any) -> JobOutput:
    return JobOutput.open(Warehouse.at(str(folder)), f"{folder}/t", spark_schema, job="mv-1", run=1, epoch=1, **more)


def frame(spark: SparkSession, rows: list[tuple[Any, ...]], schema: str) -> DataFrame:
    """In a job's own session, as batches are."""
    return SparkSessions(spark, is_local=True).new().createDataFrame(rows, schema)


def added(output: JobOutput, version: int) -> list[dict[str, Any]]:
    actions = read_actions(output.warehouse, output.path, version)
    return [action["add"] for action in actions if "add" in action]


def test_rows_of_every_type_come_back_as_they_were(tmp_path: Path, spark: SparkSession) -> None:
    old = tuple(LONG_AGO if value is AT else value for value in ROW)
    rows = frame(spark, [ROW, NULLS, old], ALL_TYPES)
    output = opened(tmp_path, rows.schema.json())
    output.append_frame(rows, 0)
    by_spark = spark.read.format("delta").load(output.path)
    assert by_spark.schema.simpleString() == rows.schema.simpleString()
    assert sorted(map(str, by_spark.collect())) == sorted(map(str, rows.collect()))
    by_delta_rs = output.table.to_pyarrow_table()
    assert by_delta_rs.num_rows == 3
    # In any order: two tasks write a file each, and a table has no order of files.
    assert set(by_delta_rs["at"].to_pylist()) == {AT, None, LONG_AGO}
    # What lies on disk is what the table knows, and nothing is left of the writing.
    on_disk = {file.name for file in Path(output.path).rglob("*.parquet")}
    assert on_disk == {Path(uri).name for uri in output.table.file_uris()}
    assert not list(Path(output.path, "_rw_writing").rglob("*.*"))


def test_files_tell_of_the_columns_that_the_table_names(tmp_path: Path, spark: SparkSession) -> None:
    rows = frame(spark, [(1, "a", AT), (5, None, None)], "k LONG, s STRING, at TIMESTAMP").coalesce(1)
    output = opened(tmp_path, rows.schema.json(), statistics=("k", "at"))
    output.append_frame(rows, 0)
    (file,) = added(output, output.table.version())
    told = json.loads(file["stats"])
    assert told["numRecords"] == 2
    assert told["nullCount"] == {"k": 0, "at": 1}
    assert (told["minValues"]["k"], told["maxValues"]["k"]) == (1, 5)
    skipping = spark.read.format("delta").load(output.path)
    assert skipping.where("at = TIMESTAMP '2026-02-03 04:05:06.789123 UTC'").count() == 1
    assert skipping.where("at > TIMESTAMP '2026-02-03 04:05:06.789123 UTC'").count() == 0
    assert skipping.where("k > 5").count() == 0


def test_without_such_names_files_tell_of_all_columns(tmp_path: Path, spark: SparkSession) -> None:
    rows = frame(spark, [(1, "a")], "k LONG, s STRING")
    output = opened(tmp_path, rows.schema.json())
    output.append_frame(rows, 0)
    told = [json.loads(file["stats"]) for file in added(output, output.table.version())]
    assert [set(each["minValues"]) for each in told] == [{"k", "s"}]


def test_a_batch_without_rows_adds_no_file(tmp_path: Path, spark: SparkSession) -> None:
    rows = frame(spark, [], "k LONG")
    output = opened(tmp_path, rows.schema.json())
    output.append_frame(rows, 3)
    assert added(output, output.table.version()) == []
    assert output.is_written(3)


def test_columns_are_found_by_name_and_made_of_the_tables_types(tmp_path: Path, spark: SparkSession) -> None:
    wanted = frame(spark, [], "k LONG, s STRING, gone STRING").schema.json()
    output = opened(tmp_path, wanted)
    output.append_frame(frame(spark, [(7, "a")], "S INT, K STRING").selectExpr("S AS K", "K AS S"), 0)
    assert output.table.to_pyarrow_table().to_pylist() == [{"k": 7, "s": "a", "gone": None}]


def test_all_rows_of_a_batch_lie_in_one_partition(tmp_path: Path, spark: SparkSession) -> None:
    rows = frame(spark, [(1, 4), (2, 4)], "k LONG, hour INT")
    output = opened(tmp_path, rows.schema.json(), partition_by=("hour",))
    output.append_frame(rows, 0, partition={"hour": 4})
    assert {file["path"].split("/")[0] for file in added(output, output.table.version())} == {"hour=4"}
    assert spark.read.format("delta").load(output.path).where("hour = 4").count() == 2
    assert sorted(output.table.to_pyarrow_table()["hour"].to_pylist()) == [4, 4]
