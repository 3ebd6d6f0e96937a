"""Spark takes a version's metadata from the checksum files that rw_sql writes, and these are correct."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rw_sql.runtime.delta.compaction import compact
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "_rw_bucket", "type": "integer", "nullable": True, "metadata": {}},
        ],
    }
)


def _rows(*ids: int, bucket: int = 1) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("_rw_bucket", pa.int32())])
    return pa.table([list(ids), [bucket] * len(ids)], schema=schema)


@pytest.mark.spark
def test_spark_finds_the_checksums_of_our_commits_true(tmp_path: Path, spark: SparkSession) -> None:
    output = JobOutput.open(
        Warehouse.at(str(tmp_path)),
        str(tmp_path / "t"),
        SCHEMA,
        job="ingest-1",
        run=1,
        epoch=1,
        partition_by=("_rw_bucket",),
    )
    java: Any = spark
    log = java._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java._jsparkSession, output.path)
    none = getattr(java._jvm, "scala.collection.immutable.Map$EmptyMap$").__getattr__("MODULE$")

    def require_valid() -> None:
        output.table.update_incremental()
        snapshot = log.update(False, java._jvm.scala.Option.empty(), java._jvm.scala.Option.empty())
        assert snapshot.version() == output.table.version()
        assert snapshot.checksumOpt().isDefined()
        assert snapshot.validateChecksum(none)

    output.append_rows(_rows(1, 2), 0)
    require_valid()
    output.upsert_rows(_rows(2, 3), ["id"], 1)
    require_valid()
    for batch in range(2, 30):
        output.append_rows(_rows(batch), batch)
    compact(output.table, "_rw_bucket")
    output.write_checksum(recount=True)
    require_valid()
    output.table.delete("_rw_bucket <= 1")
    output.write_checksum(recount=True)
    require_valid()
    output.append_frame(spark.createDataFrame([(7, 2)], "id LONG, _rw_bucket INT"), 30, partition={"_rw_bucket": 2})
    require_valid()
    # Spark's own commits build on rw_sql's, and the other way round.
    spark.createDataFrame([(8, 2)], "id LONG, _rw_bucket INT").write.format("delta").mode("append").save(output.path)
    require_valid()
    output.append_rows(_rows(9, bucket=2), 31)
    require_valid()
    assert sorted(row.id for row in spark.read.format("delta").load(output.path).collect()) == [7, 8, 9]
