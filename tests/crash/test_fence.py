"""A run that was taken over writes nothing more, through delta-rs or Spark, not even a commit in progress."""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import rw_sql
from rw_sql.runtime.delta.delta_log import JobCommit, job_commits
from rw_sql.runtime.delta.job_output import FencedError, JobOutput
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.spark_settings import FEW_ROWS
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "mv-7"
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "k", "type": "long", "nullable": True, "metadata": {}},
            {"name": "v", "type": "long", "nullable": True, "metadata": {}},
        ],
    }
)


class ObjectStore(Warehouse):
    """A folder that is treated as an object store, where Delta's own writer appends large batches."""

    @property
    def is_local(self) -> bool:
        return False


WAREHOUSES = (Warehouse, ObjectStore)


def opened(folder: Path, run: int, kind: type[Warehouse] = Warehouse, **more: Any) -> JobOutput:
    warehouse = kind(str(folder))
    return JobOutput.open(warehouse, f"{folder}/table", SCHEMA, job=JOB, run=run, epoch=1, **more)


def rows(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table({"k": [k for k, _ in pairs], "v": [v for _, v in pairs]})


def held(folder: Path) -> list[tuple[int, int]]:
    table = DeltaTable(f"{folder}/table").to_pyarrow_table()
    return sorted(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))


def commits(folder: Path) -> list[JobCommit]:
    return [commit for _, commit in job_commits(Warehouse.at(str(folder)), f"{folder}/table")]


def clean(folder: Path) -> None:
    """Delta's own clean-up, at a time when all commits so far are old: it removes those before the checkpoint."""
    long_ago = time.time() - 30 * 24 * 3600
    for file in (folder / "table" / "_delta_log").iterdir():
        os.utime(file, (long_ago, long_ago))
    table = DeltaTable(f"{folder}/table")
    table.create_checkpoint()
    table.cleanup_metadata()


def test_a_fenced_run_is_refused_by_delta_rs(tmp_path: Path) -> None:
    first = opened(tmp_path, 1)
    first.append_rows(rows((1, 1)), 0)
    second = opened(tmp_path, 2)
    with pytest.raises(FencedError):
        first.append_rows(rows((2, 2)), 1)
    with pytest.raises(FencedError):
        first.upsert_rows(rows((1, 9)), ["k"], 1)
    second.append_rows(rows((3, 3)), 1)
    assert held(tmp_path) == [(1, 1), (3, 3)]


def test_an_earlier_run_cannot_fence_a_later_one(tmp_path: Path) -> None:
    later = opened(tmp_path, 5)
    with pytest.raises(FencedError):
        opened(tmp_path, 4)
    with pytest.raises(FencedError):
        opened(tmp_path, 5)
    later.append_rows(rows((1, 1)), 0)
    assert held(tmp_path) == [(1, 1)]


def test_a_batch_is_never_written_twice(tmp_path: Path) -> None:
    output = opened(tmp_path, 1)
    output.append_rows(rows((1, 1)), 3)
    for batch in (2, 3):
        with pytest.raises(FencedError):
            output.append_rows(rows((1, 1)), batch)
    assert held(tmp_path) == [(1, 1)]


def test_a_start_knows_the_last_batch_whatever_lies_between(tmp_path: Path) -> None:
    first = opened(tmp_path, 1)
    assert first.done == -1
    for batch in (0, 1, 4):  # batches without rows leave no commit
        first.append_rows(rows((batch, batch)), batch)
    # Processes that were killed right after their fences.
    assert [opened(tmp_path, run).done for run in (2, 3, 4)] == [4, 4, 4]
    assert opened(tmp_path, 5, generation=2).done == -1
    assert opened(tmp_path, 6, generation=2).done == -1


