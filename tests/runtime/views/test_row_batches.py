"""Batches of a row-by-row view that are read from the commits of its input, without Spark."""

from __future__ import annotations

import errno
import json
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.metastore.records import Maintenance
from rw_sql.runtime.delta import young_table
from rw_sql.runtime.delta.delta_log import commit_path, latest_version, read_actions
from rw_sql.runtime.delta.job_output import FencedError
from rw_sql.runtime.delta.row_counts import MiscountError
from rw_sql.runtime.delta.stored_rows import as_stored
from rw_sql.runtime.jobs.batch_mode import LeftToSparkError
from rw_sql.runtime.positions.checkpoint_batches import CheckpointBatches
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.views import row_batches
from rw_sql.runtime.views.commit_rows import CommitRows
from rw_sql.runtime.views.row_batches import PreparedRows, RowBatches

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string()), ("_rw_bucket", pa.int32())])
VIEW = pa.schema([("id", pa.int64())])


def rows(*ids: int, bucket: int = 1) -> pa.Table:
    return pa.table({"id": ids, "word": [f"w{id_}" for id_ in ids], "_rw_bucket": [bucket] * len(ids)}, schema=SCHEMA)


class Input:
    """A table of the warehouse whose first version a view has read, and the view's batches."""

    def __init__(self, folder: Path) -> None:
        self.warehouse = Warehouse.at(str(folder))
        self.table = f"{self.warehouse.uri}/data/7/1"
        write_deltalake(self.table, rows(1), partition_by=["_rw_bucket"])
        offset = {"sourceVersion": 1, "reservoirId": str(DeltaTable(self.table).metadata().id), "reservoirVersion": 1}
        entry = ("v1", json.dumps({"batchTimestampMs": 1}), json.dumps({**offset, "index": -1}))
        self.checkpoint = f"{self.warehouse.uri}/checkpoints/mv-9/1"
        self.warehouse.write_text(f"{self.checkpoint}/offsets/0", "\n".join(entry))
        self.warehouse.write_text(f"{self.checkpoint}/commits/0", "v1\n{}")
        self.factor = 1

    def append(self, *ids: int, bucket: int = 1) -> None:
        write_deltalake(self.table, rows(*ids, bucket=bucket), mode="append")

    def commit(self, *actions: dict[str, Any]) -> None:
        version = latest_version(self.warehouse, self.table) + 1
        self.warehouse.write_text(commit_path(self.table, version), "\n".join(map(json.dumps, actions)))

    def _computed(self, given: pa.Table) -> pa.Table:
        return pa.table({"id": [id_ for id_ in given["id"].to_pylist() for _ in range(self.factor)]}, schema=VIEW)

    def _prepared(self, query: Any) -> PreparedRows:
        (given,) = self.run().spec.inputs
        schema = json.loads(DeltaTable(self.table).schema().to_json())
        commits = CommitRows(given=given, table=self.table, schema=SCHEMA, delta_schema=schema)
        return PreparedRows(query=query, commits=commits)

    def run(self) -> Any:
        given = SimpleNamespace(id=7, kind="materialized_view", history="", is_changing=False)
        return SimpleNamespace(
            context=SimpleNamespace(warehouse=self.warehouse),
            spec=SimpleNamespace(inputs=(given,), keys=(), name="v", parallelism=2, maintenance=Maintenance()),
            readers=None,
            checkpoint=self.checkpoint,
            fitted=lambda table: as_stored(table, VIEW),
            table_of=lambda _: self.table,
        )

    def batches(self) -> RowBatches:
        query: Any = SimpleNamespace(rows=self._computed, steps=("Project",))
        found = RowBatches.of(self.run(), self._prepared(query))
        assert found is not None
        return found


def test_a_view_without_a_checkpoint_begins_with_the_first_version(tmp_path: Path) -> None:
    given = Input(tmp_path)
    given.append(2)
    given.warehouse.remove(given.checkpoint)
    batches = given.batches()
    assert batches.has_next()
    assert ids_of(batches) == [1, 2]


def test_what_a_kill_at_the_beginning_leaves_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Input(tmp_path)
    given.warehouse.remove(f"{given.checkpoint}/offsets")
    run = given.run()
    monkeypatch.setattr(young_table, "MOST_COMMITS", 0)
    assert not RowBatches.may_begin(run)
    assert given.warehouse.list_names(f"{given.checkpoint}/commits") == []


@pytest.fixture
def given(tmp_path: Path) -> Input:
    return Input(tmp_path)


def ids_of(batches: RowBatches) -> list[int]:
    return sorted(batches.compute()["id"].to_pylist())


def test_a_batch_has_the_rows_of_all_new_commits(given: Input) -> None:
    batches = given.batches()
    assert not batches.has_next()
    given.append(2, 3)
    given.append(4, bucket=2)
    assert batches.has_next()
    assert batches.number == 1
    assert ids_of(batches) == [2, 3, 4]
    batches.plan()
    batches.complete()
    assert not batches.has_next()
    given.append(5)
    assert batches.has_next()
    assert ids_of(batches) == [5]
    assert batches.number == 2


