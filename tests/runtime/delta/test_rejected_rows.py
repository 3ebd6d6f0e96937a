"""Rows that a target refused: their names, and the replacement of a batch's rows when the batch is written again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.connectors.sink import Refusal, SinkShape
from rw_sql.runtime.delta import rejected_rows
from rw_sql.runtime.delta.rejected_rows import (
    RejectedRows,
    carry_over,
    discard_from,
    make_rejected,
    reason_of,
    rejected_count,
)
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.sink_batches import batch, shape


def test_a_batch_that_is_written_again_replaces_what_it_had(tmp_path: Path) -> None:
    path = str(tmp_path / "rejected")
    assert rejected_count(path) == 0
    rows = batch((1, "a"), (2, "b"), (3, "c"), (4, "d"))
    for _ in range(2):  # a kill between the two writes of a batch
        kept = RejectedRows.open(path, shape("upsert", "id"))
        kept.begin()
        left = kept.put(rows, [Refusal(index=1, column="word", reason="no")], 7)
        assert left["id"].to_pylist() == [1, 3, 4]
        left = kept.put(left, [Refusal(index=2, reason="neither")], 7)
        assert left["id"].to_pylist() == [1, 3]
    kept.begin()
    kept.put(rows, [Refusal(index=0, reason="later")], 8)
    assert kept.total == rejected_count(path) == 3
    told = DeltaTable(path).to_pyarrow_table().sort_by([("_rw_batch", "ascending"), ("id", "ascending")])
    assert told.select(["id", "word", "_rw_op", "_rw_column", "_rw_reason", "_rw_batch"]).to_pylist() == [
        {"id": 2, "word": "b", "_rw_op": "insert", "_rw_column": "word", "_rw_reason": "no", "_rw_batch": 7},
        {"id": 4, "word": "d", "_rw_op": "insert", "_rw_column": None, "_rw_reason": "neither", "_rw_batch": 7},
        {"id": 1, "word": "a", "_rw_op": "insert", "_rw_column": None, "_rw_reason": "later", "_rw_batch": 8},
    ]
    assert RejectedRows.open(path, shape("upsert", "id")).total == 3


def reject(path: str, *batches: int) -> RejectedRows:
    """A table with one row per batch, whose id is the batch's number."""
    kept = RejectedRows.open(path, shape("upsert", "id"))
    for number in batches:
        kept.begin()
        kept.put(batch((number, "a"), (-1, "b")), [Refusal(index=0, reason="no")], number)
    return kept


def ids(path: str) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["id"].to_pylist())


def test_rows_of_an_unfinished_batch_are_removed_before_it_is_written_again(tmp_path: Path) -> None:
    """The next attempt may write them, for example because the target's column was widened."""
    warehouse, path = Warehouse.at(str(tmp_path)), str(tmp_path / "rejected")
    discard_from(warehouse, path, 0)
    assert not DeltaTable.is_deltatable(path)
    reject(path, 3, 7)
    discard_from(warehouse, path, 8)
    assert ids(path) == [3, 7]
    discard_from(warehouse, path, 7)
    assert ids(path) == [3]
    version = DeltaTable(path).version()
    discard_from(warehouse, path, 7)
    assert DeltaTable(path).version() == version
    assert reject(path, 7).total == rejected_count(path) == 2


def small_upkeep(monkeypatch: pytest.MonkeyPatch, *, every: int = 5, small_bytes: int = 2**20) -> None:
    """Merges files after a few batches, and deletes replaced files at once."""
    monkeypatch.setattr(rejected_rows, "_UPKEEP_EVERY", every)
    monkeypatch.setattr(rejected_rows, "_SMALL_BYTES", small_bytes)
    monkeypatch.setattr(rejected_rows, "_KEPT_HOURS", 0)


def test_the_number_of_files_does_not_grow_with_the_number_of_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_upkeep(monkeypatch)
    path = str(tmp_path / "rejected")
    for first in (0, 14):  # two runs
        kept = reject(path, *range(first, first + 14))
        assert kept.total == rejected_count(path) == first + 14
    assert ids(path) == list(range(28))
    assert len(DeltaTable(path).file_uris()) < 10
    assert len(list(Path(path).glob("*.parquet"))) < 20
    assert DeltaTable(path).metadata().configuration["delta.logRetentionDuration"] == "interval 1 days"


def test_a_large_file_is_not_merged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_upkeep(monkeypatch, small_bytes=3_000)
    path = str(tmp_path / "rejected")
    kept = reject(path, *range(5))
    rows = batch(*((100 + number, f"{number:x}" * 50) for number in range(200)))
    kept.begin()
    kept.put(rows, [Refusal(index=index, reason="no") for index in range(200)], 5)
    large = max(Path(path).glob("*.parquet"), key=lambda file: file.stat().st_size)
    assert large.stat().st_size > 3_000
    kept = reject(path, *range(6, 13))
    assert large.name in {uri.rpartition("/")[2] for uri in DeltaTable(path).file_uris()}
    assert ids(path) == [*range(5), *range(6, 13), *range(100, 300)]
    assert kept.total == 212


def test_rows_of_an_unfinished_batch_are_removed_after_files_were_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_upkeep(monkeypatch)
    warehouse, path = Warehouse.at(str(tmp_path)), str(tmp_path / "rejected")
    reject(path, *range(10))
    rejected_rows._merge_small_files(path, 10)  # A kill follows, before the rows of the batch are added.
    assert len(DeltaTable(path).file_uris()) == 1
    discard_from(warehouse, path, 10)
    assert ids(path) == list(range(10))
    reject(path, 10)
    discard_from(warehouse, path, 10)
    assert ids(path) == list(range(10))
    # A batch of several attempts has the rows of the last attempt.
    kept = reject(path, 10, 10, 11)
    assert kept.total == rejected_count(path) == 12


