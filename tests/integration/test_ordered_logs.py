"""The last record of a key counts, even if Delta divides a commit or a snapshot of a log among batches."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rw_sql.runtime.jobs import inputs
from rw_sql.runtime.positions import planned_rows
from rw_sql.runtime.positions.ordered_log import OrderedLog
from rw_sql.runtime.sinks import job as sink_job
from rw_sql.runtime.spark.job_settings import JOB_SETTINGS
from rw_sql.runtime.support.warehouse import Warehouse
from tests.integration.attached import READER, AttachedSession
from tests.support.log_files import BUCKET, commit_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

STORED = {
    "tags": pa.list_(pa.string()),  # With a nested column, delta-rs returns no statistics.
    "_rw_run": pa.int64(),
    "_rw_batch": pa.int64(),
    "_rw_split": pa.string(),
    "_rw_offset": pa.int64(),
}
SCHEMA = pa.schema([*STORED.items(), (BUCKET, pa.int32())])
Row = tuple[int, str, int]
"""The batch, split and offset of a row."""


@dataclass(slots=True)
class Log:
    """A log whose commits have several files in any order, and a stream that reads it."""

    folder: Path
    random: Random
    rows: list[Row] = field(default_factory=list)
    batches: dict[int, list[Row]] = field(default_factory=dict)
    hours: dict[int, int] = field(default_factory=dict)
    """The hour of each of the source's batches."""
    kill_at: int = -1
    """The batch after whose rows were read the query fails, once."""

    @property
    def path(self) -> str:
        return str(self.folder / "a log")

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    def commit(self, batch: int, files: list[list[tuple[str, int]]], *, hour: int = 7, wide: int = 0) -> None:
        """Commits files with these rows (split, offset), in any order, and with times in any order. The rows of the
        last ``wide`` files have large values."""
        made = []
        for number, rows in enumerate(files):
            tags = [self.random.randbytes(10_000).hex()] if number >= len(files) - wide else ["x"]
            values = {"tags": tags, "_rw_run": 1, "_rw_batch": batch}
            made.append((hour, [{**values, "_rw_split": split, "_rw_offset": offset} for split, offset in rows]))
        commit_files(self.path, SCHEMA, made, self.random)
        self.rows += [(batch, split, offset) for rows in files for split, offset in rows]
        self.hours[batch] = hour

    def read(self, spark: SparkSession, most_bytes: int = 1, least_hour: int | None = None) -> None:
        """Reads all rows of the log that a stream has not read yet. ``least_hour`` is the first hour that it reads."""
        log = OrderedLog(
            warehouse=Warehouse.at(str(self.folder)),
            path=self.path,
            checkpoint=self.checkpoint,
            most_bytes=most_bytes,
            least_bucket=least_hour,
        )

        def on_batch(frame: DataFrame, batch: int) -> None:
            found = log.rows(frame.sparkSession, batch)
            rows = (frame if found is None else found).select("_rw_batch", "_rw_split", "_rw_offset", BUCKET).collect()
            if least_hour is not None:
                # Spark's frame also has the rows of earlier hours.
                rows = [row for row in rows if row[BUCKET] >= least_hour]
                assert all(row[BUCKET] == self.hours[row["_rw_batch"]] for row in rows)
            self.batches[batch] = sorted(tuple(row)[:3] for row in rows)
            if batch == self.kill_at:
                self.kill_at = -1
                raise RuntimeError("killed")

        reader = spark.readStream.format("delta").option("maxBytesPerTrigger", f"{most_bytes}b").load(self.path)
        writer = reader.writeStream.option("checkpointLocation", self.checkpoint).trigger(availableNow=True)
        writer.foreachBatch(on_batch).start().awaitTermination()

    @property
    def delivered(self) -> list[Row]:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]


def runs(split: str, *bounds: tuple[int, int]) -> list[list[tuple[str, int]]]:
    """Files of one split, each with these offsets (from, to)."""
    return [[(split, offset) for offset in range(*each)] for each in bounds]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path, Random(3))


def commits(log: Log) -> None:
    """A commit of two splits, one of whose files overlaps all others, and a small commit."""
    odd = [("a", offset) for offset in range(3, 60, 10)]
    whole = runs("a", (0, 3), (4, 13), (14, 23), (24, 33), (34, 43), (44, 53), (54, 63))
    log.commit(1, [*whole, odd, *runs("b", (0, 10), (10, 20), (20, 30))])
    log.commit(2, runs("a", (63, 66)))


def test_rows_come_in_order_from_a_snapshot_and_from_commits(spark: SparkSession, log: Log) -> None:
    commits(log)
    log.kill_at = 3
    with pytest.raises(Exception, match="killed"):
        log.read(spark)
    assert len(log.delivered) < len(log.rows)
    log.commit(3, runs("b", (30, 40), (40, 50), (50, 60), (60, 70)))
    log.read(spark)
    assert log.delivered == sorted(log.rows)
    log.commit(4, runs("b", (70, 80), (80, 90), (90, 99)))
    log.commit(5, runs("a", (66, 70)))
    log.kill_at = max(log.batches) + 2
    with pytest.raises(Exception, match="killed"):
        log.read(spark)
    log.read(spark)
    assert log.delivered == sorted(log.rows)
    assert len([rows for rows in log.batches.values() if rows]) > 15


