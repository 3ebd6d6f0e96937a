"""The staging table of a backfill: its commits record its content, and the table's completeness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rw_sql.model.backfill_ranges import BackfillChunk
from rw_sql.runtime.backfill import staging_table as history_table
from rw_sql.runtime.backfill.staging_table import BackfillStaging, held_spans, is_there, is_whole
from rw_sql.runtime.delta.delta_log import table_id
from rw_sql.runtime.delta.job_output import FencedError
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = (
    '{"type":"struct","fields":['
    '{"name":"_rw_offset","type":"long","nullable":true,"metadata":{}},'
    '{"name":"_rw_error","type":"string","nullable":true,"metadata":{}}]}'
)
LIFE = {"t:0": ("c", "first")}


@dataclass
class Rows:
    """A small replacement for a frame of Spark's."""

    table: pa.Table

    def toArrow(self) -> pa.Table:
        return self.table


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse.at(str(tmp_path))


@pytest.fixture
def path(warehouse: Warehouse) -> str:
    return warehouse.history(3, 1, 1)


def opened(warehouse: Warehouse, path: str, run: int = 1) -> BackfillStaging:
    return BackfillStaging.open(warehouse, path, SCHEMA, job="mv-3", run=run, epoch=1, generation=1)


def rows(table: BackfillStaging, start: int, end: int) -> Any:
    values: dict[str, list[object]] = {name: [None] * (end - start) for name in table.schema.names}
    values["_rw_offset"] = list(range(start, end))
    return Rows(pa.Table.from_pydict(values, schema=table.schema))


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are in this process already, so that nothing measures them."""
    monkeypatch.setattr(history_table, "small_rows", lambda rows: rows.toArrow())


def test_a_later_run_goes_on_where_the_commits_end(warehouse: Warehouse, path: str) -> None:
    assert not is_there(warehouse, path)
    table = opened(warehouse, path)
    table.append(rows(table, 0, 5), (BackfillChunk(split="t:0", start=0, end=5),), LIFE)
    again = opened(warehouse, path, run=2)
    assert again.held == {"t:0": ((0, 5),)}
    with pytest.raises(FencedError):
        table.append(rows(table, 5, 9), (BackfillChunk(split="t:0", start=5, end=9),), LIFE)
    again.append(rows(again, 5, 7), (BackfillChunk(split="t:0", start=5, end=7, runs=(1, 1)),), {})
    assert held_spans(warehouse, path) == {"t:0": ((0, 7),)}
    assert not is_whole(warehouse, path)
    again.finish(7)
    assert is_whole(warehouse, path)
    assert held_spans(warehouse, path) == {"t:0": ((0, 7),)}
    errors = DeltaTable(path).to_pyarrow_table().column("_rw_error").to_pylist()
    assert sum(error is not None for error in errors) == 1


def test_an_empty_history_has_something_for_a_query_to_begin_with(warehouse: Warehouse, path: str) -> None:
    opened(warehouse, path).finish(7)
    assert is_whole(warehouse, path)
    assert DeltaTable(path).to_pyarrow_table().num_rows == 1
    assert table_id(warehouse, path) == str(DeltaTable(path).metadata().id)


def test_a_chunk_is_not_committed_if_the_check_after_its_read_fails(warehouse: Warehouse, path: str) -> None:
    table = opened(warehouse, path)
    table.append(rows(table, 0, 5), (BackfillChunk(split="t:0", start=0, end=5),), LIFE)

    def refuse() -> None:
        raise StalledError("RECREATED t")

    table.output.before_commit = refuse
    with pytest.raises(StalledError):
        table.append(rows(table, 5, 9), (BackfillChunk(split="t:0", start=5, end=9),), LIFE)
    assert held_spans(warehouse, path) == {"t:0": ((0, 5),)}
    assert DeltaTable(path).to_pyarrow_table().num_rows == 5
