"""How a query reads a log in order: which files it reads, and what its checkpoint contains meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.runtime.positions.log_shares import File, Shares
from rw_sql.runtime.positions.ordered_log import LOG_ORDER, OrderedLog, _chances, _DataFile
from rw_sql.runtime.positions.progress import batch_ends
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.runtime.positions.log_shares import Position
    from rw_sql.runtime.positions.progress import TableEnd

SPARK = cast("SparkSession", None)
COLUMNS = LOG_ORDER[:4]


class Frame(list[tuple[str, int]]):
    """Rows (file, offset) in the place of a frame of Spark."""

    def unionByName(self, other: Frame, **_: object) -> Frame:  # noqa: N802 - the name of Spark's method
        return Frame([*self, *other])


class ListedLog(OrderedLog):
    """A log whose rows are listed by file, in the place of a table that Spark reads. The files of version 7 have the
    offsets 0 to 39."""

    divided: int = 0

    def _divided(self, spark: SparkSession, end: TableEnd) -> Shares:
        self.divided += 1
        files = [
            File(path=f"{number}.parquet", first=at(10 * number), last=at(10 * number + 9), bucket=number)
            for number in range(4)
            if self._is_needed(number)
        ]
        return Shares(columns=COLUMNS, files=tuple(files), cuts=(at(10), at(20), at(30)))

    def _read(self, spark: SparkSession, buckets: Mapping[str, int | None]) -> Any:
        return Frame((path, 10 * int(path[0]) + number) for path in buckets for number in range(10))

    def _between(self, spark: SparkSession, shares: Shares, low: Position | None, high: Position | None) -> Any:
        found = self._read(spark, {file.path: file.bucket for file in shares.files_between(low, high)})
        return Frame(row for row in found if (low is None or at(row[1]) >= low) and (high is None or at(row[1]) < high))

    def _added(self, version: int) -> list[_DataFile]:
        if version == 7:
            return [_DataFile(path=f"{number}.parquet", size=10, rows=10, bucket=number) for number in range(4)]
        return []

    def offsets(self, batch: int) -> list[int] | None:
        """The offsets that a batch reads; None if Spark's frame has them."""
        found = self.rows(SPARK, batch)
        return None if found is None else [offset for _, offset in cast("Frame", found)]


def at(offset: int) -> Position:
    return (1, 1, "s", offset)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse.at(str(tmp_path))


def open_log(warehouse: Warehouse, least_bucket: int | None = None) -> ListedLog:
    uri = warehouse.uri
    return ListedLog(
        warehouse=warehouse, path=f"{uri}/log", checkpoint=f"{uri}/c", most_bytes=10, least_bucket=least_bucket
    )


def plan(warehouse: Warehouse, batch: int, version: int, index: int = -1) -> None:
    """Completes the batch before a batch, and plans that batch, which ends at a file of a version."""
    offset = {"reservoirId": "log", "reservoirVersion": version, "index": index, "isStartingVersion": False}
    warehouse.write_text(f"{warehouse.uri}/c/offsets/{batch}", f"v1\n{{}}\n{json.dumps(offset)}")
    if batch:
        warehouse.write_text(f"{warehouse.uri}/c/commits/{batch - 1}", "v1\n{}")


def kept(warehouse: Warehouse) -> list[str]:
    """The files with shares in the checkpoint, each with the version to which it belongs."""
    found = warehouse.files.find(f"{warehouse.uri}/c/shares")
    return sorted("/".join(path.split("/")[-2:]).lstrip("0") for path in found)


def test_a_commit_is_read_share_by_share_and_then_forgotten(warehouse: Warehouse) -> None:
    log = open_log(warehouse)
    plan(warehouse, 0, 7)
    assert log.offsets(0) is None
    plan(warehouse, 1, 7, 0)
    assert log.offsets(1) == [*range(10)]
    assert kept(warehouse) == ["7-commit-log/0", "7-commit-log/files.json"]
    plan(warehouse, 2, 7, 2)
    assert log.offsets(2) == [*range(10, 20)]
    plan(warehouse, 3, 9)
    # A new owner repeats the batch, because the batch is not completed.
    for reader in (log, open_log(warehouse)):
        assert reader.offsets(3) == [*range(20, 40)]
    assert kept(warehouse) == ["7-commit-log/0", "7-commit-log/2", "7-commit-log/files.json"]
    plan(warehouse, 4, 10)
    assert log.offsets(4) is None
    assert kept(warehouse) == []
    assert log.divided == 1


def test_a_batch_without_rows_of_the_reader_does_not_lose_the_place_in_a_commit(warehouse: Warehouse) -> None:
    log = open_log(warehouse)
    plan(warehouse, 0, 6)
    plan(warehouse, 1, 7, 0)
    log.offsets(1)  # The batch also reads rows of version 6.
    plan(warehouse, 2, 7, 2)
    log.skip(2)
    plan(warehouse, 3, 9)
    for reader in (log, open_log(warehouse)):
        assert reader.offsets(3) is not None
    plan(warehouse, 4, 10)
    log.skip(4)
    assert kept(warehouse) == []


