"""The checksum files beside commits by delta-rs contain what Spark would compute itself."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.runtime.delta.compaction import compact
from rw_sql.runtime.delta.job_output import FencedError, JobOutput
from rw_sql.runtime.delta.version_checksum import TableState, VersionChecksums
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "_rw_bucket", "type": "integer", "nullable": True, "metadata": {}},
        ],
    }
)


def _rows(*ids: int, bucket: int = 1) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("_rw_bucket", pa.int32())])
    return pa.table([list(ids), [bucket] * len(ids)], schema=schema)


@pytest.fixture
def output(tmp_path: Path) -> JobOutput:
    return JobOutput.open(
        Warehouse.at(str(tmp_path)),
        str(tmp_path / "t"),
        SCHEMA,
        job="ingest-1",
        run=1,
        epoch=1,
        partition_by=("_rw_bucket",),
        has_change_feed=True,
    )


def _told(output: JobOutput, version: int | None = None) -> dict[str, Any]:
    at = output.table.version() if version is None else version
    told: dict[str, Any] = json.loads(Path(f"{output.path}/_delta_log/{at:020d}.crc").read_text())
    return told


def _require_true(output: JobOutput) -> dict[str, Any]:
    """Returns the newest checksum; asserts that it matches the table's files."""
    told = _told(output)
    sizes = pa.table(DeltaTable(output.path).get_add_actions()).column("size_bytes").to_pylist()
    assert (told["numFiles"], told["tableSizeBytes"]) == (len(sizes), sum(sizes))
    assert (told["numMetadata"], told["numProtocol"]) == (1, 1)
    return told


def test_each_commit_of_a_job_has_one(output: JobOutput) -> None:
    first = _require_true(output)
    assert first["metadata"]["configuration"]["delta.enableChangeDataFeed"] == "true"
    output.append_rows(_rows(1, 2), 0)
    assert _require_true(output)["numFiles"] == 1
    output.upsert_rows(_rows(2, 3), ["id"], 1)
    _require_true(output)
    for batch in range(2, 30):
        output.append_rows(_rows(batch), batch)
    before = _require_true(output)
    assert compact(output.table, "_rw_bucket")
    output.write_checksum(recount=True)
    assert _require_true(output)["numFiles"] < before["numFiles"]
    back_to = output.table.version() - 2
    again = JobOutput.reopen(output.warehouse, output.path, job="ingest-1", run=2, epoch=2)
    again.restore(back_to, rewind=7, done=28)
    assert _require_true(again)["metadata"] == first["metadata"]


def test_a_new_run_begins_with_what_the_last_checkpoint_says(output: JobOutput) -> None:
    output.append_rows(_rows(1), 0)
    told = _told(output)
    output.table.create_checkpoint()
    output.append_rows(_rows(2), 1)
    for file in Path(f"{output.path}/_delta_log").glob("*.crc"):
        file.unlink()
    for file in Path(f"{output.path}/_delta_log").glob("*.json"):
        if int(file.name[:20]) < output.table.version():
            file.unlink()
    again = JobOutput.reopen(output.warehouse, output.path, job="ingest-1", run=2, epoch=2)
    found = _require_true(again)
    assert (found["metadata"], found["protocol"]) == (told["metadata"], told["protocol"])


def test_a_commit_that_does_not_state_the_sizes_of_what_it_removes_is_counted_again() -> None:
    state = TableState(version=3, files=2, bytes=30, metadata={"id": "a"}, protocol={"minReaderVersion": 1})
    added = state.after([{"add": {"size": 5}}, {"remove": {"size": 10}}, {"commitInfo": {}}, {"cdc": {"size": 4}}])
    assert added == TableState(version=4, files=2, bytes=25, metadata=state.metadata, protocol=state.protocol)
    assert state.after([{"remove": {"path": "x"}}]) is None
    renamed = state.after([{"metaData": {"id": "b"}}])
    assert renamed is not None
    assert renamed.metadata == {"id": "b"}


def test_a_checksum_that_cannot_be_written_stops_no_writer(output: JobOutput, caplog: pytest.LogCaptureFixture) -> None:
    checksums = VersionChecksums(output.warehouse, f"{output.path}/nowhere")
    checksums.write(output.table)
    output.append_rows(_rows(1), 0)
    checksums.write(output.table)
    assert not Path(f"{output.path}/nowhere").exists()


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _checksum_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "rw_sql-checksum"]


def test_the_checksum_exists_before_the_commit_returns(output: JobOutput) -> None:
    output.append_rows(_rows(1, 2), 0)
    version = output.table.version() + 1
    file = Path(f"{output.path}/_delta_log/{version:020d}.crc")
    with output.checksums.committing(output.table):
        write_deltalake(output.path, _rows(3), mode="append")
        _until(file.exists)
    assert not _checksum_threads()
    output.table.update_incremental()
    assert _require_true(output)["numFiles"] == 2
    output.write_checksum()
    output.append_rows(_rows(4), 1)
    assert _require_true(output)["numFiles"] == 3


def test_if_another_process_commits_first_the_checksum_is_that_of_its_commit(output: JobOutput) -> None:
    output.append_rows(_rows(1, 2), 0)
    behind = JobOutput.reopen(output.warehouse, output.path, job="ingest-1", run=2, epoch=2)
    behind.append_rows(_rows(3), 1)
    table, rows = behind.table, _rows(4, 5)
    for batch in range(2, 12):
        write_deltalake(output.path, rows, mode="append", target_file_size=1)
        with pytest.raises(FencedError), behind._committing():
            # ``table`` does not know the commit above, so its own commit is refused.
            write_deltalake(
                table, rows, mode="append", commit_properties=behind._properties(99, behind._commit_of(batch, {}))
            )
        assert not _checksum_threads()
        table.update_incremental()
        behind.write_checksum()
        _require_true(behind)


def test_without_a_commit_no_checksum_is_written(output: JobOutput) -> None:
    output.append_rows(_rows(1, 2), 0)
    version = output.table.version() + 1
    with pytest.raises(ValueError, match="broken"), output.checksums.committing(output.table):
        raise ValueError("broken")
    assert not _checksum_threads()
    assert not Path(f"{output.path}/_delta_log/{version:020d}.crc").exists()
    output.append_rows(_rows(3), 1)
    _require_true(output)