def test_failed_upkeep_does_not_prevent_a_rejection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(path: str, batch: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(rejected_rows, "_merge_small_files", fail)
    assert reject(str(tmp_path / "rejected"), 0).total == 1
    assert "disk full" in caplog.text


def test_a_new_generation_has_the_rows_of_the_batches_that_are_not_read_again(tmp_path: Path) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    old, new = str(tmp_path / "rejected-1"), str(tmp_path / "rejected-2")
    carry_over(warehouse, old, new, 5)
    assert not DeltaTable.is_deltatable(new)
    reject(old, 3, 5, 7)
    make_rejected(new, shape("upsert", "id"))  # A query may have created it.
    for _ in range(2):  # a kill between the copy and its record
        carry_over(warehouse, old, new, 5)
        assert ids(new) == [3, 5]
    assert reject(new, 6).total == 3
    carry_over(warehouse, old, new, 5)
    assert ids(new) == [3, 5, 6]
    assert ids(old) == [3, 5, 7]
    other = str(tmp_path / "rejected-3")
    carry_over(warehouse, old, other, -1)
    assert rejected_count(other) == 0


def test_two_owners_that_copy_rejected_rows_at_once_copy_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    old, new = str(tmp_path / "rejected-1"), str(tmp_path / "rejected-2")
    reject(old, 3, 5, 7)

    def write(*given: Any, **options: Any) -> None:
        monkeypatch.undo()
        carry_over(warehouse, old, new, 5)  # the other owner
        write_deltalake(*given, **options)

    monkeypatch.setattr("rw_sql.runtime.delta.rejected_rows.write_deltalake", write)
    carry_over(warehouse, old, new, 5)
    assert ids(new) == [3, 5]


def test_a_reason_names_the_row_and_what_to_type() -> None:
    rows = batch((1, "a"), (None, "b" * 100))
    skip = "ALTER SINK k CONNECTOR WITH (on_error = 'skip')"
    by_key = reason_of(rows, [Refusal(index=1, column="word", reason="too long")], shape("upsert", "id"))
    assert by_key == f'REFUSED column "word" of row (id = NULL): too long: {skip}'
    by_values = reason_of(rows, [Refusal(index=1, reason="no"), Refusal(index=0, reason="no")], shape())
    assert by_values == f"REFUSED row (id = NULL, word = '{'b' * 58}…) (and 1 more row): no: {skip}"
    limit = Refusal(index=0, reason="large", hint="CONNECTOR WITH (a.b = '2')")
    assert reason_of(rows, [limit], shape("upsert", "id")) == (
        f"REFUSED row (id = 1): large: ALTER SINK k CONNECTOR WITH (a.b = '2'); or {skip}"
    )
    elsewhere = Refusal(index=0, reason="large", hint="a larger limit there")
    assert reason_of(rows, [elsewhere], shape("upsert", "id")).endswith(f": large: {skip}; or a larger limit there")


def test_values_that_python_does_not_have_are_named_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    days = pa.array([10_000_000, 0], pa.int32()).cast(pa.date32())
    words = pa.array([b"a\xff", b"good"]).view(pa.string())
    both = pa.StructArray.from_arrays([days, words], ["day", "word"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2]), both)
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2]), words, days)
    of_both = {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("day", "date"), ("word", "string"))
        ],
    }
    columns: dict[str, tuple[pa.Array, object, str]] = {
        "day": (days, "date", "'29349-01-26'"),
        "word": (words, "string", "'a\ufffd'"),
        "both": (both, of_both, "{'day': '29349-01-26', 'word': 'a\ufffd'}"),
        "lists": (
            lists,
            {"type": "array", "elementType": of_both, "containsNull": True},
            "[{'day': '29349-01-26', 'word': 'a\ufffd'}]",
        ),
        "maps": (
            maps,
            {"type": "map", "keyType": "string", "valueType": "date", "valueContainsNull": True},
            "[('a\ufffd', '29349-01-26')]",
        ),
    }
    far = [Refusal(index=0, reason="far")]
    for name, (values, kind, told) in columns.items():
        schema = {"type": "struct", "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}}]}
        of = SinkShape(name="k", type="append-only", schema=json.dumps(schema))
        rows = pa.table({name: values, "_rw_op": ["insert"] * 2})
        assert reason_of(rows, far, of).startswith(f"REFUSED row ({name} = {told}): far: ")
        kept = RejectedRows.open(str(tmp_path / name), of)
        for number in (0, 1, 1):
            kept.begin()
            assert kept.put(rows, far, number).num_rows == 1
        assert kept.total == RejectedRows.open(kept.path, of).total == 2
        discard_from(warehouse, kept.path, 1)
        copy = str(tmp_path / f"copy of {name}")
        for _ in range(2):
            carry_over(warehouse, kept.path, copy, 0)
        assert rejected_count(kept.path) == rejected_count(copy) == 1
        assert DeltaTable(copy).to_pyarrow_table()[name].equals(pa.chunked_array([values.slice(0, 1)]))
        with monkeypatch.context() as patch:
            small_upkeep(patch, every=2)
            kept.begin()
            kept.put(rows, far, 2)
            rejected_rows._merge_small_files(kept.path, 3)
        assert len(DeltaTable(kept.path).file_uris()) == 1
        both_rows = pa.chunked_array([values.take(pa.array([0, 0]))])
        assert DeltaTable(kept.path).to_pyarrow_table()[name].equals(both_rows)
