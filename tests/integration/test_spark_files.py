"""Large batches as files that Spark writes and delta-rs commits: their rows and their statistics."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rw_sql.runtime.delta import staged_files as spark_files
from rw_sql.runtime.delta.delta_log import last_batch, read_actions
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.delta.row_counts import Expected, MiscountError
from rw_sql.runtime.spark.sessions import SparkSessions
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """A frame in a job's own session, like a batch's."""
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
    # The files on disk are the table's files, and no working file remains.
    on_disk = {file.name for file in Path(output.path).rglob("*.parquet")}
    assert on_disk == {Path(uri).name for uri in output.table.file_uris()}
    assert not list(Path(output.path, "_rw_writing").rglob("*.*"))


def test_files_have_statistics_of_the_columns_that_the_table_names(tmp_path: Path, spark: SparkSession) -> None:
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


def test_without_such_names_files_have_statistics_of_all_columns(tmp_path: Path, spark: SparkSession) -> None:
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


def _with_harm(monkeypatch: pytest.MonkeyPatch, harm: Callable[[list[Path]], object]) -> None:
    """Changes the files that Spark has just written, before they are committed."""
    save = spark_files.save_frame

    def saved(rows: DataFrame, path: str) -> Any:
        reported = save(rows, path)
        harm(sorted(Path(path).glob("*.parquet")))
        return reported

    monkeypatch.setattr(spark_files, "save_frame", saved)


def _cut(files: list[Path]) -> None:
    with files[0].open("r+b") as file:
        file.truncate(files[0].stat().st_size - 9)


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda files: files[0].unlink(), "the driver finds 500 rows in 1 files"),
        (lambda files: [file.unlink() for file in files], "the driver finds 0 rows in 0 files"),
        (lambda files: shutil.copy(files[0], files[0].with_name("part-again.parquet")), "1500 rows in 3 files"),
        (_cut, "cannot be read"),
    ],
    ids=["lost", "all lost", "twice", "cut off"],
)
def test_files_that_are_not_what_tasks_wrote_are_not_committed(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[list[Path]], object],
    told: str,
) -> None:
    rows = SparkSessions(spark, is_local=True).new().range(1000, numPartitions=2)
    output = opened(tmp_path, rows.schema.json())
    before = output.table.version()
    with monkeypatch.context() as patch:
        _with_harm(patch, harm)
        with pytest.raises(MiscountError, match=told) as raised:
            output.append_frame(rows, 0)
    assert "no row of the batch is committed" in raised.value.reason
    assert "report 1000 rows in 2 files" in raised.value.reason or told == "cannot be read"
    assert DeltaTable(output.path).version() == before
    # The same batch again, in the same folder: all rows, once.
    output.append_frame(rows, 0)
    assert sorted(output.table.to_pyarrow_table()["id"].to_pylist()) == list(range(1000))


def test_rows_are_compared_with_what_is_expected_before_they_are_committed(tmp_path: Path, spark: SparkSession) -> None:
    own = SparkSessions(spark, is_local=True).new()
    half = own.range(1000, numPartitions=2).where("id % 2 = 0")
    output = opened(tmp_path, half.schema.json())
    before = output.table.version()
    for expected, told in (
        (Expected(is_row_by_row=True), "1000 rows were read and 500 are to be written"),
        (Expected(least=1000, limits_of="the log"), "500 rows are to be written, but the log has at least 1000"),
        (Expected(most=999, limits_of="the topic", of_read=True), "1000 rows were read, but the topic has at most 999"),
    ):
        with pytest.raises(MiscountError, match=told):
            output.append_frame(half, 0, expected=expected)
    assert DeltaTable(output.path).version() == before
    output.append_frame(half, 0, expected=Expected(least=500, most=500))
    assert output.table.count() == 500


@pytest.mark.long
def test_a_merge_whose_files_are_gone_is_reverted(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = SparkSessions(spark, is_local=True).new()
    rows = own.range(1000, numPartitions=2).selectExpr("id", "id AS n")
    output = opened(tmp_path, rows.schema.json(), has_change_feed=True)
    output.append_frame(rows.where("id < 10"), 0)
    written = JobOutput._require_written

    def lost(self: JobOutput, version: int) -> None:
        written(self, version)
        (Path(self.path) / added(self, self.table.version())[0]["path"]).unlink()

    with monkeypatch.context() as patch:
        patch.setattr(JobOutput, "_require_written", lost)
        with pytest.raises(MiscountError, match="of which the driver does not find 1 in"):
            output.upsert_frame(rows, ["id"], 1, rows=1000)
    with pytest.raises(MiscountError, match="Spark's MERGE reports 1000 rows of 1001"):
        output.upsert_frame(rows, ["id"], 1, rows=1001)
    table = DeltaTable(output.path)
    assert (table.count(), last_batch(output.warehouse, output.path, 1)) == (10, 0)
    later = JobOutput.reopen(output.warehouse, output.path, job="mv-1", run=2, epoch=1)
    later.upsert_frame(rows, ["id"], 1, rows=1000)
    assert later.table.to_pyarrow_table().num_rows == 1000


def test_a_missing_file_is_an_error_whatever_spark_was_started_with(tmp_path: Path, spark: SparkSession) -> None:
    shared: Any = spark
    settings = shared._jsparkSession.sharedState().conf()  # what all sessions begin with
    SparkSessions(spark).new().range(10, numPartitions=2).write.parquet(f"{tmp_path}/p")
    settings.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        lenient, own = spark.newSession(), SparkSessions(spark).new()
        frames = [session.read.parquet(f"{tmp_path}/p") for session in (lenient, own)]
        next(Path(tmp_path, "p").glob("part-*")).unlink()
        assert frames[0].count() < 10
        with pytest.raises((PySparkException, Py4JError), match="FILE_NOT_EXIST"):
            frames[1].count()
    finally:
        settings.remove("spark.sql.files.ignoreMissingFiles")


def test_all_rows_of_a_batch_lie_in_one_partition(tmp_path: Path, spark: SparkSession) -> None:
    rows = frame(spark, [(1, 4), (2, 4)], "k LONG, hour INT")
    output = opened(tmp_path, rows.schema.json(), partition_by=("hour",))
    output.append_frame(rows, 0, partition={"hour": 4})
    assert {file["path"].split("/")[0] for file in added(output, output.table.version())} == {"hour=4"}
    assert spark.read.format("delta").load(output.path).where("hour = 4").count() == 2
    assert sorted(output.table.to_pyarrow_table()["hour"].to_pylist()) == [4, 4]
