"""The statistics of floating-point columns and long decimals in files that delta-rs writes."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from rw_sql.connectors.delta.inexact_statistics import without_inexact_min_max
from rw_sql.runtime.delta.staged_files import _files_in
from rw_sql.runtime.support.warehouse import Warehouse

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


LONG = [
    (pa.decimal128(20, 0), "18446744073709551615"),
    (pa.decimal128(38, 18), "1.234567890123456789"),
    (pa.decimal128(18, 2), "99999999999999.99"),
    (pa.decimal128(28, 10), "123456789.1234567891"),
    (pa.decimal128(16, 0), "9007199254740993"),
]
EXACT = [
    (pa.decimal128(15, 2), "9999999999999.99"),
    (pa.decimal128(15, 0), "-999999999999999"),
    (pa.decimal128(9, 9), "0.123456789"),
]


@pytest.mark.parametrize(("kind", "text"), [*LONG, *EXACT])
def test_a_filter_finds_decimals(tmp_path: Path, kind: pa.DataType, text: str) -> None:
    value = Decimal(text)
    rows = pa.table({"k": pa.array([value], kind), "at": pa.array([{"k": value}], pa.struct([("k", kind)]))})
    write_deltalake(str(tmp_path), rows, **without_inexact_min_max(rows.schema))
    query = f"SELECT * FROM t WHERE k = CAST('{text}' AS DECIMAL({kind.precision}, {kind.scale}))"
    found = pa.table(QueryBuilder().register("t", DeltaTable(str(tmp_path))).execute(query))
    assert found.num_rows == 1
    (known,) = statistics(tmp_path)
    if (kind, text) in EXACT:
        assert Decimal(str(known["minValues"]["k"])) == Decimal(str(known["maxValues"]["at"]["k"])) == value
    else:
        assert (known["minValues"], known["maxValues"]) == ({}, {})


@pytest.mark.parametrize(("kind", "text"), [*LONG, *EXACT])
@pytest.mark.parametrize("groups", [1, 2])
def test_files_of_spark_have_no_rounded_decimals(tmp_path: Path, kind: pa.DataType, text: str, groups: int) -> None:
    rows = pa.table(
        {
            "id": [1, 2],
            "k": pa.array([Decimal(text)] * 2, kind),
            "s.t": pa.array([{"k": Decimal(text)}] * 2, pa.struct([("k", kind)])),
        }
    )
    pq.write_table(rows, tmp_path / "part-0.parquet", row_group_size=2 // groups)
    (file,) = _files_in(Warehouse.at(str(tmp_path)), str(tmp_path), {})
    greatest = json.loads(file["stats"])["maxValues"]
    assert greatest["id"] == 2
    is_exact = (kind, text) in EXACT
    assert ("k" in greatest, "k" in greatest.get("s.t", {})) == (is_exact, is_exact)
