"""The statistics of floating-point columns in files that delta-rs writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.connectors.delta.inexact_statistics import without_inexact_min_max

if TYPE_CHECKING:
    from pathlib import Path

NAN = float("nan")
POINT = pa.struct([("x", pa.float32()), ("name", pa.string())])


def statistics(folder: Path) -> list[dict[str, Any]]:
    """The statistics of the table's files in the newest commit."""
    log = sorted((folder / "_delta_log").glob("*.json"))[-1]
    added = [json.loads(line).get("add") for line in log.read_text().splitlines()]
    return [json.loads(each["stats"]) for each in added if each is not None]


def test_statistics_of_other_columns_stay(tmp_path: Path) -> None:
    rows = pa.table({
        "id": [1, 2],
        "x": [1.0, NAN],
        "at": pa.array([{"x": NAN, "name": "a"}, {"x": 2.0, "name": "b"}], POINT),
        "xs": [[NAN], [1.0]],
    })  # fmt: skip
    write_deltalake(str(tmp_path), rows, **without_inexact_min_max(rows.schema))
    (found,) = statistics(tmp_path)
    assert found["numRecords"] == 2
    assert (found["minValues"], found["maxValues"]) == ({"id": 1}, {"id": 2})


@pytest.mark.parametrize("name", ["a.b", "a", "A b"])
def test_statistics_beside_a_float_column(tmp_path: Path, name: str) -> None:
    point = pa.array([{"name": "a"}, {"name": "b"}])
    rows = pa.table({name: [1.0, NAN], "b": [1, 2], "at": point})
    write_deltalake(str(tmp_path), rows, **without_inexact_min_max(rows.schema))
    (found,) = statistics(tmp_path)
    assert found["maxValues"] == {"b": 2, "at": {"name": "b"}}
    (file,) = tmp_path.glob("*.parquet")
    assert pq.read_metadata(file).row_group(0).column(0).compression == "SNAPPY"


def test_a_merge_keeps_them_out_of_rewritten_files(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], "x": [1.0, NAN, 3.0]})
    write_deltalake(str(tmp_path), rows, **without_inexact_min_max(rows.schema))
    merge = DeltaTable(str(tmp_path)).merge(
        pa.table({"id": [1], "x": [5.0]}),
        predicate="t.id = s.id",
        source_alias="s",
        target_alias="t",
        **without_inexact_min_max(rows.schema),
    )
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert statistics(tmp_path)
    assert all("x" not in each["maxValues"] for each in statistics(tmp_path))


def test_rows_without_such_columns_need_no_properties() -> None:
    assert without_inexact_min_max(pa.schema([("id", pa.int64()), ("word", pa.string())])) == {}
