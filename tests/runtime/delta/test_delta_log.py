"""Reads of a table's log: its newest version, and its commits from the newest back."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from rw_sql.runtime.delta.delta_log import (
    JobCommit,
    changed_rows,
    commits,
    job_commits,
    last_batch,
    latest_version,
    read_actions,
    table_id,
)
from rw_sql.runtime.delta.job_output import FencedError, JobOutput
from rw_sql.runtime.delta.table_files import RemovedFiles
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}}]}'
ROWS = pa.table({"id": pa.array([1], pa.int32())})


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse.at(str(tmp_path))


def open_table(warehouse: Warehouse, run: int = 1) -> JobOutput:
    return JobOutput.open(warehouse, warehouse.data(1, 1), SCHEMA, job="mv-1", run=run, epoch=1)


def commit_file(table: str, version: int) -> str:
    return f"{table}/_delta_log/{version:020d}.json"


def test_the_newest_version_follows_commits_and_a_table_created_again(warehouse: Warehouse) -> None:
    table = warehouse.data(1, 1)
    assert latest_version(warehouse, table) == -1
    output = open_table(warehouse)
    assert latest_version(warehouse, table) == 1
    for batch in range(3):
        output.append_rows(ROWS, batch)
    assert latest_version(warehouse, table) == 4
    shutil.rmtree(table)
    assert latest_version(warehouse, table) == -1
    open_table(warehouse)
    assert latest_version(warehouse, table) == 1


def test_the_id_of_a_table_is_that_of_its_first_commit_and_of_a_table_created_again(warehouse: Warehouse) -> None:
    table = warehouse.data(1, 1)
    with pytest.raises(TableNotFoundError):
        table_id(warehouse, table)
    output = open_table(warehouse)
    known = table_id(warehouse, table)
    assert known == str(DeltaTable(table).metadata().id)
    output.append_rows(ROWS, 0)
    assert table_id(warehouse, table) == known
    shutil.rmtree(table)
    open_table(warehouse)
    assert table_id(warehouse, table) == str(DeltaTable(table).metadata().id) != known


def test_the_id_of_a_table_is_found_where_its_first_commit_was_cleaned_away(warehouse: Warehouse) -> None:
    table = warehouse.data(1, 1)
    output = open_table(warehouse)
    output.append_rows(ROWS, 0)
    known = table_id(warehouse, table)
    DeltaTable(table).create_checkpoint()
    warehouse.remove(commit_file(table, 0))
    assert table_id(warehouse, table) == known


def test_the_newest_version_is_found_where_those_seen_were_cleaned_away(warehouse: Warehouse) -> None:
    table = warehouse.data(1, 1)
    output = open_table(warehouse)
    assert latest_version(warehouse, table) == 1
    for batch in range(5):
        output.append_rows(ROWS, batch)
    for version in range(4):
        warehouse.remove(commit_file(table, version))
    assert latest_version(warehouse, table) == 6
    assert [version for version, _ in commits(warehouse, table)] == [6, 5, 4]
    assert [version for version, _ in commits(warehouse, table, down_to=6)] == [6]


def test_the_last_batch_is_found_behind_others_commits_and_a_fence(warehouse: Warehouse) -> None:
    table = warehouse.data(1, 1)
    output = open_table(warehouse)
    output.append_rows(ROWS, 0)
    output.append_rows(ROWS, 1)
    write_deltalake(table, ROWS, mode="append")
    assert last_batch(warehouse, table, 1) == 1
    assert open_table(warehouse, run=2).done == 1
    assert last_batch(warehouse, table, 1) == 1
    assert [commit.batch for _, commit in job_commits(warehouse, table)] == [-1, 1, 0, -1]


@pytest.mark.parametrize("separator", ["\x85", "\u2028", "\u2029", "\v", "\x1c"])
def test_values_in_statistics_may_have_any_character(warehouse: Warehouse, separator: str) -> None:
    """JSON has some of Python's line breaks unescaped, and a commit contains the least and the greatest values."""
    table = warehouse.data(1, 1)
    schema = SCHEMA.replace('"integer"', '"string"')
    output = JobOutput.open(warehouse, table, schema, job="mv-1", run=1, epoch=1)
    words = pa.table({"id": [f"{separator}a", f"z{separator}"]})
    output.append_rows(words, 0)
    (added,) = (
        each["add"] for each in read_actions(warehouse, table, latest_version(warehouse, table)) if "add" in each
    )
    stats = json.loads(added["stats"])
    assert {stats["minValues"]["id"], stats["maxValues"]["id"]} == {f"{separator}a", f"z{separator}"}
    assert last_batch(warehouse, table, 1) == 0
    write_deltalake(table, words, mode="overwrite")
    assert len(RemovedFiles(warehouse=warehouse, table=table).paths()) == 1
    assert JobOutput.open(warehouse, table, schema, job="mv-1", run=2, epoch=1).done == 0


