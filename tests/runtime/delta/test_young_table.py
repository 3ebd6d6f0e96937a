"""Tables whose commits say all: which are young, and from which version their change feed has every row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from rw_sql.runtime.delta import young_table
from rw_sql.runtime.delta.young_table import YoungTable
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

FEED = {"delta.enableChangeDataFeed": "true"}


def append(path: str, number: int = 1, **more: object) -> None:
    rows = pa.table({"id": pa.array([number], pa.int64())})
    write_deltalake(path, rows, mode="append", **more)  # type: ignore[call-overload]


@pytest.fixture
def path(tmp_path: Path) -> str:
    made = str(tmp_path / "table")
    append(made)
    append(made, 2)
    return made


def young(path: str) -> YoungTable | None:
    return YoungTable.of(Warehouse.at(path.rpartition("/")[0]), path)


def test_a_table_that_was_appended_to_is_young(path: str) -> None:
    assert young(path) == YoungTable(newest=1, feed_begin=None)
    assert young(f"{path}-that-is-not-there") is None


def test_a_table_that_lost_rows_or_files_is_not(path: str) -> None:
    DeltaTable(path).delete("id = 1")
    assert young(path) is None


def test_a_compacted_table_is_not_young(path: str) -> None:
    assert DeltaTable(path).optimize.compact()["numFilesRemoved"] == 2
    assert young(path) is None


def test_a_restored_table_is_not_young(path: str) -> None:
    DeltaTable(path).restore(0)
    assert young(path) is None


def test_a_table_with_an_added_column_is_not_young(path: str) -> None:
    DeltaTable(path).alter.add_columns([Field("more", PrimitiveType("string"))])
    assert young(path) is None


def test_a_table_without_its_first_commits_is_not_young(path: str) -> None:
    Warehouse.at(path).remove(f"{path}/_delta_log/{0:020d}.json")
    assert young(path) is None


def test_a_table_with_many_commits_or_bytes_is_not_young(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(young_table, "MOST_COMMITS", 1)
    assert young(path) is None
    monkeypatch.setattr(young_table, "MOST_COMMITS", 2)
    assert young(path) is not None
    monkeypatch.setattr(young_table, "MOST_BYTES", 100)
    assert young(path) is None


def test_a_feed_that_began_with_the_table_has_every_row(tmp_path: Path) -> None:
    path = str(tmp_path / "fed")
    append(path, configuration=FEED)
    append(path, 2)
    assert young(path) == YoungTable(newest=1, feed_begin=0)


def test_a_feed_that_began_before_the_first_row_has_every_row(tmp_path: Path) -> None:
    path = str(tmp_path / "fed")
    DeltaTable.create(path, pa.schema([("id", pa.int64())]))
    DeltaTable(path).alter.set_table_properties(FEED)
    append(path)
    assert young(path) == YoungTable(newest=2, feed_begin=1)


def test_a_feed_that_began_later_or_ended_has_not(path: str) -> None:
    DeltaTable(path).alter.set_table_properties(FEED)
    append(path, 3)
    assert young(path) == YoungTable(newest=3, feed_begin=None)


def test_a_feed_that_was_switched_off_has_none(tmp_path: Path) -> None:
    path = str(tmp_path / "fed")
    append(path, configuration=FEED)
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    assert young(path) == YoungTable(newest=1, feed_begin=None)
    append(path, 2)
    DeltaTable(path).alter.set_table_properties(FEED)
    assert young(path) == YoungTable(newest=3, feed_begin=None)
