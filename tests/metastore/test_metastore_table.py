from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from rw_sql.errors import SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore.table import CommitConflict, StoredTable, create_table
from tests.metastore.metastore_model import Make

COLUMNS = pa.schema([("seq", pa.int64()), ("name", pa.string())])


def rows(*numbers: int) -> pa.Table:
    return pa.table({"seq": numbers, "name": [f"row {number}" for number in numbers]}, schema=COLUMNS)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "table")
    properties: dict[str, str | None] = {
        "delta.dataSkippingNumIndexedCols": "1",
        "delta.logRetentionDuration": "interval 0 seconds",
        "delta.deletedFileRetentionDuration": "interval 10 minutes",
    }
    create_table(uri, Schema.from_arrow(COLUMNS), properties)
    create_table(uri, Schema.from_arrow(COLUMNS), properties)
    return uri


def test_a_table_that_is_made_by_several_at_once_is_made_once(tmp_path: Path) -> None:
    """If it were created twice, the table would have two sets of metadata with two ids."""
    for number in range(20):
        uri = str(tmp_path / str(number))
        start = Barrier(4)

        def make(uri: str = uri, start: Barrier = start) -> None:
            start.wait()
            create_table(uri, Schema.from_arrow(COLUMNS), {}, partition_by=["seq"])

        with ThreadPoolExecutor(4) as pool:
            for made in [pool.submit(make) for _ in range(4)]:
                made.result()
        assert DeltaTable(uri).version() == 0


def test_an_append_on_an_old_version_is_refused_and_leaves_no_row(uri: str) -> None:
    first, second = StoredTable(uri), StoredTable(uri)
    first.append(rows(1), transaction=("app", 7))
    with pytest.raises(CommitConflict):
        second.append(rows(2))
    with pytest.raises(CommitConflict):
        second.append(rows(3), overwrite=True)
    assert (second.version, second.transaction("app")) == (0, 0)
    second.refresh()
    assert (second.version, second.transaction("app")) == (1, 7)
    assert second.read().equals(rows(1))


def test_what_is_new_is_read_once(uri: str) -> None:
    writer, reader = StoredTable(uri), StoredTable(uri)
    assert reader.read_new().rows.num_rows == 0
    writer.append(rows(1))
    writer.append(rows(2, 3))
    new = reader.read_new()
    assert (sorted(new.rows["seq"].to_pylist()), new.is_whole, new.version) == ([1, 2, 3], False, 2)
    assert reader.read_new().rows.num_rows == 0
    assert reader.read_new(["name"]).rows.schema.names == ["name"]
    writer.append(rows(9), overwrite=True)
    new = reader.read_new()
    assert (new.rows["seq"].to_pylist(), new.is_whole, new.version) == ([9], True, 3)


@pytest.mark.parametrize("separator", ["\x85", "\u2028", "\u2029"])
def test_what_is_new_is_read_whatever_its_statistics_contain(tmp_path: Path, separator: str) -> None:
    uri = str(tmp_path / "words")
    create_table(uri, Schema.from_arrow(COLUMNS), {"delta.dataSkippingNumIndexedCols": "2"})
    writer, reader = StoredTable(uri), StoredTable(uri)
    assert reader.read_new().rows.num_rows == 0
    writer.append(pa.table({"seq": [1], "name": [f"{separator}a"]}, schema=COLUMNS))
    assert reader.read_new().rows["name"].to_pylist() == [f"{separator}a"]


def test_files_are_skipped_by_their_statistics(uri: str) -> None:
    table = StoredTable(uri)
    for number in range(1, 5):
        table.append(rows(number))
    assert table.read(above=("seq", 2))["seq"].to_pylist() in ([3, 4], [4, 3])
    assert table.read(["seq"], above=("seq", 9)).num_rows == 0


@pytest.fixture
def overtaken(uri: str) -> StoredTable:
    """A handle whose next versions were committed, checkpointed and cleaned up."""
    stale, writer = StoredTable(uri), StoredTable(uri)
    assert stale.read_new().version == 0
    for number in range(120):
        before = writer.version
        writer.append(rows(number))
        if writer.is_upkeep_due(before):
            # Log clean-up counts in milliseconds, and keeps files that are not older than the present time.
            wait_until = time.time() + 0.01
            while time.time() < wait_until:
                pass
            writer.upkeep()
    assert not Path(uri, "_delta_log", f"{1:020d}.json").exists()
    return stale


def test_a_writer_that_slept_past_the_clean_up_is_refused(overtaken: StoredTable) -> None:
    with pytest.raises(CommitConflict):
        overtaken.append(rows(1))
    overtaken.refresh()
    overtaken.append(rows(120))
    assert sorted(overtaken.read()["seq"].to_pylist()) == list(range(121))


