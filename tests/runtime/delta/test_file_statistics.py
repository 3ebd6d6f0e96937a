"""The statistics of files with several row groups, of which a group may lack those of a column."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.connectors.delta.inexact_statistics import without_inexact_min_max
from rw_sql.runtime.delta.compaction import MOST_SMALL_FILES, compact
from rw_sql.runtime.delta.staged_files import _files_in
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

LONG = "zz" + "y" * 5_000


@pytest.mark.parametrize("first", [True, False])
def test_a_long_value_takes_minimum_and_maximum_away(tmp_path: Path, *, first: bool) -> None:
    """Otherwise, readers would skip the row with the long value."""
    words = [f"n{at}" for at in range(10)]
    words[0 if first else 9] = LONG
    nested = pa.array([{"a": word, "b.c": at} for at, word in enumerate(words)])
    rows = pa.table({"id": range(10), "word": words, "at": nested, "x.y": words, "same": ["s"] * 10})
    pq.write_table(rows, tmp_path / "part-0.parquet", row_group_size=5)
    (file,) = _files_in(Warehouse.at(str(tmp_path)), str(tmp_path), {})
    found = json.loads(file["stats"])
    assert found["numRecords"] == 10
    for name, at in (("minValues", 0), ("maxValues", 9)):
        assert found[name] == {"id": at, "at": {"b.c": at}, "same": "s"}, name


def test_groups_of_nulls_take_nothing_away(tmp_path: Path) -> None:
    rows = pa.table({"id": range(10), "word": pa.array([None] * 5 + ["a", "b", "c", "d", "e"])})
    pq.write_table(rows, tmp_path / "part-0.parquet", row_group_size=5)
    (file,) = _files_in(Warehouse.at(str(tmp_path)), str(tmp_path), {})
    found = json.loads(file["stats"])
    assert (found["minValues"], found["maxValues"]) == ({"id": 0, "word": "a"}, {"id": 9, "word": "e"})
    assert found["nullCount"] == {"id": 0, "word": 5}


def test_a_number_in_one_group_is_no_maximum_of_nan_in_another(tmp_path: Path) -> None:
    rows = pa.table({"id": range(4), "x": [float("nan"), 1.0, 2.0, 3.0], "at": [{"x": 1.0, "k": 1}] * 4})
    pq.write_table(rows, tmp_path / "part-0.parquet", row_group_size=2)
    (file,) = _files_in(Warehouse.at(str(tmp_path)), str(tmp_path), {})
    assert json.loads(file["stats"])["maxValues"] == {"id": 3, "at": {"k": 1}}


def test_a_compaction_adds_no_minimum_of_floats(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "x": [1.0, float("nan")]})
    for _ in range(MOST_SMALL_FILES + 1):
        write_deltalake(str(tmp_path), rows, mode="append", **without_inexact_min_max(rows.schema))
    table = DeltaTable(str(tmp_path))
    assert compact(table) == MOST_SMALL_FILES + 1
    (file,) = table.file_uris()
    assert pq.read_metadata(file).row_group(0).column(0).compression == "ZSTD"
    assert pa.table(table.get_add_actions(flatten=True)).select(["min.id", "max.x"]).to_pylist() == [
        {"min.id": 1, "max.x": None}
    ]