def test_the_plan_of_a_batch_is_read_once(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    log, read, found = open_log(warehouse), Warehouse.read_text, list[str]()

    def recorded(own: Warehouse, path: str) -> str:
        found.extend([path.rpartition("/")[2]] * ("/offsets/" in path))
        return read(own, path)

    monkeypatch.setattr(Warehouse, "read_text", recorded)
    for batch in range(4):
        plan(warehouse, batch, 8 + batch)
        assert log.offsets(batch) is None
    assert found == ["0", "1", "2", "3"]


def test_a_skipped_commit_is_not_divided(warehouse: Warehouse) -> None:
    log = open_log(warehouse)
    plan(warehouse, 0, 7)
    log.skip(0)
    plan(warehouse, 1, 7, 0)
    log.skip(1)
    plan(warehouse, 2, 9)
    assert log.offsets(2) == [*range(10, 40)]
    assert (kept(warehouse), log.divided) == ([], 0)


def test_files_of_earlier_hours_are_not_read(warehouse: Warehouse) -> None:
    log = open_log(warehouse, least_bucket=2)
    plan(warehouse, 0, 7)
    plan(warehouse, 1, 7, 1)
    assert log.offsets(1) == []
    plan(warehouse, 2, 9)
    assert log.offsets(2) == [*range(20, 40)]
    assert log._needed(log._added(7)) == {"2.parquet": 2, "3.parquet": 3}


def test_the_hours_of_files_that_an_older_version_has_listed_come_from_the_log(warehouse: Warehouse) -> None:
    log = open_log(warehouse)
    plan(warehouse, 0, 7)
    plan(warehouse, 1, 7, 0)
    log.offsets(1)
    path = f"{warehouse.uri}/c/shares/{7:020d}-commit-log/files.json"
    body = warehouse.read_json(path)
    warehouse.write_text(path, json.dumps({**body, "files": [file[:3] for file in body["files"]]}))
    _, end = batch_ends(warehouse, log.checkpoint, 1) or (None, None)
    assert end is not None
    assert {file.bucket for file in open_log(warehouse)._shares(SPARK, end).files} == {None}
    found = open_log(warehouse, least_bucket=2)._shares(SPARK, end).files
    assert [(file.path, file.bucket) for file in found] == [(f"{number}.parquet", number) for number in range(4)]


def test_the_hour_and_the_number_of_rows_of_a_file_are_those_of_its_commit(warehouse: Warehouse) -> None:
    def add(path: str, **more: object) -> str:
        return json.dumps({"add": {"path": path, "size": 9, "dataChange": True, **more}})

    lines = (
        add("_rw_bucket=5/a%20b.parquet", partitionValues={"_rw_bucket": "5"}, stats='{"numRecords":3}'),
        add("c.parquet", partitionValues={"_rw_bucket": None}),
        add("d.parquet", partitionValues={"_rw_bucket": "4"}, dataChange=False),
    )
    warehouse.write_text(f"{warehouse.uri}/log/_delta_log/{0:020d}.json", "\n".join(lines))
    log = OrderedLog(warehouse=warehouse, path=f"{warehouse.uri}/log", checkpoint=f"{warehouse.uri}/c", most_bytes=1)
    files = log._added(0)
    first = _DataFile(path="_rw_bucket=5/a b.parquet", size=9, rows=3, bucket=5)
    assert files == [first, _DataFile(path="c.parquet", size=9, rows=None, bucket=None)]
    assert log._needed(files) == {file.path: file.bucket for file in files}
    assert replace_least(log, 5)._needed(files) == {first.path: 5}
    assert replace_least(log, 6)._needed(files) == {}


def replace_least(log: OrderedLog, least: int) -> OrderedLog:
    return replace(log, least_bucket=least)


def test_rows_are_sampled_by_their_size() -> None:
    def sampled(files: Sequence[_DataFile], count: int) -> dict[str, float]:
        chances = _chances(files, count)
        return {file.path: chances[file.path] * (file.rows or 0) for file in files}

    small = _DataFile(path="small", size=1_000_000, rows=100_000, bucket=None)
    large = replace(small, path="large", size=3_000_000, rows=1_000)
    assert sampled([small, large], 400) == pytest.approx({"small": 100, "large": 300})
    # All rows are sampled if that does not suffice.
    assert sampled([small, replace(large, rows=10)], 400) == pytest.approx({"small": 100, "large": 10})
    assert _chances([small, large], 0) == {"small": 0, "large": 0}
    assert 0 < _chances([replace(small, rows=None)], 100)["small"] < 0.1
