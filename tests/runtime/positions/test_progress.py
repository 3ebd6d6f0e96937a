"""A view's progress, from its checkpoint's files."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from rw_sql.metastore.records import MaterializedViewRecord
from rw_sql.runtime.positions.high_water import HighWater, appends_windows
from rw_sql.runtime.positions.progress import TableEnd, batch_ends, committed_versions, owes_windows, planned_stretch
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from rw_sql.runtime.jobs.context import Context


def offset(table: str, version: int, *, index: int = -1, is_first_read: bool = False) -> dict[str, object]:
    """A Delta source's offset as Spark writes it."""
    return {
        "sourceVersion": 1,
        "reservoirId": table,
        "reservoirVersion": version,
        "index": index,
        "isStartingVersion": is_first_read,
    }


def write(checkpoint: Path, batch: int, *offsets: dict[str, object], is_committed: bool = True) -> None:
    """One batch of a checkpoint."""
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    lines = ["v1", "{}", *(json.dumps(each) for each in offsets)]
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))
    if is_committed:
        (checkpoint / "commits" / str(batch)).write_text("v1\n{}")


def mark(checkpoint: Path, batch: int, used: int, following: int | None) -> None:
    """A batch of a query with windows: the watermark with which it runs, and the watermark of the next batch. It is not
    completed if ``following`` is None."""
    (checkpoint / "state" / "0").mkdir(parents=True, exist_ok=True)
    write(checkpoint, batch, offset("t", 5 + min(batch, 1)), is_committed=following is not None)
    told = (checkpoint / "offsets" / str(batch)).read_text().replace("{}", json.dumps({"batchWatermarkMs": used}), 1)
    (checkpoint / "offsets" / str(batch)).write_text(told)
    if following is not None:
        (checkpoint / "commits" / str(batch)).write_text("v1\n" + json.dumps({"nextBatchWatermarkMs": following}))


def test_windows_that_close_are_owed_until_the_next_batch_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, now = Warehouse.at(str(tmp_path)), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert not owes_windows(warehouse, str(tmp_path))
    mark(tmp_path, 0, 0, 1000)
    assert owes_windows(warehouse, str(tmp_path))
    now[0] = 60.0
    assert not owes_windows(warehouse, str(tmp_path))  # the query was stopped before it planned the next batch
    mark(tmp_path, 1, 1000, None)
    assert owes_windows(warehouse, str(tmp_path))
    mark(tmp_path, 1, 1000, 1000)
    assert not owes_windows(warehouse, str(tmp_path))
    mark(tmp_path, 2, 1000, 2000)
    assert owes_windows(warehouse, str(tmp_path))


def test_rows_count_as_read_once_their_windows_are_written(tmp_path: Path) -> None:
    context = cast("Context", SimpleNamespace(warehouse=Warehouse.at(str(tmp_path))))
    ends = [HighWater(versions={"t": 4}, feeds={}, may_owe_windows=owes) for owes in (True, False)]
    mark(tmp_path, 0, 0, 1000)
    assert [each.are_reached(context, str(tmp_path)) for each in ends] == [False, True]
    mark(tmp_path, 1, 1000, 2000)  # records arrive all the time, so that every batch moves the watermark
    assert [each.are_reached(context, str(tmp_path)) for each in ends] == [True, True]


def test_the_windows_of_a_direct_reader_are_owed_from_the_moment_its_table_shows_the_positions(tmp_path: Path) -> None:
    context = cast("Context", SimpleNamespace(warehouse=Warehouse.at(str(tmp_path))))
    end = HighWater(versions={}, feeds={}, may_owe_windows=True, is_direct=True)
    mark(tmp_path, 0, 0, 1000)
    mark(tmp_path, 1, 1000, 1000)
    mark(tmp_path, 2, 1000, None)  # The rows are in the table, but Spark has not completed the batch.
    assert not end.are_reached(context, str(tmp_path))
    mark(tmp_path, 2, 1000, 2000)
    assert not end.are_reached(context, str(tmp_path))
    mark(tmp_path, 3, 2000, 2000)
    assert end.are_reached(context, str(tmp_path))


def test_an_inner_join_owes_no_rows_when_the_watermark_moves() -> None:
    def view(query: str) -> MaterializedViewRecord:
        definition = f"CREATE MATERIALIZED VIEW v AS {query}"
        return MaterializedViewRecord(id=3, name="v", definition=definition, query=query, inputs=(1, 2), schema="")

    assert not appends_windows(view("SELECT s.id FROM s JOIN t ON s.id = t.id"))
    assert appends_windows(view("SELECT s.id FROM s LEFT JOIN t ON s.id = t.id AND s.at < t.at"))
    assert appends_windows(view("SELECT window.start FROM s GROUP BY window(at, '1 minute') EMIT ON WINDOW CLOSE"))


def test_the_windows_are_owed_for_the_minimum_time_between_two_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, now = Warehouse.at(str(tmp_path)), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    mark(tmp_path, 0, 0, 1000)
    assert owes_windows(warehouse, str(tmp_path), interval_seconds=60.0)
    now[0] = 60.0
    assert owes_windows(warehouse, str(tmp_path), interval_seconds=60.0)
    now[0] = 66.0
    assert not owes_windows(warehouse, str(tmp_path), interval_seconds=60.0)


def test_nothing_is_reached_before_the_first_batch_is_committed(tmp_path: Path) -> None:
    write(tmp_path, 0, offset("t", 7), is_committed=False)
    assert committed_versions(Warehouse.at(str(tmp_path)), str(tmp_path)) == {}


