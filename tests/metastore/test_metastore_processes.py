"""Several processes on one warehouse, and processes that die between two steps of a commit."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore import Metastore, changes_to_json
from rw_sql.metastore.projections import KEYS
from rw_sql.metastore.records import (
    DropObject,
    ForgetSplitStates,
    PutObject,
    PutSplitStates,
    SourceRecord,
    UnassignSplits,
)
from rw_sql.metastore.table import StoredTable
from tests.metastore.metastore_model import content
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import Popen

    from tests.metastore.metastore_model import Make

    Start = Callable[..., Popen[str]]
    Died = Callable[[Popen[str]], bool]

COMMIT_OFTEN = """
import json, sys
from rw_sql.metastore import ConcurrentCommit, Metastore
from rw_sql.metastore.records import AssignSplits, Operation, ParameterRecord, PutObject, PutSplitStates

metastore, worker, epochs = Metastore.open(sys.argv[1]), sys.argv[2], []
while len(epochs) < 15:
    snapshot = metastore.snapshot()
    name = f"{worker}_{len(epochs)}"
    record = ParameterRecord(id=snapshot.next_id, name=name, value=name)
    changes = [PutObject(record=record), AssignSplits(fragment=worker, splits=(name,))]
    changes.append(PutSplitStates(fragment=worker, states={name: "{}"}))
    operation = Operation(kind="TEST", statement=name, objects=(name,), changes=tuple(changes))
    try:
        epochs.append(metastore.commit(operation, based_on=snapshot).epoch)
    except ConcurrentCommit:
        continue
    metastore.record_outcome(epochs[-1], "applied", 1)
print(json.dumps(epochs))
"""

CHANGE_AND_DIE = """
import os, signal, sys
from rw_sql.metastore import Metastore
from rw_sql.metastore.codec import changes_from_json
from rw_sql.metastore.records import Operation

metastore = Metastore.open(sys.argv[1])
metastore.faults = lambda point: os.kill(os.getpid(), signal.SIGKILL) if point == sys.argv[2] else None
changes = changes_from_json(sys.argv[3])
operation = Operation(kind="TEST", statement="test", objects=(), changes=changes)
metastore.commit(operation, based_on=metastore.snapshot())
"""

CLAIM_RUNS = """
import json, sys
from rw_sql.metastore import Metastore

runtime = Metastore.open(sys.argv[1]).jobs
print(json.dumps([runtime.claim_run("job", 1, sys.argv[2]).run for _ in range(15)]))
"""

TAKE_LEASE = """
import sys
from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import Lease

lease = Lease(owner=sys.argv[2], host="h", python_pid=1, jvm_pid=1, python_start="", jvm_start="", taken_at_ms=1,
              heartbeat_ms=1, expires_ms=1, applied_epoch=0)
