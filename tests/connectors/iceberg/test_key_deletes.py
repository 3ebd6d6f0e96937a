"""Rows of an Iceberg table are deleted by keys of any type and number."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rw_sql.connectors.iceberg import key_deletes
from rw_sql.connectors.iceberg.sink import IcebergSink
from rw_sql.connectors.sink import DELETE, OP, UPDATE, SinkShape
from tests.connectors.iceberg.lake import Lake
from tests.support.sink_batches import batch, shape

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.connectors.sink import SinkWriter

INTEGER = {"name": "x", "type": "integer", "nullable": True, "metadata": {}}
NESTED: dict[str, tuple[Any, pa.DataType, list[Any]]] = {
    "list": (
        {"type": "array", "elementType": "string", "containsNull": True},
        pa.list_(pa.string()),
        [["a"], ["b"], [None], [], None],
    ),
    "struct": (
        {"type": "struct", "fields": [INTEGER]},
        pa.struct([("x", pa.int32())]),
        [{"x": 1}, {"x": 2}, {"x": None}, None],
    ),
    "map": (
        {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
        pa.map_(pa.string(), pa.int32()),
        [[("a", 1)], [("a", 2)], [], None],
    ),
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(folder=tmp_path)


def opened(lake: Lake, of: SinkShape, run: int = 1) -> SinkWriter:
    writer = IcebergSink().open({**lake.options, "create_table_if_not_exists": "true"}, of, "me")
    writer.fence(run, 1)
    return writer


@pytest.mark.parametrize("name", NESTED)
def test_nested_keys(lake: Lake, name: str) -> None:
    kind, arrow, keys = NESTED[name]
    fields = [{"name": "k", "type": kind, "nullable": True, "metadata": {}}, {**INTEGER, "name": "n"}]
    of = SinkShape(name="k", type="upsert", schema=json.dumps({"type": "struct", "fields": fields}), keys=("k",))
    writer = opened(lake, of)

    def rows(keys: list[Any], n: int, op: str = UPDATE) -> pa.Table:
        return pa.table({"k": pa.array(keys, arrow), "n": pa.array([n] * len(keys), pa.int32()), OP: [op] * len(keys)})

    writer.write(rows(keys, 1), 0)
    writer.write(pa.concat_tables([rows(keys[:2], 2), rows(keys[:1], 3)]), 1)
    writer.write(rows(keys[-1:], 4, DELETE), 2)
    assert lake.rows() == sorted([(keys[0], 3), (keys[1], 2), *((key, 1) for key in keys[2:-1])], key=str)


def test_the_time_grows_with_the_number_of_keys_and_not_with_its_square(lake: Lake) -> None:
    """A condition with a part for each key would take more than a minute."""
    writer = opened(lake, shape("upsert", "id", "word"))
    rows = batch(*((number, str(number)) for number in range(20_000)))
    writer.write(rows, 0)
    began = time.process_time()
    writer.write(rows, 1)
    assert time.process_time() - began < 15
    writer.write(rows.slice(10).set_column(2, OP, pa.array([DELETE] * 19_990)), 2)
    assert lake.rows() == sorted(((number, str(number)) for number in range(10)), key=str)


def test_a_file_without_the_keys_is_not_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = opened(lake, shape("upsert", "id", "word"))
    for number in range(3):
        writer.write(batch(*((id_, "a") for id_ in range(1000 * number, 1000 * number + 300))), number)
    files = {task.file.file_path for task in lake.table().scan().plan_files()}
    assert len(files) == 3
    read: set[str] = set()
    of_file = key_deletes._read

    def note(*given: Any) -> pa.Table:
        read.add(given[2].file.file_path)
        return of_file(*given)

    monkeypatch.setattr(key_deletes, "_read", note)
    writer.write(batch(*((id_, "a") for id_ in range(1000, 1290))), 3)
    assert len(read) == 1
    assert read < files
    assert files - read < {task.file.file_path for task in lake.table().scan().plan_files()}
    assert lake.table().scan().count() == 900
    summaries = [snapshot.summary for snapshot in lake.table().snapshots()[-2:]]
    assert [summary and (summary.operation.value, summary["rw_sql.batch"]) for summary in summaries] == [
        ("overwrite", "3"),
        ("append", "3"),
    ]


def test_rows_of_a_partitioned_table_are_replaced_and_deleted(lake: Lake) -> None:
    opened(lake, shape("upsert", "id"))
    with lake.table().update_spec() as update:
        update.add_identity("word")
    writer = opened(lake, shape("upsert", "id"), 2)
    writer.write(batch((1, "a"), (2, "a"), (3, "b"), (4, None)), 0)
    writer.write(batch((1, "b"), (2, "a", DELETE), (4, "c"), (5, None)), 1)
    assert lake.rows() == [(1, "b"), (3, "b"), (4, "c"), (5, None)]


def test_column_names_that_are_also_used_here(lake: Lake) -> None:
    fields = [{**INTEGER, "name": name} for name in ("at", "0", "a.b")]
    of = SinkShape(name="k", type="upsert", schema=json.dumps({"type": "struct", "fields": fields}), keys=("at", "0"))
    writer = opened(lake, of)

    def rows(*values: tuple[int, int, int]) -> pa.Table:
        columns = {
            field["name"]: pa.array(part, pa.int32())
            for field, part in zip(fields, zip(*values, strict=True), strict=True)
        }
        return pa.table({**columns, OP: [UPDATE] * len(values)})

    writer.write(rows((1, 1, 1), (1, 2, 1)), 0)
    writer.write(rows((1, 2, 2), (2, 1, 2)), 1)
    assert lake.rows() == [(1, 1, 1), (1, 2, 2), (2, 1, 2)]
