"""The begin of a change feed, from the log of a real table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from rw_sql.runtime.delta.change_feed import feed_begin
from rw_sql.runtime.support.warehouse import Warehouse

FEED = "delta.enableChangeDataFeed"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def append(path: str, *, has_feed: bool | None = None) -> int:
    """A commit with rows; the first one creates the table, with or without a feed."""
    settings = None if has_feed is None else {FEED: str(has_feed).lower()}
    write_deltalake(
        path, pa.table({"id": pa.array([1], pa.int64())}), mode="append", schema_mode="merge", configuration=settings
    )
    return DeltaTable(path).version()


def switch(path: str, has_feed: bool) -> int:
    table = DeltaTable(path)
    table.alter.set_table_properties({FEED: str(has_feed).lower()})
    return table.version()


def add_column(path: str, name: str) -> int:
    table = DeltaTable(path)
    table.alter.add_columns([Field(name, PrimitiveType("string"))])
    return table.version()


def begin(path: str, after: int) -> int:
    return feed_begin(Warehouse.at(path.rpartition("/")[0]), path, after)


def test_a_table_that_had_a_feed_is_read_from_where_it_was_asked_for(path: str) -> None:
    append(path, has_feed=True)
    after = append(path)
    append(path)
    # It repeats the settings, and the feed before it stays readable.
    add_column(path, "more")
    append(path)
    assert begin(path, after) == after
    assert begin(path, 0) == 0
    newest = DeltaTable(path).version()
    assert begin(path, newest) == newest


def test_a_feed_that_began_later_is_read_from_there(path: str) -> None:
    after = append(path, has_feed=False)
    append(path)
    began = switch(path, True)
    append(path)
    add_column(path, "more")
    assert begin(path, after) == began


def test_a_feed_that_was_broken_off_is_read_from_where_it_is_whole(path: str) -> None:
    after = append(path, has_feed=True)
    append(path)
    switch(path, False)
    append(path)
    again = switch(path, True)
    append(path)
    assert begin(path, after) == again


def test_a_begin_whose_commit_was_cleaned_up_stays(path: str) -> None:
    append(path, has_feed=True)
    after = append(path)
    append(path)
    DeltaTable(path).create_checkpoint()
    for version in range(after + 1):
        (Path(path) / "_delta_log" / f"{version:020}.json").unlink()
    append(path)
    assert begin(path, after) == after
    # This commit repeats the settings, and only the removed ones show whether the feed existed before.
    add_column(path, "more")
    assert begin(path, after) == after
