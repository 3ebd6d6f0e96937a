"""Rows that are read from the commits of an input: those of its change feed, and those of one captured table."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.runtime.decoding.cdc_rows import NUMBER
from rw_sql.runtime.delta.delta_log import JobCommit, latest_version, read_actions
from rw_sql.runtime.delta.row_counts import MiscountError
from rw_sql.runtime.jobs.batch_mode import LeftToSparkError
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.views.commit_rows import CommitRows

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.runtime.views.commit_rows import Actions

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string())])


class Table:
    """A table with a change feed, and the reader of its commits."""

    def __init__(self, folder: Path) -> None:
        self.warehouse = Warehouse.at(str(folder))
        self.path = f"{self.warehouse.uri}/data/7/1"
        self.append((1, "a"), (2, "b"))
        self.rows = self._reader()

    def append(self, *rows: tuple[int, str]) -> None:
        configuration = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(self.path, _table(rows), mode="append", configuration=configuration)

    def merge(self, *rows: tuple[int, str | None]) -> None:
        """Replaces rows by their ids, adds new ones, and deletes those without a word."""
        merge = DeltaTable(self.path).merge(_table(rows), predicate="t.id = s.id", source_alias="s", target_alias="t")
        merge = merge.when_matched_delete(predicate="s.word IS NULL").when_matched_update_all()
        merge.when_not_matched_insert_all().execute()

    def _reader(self) -> CommitRows:
        known = DeltaTable(self.path).schema()
        given: Any = SimpleNamespace(is_changing=True, kind="table", aliases=(("n", "id"),), keys=("n",), history="")
        return CommitRows(
            given=given, table=self.path, schema=pa.schema(known.to_arrow()), delta_schema=json.loads(known.to_json())
        )

    def newest(self) -> Actions:
        version = latest_version(self.warehouse, self.path)
        actions = read_actions(self.warehouse, self.path, version)
        self.rows.require_plain(version, actions)
        return actions


def _table(rows: tuple[tuple[int, str | None], ...]) -> pa.Table:
    return pa.table({"id": [id_ for id_, _ in rows], "word": [word for _, word in rows]}, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def changes_of(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def test_the_changes_of_several_commits_are_numbered(table: Table) -> None:
    commits = [table.newest()]
    table.merge((2, "B"), (1, None), (3, "c"))
    commits.append(table.newest())
    assert table.rows.has_rows(commits[1])
    assert table.rows.planned(commits).most == 6
    assert table.rows.keys == ("id",)
    found = table.rows.rows(commits)
    assert found.schema == table.rows.empty.schema
    assert changes_of(found) == [
        (1, "a", "delete", 1),
        (1, "a", "insert", 0),
        (2, "B", "update_postimage", 1),
        (2, "b", "insert", 0),
        (2, "b", "update_preimage", 1),
        (3, "c", "insert", 1),
    ]


def test_rows_that_are_only_moved_to_other_files_are_no_changes(table: Table) -> None:
    table.append((3, "c"))
    DeltaTable(table.path).optimize.compact()
    actions = table.newest()
    assert not table.rows.has_rows(actions)
    assert changes_of(table.rows.rows([actions])) == []


def test_removed_files_without_files_of_changes_are_left_to_spark(table: Table) -> None:
    with pytest.raises(LeftToSparkError, match="replaces rows"):
        table.rows.require_plain(9, [{"remove": {"path": "x", "dataChange": True}}])


def test_more_changes_than_the_commit_counts_stall_the_view(table: Table) -> None:
    table.merge((2, "B"))
    actions = table.newest()
    for action in actions:
        metrics = action.get("commitInfo", {}).get("operationMetrics")
        if metrics is not None:
            metrics["num_target_rows_updated"] = 0
    with pytest.raises(MiscountError, match="MISCOUNT 2 rows are to be written"):
        table.rows.rows([actions])


LOG = pa.schema([("table_name", pa.string()), ("op", pa.string()), ("key", pa.string()), ("row", pa.string())])
CAPTURED = [
    ("public.a", "i", None, '{"id": 1}'),
    ("public.b", "i", None, '{"id": 2}'),
    ("public.a", "u", '{"id": 1}', '{"id": 3}'),
    ("public.a", "u", None, '{"id": 3}'),
    ("public.a", "d", '{"id": 3}', None),
]


@pytest.mark.parametrize("counts", [{"public.a": 4, "public.b": 1}, None])
def test_the_rows_of_a_captured_table_are_numbered(tmp_path: Path, counts: dict[str, int] | None) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    path = f"{warehouse.uri}/data/7/1"
    rows = [dict(zip(LOG.names, row, strict=True)) for row in CAPTURED]
    write_deltalake(path, pa.Table.from_pylist(rows, schema=LOG))
    known = DeltaTable(path).schema()
    given: Any = SimpleNamespace(is_changing=False, kind="source", aliases=(), keys=(), history="")
    reader = CommitRows(
        given=given,
        table=path,
        schema=pa.schema(known.to_arrow()),
        delta_schema=json.loads(known.to_json()),
        upstream="public.a",
    )
    actions = read_actions(warehouse, path, 0)
    if counts is not None:
        made = JobCommit(job="ingest-7", run=1, batch=0, epoch=1, ranges={}, rows=counts)
        actions.append({"commitInfo": {"userMetadata": made.to_json()}})
    found = reader.rows([actions]).select(["op", "key", NUMBER]).to_pylist()
    assert [(row["op"], row["key"], row[NUMBER]) for row in found] == [
        ("i", None, 0),
        ("u", '{"id": 1}', 0),
        ("u", None, 0),
        ("d", '{"id": 3}', 0),
        ("u", '{"id": 1}', 1),
    ]
    assert not reader.has_only_others([{"add": {"path": "x", "stats": '{"numRecords": 1}'}}])