print(Metastore.open(sys.argv[1]).jobs.take_lease(lease, None))
"""

FAULT_POINTS = (
    "metastore.before_append",
    "metastore.after_append",
    "metastore.after_objects",
    "metastore.after_fragment_splits",
    "metastore.after_source_state",
)


@pytest.mark.long
def test_processes_that_commit_at_once_all_get_their_own_epoch(warehouse: str, start_python: Start) -> None:
    # They find no metastore and create it together; their sixty commits include the log's upkeep.
    workers = [start_python(COMMIT_OFTEN, warehouse, f"w{number}") for number in range(4)]
    epochs = [epoch for worker in workers for epoch in json.loads(worker.communicate(timeout=LAST_RESORT_SECONDS)[0])]
    assert [worker.returncode for worker in workers] == [0, 0, 0, 0]
    assert sorted(epochs) == list(range(1, 61))
    metastore = Metastore.open(warehouse)
    snapshot = metastore.snapshot()
    assert snapshot.epoch == 60
    assert {record.name for record in snapshot.all("parameter")} == {f"w{w}_{n}" for w in range(4) for n in range(15)}
    assert all(len(snapshot.splits(f"w{w}")) == len(snapshot.states(f"w{w}")) == 15 for w in range(4))
    assert {(record.epoch, record.outcome) for record in metastore.operations()} == {(n, "applied") for n in epochs}
    for name, rows in (("objects", 60), ("fragment_splits", 60), ("source_state", 60)):
        assert StoredTable(f"{metastore.directory}/{name}").read().num_rows == rows


def projected(warehouse: Path) -> dict[str, list[dict[str, object]]]:
    """The rows that plain SQL over the projections would return."""
    found: dict[str, list[dict[str, object]]] = {}
    for name, keys in KEYS.items():
        rows = StoredTable(str(warehouse / "rw_catalog" / name)).read().sort_by("epoch").to_pylist()
        newest = {tuple(row[key] for key in keys): {**row, "actor": None} for row in rows}
        found[name] = list(newest.values())
    return found


CHANGES = (
    PutObject(record=SourceRecord(id=3, name="late", definition="", connector="kafka", options=(), is_shared=False)),
    DropObject(id=2),
    UnassignSplits(fragment="1", splits=("orders:0",)),
    PutSplitStates(fragment="1", states={"orders:1": '{"offset":99}'}),
    ForgetSplitStates(fragment="1", splits=("orders:2",)),
)


@pytest.mark.crash
@pytest.mark.parametrize("point", FAULT_POINTS)
def test_a_commit_is_whole_or_absent_wherever_its_process_dies(
    tmp_path: Path, make: Make, point: str, start_python: Start, died_by_kill: Died
) -> None:
    opened = {name: Metastore.open(str(tmp_path / name)) for name in ("crashed", "oracle")}
    for metastore in opened.values():
        made = metastore.commit(make.source_with_splits(1, "orders", 3), based_on=metastore.snapshot())
        metastore.commit(make.operation(PutObject(record=make.view(2, "mv", 1))), based_on=made.snapshot)
    oracle = opened["oracle"]
    if point != "metastore.before_append":
        oracle.commit(make.operation(*CHANGES), based_on=oracle.snapshot())
    for metastore in opened.values():
        metastore.flush_projections()
    assert died_by_kill(start_python(CHANGE_AND_DIE, str(tmp_path / "crashed"), point, changes_to_json(CHANGES)))
    shutil.copytree(tmp_path / "crashed", tmp_path / "opened")

    # A process that had it open before sees the commit, and a process that only opens it completes the projections.
    assert content(opened["crashed"].snapshot()) == content(oracle.snapshot())
    assert len(opened["crashed"].operations()) == oracle.snapshot().epoch
    assert content(Metastore.open(str(tmp_path / "opened")).snapshot()) == content(oracle.snapshot())
    assert projected(tmp_path / "opened") == projected(tmp_path / "oracle")

    # The next commit of a process that had the metastore open completes them too.
    for metastore in opened.values():
        last = make.operation(DropObject(id=1), PutObject(record=make.source(9, "orders")))
        metastore.commit(last, based_on=metastore.snapshot())
        metastore.flush_projections()
    assert content(opened["crashed"].snapshot()) == content(oracle.snapshot())
    assert projected(tmp_path / "crashed") == projected(tmp_path / "oracle")
    assert content(Metastore.open(str(tmp_path / "crashed")).snapshot()) == content(oracle.snapshot())


@pytest.mark.long
def test_runs_claimed_by_two_processes_are_distinct(metastore: Metastore, warehouse: str, start_python: Start) -> None:
    workers = [start_python(CLAIM_RUNS, warehouse, f"owner{number}") for number in range(2)]
    runs = [run for worker in workers for run in json.loads(worker.communicate(timeout=LAST_RESORT_SECONDS)[0])]
    assert sorted(runs) == list(range(1, 31))
    assert [run.run for run in metastore.jobs.runs("job")] == list(range(1, 31))
    assert metastore.jobs.last_runs()["job"].run == 30


@pytest.mark.long
def test_two_processes_that_take_the_lease_at_once_leave_one_owner(warehouse: str, start_python: Start) -> None:
    workers = {name: start_python(TAKE_LEASE, warehouse, name) for name in ("one", "two", "three")}
    took = [
        name for name, worker in workers.items() if worker.communicate(timeout=LAST_RESORT_SECONDS)[0].strip() == "True"
    ]
    lease = Metastore.open(warehouse).jobs.lease()
    assert lease is not None
    assert took == [lease.owner]