def test_a_start_knows_the_last_batch_after_delta_cleaned_its_log(tmp_path: Path) -> None:
    opened(tmp_path, 1).append_rows(rows((1, 1)), 8)
    clean(tmp_path)
    assert [commit.batch for commit in commits(tmp_path)] == [8]
    opened(tmp_path, 2)
    clean(tmp_path)
    assert [commit.batch for commit in commits(tmp_path)] == [-1]
    assert opened(tmp_path, 3).done == 8


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    session = rw_sql.connect(str(tmp_path_factory.mktemp("warehouse")), run_jobs=False, config=FEW_ROWS)
    rw_sql.detach(session)
    return session


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.long
@pytest.mark.parametrize("kind", WAREHOUSES)
def test_a_fenced_run_appends_nothing_by_spark(spark: SparkSession, tmp_path: Path, kind: type[Warehouse]) -> None:
    first = opened(tmp_path, 1, kind)
    first.append_frame(spark.createDataFrame([(1, 1)], "k long, v long"), 0)
    first.upsert_frame(spark.createDataFrame([(1, 2), (2, 2)], "k long, v long"), ["k"], 1)
    second = opened(tmp_path, 2)
    assert second.done == 1
    with pytest.raises(FencedError):
        first.append_frame(spark.createDataFrame([(3, 3)], "k long, v long"), 2)
    with pytest.raises(FencedError):
        first.upsert_frame(spark.createDataFrame([(1, 9)], "k long, v long"), ["k"], 2)
    assert held(tmp_path) == [(1, 2), (2, 2)]


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.long
@pytest.mark.parametrize("kind", WAREHOUSES)
def test_a_fence_stops_an_append_that_spark_has_begun(
    spark: SparkSession, tmp_path: Path, kind: type[Warehouse]
) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql.functions import udf

    begun, go = tmp_path / "begun", tmp_path / "go"

    @udf("long")
    def when_told(value: int) -> int:
        begun.touch()
        never = threading.Event()
        while not go.exists():
            never.wait(0.02)
        return value

    first = opened(tmp_path, 1, kind)
    frame = spark.createDataFrame([(1, 1)], "k long, v long").select("k", when_told("v").alias("v"))
    with ThreadPoolExecutor(1) as thread:
        on_its_way = thread.submit(first.append_frame, frame, 0)
        never = threading.Event()
        for _ in range(int(LAST_RESORT_SECONDS) * 50):
            if begun.exists() or on_its_way.done():
                break
            never.wait(0.02)
        assert begun.exists(), on_its_way
        second = opened(tmp_path, 2, kind)
        go.touch()
        # Delta's own refusal appeared as a Python exception of Delta's and, once, as py4j's; the cause of the
        # difference is unknown.
        with pytest.raises((FencedError, PySparkException, Py4JJavaError), match=r"taken over|DELTA_CONCURRENT"):
            on_its_way.result(LAST_RESORT_SECONDS)
    assert held(tmp_path) == []
    second.append_rows(rows((5, 5)), 0)
    assert held(tmp_path) == [(5, 5)]


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.long
def test_a_fence_before_the_commit_stops_files_that_are_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(tmp_path, 1)

    def taken_over(point: str) -> None:
        if point == "batch.written":
            opened(tmp_path, 2)

    monkeypatch.setattr("rw_sql.runtime.delta.job_output.fault", taken_over)
    with pytest.raises(FencedError, match="taken over"):
        first.append_frame(spark.createDataFrame([(1, 1)], "k long, v long"), 0)
    assert held(tmp_path) == []


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.long
def test_what_a_killed_run_left_unfinished_goes_with_the_next_start(spark: SparkSession, tmp_path: Path) -> None:
    first = opened(tmp_path, 1)
    left = tmp_path / "table" / "_rw_writing" / JOB / "1"
    left.mkdir(parents=True)
    (left / "part-00000.parquet").touch()
    other = left.parent.with_name("mv-8")
    other.mkdir()
    second = opened(tmp_path, 2)
    assert not left.exists()
    assert other.exists()
    (left.with_name("2")).mkdir()
    (left.with_name("2") / "part-00000.parquet").touch()
    second.append_frame(spark.createDataFrame([(1, 1)], "k long, v long"), 0)
    assert held(tmp_path) == [(1, 1)]
    assert not left.with_name("2").exists()
    assert first.run == 1
