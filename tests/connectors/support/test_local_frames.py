"""DataFrames of rows in this process's memory: the executors read them without Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from rw_sql.connectors.support.local_frames import empty_frame, local_frame
from rw_sql.connectors.support.wide_offsets import DIGITS
from rw_sql.model.backfill_ranges import BackfillChunk, SplitHistory
from rw_sql.runtime.backfill.log_rows import rows_of_chunk
from rw_sql.runtime.jobs.inputs import _live_rows
from rw_sql.runtime.positions.ordered_log import _with_value
from rw_sql.runtime.spark.jvm import java_frame

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = (
    "id BIGINT, `a.b` STRING, cents DECIMAL(38, 2), at TIMESTAMP_LTZ, bare TIMESTAMP_NTZ, day DATE, raw BINARY,"
    " tags ARRAY<STRING>, place STRUCT<city: STRING, zip: INT>, counts MAP<STRING, INT>, any VARIANT"
)


def needs_python(frame: DataFrame) -> bool:
    return "PythonRDD" in java_frame(frame).queryExecution().toRdd().toDebugString()


def test_frames_of_rows_need_no_python(spark: SparkSession) -> None:
    assert needs_python(spark.createDataFrame([(1,)], "id INT"))
    assert not needs_python(local_frame(spark, pa.table({"id": [1]})))


def test_an_empty_frame_has_the_columns_of_its_schema(spark: SparkSession) -> None:
    schema = cast("StructType", StructType.fromDDL(SCHEMA)).add("noted", StringType(), metadata={"note": "kept"})
    frame = empty_frame(spark, schema)
    assert frame.schema == schema
    assert frame.schema["noted"].metadata == {"note": "kept"}
    assert not needs_python(frame)
    assert frame.collect() == []
    assert empty_frame(spark, StructType([])).columns == []


def test_each_file_has_its_value(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        spark.range(number, number + 1).coalesce(1).write.mode("append").parquet(str(tmp_path / "t"))
    rows = spark.read.parquet(str(tmp_path / "t"))
    names = {row.id: row.name for row in rows.select("id", rows["_metadata.file_name"].alias("name")).collect()}
    for kind, values in (("int", [7, 8, None]), ("double", [0.5, 0.25, 1.0])):
        found = _with_value(rows, "value", kind, {names[number]: value for number, value in enumerate(values)})
        assert found.schema["value"].dataType.simpleString() == kind
        assert not needs_python(found)
        assert sorted((row.id, row.value) for row in found.collect()) == list(enumerate(values))


@pytest.mark.parametrize("kind", [LongType(), StringType()])
def test_many_ranges_of_a_log_are_selected_without_python(spark: SparkSession, kind: LongType | StringType) -> None:
    at = f"lpad(id, {DIGITS}, '0')" if kind == StringType() else "id"
    rows = spark.range(100).selectExpr(
        "'s' || id % 50 AS _rw_split", f"{at} AS _rw_offset", "1L AS _rw_since", "1L AS _rw_run", "id"
    )
    guarded = tuple(SplitHistory(split=f"s{number}", start=50, end=50, since=1) for number in range(50))
    chunk = tuple(BackfillChunk(split=f"s{number}", start=0, end=50, runs=(1, 1)) for number in range(50))
    live, read = _live_rows(spark, rows, guarded), rows_of_chunk(spark, rows, chunk)
    assert not needs_python(live)
    assert not needs_python(read)
    assert sorted(row.id for row in live.collect()) == [*range(50, 100)]
    assert sorted(row.id for row in read.collect()) == [*range(50)]
