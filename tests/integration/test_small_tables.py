"""Small tables read as files, and streams that begin at a table's creation: the same rows as by Delta's own reader."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.connectors.delta import plain_files
from rw_sql.connectors.delta.plain_files import rows_at, rows_now
from rw_sql.connectors.delta.versions import table_at
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.delta.young_table import YoungTable
from rw_sql.runtime.spark.sessions import SparkSessions
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FIELDS = (
    ("id", "long"),
    ("price", "decimal(20,3)"),
    ("at", "timestamp"),
    ("local", "timestamp_ntz"),
    ("day", "date"),
    ("raw", "binary"),
    ("inner", {"type": "struct", "fields": [{"name": "Ab", "type": "string", "nullable": True, "metadata": {}}]}),
    ("tags", {"type": "array", "elementType": "string", "containsNull": True}),
)


def schema(count: int) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in FIELDS[:count]]
    return json.dumps({"type": "struct", "fields": fields})


def rows(seed: random.Random, arrow: pa.Schema) -> pa.Table:
    ids = [seed.choice([None, *range(20)]) for _ in range(seed.randrange(1, 6))]
    values = {
        "price": [seed.choice([None, Decimal("0.001"), Decimal("-99999999999999999.999")]) for _ in ids],
        "at": [seed.choice([None, 0, 1_700_000_000_123_456, -1]) for _ in ids],
        "local": [seed.choice([None, 0, 1_700_000_000_123_456]) for _ in ids],
        "day": [seed.choice([None, 0, 20_000]) for _ in ids],
        "raw": [seed.choice([None, b"", b"\x00\xff"]) for _ in ids],
        "inner": [seed.choice([None, {"Ab": None}, {"Ab": "x"}]) for _ in ids],
        "tags": [seed.choice([None, [], ["a", None]]) for _ in ids],
    }
    arrays = [
        pa.array(ids, pa.int64()) if field.name == "id" else pa.array(values[field.name], field.type) for field in arrow
    ]
    return pa.Table.from_arrays(arrays, schema=arrow)


def told(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.collect()))


def test_versions_read_as_files_are_those_that_delta_reads(tmp_path: Path, spark: SparkSession) -> None:
    seed, session = random.Random(52), SparkSessions(spark).new()
    warehouse, path = Warehouse.at(str(tmp_path)), str(tmp_path / "t")
    output = JobOutput.open(warehouse, path, schema(4), job="mv-1", run=1, epoch=1)
    for batch in range(10):
        if batch == 5:
            output.fit(schema(len(FIELDS)))
        given = rows(seed, pa.schema(output.table.schema().to_arrow()))
        if batch % 3:
            output.append_rows(given, batch)
        else:
            output.upsert_rows(given.take(pa.array([0])), ["id"], batch)
    newest = output.table.version()
    for version in range(newest + 1):
        mine, delta = rows_at(session, path, version), table_at(session, path, version)
        assert plain_files._plain(session, path, version) is not None
        assert mine.schema.simpleString() == delta.schema.simpleString()
        assert told(mine) == told(delta)
    assert told(rows_now(session, path)) == told(session.read.format("delta").load(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_files, "MOST_FILES", 1)
        assert told(rows_now(session, path)) == told(session.read.format("delta").load(path))


def test_partitions_of_integers_are_read_as_files(tmp_path: Path, spark: SparkSession) -> None:
    session, path = SparkSessions(spark).new(), str(tmp_path / "t")
    for number in range(4):
        part = [number, None if number == 1 else 7]
        given = pa.table({"a": [1, number], "part": pa.array(part, pa.int32()), "b": ["x", None]})
        write_deltalake(path, given, partition_by=["part"], mode="append")
        for version in range(number + 1):
            mine, delta = rows_at(session, path, version), table_at(session, path, version)
            assert mine.schema.simpleString() == delta.schema.simpleString()
            assert told(mine) == told(delta)
            # Version 0 has the partitions 0 and 7, version 1 also 1 and NULL, and version 2 also 2.
            assert (plain_files._plain(session, path, version) is None) == (version >= 2)
    DeltaTable(path).delete()
    assert told(rows_now(session, path)) == []


@pytest.mark.parametrize("what", ["deletion vectors", "partitions", "renamed columns"])
def test_what_files_do_not_tell_is_left_to_delta(tmp_path: Path, spark: SparkSession, what: str) -> None:
    path = str(tmp_path / "t")
    by = "PARTITIONED BY (part)" if what == "partitions" else ""
    properties = {
        "deletion vectors": "TBLPROPERTIES (delta.enableDeletionVectors = true)",
        "renamed columns": "TBLPROPERTIES (delta.columnMapping.mode = 'name')",
    }.get(what, "")
    kind = "STRING" if what == "partitions" else "INT"
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT, part {kind}) USING delta {by} {properties}")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT /*+ COALESCE(1) */ id, id % 2 FROM range(10)")
    if what == "renamed columns":
        spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN part TO other")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 3")
    newest = DeltaTable(path).version()
    assert len(told(rows_at(spark, path, newest))) == 9
    assert told(rows_at(spark, path, newest)) == told(table_at(spark, path, newest))


def test_a_version_that_is_not_there_is_refused_as_by_delta(tmp_path: Path, spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    output = JobOutput.open(Warehouse.at(str(tmp_path)), str(tmp_path / "t"), schema(1), job="mv-1", run=1, epoch=1)
    with pytest.raises(AnalysisException, match="VERSION"):
        rows_at(spark, output.path, 99).collect()


def streamed(spark: SparkSession, path: str, checkpoint: Path, **options: str) -> list[str]:
    """All rows of a stream over a table."""
    found: list[str] = []

    def take(frame: DataFrame, _batch: int) -> None:
        found.extend(map(repr, frame.collect()))

    frame = spark.readStream.format("delta").options(**options).load(path)
    if "readChangeFeed" in options:
        frame = frame.drop("_commit_version", "_commit_timestamp")
    query = frame.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(take)
    query.trigger(availableNow=True).start().awaitTermination()
    return sorted(found)


@pytest.mark.parametrize("has_feed", [False, True])
def test_a_stream_from_the_creation_has_the_rows_of_the_snapshot(
    tmp_path: Path, spark: SparkSession, has_feed: bool
) -> None:
    seed, session = random.Random(int(has_feed)), SparkSessions(spark).new()
    warehouse, path = Warehouse.at(str(tmp_path)), str(tmp_path / "t")
    output = JobOutput.open(warehouse, path, schema(len(FIELDS)), job="mv-1", run=1, epoch=1, has_change_feed=has_feed)
    arrow = pa.schema(output.table.schema().to_arrow())
    for batch in range(4):
        output.append_rows(rows(seed, arrow), batch)
    young = YoungTable.of(warehouse, path)
    assert young is not None
    assert (young.feed_begin is not None) == has_feed
    options = {"readChangeFeed": "true"} if has_feed else {}
    begin = str(young.feed_begin or 0)
    from_creation = streamed(session, path, tmp_path / "a", startingVersion=begin, **options)
    assert from_creation == streamed(session, path, tmp_path / "b", **options)
    assert len(from_creation) == sum(pa.table(output.table.get_add_actions()).column("num_records").to_pylist())
