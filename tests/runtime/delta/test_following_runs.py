"""A run right after a run of the same process writes no fence, but later runs can still fence it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.runtime.delta.delta_log import job_commits, last_batch, latest_version
from rw_sql.runtime.delta.job_output import FencedError, JobOutput
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}}]}'
MORE = SCHEMA.replace("]}", ',{"name":"name","type":"string","nullable":true,"metadata":{}}]}')
ROWS = pa.table({"id": pa.array([1], pa.int32())})


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse.at(str(tmp_path))


def open_log(warehouse: Warehouse, run: int) -> JobOutput:
    return JobOutput.open(warehouse, warehouse.data(1, 1), SCHEMA, job="ingest-1", run=run, epoch=run)


def follow(before: JobOutput, run: int) -> JobOutput:
    after = before.followed_by(before.path, run=run, epoch=run)
    assert after is not None
    return after


def test_nothing_is_committed_until_its_first_batch(warehouse: Warehouse) -> None:
    first = open_log(warehouse, 1)
    first.append_rows(ROWS, 0)
    version = latest_version(warehouse, first.path)
    second = follow(first, 2)
    third = follow(second, 3)
    assert latest_version(warehouse, first.path) == version
    third.require_own_run()
    third.append_rows(ROWS, 0)
    third.append_rows(ROWS, 1)
    assert [(commit.run, commit.batch) for _, commit in job_commits(warehouse, first.path)][:3] == [
        (3, 1),
        (3, 0),
        (1, 0),
    ]
    assert last_batch(warehouse, first.path, 1) == 1


@pytest.mark.parametrize("run", [1, 2])
def test_runs_before_it_are_kept_out_by_its_first_batch(warehouse: Warehouse, run: int) -> None:
    runs = {1: open_log(warehouse, 1)}
    runs[2] = open_log(warehouse, 2)
    handle = JobOutput.open(warehouse, runs[2].path, SCHEMA, job="ingest-1", run=3, epoch=3)
    follow(handle, 4).append_rows(ROWS, 0)
    rows = DeltaTable(handle.path).to_pyarrow_table().num_rows
    with pytest.raises(FencedError):
        runs[run].append_rows(ROWS, 7)
    assert DeltaTable(handle.path).to_pyarrow_table().num_rows == rows


def test_a_run_of_another_process_keeps_it_out(warehouse: Warehouse) -> None:
    second = follow(open_log(warehouse, 1), 2)
    other = open_log(warehouse, 3)
    tries: tuple[Callable[[], object], ...] = (lambda: second.append_rows(ROWS, 0), second.require_own_run)
    for refused in tries:
        with pytest.raises(FencedError, match="another run of ingest-1 has taken over from run 2"):
            refused()
    other.append_rows(ROWS, 0)
    assert DeltaTable(other.path).to_pyarrow_table().num_rows == 1


def test_where_the_one_before_it_commits_after_all_it_does_not(warehouse: Warehouse) -> None:
    second = follow(open_log(warehouse, 1), 2)
    third = follow(second, 3)
    second.append_rows(ROWS, 0)
    with pytest.raises(FencedError):
        third.append_rows(ROWS, 0)


def test_where_anything_came_between_a_fence_is_needed(warehouse: Warehouse) -> None:
    first = open_log(warehouse, 1)
    assert first.followed_by(f"{first.path}x", run=2, epoch=2) is None
    assert first.followed_by(first.path, run=3, epoch=3) is None, "another run was claimed meanwhile"
    write_deltalake(first.path, ROWS, mode="append")
    assert first.followed_by(first.path, run=2, epoch=2) is None, "somebody has restored the table, or worse"
    second = open_log(warehouse, 2)
    open_log(warehouse, 3)
    assert second.followed_by(second.path, run=3, epoch=3) is None


def test_a_following_run_adds_the_columns_that_the_table_lacks(warehouse: Warehouse) -> None:
    second = follow(open_log(warehouse, 1), 2)
    second.fit(MORE)
    assert [column.name for column in DeltaTable(second.path).schema().fields] == ["id", "name"]
    second.append_rows(pa.table({"id": pa.array([1], pa.int32()), "name": ["a"]}), 0)
    assert latest_version(warehouse, second.path) == DeltaTable(second.path).version()