def test_rows_come_in_order_from_a_snapshot_after_compaction(spark: SparkSession, log: Log) -> None:
    for batch in range(12):
        log.commit(batch, runs("ab"[batch % 2], (10 * batch, 10 * batch + 10)))
        if batch == 8:
            sizes = [file.stat().st_size for file in Path(log.path).rglob("*.parquet")]
            assert DeltaTable(log.path).optimize.compact(target_size=3 * max(sizes))["numFilesRemoved"] == 9
    log.read(spark)
    assert log.delivered == sorted(log.rows)
    assert len(log.batches) > 3


@pytest.mark.parametrize("least", [3, 5, 9])
def test_rows_of_several_hours_come_in_order_with_their_hours(spark: SparkSession, log: Log, least: int) -> None:
    log.commit(0, runs("a", (0, 10), (10, 20), (20, 30)), hour=4)
    log.commit(1, runs("a", (30, 40), (40, 50), (50, 60)), hour=6)
    log.commit(2, runs("b", (0, 10)), hour=5)
    log.kill_at = 2
    with pytest.raises(Exception, match="killed"):
        log.read(spark, least_hour=least)
    log.read(spark, least_hour=least)
    log.commit(3, runs("a", (60, 70), (70, 80), (80, 90)), hour=6)
    log.commit(4, runs("b", (10, 20), (20, 30)), hour=3)
    log.commit(5, runs("a", (90, 91)), hour=8)
    # A batch has two files, which may be of several commits and hours.
    log.read(spark, max(file.stat().st_size for file in Path(log.path).rglob("*.parquet")) + 1, least)
    assert log.delivered == sorted(row for row in log.rows if log.hours[row[0]] >= least)


def test_the_shares_of_rows_that_differ_in_size_have_about_the_same_size(spark: SparkSession, log: Log) -> None:
    log.commit(0, runs("a", (0, 1)))
    log.read(spark)
    wide = [(8_000 + number * 4, 8_004 + number * 4) for number in range(10)]
    log.commit(1, runs("a", (1, 8_000), *wide), wide=len(wide))
    log.commit(2, runs("a", (8_040, 8_041)))
    log.read(spark, most_bytes=max(file.stat().st_size for file in Path(log.path).rglob("*.parquet")))
    assert log.delivered == sorted(log.rows)
    found = [sum(8_000 <= row[2] < 8_040 for row in rows) for rows in log.batches.values()]
    assert sum(found) == 40
    assert max(found) <= 20


def test_what_an_older_version_has_begun_to_read_is_read_once(
    spark: SparkSession, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.commit(0, runs("a", (0, 1)))
    log.read(spark)
    log.commit(1, runs("a", (1, 10), (10, 20), (20, 30), (30, 40)))
    log.commit(2, runs("a", (40, 50), (50, 60), (60, 70), (70, 80)))
    log.kill_at = 3
    monkeypatch.setattr(OrderedLog, "rows", lambda *_: None)
    with pytest.raises(Exception, match="killed"):
        log.read(spark)
    monkeypatch.undo()
    log.read(spark)
    assert sorted(log.delivered) == sorted(log.rows)
    of_second = [row for row in log.delivered if row[0] == 2]
    assert of_second == sorted(of_second)


def put(folder: Path, name: str, values: dict[int, int]) -> None:
    """A file whose last records of the keys have these values."""
    lines = [{"id": key, "n": value - ago} for ago in range(20, -1, -1) for key, value in values.items()]
    (folder / f".{name}").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (folder / f".{name}").rename(folder / name)


def test_a_sink_and_a_table_keep_the_last_record_of_each_key(
    session: AttachedSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (*READER, planned_rows):
        monkeypatch.setattr(place, "SMALL_ROWS", -1)
    monkeypatch.setitem(JOB_SETTINGS, "spark.sql.files.maxRecordsPerFile", "7")
    monkeypatch.setattr(sink_job, "BATCH_BYTES", 1)
    monkeypatch.setattr(inputs, "_BATCH_BYTES_PER_CORE", 1)
    folder = tmp_path / "in"
    folder.mkdir()
    source = (
        f"(connector = 'posix_fs', posix_fs.root = '{folder}', refresh.interval.sec = '1') FORMAT PLAIN ENCODE JSON"
    )

    def sink(name: str) -> str:
        return (
            f"CREATE SINK {name} FROM s WITH (connector = 'deltalake', location = '{tmp_path}/{name}', "
            "type = 'upsert', primary_key = 'id')"
        )

    def rows(name: str) -> dict[int, int]:
        return {row["id"]: row["n"] for row in DeltaTable(f"{tmp_path}/{name}").to_pyarrow_table().to_pylist()}

    session.run(
        f"CREATE SOURCE s (id INT, n INT) WITH {source}",
        f"CREATE TABLE t (id INT PRIMARY KEY, n INT) WITH {source}",
        sink("live"),
        "FLUSH",
    )
    put(folder, "a.json", {1: 100, 2: 200, 3: 300})
    session.run("FLUSH")
    assert (rows("live"), dict(session.rows_of("t"))) == ({1: 100, 2: 200, 3: 300},) * 2
    put(folder, "b.json", {1: 150, 2: 160})
    session.run("FLUSH", sink("late"), "FLUSH")
    wanted = {1: 150, 2: 160, 3: 300}
    assert (rows("live"), rows("late"), dict(session.rows_of("t"))) == (wanted,) * 3
    assert {job.state for job in session.jobs().values()} == {"RUNNING"}
