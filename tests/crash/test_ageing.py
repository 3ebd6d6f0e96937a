"""The ageing of a warehouse: all stored times are older, and all data can still be read."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from rw_sql.metastore import Metastore
from rw_sql.runtime.jobs.downtime import downtime
from rw_sql.runtime.jobs.lease import try_take
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.warehouse import Warehouse
from tests.runtime.maintained_log import MaintainedLog
from tests.support.ageing import HOUR, PAUSES, WEEK, Pauses, grow_old

if TYPE_CHECKING:
    import pytest


@pytest.mark.long
def test_all_that_is_stored_is_a_week_older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rw_sql.runtime.delta.table_files.COMMITS_GRACE_SECONDS", 0.0)
    began = time.time() - WEEK
    log = MaintainedLog.open(str(tmp_path))
    view = log.view("v", created_at_ms=now_ms())
    assert try_take(log.context.metastore.jobs, "me", 1, is_local=True) is not None
    for batch in range(4):
        log.append(30)
        log.read(view, batch, log.output.table.version() + 1)
        log.turn()
    rows = log.ids()
    assert log.pending
    grow_old(tmp_path, WEEK)
    ended, allowed = time.time() - WEEK, 1.0  # what a file system rounds

    def is_old(milliseconds: int) -> bool:
        return began - allowed < milliseconds / 1000 < ended + allowed

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert all(is_old(int(path.stat().st_mtime * 1000)) for path in files)
    delta_log = Path(log.output.path) / "_delta_log"
    for commit in delta_log.glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        told = [action["commitInfo"]["timestamp"] for action in actions if "commitInfo" in action]
        told += [action["add"]["modificationTime"] for action in actions if "add" in action]
        told += [action["remove"]["deletionTimestamp"] for action in actions if "remove" in action]
        assert told
        assert all(map(is_old, told)), commit
    (checkpoint, *_) = delta_log.glob("*.checkpoint.parquet")
    added = [add for add in pq.ParquetFile(checkpoint).read()["add"].to_pylist() if add is not None]
    assert added
    assert all(is_old(add["modificationTime"]) for add in added)
    listed = json.loads((Path(log.warehouse.replaced_files(log.source.id, 1)) / log.pending[0]).read_text())
    assert is_old(listed["at_ms"])
    assert sorted(DeltaTable(log.output.path).to_pyarrow_table(columns=["id"])["id"].to_pylist()) == rows
    metastore = Metastore.open(str(tmp_path))
    lease, known = metastore.jobs.lease(), metastore.snapshot().get(view.id)
    assert lease is not None
    assert is_old(lease.heartbeat_ms)
    assert is_old(known.created_at_ms)  # type: ignore[union-attr]
    assert all(is_old(operation.at_ms) for operation in metastore.operations())


def test_the_periods_without_an_owner_are_older_too(tmp_path: Path) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    warehouse.write_text(f"{warehouse.uri}/checkpoints/downtime.json", "[[1700000000000, 1700000060000]]")
    warehouse.write_text(f"{warehouse.uri}/checkpoints/downtime-nightly.json", "[]")
    grow_old(tmp_path, HOUR)
    assert downtime(warehouse) == [(1_699_996_400_000, 1_699_996_460_000)]
    assert downtime(warehouse, "nightly") == []


def test_the_seeds_of_the_kill_tests_draw_every_pause(tmp_path: Path) -> None:
    MaintainedLog.open(str(tmp_path))
    pauses = Pauses(seed=0)
    while set(pauses.drawn) != set(PAUSES):
        pauses.pass_over(tmp_path)
    assert len(pauses.drawn) < 10
    assert 0 < HOUR < WEEK < max(PAUSES.values())


@pytest.mark.long
def test_what_is_committed_while_a_warehouse_grows_old_is_kept(tmp_path: Path) -> None:
    log, ended, names = MaintainedLog.open(str(tmp_path)), threading.Event(), list[str]()

    def commit() -> None:
        # On a busy machine, a commit every 0.05 s would leave no time to rewrite a table that grows meanwhile.
        while len(names) < 200 and not ended.wait(0.05):
            names.append(f"v{len(names)}")
            log.view(names[-1])

    committing = threading.Thread(target=commit)
    committing.start()
    while len(names) < 60:
        grow_old(tmp_path, HOUR)
    ended.set()
    committing.join()
    metastore = Metastore.open(str(tmp_path))
    epochs = sorted(operation.epoch for operation in metastore.operations())
    assert epochs == list(range(1, metastore.snapshot().epoch + 1))
    assert len(epochs) > len(names)
