"""Rows that a target refused: their names, and the replacement of a batch's rows when the batch is written again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from rw_sql.connectors.sink import Refusal, SinkShape
from rw_sql.runtime.delta.rejected_rows import RejectedRows, reason_of, rejected_count
from tests.support.sink_batches import batch, shape

if TYPE_CHECKING:
    from pathlib import Path


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


def test_a_row_whose_day_python_does_not_have_is_named_and_kept(tmp_path: Path) -> None:
    days = pa.array([10_000_000], pa.int32()).cast(pa.date32())
    rows = pa.table({"id": pa.array([1], pa.int32()), "day": days, "_rw_op": ["insert"]})
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("id", "integer"), ("day", "date"))]
    of = SinkShape(name="k", type="append-only", schema=json.dumps({"type": "struct", "fields": fields}))
    far = [Refusal(index=0, reason="far")]
    assert reason_of(rows, far, of).startswith("REFUSED row (id = 1, day = '29349-01-26'): far: ")
    kept = RejectedRows.open(str(tmp_path / "rejected"), of)
    for number in range(2):
        kept.begin()
        assert kept.put(rows, far, number).num_rows == 0
    assert kept.total == RejectedRows.open(kept.path, of).total == 2
