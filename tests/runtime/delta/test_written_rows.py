"""How many rows a commit adds, replaces or removes, whatever files it rewrites."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from deltalake.transaction import AddAction, RemoveAction

from rw_sql.runtime.delta import job_output
from rw_sql.runtime.delta.delta_log import JobCommit, latest_version, read_actions, written_rows
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.delta.table_files import live_files
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}}]}'
ADDED = {"add": {"stats": '{"numRecords": 100000}'}}
REMOVED: dict[str, Any] = {"remove": {}}


def by(operation: str, **counters: object) -> dict[str, Any]:
    """The ``commitInfo`` of an operation with these counters."""
    return {"commitInfo": {"operation": operation, "operationMetrics": counters}}


def by_job(merged: int | None) -> dict[str, Any]:
    """The ``commitInfo`` of a merge in an object store, which delta-rs commits as files."""
    commit = JobCommit(job="mv-1", run=1, epoch=1, batch=3, ranges={}, merged=merged)
    return {"commitInfo": {"operation": "WRITE", "userMetadata": commit.to_json()}}


@pytest.mark.parametrize("is_feed", [True, False])
def test_an_upsert_counts_the_rows_that_it_changes(tmp_path: Path, is_feed: bool) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    output = JobOutput.open(
        warehouse, warehouse.data(1, 1), SCHEMA, job="mv-1", run=1, epoch=1, has_change_feed=is_feed
    )
    counted = []
    for batch, (ids, kept) in enumerate([(range(1000), True), ([7], True), ([7, 1000], True), ([7, 8, 9], False)]):
        rows = pa.table({"id": pa.array(ids, pa.int32()), KEEP: pa.array([kept] * len(ids))})
        output.upsert_rows(rows, ("id",), batch)
        counted.append(written_rows(read_actions(warehouse, output.path, latest_version(warehouse, output.path))))
    assert counted == [1000, 1, 2, 3]


@pytest.mark.parametrize(
    ("actions", "rows"),
    [
        ([ADDED], 100_000),
        ([{"add": {}}], None),
        ([ADDED, REMOVED], None),
        ([REMOVED], None),
        ([{"add": {"stats": '{"numRecords": 5}', "dataChange": False}}, {"remove": {"dataChange": False}}], 0),
        ([ADDED, REMOVED, by("MERGE", num_target_rows_inserted=1, num_target_rows_updated=2,
                             num_target_rows_deleted=3, num_target_rows_copied=99_997)], 6),
        ([ADDED, REMOVED, by("MERGE", numTargetRowsInserted="1", numTargetRowsUpdated="2",
                             numTargetRowsDeleted="0", numTargetRowsCopied="99997")], 3),
        ([ADDED, REMOVED, by("MERGE", numTargetRowsInserted="1")], None),
        ([ADDED, REMOVED, by("UPDATE", num_updated_rows=1, num_copied_rows=99_999)], 1),
        ([ADDED, REMOVED, by("UPDATE", numUpdatedRows="1", numCopiedRows="99999")], 1),
        ([REMOVED, by("DELETE", num_deleted_rows=4)], 4),
        ([REMOVED, by("DELETE", numRemovedFiles="1")], None),
        ([ADDED, REMOVED, by("WRITE", num_added_rows=5)], None),
        ([ADDED, REMOVED, by("RESTORE")], None),
        ([ADDED, REMOVED, by_job(merged=4)], 4),
        ([REMOVED, by_job(merged=2)], 2),
        ([ADDED, REMOVED, by_job(merged=None)], None),
    ],
)  # fmt: skip
def test_commits_whose_written_rows_are_known(actions: list[dict[str, Any]], rows: int | None) -> None:
    assert written_rows(json.loads(json.dumps(actions))) == rows


def test_a_merge_of_files_records_the_rows_of_its_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an object store, Spark writes the files of a large merge, and delta-rs commits them as an append."""
    warehouse = Warehouse.at(str(tmp_path))
    output = JobOutput.open(warehouse, warehouse.data(1, 1), SCHEMA, job="mv-1", run=1, epoch=1)
    output.upsert_rows(pa.table({"id": pa.array(range(1000), pa.int32())}), ("id",), 0)
    (old,) = live_files(output.table)
    stats = {"numRecords": 1000, "minValues": {}, "maxValues": {}, "nullCount": {}}
    add = AddAction("new.parquet", 10, {}, 0, True, json.dumps(stats))
    merged = SimpleNamespace(split=list, merged=lambda: [RemoveAction(old, True, 0, 10, {}), add])
    monkeypatch.setattr(job_output, "FileMerge", lambda *_, **__: merged)
    output._merge_files(cast("Any", None), ("id",), 1, 3)
    assert written_rows(read_actions(warehouse, output.path, latest_version(warehouse, output.path))) == 3
