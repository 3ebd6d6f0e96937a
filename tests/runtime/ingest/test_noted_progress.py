"""The progress of snapshots that is stored before commits are cleaned up belongs to these commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from rw_sql.connectors.changes import TableProgress
from rw_sql.metastore.records import SourceRecord
from rw_sql.runtime.delta.delta_log import commit_path, commit_versions
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.ingest.noted_progress import note_progress, stored_progress, written_progress
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}}]}'
SOURCE = SourceRecord(id=1, name="s", definition="", connector="postgres-cdc", options=(), is_shared=True)


class CapturedLog:
    """A log whose commits have the progress of the snapshots of one table."""

    def __init__(self, folder: Path) -> None:
        self.warehouse = Warehouse.at(str(folder))
        self.output = self.opened(1)
        self.batch = 0

    def opened(self, run: int) -> JobOutput:
        return JobOutput.open(self.warehouse, self.warehouse.data(1, 1), SCHEMA, job="ingest-1", run=run, epoch=1)

    @property
    def newest(self) -> int:
        """The newest version."""
        return self.output.table.version()

    def append(self, snapshot: str = "", rows_done: int = 0) -> None:
        """Appends a batch, with the progress of a snapshot if one is named."""
        progress = {"public.t": (snapshot, TableProgress(table="public.t", rows_done=rows_done))}
        self.output.tables = written_progress(progress) if snapshot else {}
        self.output.append_rows(pa.table({"id": pa.array([1], pa.int32())}), self.batch)
        self.batch += 1

    def clean(self, version: int) -> None:
        """Stores the progress, and removes the commits up to a version."""
        note_progress(self.warehouse, SOURCE, version)
        self.output.table.create_checkpoint()
        for at in commit_versions(self.warehouse, self.output.path):
            if at <= version:
                self.warehouse.remove(commit_path(self.output.path, at))

    def stored(self) -> tuple[str, int] | None:
        """The stored snapshot and its number of rows; None without stored progress."""
        found = stored_progress(self.warehouse, SOURCE).get("public.t")
        return None if found is None else (found[0], found[1].rows_done)


def test_progress_of_a_reverted_commit_is_not_used(tmp_path: Path) -> None:
    """A column that was added after the version that a REWIND restores needs a new snapshot once more."""
    log = CapturedLog(tmp_path)
    log.append("1.0", rows_done=5)
    log.append()
    cleaned = log.newest
    log.append()
    back_to = log.newest
    log.append("1.0.3", rows_done=7)
    assert log.stored() == ("1.0.3", 7)
    log.clean(cleaned)
    assert log.stored() == ("1.0.3", 7)
    output = log.opened(2)
    output.restore(back_to, rewind=9, done=-1)
    assert log.stored() == ("1.0", 5)


def test_stored_progress_outlives_its_commits(tmp_path: Path) -> None:
    log = CapturedLog(tmp_path)
    log.append()
    log.append()
    log.clean(log.newest - 1)
    assert log.stored() is None
    log.append("1.0", rows_done=5)
    log.append()
    log.append()
    log.clean(log.newest - 1)
    assert log.stored() == ("1.0", 5)
    # Upkeep runs again after a kill, and then cleans up commits without progress.
    log.clean(log.newest - 1)
    assert log.stored() == ("1.0", 5)
    log.append()
    log.append()
    log.clean(log.newest - 1)
    assert log.stored() == ("1.0", 5)
    log.append("1.0", rows_done=6)
    log.append()
    log.clean(log.newest - 1)
    assert log.stored() == ("1.0", 6)
