"""Commits of a Delta table as a source reads them, without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.connectors.delta.commits import read_commit
from rw_sql.connectors.delta.paths import comparable_path, full_path
from rw_sql.connectors.delta.source import DeltaConnector
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from pathlib import Path

DELTA = DeltaConnector()


@pytest.mark.parametrize("separator", ["\x85", "\u2028", "\u2029", "\v", "\x1c"])
def test_values_in_statistics_may_have_any_character(tmp_path: Path, separator: str) -> None:
    words = pa.table({"word": [f"{separator}a", f"z{separator}"]})
    for mode, changes in (("append", ""), ("append", ""), ("overwrite", "WRITE")):
        write_deltalake(str(tmp_path), words, mode=mode)  # type: ignore[call-overload]
        (*_, newest) = sorted(path.stem for path in (tmp_path / "_delta_log").glob("*.json"))
        commit = read_commit(str(tmp_path), int(newest))
        assert commit is not None
        assert (len(commit.appended), commit.changes) == (1, changes)


@pytest.mark.parametrize(
    "table",
    [
        "/lake/orders",
        "//lake/orders",
        "/lake//orders",
        "/lake/./orders",
        "/lake/x/../orders",
        "file:/lake/orders",
        "file:///lake/orders",
        "file:///lake//orders",
        "file://localhost/lake/orders",
        "file:/lake/x/../orders/.",
    ],
)
def test_a_local_file_has_one_path_however_its_table_is_written(table: str) -> None:
    assert comparable_path(full_path(table, "day=a b/part-0.parquet")) == "/lake/orders/day=a b/part-0.parquet"


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("/clone/part-0.parquet", "/clone/part-0.parquet"),
        ("file:/clone/part-0.parquet", "/clone/part-0.parquet"),
        ("file:///clone/part-0.parquet", "/clone/part-0.parquet"),
        ("s3://clone/part-0.parquet", "s3://clone/part-0.parquet"),
        ("part-0.parquet", "s3://lake/orders/part-0.parquet"),
    ],
)
def test_a_file_of_a_shallow_clone_has_its_own_path(file: str, path: str) -> None:
    assert comparable_path(full_path("s3://lake/orders", file)) == path


def test_a_commit_has_the_numbers_of_rows_of_its_files(tmp_path: Path) -> None:
    options = {"delta.path": str(tmp_path)}
    for rows in (3, 2, 0, 4):
        write_deltalake(str(tmp_path), pa.table({"id": pa.array(range(rows), pa.int64())}), mode="append")
    assert DELTA.logged_records(options, {"t": (0, 4)}) is None
    assert DELTA.logged_records(options, {"t": (1, 4)}) == 6
    assert DELTA.logged_records(options, {"t": (3, 4)}) == 4
    assert DELTA.logged_records(options, {}) is None


@pytest.mark.parametrize("stats", ["", "null", "{}", "[]", "no JSON", '{"numRecords": null}'])
def test_a_commit_without_numbers_of_rows_has_an_unknown_number(tmp_path: Path, stats: str) -> None:
    for _ in range(2):
        write_deltalake(str(tmp_path), pa.table({"id": [1]}), mode="append")
    log = tmp_path / "_delta_log" / f"{1:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["stats"] = stats
    log.write_text("\n".join(map(json.dumps, actions)))
    assert DELTA.logged_records({"delta.path": str(tmp_path)}, {"t": (1, 2)}) is None


def test_a_whole_log_is_known_without_the_information_of_a_commit(tmp_path: Path) -> None:
    for number in range(3):
        write_deltalake(str(tmp_path), pa.table({"id": [number]}), mode="append")
    commit = tmp_path / "_delta_log" / "00000000000000000000.json"
    commit.write_text("".join(line for line in commit.open() if '"commitInfo"' not in line))
    assert DELTA.offsets_at({"delta.path": str(tmp_path)}, 0, ["orders"]) == {"orders": 0}


def test_a_time_before_the_oldest_kept_version_is_refused(tmp_path: Path) -> None:
    path, options = str(tmp_path), {"delta.path": str(tmp_path)}
    for number in range(3):
        write_deltalake(path, pa.table({"id": [number]}), mode="append")
    times = {commit["version"]: commit["timestamp"] for commit in DeltaTable(path).history()}
    assert DELTA.offsets_at(options, 0, ["orders"]) == {"orders": 0}
    DeltaTable(path).create_checkpoint()
    (tmp_path / "_delta_log" / "00000000000000000000.json").unlink()
    name = tmp_path.name
    with pytest.raises(SqlError) as lost:
        DELTA.offsets_at(options, times[1] - 1, [name])
    said = lost.value.render()
    assert f"the log of {name} no longer has all versions since that time: " in said
    assert "its oldest version is 1 and was committed at " in said
    assert f"INJECT SOURCE OFFSETS SOURCE_NAME VALUES ('{name}' = 0) ALLOW DUPLICATES reads all rows" in said
    assert f"VALUES ('{name}' = 1)" in said
    assert DELTA.offsets_at(options, times[1], [name]) == {name: 1}
    assert DELTA.offsets_at(options, times[2] + 1, [name]) == {name: 3}