def test_a_batch_that_was_planned_ends_where_it_was_planned_to_end(given: Input) -> None:
    given.append(2)
    first = given.batches()
    assert first.has_next()
    first.plan()
    given.append(3)
    again = given.batches()
    assert again.has_next()
    assert ids_of(again) == [2]
    again.plan()
    again.complete()
    assert again.has_next()
    assert ids_of(again) == [3]


def test_files_that_are_rewritten_or_removed_are_no_new_rows(given: Input) -> None:
    batches = given.batches()
    given.append(2)
    assert batches.has_next()
    batches.plan()
    batches.complete()
    table = DeltaTable(given.table)
    table.optimize.compact()
    assert not batches.has_next()
    path = DeltaTable(given.table).file_uris()[0].rpartition("_rw_bucket=")[2]
    given.commit({"remove": {"path": f"_rw_bucket={path}", "dataChange": True, "deletionTimestamp": 1}})
    assert not batches.has_next()
    given.append(3)
    assert batches.has_next()
    assert ids_of(batches) == [3]
    batches.plan()
    read = CheckpointBatches.of(given.warehouse, given.checkpoint, str(table.metadata().id))
    assert read is not None
    assert read.planned == latest_version(given.warehouse, given.table) + 1


def test_settings_that_do_not_matter_to_a_reader_are_passed_over(given: Input) -> None:
    batches = given.batches()
    DeltaTable(given.table).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    assert any("protocol" in action for action in read_actions(given.warehouse, given.table, 1))
    assert not batches.has_next()
    given.append(2)
    assert batches.has_next()
    assert ids_of(batches) == [2]


def _file(**changes: Any) -> dict[str, Any]:
    return {"add": {"path": "x.parquet", "size": 1, "dataChange": True, "stats": '{"numRecords":1}', **changes}}


@pytest.mark.parametrize(
    ("actions", "reason"),
    [
        (({"metaData": {"schemaString": '{"type":"struct","fields":[]}'}},), "changes the table"),
        (({"protocol": {"minReaderVersion": 2}},), "changes the table"),
        (({"protocol": {"minReaderVersion": 3, "readerFeatures": ["deletionVectors"]}},), "changes the table"),
        (({"domainMetadata": {"domain": "d"}},), "changes the table"),
        ((_file(), {"remove": {"path": "y.parquet", "dataChange": True}}), "replaces rows"),
        ((_file(deletionVector={"storageType": "u"}),), "deletion vectors"),
    ],
)
def test_other_commits_are_left_to_spark(given: Input, actions: tuple[dict[str, Any], ...], reason: str) -> None:
    batches = given.batches()
    given.commit(*actions)
    with pytest.raises(LeftToSparkError, match=reason):
        batches.has_next()


@pytest.mark.parametrize("stats", [None, '{"numRecords":1000000}'])
def test_a_batch_that_is_large_or_of_unknown_size_is_left_to_spark(given: Input, stats: str | None) -> None:
    batches = given.batches()
    given.commit(_file(stats=stats))
    with pytest.raises(LeftToSparkError, match="not small"):
        batches.has_next()


def test_a_file_that_cannot_be_read_is_left_to_spark(given: Input) -> None:
    batches = given.batches()
    given.commit(_file())
    assert batches.has_next()
    with pytest.raises(LeftToSparkError, match="cannot be computed"):
        batches.compute()


def test_many_commits_and_missing_ones_are_left_to_spark(given: Input, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = given.batches()
    for id_ in range(4):
        given.append(id_)
    monkeypatch.setattr(row_batches, "_MOST_COMMITS", 2)
    with pytest.raises(LeftToSparkError, match="many commits"):
        batches.has_next()
    monkeypatch.setattr(row_batches, "_MOST_COMMITS", 200)
    given.warehouse.remove(commit_path(given.table, 2))
    with pytest.raises(LeftToSparkError, match="cleaned up"):
        batches.has_next()


def test_a_wrong_number_of_rows_stalls_the_view(given: Input) -> None:
    batches = given.batches()
    given.append(2)
    given.factor = 2
    assert batches.has_next()
    with pytest.raises(MiscountError, match="MISCOUNT"):
        batches.compute()


def test_a_batch_that_another_process_has_planned_ends_the_run(given: Input) -> None:
    batches = given.batches()
    given.append(2)
    assert batches.has_next()
    other = given.batches()
    assert other.has_next()
    other.plan()
    with pytest.raises(FencedError, match="another process has planned batch 1 of v"):
        batches.plan()


@pytest.mark.parametrize(("code", "is_final"), [(errno.EPERM, True), (errno.EOPNOTSUPP, True), (errno.ENOSPC, False)])
def test_a_batch_that_cannot_be_planned_is_left_to_spark(
    given: Input, monkeypatch: pytest.MonkeyPatch, code: int, is_final: bool
) -> None:
    def refused(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("os.link", refused)
    batches = given.batches()
    given.append(2)
    assert batches.has_next()
    with pytest.raises(LeftToSparkError, match="cannot be planned") as raised:
        batches.plan()
    assert raised.value.is_final is is_final
    assert given.warehouse.list_names(f"{given.checkpoint}/offsets") == ["0"]