def test_a_reader_that_slept_past_the_clean_up_sees_everything(overtaken: StoredTable) -> None:
    assert overtaken.latest_version() > 120
    new = overtaken.read_new()
    assert new.version == overtaken.latest_version()
    assert sorted(new.rows["seq"].to_pylist()) == list(range(120))


def test_a_reader_of_an_old_version_survives_the_removal_of_its_files(uri: str) -> None:
    writer, reader = StoredTable(uri), StoredTable(uri)
    for number in range(4):
        writer.append(rows(number))
    reader.refresh()
    writer.upkeep()
    assert sorted(reader.read()["seq"].to_pylist()) == [0, 1, 2, 3]
    writer.upkeep()
    assert len(list(Path(uri).glob("*.parquet"))) == 1
    assert sorted(reader.read()["seq"].to_pylist()) == [0, 1, 2, 3]


def test_files_of_commits_that_never_came_are_removed_after_a_day(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rw_sql.metastore.table._FULL_VACUUM_EVERY", 1)
    table = StoredTable(uri)
    table.append(rows(1))
    in_flight, orphan = Path(uri, "part-in-flight.parquet"), Path(uri, "part-orphan.parquet")
    for file in (in_flight, orphan):
        file.write_bytes(b"rows")
    two_days_ago = time.time() - 2 * 86_400
    os.utime(orphan, (two_days_ago, two_days_ago))
    table.upkeep()
    assert (in_flight.exists(), orphan.exists()) == (True, False)
    assert table.read().equals(rows(1))


def test_upkeep_that_loses_leaves_its_work_to_the_next_turn(uri: str) -> None:
    first, second = StoredTable(uri), StoredTable(uri)
    for number in range(3):
        first.append(rows(number))
    second.refresh()

    def fold_late(table: pa.Table) -> pa.Table:
        first.refresh()
        first.append(rows(9))
        return rows(0)

    second.upkeep(fold_late)
    assert sorted(second.read()["seq"].to_pylist()) == [0, 1, 2, 9]


@pytest.mark.parametrize("name", ["a place with blanks", "50% `quoted`", "größe#1?x=y"])
def test_a_warehouse_may_have_any_name(tmp_path: Path, make: Make, name: str) -> None:
    warehouse = str(tmp_path / name)
    metastore = Metastore.open(warehouse)
    reader = Metastore.open(warehouse)
    metastore.commit(make.source_with_splits(1, "orders", 2), based_on=metastore.snapshot())
    assert reader.snapshot().epoch == 1
    assert Metastore.open(warehouse).snapshot().epoch == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [name]


def test_a_path_that_delta_would_misread_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SqlError, match="it contains %25, which Delta reads as one character") as refused:
        Metastore.open(str(tmp_path / "50%25"))
    assert refused.value.code == "RW214"
    assert list(tmp_path.iterdir()) == []


def test_the_last_app_transaction_is_found_in_the_commits(uri: str) -> None:
    table = StoredTable(uri)
    assert table.transaction("app") == 0
    table.append(rows(1), transaction=("app", 7))
    table.append(rows(2), transaction=("other", 9))
    table.append(rows(3))
    reader = StoredTable(uri)
    assert (reader.transaction("app"), reader.transaction("other"), reader.transaction("none")) == (7, 9, 0)
    table.append(rows(4), transaction=("app", 8))
    assert (reader.transaction("app"), reader.known_transaction("app")) == (7, 7)
    assert (reader.transaction("app", 4), reader.version) == (8, 3), "the handle need not advance"
    assert (reader.transaction("app"), reader.known_transaction("app")) == (7, 8)
    reader.refresh()
    assert [reader.transaction(app) for app in ("app", "other")] == [8, 9]


def test_an_app_transaction_is_found_behind_many_commits_and_behind_a_checkpoint(uri: str) -> None:
    table, reader = StoredTable(uri), StoredTable(uri)
    table.append(rows(0), transaction=("app", 7))
    for number in range(30):
        table.append(rows(number))
    assert reader.transaction("app", table.version) == 7
    assert StoredTable(uri).transaction("app") == 7
    table.upkeep(lambda whole: whole)
    table.upkeep()
    for log in Path(uri, "_delta_log").glob("*.json"):
        if int(log.stem) <= table.version:
            log.unlink()
    assert StoredTable(uri).transaction("app") == 7


def test_rows_are_read_up_to_the_version_that_the_caller_has_found(uri: str) -> None:
    writer, reader = StoredTable(uri), StoredTable(uri)
    for number in (1, 2):
        writer.append(rows(number))
    new = reader.read_new(newest=reader.latest_version())
    assert (new.version, sorted(new.rows["seq"].to_pylist())) == (2, [1, 2])
    writer.append(rows(3))
    assert reader.read_new(newest=2).rows.num_rows == 0
    assert reader.read_new(newest=1).version == 2, "another thread has read up to version 2"
    assert reader.read_new().rows["seq"].to_pylist() == [3]