def test_nothing_is_reached_while_the_first_read_goes_on(tmp_path: Path) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    write(tmp_path, 0, offset("t", 7, index=3, is_first_read=True))
    write(tmp_path, 1, offset("t", 7, index=9, is_first_read=True))
    assert committed_versions(warehouse, str(tmp_path)) == {"t": 0}
    write(tmp_path, 2, offset("t", 8))
    assert committed_versions(warehouse, str(tmp_path)) == {"t": 8}


def test_of_a_table_that_is_read_twice_the_slower_reader_counts(tmp_path: Path) -> None:
    write(tmp_path, 0, offset("t", 9), offset("t", 4), offset("u", 2, is_first_read=True))
    assert committed_versions(Warehouse.at(str(tmp_path)), str(tmp_path)) == {"t": 4, "u": 0}


def test_a_batch_after_the_first_read_names_its_versions(tmp_path: Path) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    write(tmp_path, 0, offset("t", 7, index=3, is_first_read=True))
    write(tmp_path, 1, offset("t", 8))
    write(tmp_path, 2, offset("t", 10))
    assert planned_stretch(warehouse, str(tmp_path), 1) is None
    assert planned_stretch(warehouse, str(tmp_path), 2) == (range(8, 10), True)


def test_a_commit_that_is_read_in_parts_is_not_read_whole(tmp_path: Path) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    write(tmp_path, 0, offset("t", 7))
    write(tmp_path, 1, offset("t", 7, index=2))
    write(tmp_path, 2, offset("t", 9))
    assert planned_stretch(warehouse, str(tmp_path), 1) == (range(7, 8), False)
    assert planned_stretch(warehouse, str(tmp_path), 2) == (range(7, 9), False)


def test_of_a_table_that_is_read_twice_a_batch_names_no_versions(tmp_path: Path) -> None:
    write(tmp_path, 0, offset("t", 9), offset("t", 4))
    write(tmp_path, 1, offset("t", 10), offset("t", 5))
    assert planned_stretch(Warehouse.at(str(tmp_path)), str(tmp_path), 1) is None


def commit(warehouse: Warehouse, version: int, *kinds: str) -> None:
    """A commit of the table ``t`` with a file of each kind."""
    actions = [json.dumps({kind: {"path": f"{at}.parquet", "size": 1}}) for at, kind in enumerate(kinds)]
    warehouse.write_text(f"{warehouse.uri}/t/_delta_log/{version:020d}.json", "\n".join(actions))


def test_of_a_change_feed_a_commit_with_change_files_is_read_as_a_whole(tmp_path: Path) -> None:
    warehouse, feeds = Warehouse.at(str(tmp_path)), {"t": f"{tmp_path}/t"}
    commit(warehouse, 9, "add", "remove", "cdc", "cdc")
    write(tmp_path, 0, offset("t", 7, index=3, is_first_read=True))
    assert committed_versions(warehouse, str(tmp_path), feeds=feeds) == {"t": 0}
    write(tmp_path, 1, offset("t", 8))
    assert committed_versions(warehouse, str(tmp_path), feeds=feeds) == {"t": 8}
    write(tmp_path, 2, offset("t", 9, index=1))
    assert committed_versions(warehouse, str(tmp_path), feeds=feeds) == {"t": 10}
    assert committed_versions(warehouse, str(tmp_path)) == {"t": 9}


def test_of_a_change_feed_a_commit_without_change_files_may_be_read_in_part(tmp_path: Path) -> None:
    warehouse, feeds = Warehouse.at(str(tmp_path)), {"t": f"{tmp_path}/t"}
    commit(warehouse, 9, "add", "add", "remove")
    for batch in range(2):
        write(tmp_path, batch, offset("t", 9, index=batch))
        assert committed_versions(warehouse, str(tmp_path), feeds=feeds) == {"t": 9}
    write(tmp_path, 2, offset("t", 10))
    assert committed_versions(warehouse, str(tmp_path), feeds=feeds) == {"t": 10}


def test_of_a_change_feed_a_commit_that_was_cleaned_up_counts_as_read(tmp_path: Path) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    write(tmp_path, 0, offset("t", 9, index=1))
    assert committed_versions(warehouse, str(tmp_path), feeds={"t": f"{tmp_path}/t"}) == {"t": 10}


def test_a_batch_begins_where_the_batch_before_it_ended(tmp_path: Path) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    write(tmp_path, 0, offset("t", 7, index=3, is_first_read=True))
    write(tmp_path, 1, offset("t", 9, index=2))
    write(tmp_path, 2, offset("t", 10), is_committed=False)
    ends = [
        TableEnd(table="t", version=7, index=3, is_snapshot=True),
        TableEnd(table="t", version=9, index=2, is_snapshot=False),
        TableEnd(table="t", version=10, index=-1, is_snapshot=False),
    ]
    assert [batch_ends(warehouse, str(tmp_path), batch) for batch in range(3)] == [
        (None, ends[0]),
        (ends[0], ends[1]),
        (ends[1], ends[2]),
    ]
    assert [end.is_within for end in ends] == [True, True, False]


def test_only_a_query_of_one_table_has_ends_of_batches(tmp_path: Path) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    write(tmp_path, 0, offset("history", 7))
    write(tmp_path, 1, offset("log", 9))
    write(tmp_path, 2, offset("log", 9), offset("u", 1))
    assert [batch_ends(warehouse, str(tmp_path), batch) for batch in (1, 2)] == [None, None]