def test_a_table_is_cleaned_by_its_job_alone(warehouse: Warehouse) -> None:
    open_table(warehouse)
    settings = DeltaTable(warehouse.data(1, 1)).metadata().configuration
    assert settings["delta.enableExpiredLogCleanup"] == "false", "nobody but the job knows what its readers need"
    assert settings["delta.checkpointInterval"] == "100"


def test_the_error_of_a_fenced_run_names_its_job(warehouse: Warehouse) -> None:
    first = open_table(warehouse)
    open_table(warehouse, run=2)
    with pytest.raises(FencedError) as raised:
        first.append_rows(ROWS, 0)
    assert str(raised.value) == "another run of mv-1 has taken over from run 1"


def test_the_rows_of_a_commit_in_the_change_feed(warehouse: Warehouse) -> None:
    output = JobOutput.open(warehouse, warehouse.data(1, 1), SCHEMA, job="mv-1", run=1, epoch=1, has_change_feed=True)
    counted: list[int | None] = []

    def upsert(ids: list[int], kept: list[bool], batch: int) -> None:
        rows = pa.table({"id": pa.array(ids, pa.int32()), KEEP: pa.array(kept)})
        output.upsert_rows(rows, ("id",), batch)
        version = latest_version(warehouse, output.path)
        counted.append(changed_rows(read_actions(warehouse, output.path, version)))

    upsert([1, 2, 3], [True, True, True], 0)
    upsert([2, 4], [True, True], 1)
    upsert([1, 2], [False, True], 2)
    assert counted == [3, 2 + 1, 1 + 2]
    feed = DeltaTable(output.path).load_cdf(starting_version=2).read_all()
    assert feed.num_rows == sum(rows or 0 for rows in counted)


@pytest.mark.parametrize(
    ("actions", "rows"),
    [
        ([{"add": {"stats": '{"numRecords": 5}'}}], 5),
        ([{"add": {"stats": '{"numRecords": 5}', "dataChange": False}}, {"remove": {"dataChange": False}}], 0),
        ([{"add": {"stats": '{"numRecords": 5}'}}, {"remove": {}}], None),
        ([{"add": {}}], None),
        ([{"cdc": {}}, {"commitInfo": {"operation": "RESTORE"}}], None),
        ([{"cdc": {}}, {"commitInfo": {"operationMetrics": {
            "numTargetRowsInserted": "1", "numTargetRowsUpdated": "2", "numTargetRowsDeleted": "3"}}}], 8),
    ],
)  # fmt: skip
def test_commits_whose_changed_rows_are_known(actions: list[dict[str, Any]], rows: int | None) -> None:
    assert changed_rows(actions) == rows


@pytest.mark.parametrize(
    "terms",
    [{}, {"orders:0": 3, "orders:1": 3}, {"orders:0": 3, "orders:1": 0}, {"orders:1": 7}],
    ids=["none", "the same", "different", "of one split"],
)
def test_a_commit_has_the_terms_of_its_splits(terms: dict[str, int]) -> None:
    commit = JobCommit(
        job="ingest-1", run=1, epoch=2, batch=3, ranges={"orders:0": (0, 5), "orders:1": (4, 4)}, terms=terms
    )
    assert JobCommit.from_json(commit.to_json()) == commit
    assert ("terms" in commit.to_json()) == bool(terms)
