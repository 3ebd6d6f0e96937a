"""Upkeep of a table with a file that delta-rs cannot read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from rw_sql.runtime.decoding.decoder import BUCKET
from rw_sql.runtime.delta import compaction, table_files
from rw_sql.runtime.delta.compaction import compact
from tests.runtime.maintained_log import MaintainedLog

if TYPE_CHECKING:
    from pathlib import Path


def not_utf_8(rows: int) -> pa.Array:
    """Strings that are not UTF-8."""
    ends = pa.array(range(0, 2 * rows + 1, 2), pa.int32())
    return pa.StringArray.from_buffers(rows, ends.buffers()[1], pa.py_buffer(b"\xff\xfe" * rows))


def test_commits_are_cleaned_although_a_file_cannot_be_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(table_files, "COMMITS_GRACE_SECONDS", 0.0)
    monkeypatch.setattr(compaction, "MOST_SMALL_FILES", 2)
    log = MaintainedLog.open(str(tmp_path))
    log.append(8)
    made = pa.nulls

    def nulls(rows: int, kind: pa.DataType) -> pa.Array:
        return not_utf_8(rows) if pa.types.is_string(kind) else made(rows, kind)

    with monkeypatch.context() as patched:
        patched.setattr(pa, "nulls", nulls)
        log.append()
    with pytest.raises(DeltaError, match="UTF-8"):
        compact(log.output.table, BUCKET)
    before = log.versions()
    log.turn()
    assert "compaction of" in caplog.text
    checkpoints = [name for name in os.listdir(f"{log.output.path}/_delta_log") if name.endswith(".parquet")]
    assert checkpoints
    assert log.versions()[0] > before[0]
