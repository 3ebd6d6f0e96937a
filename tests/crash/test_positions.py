"""A reader's position comes from its log's own commits, whatever was killed and whatever Delta cleaned up."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.registry import connector
from rw_sql.metastore import Metastore
from rw_sql.metastore.records import Operation, PutObject, PutSplitStates, SourceRecord
from rw_sql.runtime.delta.delta_log import job_commits
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.positions.notes import note_positions
from rw_sql.runtime.positions.shared import read_positions
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

JOB = "ingest-1"
SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "v", "type": "long", "nullable": True, "metadata": {}}]},
)
ROWS = pa.table({"v": [1]})


class Log:
    """A source with two splits at 0, and the log that its runs write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metastore = Metastore.open(str(folder))
        self.context = Context(
            warehouse=Warehouse.at(str(folder)),
            metastore=self.metastore,
            sessions=None,  # type: ignore[arg-type]  # nothing here asks Spark
            owner="me",
        )
        self.source = SourceRecord(id=1, name="s", definition="", connector="kafka", options=(), is_shared=True)
        self.put(PutObject(record=self.source), self.states(-1, a=0, b=0))

    def put(self, *changes: PutObject | PutSplitStates) -> int:
        operation = Operation(kind="TEST", statement="", objects=("s",), changes=changes)
        return self.metastore.commit(operation, based_on=self.metastore.snapshot()).epoch

    def states(self, log_version: int, **offsets: int) -> PutSplitStates:
        kind = connector("kafka")
        states = {
            f"{name}:0": kind.encode_state(SplitState(split=f"{name}:0", offset=offset))
            for name, offset in offsets.items()
        }
        return PutSplitStates(fragment=JOB, states=states, log_version=log_version)

    def start(self) -> JobOutput:
        """The actions of a start before it reads its position."""
        run = self.metastore.jobs.claim_run(JOB, self.metastore.snapshot().epoch, "me")
        note_positions(self.context, self.source, run=run.run, epoch=run.epoch)
        path = self.context.log_path(self.source)
        return JobOutput.open(self.context.warehouse, path, SCHEMA, job=JOB, run=run.run, epoch=run.epoch)

    def stand(self) -> dict[str, int]:
        found = read_positions(self.context.warehouse, self.metastore, self.metastore.snapshot(), self.source)
        return {split.partition(":")[0]: state.offset for split, state in found.states.items()}

    def log_version(self) -> int:
        found = read_positions(self.context.warehouse, self.metastore, self.metastore.snapshot(), self.source)
        return found.log_version

    def clean(self) -> None:
        """Delta's clean-up when all commits so far are old: it removes those before the checkpoint, with their
        metadata."""
        path = self.folder / "data" / "1" / "1"
        long_ago = time.time() - 30 * 24 * 3600
        for file in (path / "_delta_log").iterdir():
            os.utime(file, (long_ago, long_ago))
        table = DeltaTable(str(path))
        table.create_checkpoint()
        table.cleanup_metadata()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_a_start_continues_where_the_last_batch_ended(log: Log) -> None:
    first = log.start()
    assert log.stand() == {"a": 0, "b": 0}
    first.append_rows(ROWS, 0, {"a:0": (0, 5), "b:0": (0, 3)})
    first.append_rows(ROWS, 1, {"a:0": (5, 9), "b:0": (3, 3)})
    for _ in range(3):  # killed right after their fences
        log.start()
    assert log.stand() == {"a": 9, "b": 3}


def test_a_batch_that_lands_after_a_statement_does_not_undo_it(log: Log) -> None:
    first = log.start()
    first.append_rows(ROWS, 0, {"a:0": (0, 5), "b:0": (0, 3)})
    log.put(log.states(log.log_version(), a=2))
    first.append_rows(ROWS, 1, {"a:0": (5, 9), "b:0": (3, 4)})
    assert log.stand() == {"a": 2, "b": 4}
    note_positions(log.context, log.source, run=1, epoch=1)
    assert log.stand() == {"a": 2, "b": 4}
    log.start().append_rows(ROWS, 0, {"a:0": (2, 7), "b:0": (4, 4)})
    assert log.stand() == {"a": 7, "b": 4}


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_position_outlives_the_clean_up_of_the_log(log: Log, is_noted: bool) -> None:
    first = log.start()
    first.append_rows(ROWS, 0, {"a:0": (0, 5), "b:0": (0, 3)})
    if is_noted:
        note_positions(log.context, log.source, run=1, epoch=1)
    log.start()  # its fence is the newest commit now
    log.clean()
    table = log.context.log_path(log.source)
    assert [commit.batch for _, commit in job_commits(log.context.warehouse, table)] == [-1]
    assert log.stand() == {"a": 5, "b": 3}
    log.start().append_rows(ROWS, 0, {"a:0": (5, 6), "b:0": (3, 3)})
    assert log.stand() == {"a": 6, "b": 3}


def test_a_split_that_is_not_read_any_more_keeps_its_position(log: Log) -> None:
    log.start().append_rows(ROWS, 0, {"a:0": (0, 5), "b:0": (0, 3)})
    second = log.start()
    second.append_rows(ROWS, 0, {"a:0": (5, 8)})
    note_positions(log.context, log.source, run=2, epoch=1)
    second.append_rows(ROWS, 1, {"a:0": (8, 9)})
    log.start()
    log.clean()
    assert log.stand() == {"a": 9, "b": 3}


def test_what_is_noted_already_is_not_noted_again(log: Log) -> None:
    log.start().append_rows(ROWS, 0, {"a:0": (0, 5), "b:0": (0, 3)})
    note_positions(log.context, log.source, run=1, epoch=1)
    before = log.metastore.jobs.noted_positions(JOB)
    note_positions(log.context, log.source, run=2, epoch=1)
    assert log.metastore.jobs.noted_positions(JOB) == before
