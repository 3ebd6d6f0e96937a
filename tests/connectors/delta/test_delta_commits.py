"""Commits of a Delta table as a source reads them, without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.connectors.delta import commits
from rw_sql.connectors.delta.commits import read_commit
from rw_sql.connectors.delta.paths import comparable_path, full_path
from rw_sql.connectors.delta.source import DeltaConnector
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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


def appended(folder: Path, versions: int) -> list[int]:
    """Creates a table with this number of versions. Returns the time of each version; no two versions have the same
    time."""
    for number in range(versions):
        write_deltalake(str(folder), pa.table({"id": [number]}), mode="append")
    times = [1_000 * (number + 1) for number in range(versions)]
    for version, at_ms in enumerate(times):
        rewrite(folder, version, timed(at_ms))
    return times


def timed(at_ms: int | None) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Changes the time in a ``commitInfo``."""
    return lambda info: {**info, "timestamp": at_ms}


def rewrite(folder: Path, version: int, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Changes the ``commitInfo`` of a version, or removes it if ``change`` returns None."""
    log = folder / "_delta_log" / f"{version:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    actions = [{"commitInfo": change(each["commitInfo"])} if "commitInfo" in each else each for each in actions]
    log.write_text("\n".join(json.dumps(each) for each in actions if each != {"commitInfo": None}))


def offset_at(folder: Path, milliseconds: int) -> int:
    return DELTA.offsets_at({"delta.path": str(folder)}, milliseconds, ["orders"])["orders"]


@pytest.mark.parametrize("change", [lambda _: None, timed(None)])
@pytest.mark.parametrize(
    ("without", "offsets"),
    [
        ((), [0, 1, 2, 3, 4]),
        ((0,), [0, 0, 2, 3, 4]),
        ((1,), [0, 1, 1, 3, 4]),
        ((3,), [0, 1, 2, 3, 3]),
        ((1, 2), [0, 1, 1, 1, 4]),
        ((0, 1, 2, 3), [0, 0, 0, 0, 0]),
    ],
)
def test_a_version_without_a_time_is_read_rather_than_skipped(
    tmp_path: Path, without: Sequence[int], offsets: Sequence[int], change: Callable[[Any], Any]
) -> None:
    times = appended(tmp_path, 4)
    for version in without:
        rewrite(tmp_path, version, change)
    assert [offset_at(tmp_path, at_ms) for at_ms in (*times, times[-1] + 1)] == offsets


def test_the_first_version_at_or_after_a_time_is_found_in_a_log_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "_COMMITS_AT_ONCE", 2)
    times = appended(tmp_path, 5)
    rewrite(tmp_path, 3, lambda _: None)
    assert [offset_at(tmp_path, at_ms) for at_ms in times] == [0, 1, 2, 3, 3]


def test_a_version_that_is_committed_during_the_search_does_not_change_the_found_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = appended(tmp_path, 3)
    table = DeltaTable(str(tmp_path))
    monkeypatch.setattr("rw_sql.connectors.delta.source.deltalake.DeltaTable", lambda path: table)
    write_deltalake(str(tmp_path), pa.table({"id": [9]}), mode="append")
    assert [offset_at(tmp_path, at_ms) for at_ms in (0, *times)] == [0, 0, 1, 2]


def test_an_earlier_version_of_a_writer_with_a_fast_clock_is_not_skipped(tmp_path: Path) -> None:
    appended(tmp_path, 4)
    rewrite(tmp_path, 1, timed(3_500))
    assert offset_at(tmp_path, 3_200) == 1


def test_a_shortened_log_whose_oldest_version_has_no_time_is_refused_for_an_older_time(tmp_path: Path) -> None:
    times = appended(tmp_path, 3)
    DeltaTable(str(tmp_path)).create_checkpoint()
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    rewrite(tmp_path, 1, lambda _: None)
    with pytest.raises(SqlError, match="its oldest version is 1 and has no time in the log"):
        offset_at(tmp_path, times[1])
    assert offset_at(tmp_path, times[2] + 1) == 3


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
