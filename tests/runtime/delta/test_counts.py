"""The counts in a commit's statistics: rows, and records that did not decode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from rw_sql.runtime.decoding.decoder import ERROR
from rw_sql.runtime.delta.delta_log import column_count, read_actions
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = (
    '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}},'
    '{"name":"_rw_error","type":"string","nullable":true,"metadata":{}}]}'
)


def test_errors_are_counted_from_a_commits_statistics(tmp_path: Path) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    path = str(tmp_path / "log")
    output = JobOutput.open(warehouse, path, SCHEMA, job="ingest-1", run=1, epoch=1)
    schema = pa.schema([("id", pa.int32()), (ERROR, pa.string())])
    output.append_rows(pa.Table.from_pydict({"id": [1, None, 3], ERROR: [None, "not JSON", None]}, schema), 0, {})
    newest = read_actions(warehouse, path, output.table.version())
    assert column_count(newest, None) == 3
    assert column_count(newest, ERROR) == 1
    assert column_count(newest, "nothing") == 0
