"""The conditions for taking over a warehouse, and the validity of its last owner's reports."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.errors import SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import JobStatus, Lease
from rw_sql.metastore.records import Operation, PauseRecord, PutObject, SourceRecord
from rw_sql.runtime.control.follow_up import FollowUp
from rw_sql.runtime.control.inspector import WarehouseInspector
from rw_sql.runtime.control.quiesce import is_in_force, lock_sources
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.lease import GONE_SECONDS, LEASE_SECONDS, LeaseWatch, is_held, is_orphaned, is_owned, try_take
from rw_sql.runtime.support.processes import now_ms, process_start, this_machine
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """Another process, which runs until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


def gone() -> tuple[int, str]:
    """The id and start of a process that was killed."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = process_start(process.pid)
    process.kill()
    process.wait()
    return process.pid, start


def lease_of(python: tuple[int, str], jvm: tuple[int, str], *, applied_epoch: int = 0) -> Lease:
    at = now_ms()
    return Lease(
        owner="another",
        host=this_machine(),
        python_pid=python[0],
        python_start=python[1],
        jvm_pid=jvm[0],
        jvm_start=jvm[1],
        taken_at_ms=at,
        heartbeat_ms=at,
        expires_ms=at + 15_000,
        applied_epoch=applied_epoch,
    )


def of(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    return process.pid, process_start(process.pid)


def test_a_killed_owner_holds_until_its_jvm_is_gone_too(other: subprocess.Popen[bytes]) -> None:
    lease = lease_of(gone(), of(other))
    assert is_held(lease, is_local=True, now_ms=lease.expires_ms + 1)
    other.kill()
    other.wait()
    assert not is_held(lease, is_local=True, now_ms=lease.heartbeat_ms)


def test_a_jvm_that_does_not_end_is_reported(other: subprocess.Popen[bytes]) -> None:
    lease = lease_of(gone(), of(other))
    assert not is_orphaned(lease, is_local=True, now_ms=lease.expires_ms - 1)
    assert is_orphaned(lease, is_local=True, now_ms=lease.expires_ms)
    assert not is_orphaned(lease_of(of(other), of(other)), is_local=True, now_ms=lease.expires_ms + 60_000)


def test_a_killed_jvm_alone_is_no_reason_to_take_over(other: subprocess.Popen[bytes]) -> None:
    lease = lease_of(of(other), gone())
    assert is_held(lease, is_local=True, now_ms=lease.expires_ms + 1)
    assert not is_held(replace(lease, is_released=True), is_local=True, now_ms=lease.heartbeat_ms)


def test_a_zombie_is_gone(other: subprocess.Popen[bytes]) -> None:
    lease = lease_of(of(other), gone())
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert not is_held(lease, is_local=True, now_ms=lease.heartbeat_ms)


def test_a_process_id_that_is_used_again_is_another_process(other: subprocess.Popen[bytes]) -> None:
    lease = lease_of((other.pid, "1"), (other.pid, "2"))
    assert not is_held(lease, is_local=True, now_ms=lease.heartbeat_ms)


def test_on_another_machine_the_heartbeat_decides() -> None:
    lease = lease_of(gone(), gone())
    assert is_held(lease, is_local=False, now_ms=lease.expires_ms - 1)
    assert not is_held(lease, is_local=False, now_ms=lease.expires_ms)
    # This also applies on a local path if process ids have another meaning: another host, boot or container.
    away = replace(lease, host="elsewhere")
    assert is_held(away, is_local=True, now_ms=lease.expires_ms - 1)
    assert not is_held(away, is_local=True, now_ms=lease.expires_ms)


def late(lease: Lease, seconds: float) -> Lease:
    """The lease so many seconds after its last heartbeat."""
    ago = int(seconds * 1000)
    return replace(lease, heartbeat_ms=lease.heartbeat_ms - ago, expires_ms=lease.expires_ms - ago)


def test_in_an_object_store_processes_tell_who_is_gone_and_the_heartbeat_who_is_late(
    other: subprocess.Popen[bytes],
) -> None:
    lease = late(lease_of(of(other), gone()), 30)
    assert not is_held(lease, is_local=False, now_ms=now_ms())
    assert is_owned(lease, now_ms=now_ms())
    elsewhere = replace(lease, host="another machine")
    assert is_owned(elsewhere, now_ms=now_ms())
    assert not is_owned(late(elsewhere, GONE_SECONDS), now_ms=now_ms())
    assert not is_owned(replace(lease, is_released=True), now_ms=now_ms())
    dead = lease_of(gone(), gone())
    assert not is_owned(dead, now_ms=now_ms())
    assert is_held(dead, is_local=False, now_ms=now_ms())


@pytest.mark.parametrize("skew", [-1800.0, -300.0, -60.0, 0.0, 60.0, 3600.0])
def test_another_machines_lease_is_judged_by_this_ones_clock(tmp_path: Path, skew: float) -> None:
    clock = [0.0]
    watch = LeaseWatch(clock=lambda: clock[0])
    facts = Metastore.open(str(tmp_path)).jobs
    lease = late(replace(lease_of(gone(), gone()), host="another machine"), -skew)
    assert facts.take_lease(lease, None)

    def taken() -> Lease | None:
        return try_take(facts, "me", os.getpid(), is_local=False, watch=watch)

    # It renews every two seconds, whatever its clock shows.
    for beat in range(1, 12):
        clock[0] += 2.0
        assert facts.renew_lease(late(lease, -2.0 * beat))
        assert taken() is None
    assert facts.renew_lease(late(lease, LEASE_SECONDS + 1))
    assert taken() is None
    clock[0] += LEASE_SECONDS - 0.1
    assert taken() is None
    clock[0] += 0.2
    assert taken() is not None


@pytest.mark.parametrize("host", [this_machine(), "another machine"])
def test_a_dead_owner_whose_clock_was_set_back_is_replaced(tmp_path: Path, host: str) -> None:
    """The lease says that it is valid for another hour, and nobody renews it."""
    clock = [0.0]
    watch = LeaseWatch(clock=lambda: clock[0])
    facts = Metastore.open(str(tmp_path)).jobs
    assert facts.take_lease(late(replace(lease_of(gone(), gone()), host=host), -3600), None)
    assert try_take(facts, "me", os.getpid(), is_local=False, watch=watch) is None
    clock[0] += LEASE_SECONDS + 0.1
    assert try_take(facts, "me", os.getpid(), is_local=False, watch=watch) is not None


def test_a_lease_of_yesterday_need_not_be_observed(tmp_path: Path) -> None:
    facts = Metastore.open(str(tmp_path)).jobs
    assert facts.take_lease(late(replace(lease_of(gone(), gone()), host="another machine"), 24 * 3600), None)
    assert try_take(facts, "me", os.getpid(), is_local=False, watch=LeaseWatch()) is not None


def test_one_of_two_takes_a_free_lease(tmp_path: Path) -> None:
    first, second = (Metastore.open(str(tmp_path)).jobs for _ in range(2))
    old = lease_of(gone(), gone(), applied_epoch=7)
    assert first.take_lease(old, None)
    assert second.lease() == old
    taken = try_take(first, "me", os.getpid(), is_local=True)
    assert taken is not None
    assert taken.applied_epoch == 7
    assert try_take(second, "you", os.getpid(), is_local=True) is None


class ObjectStore(Warehouse):
    """A folder that is treated as an object store."""

    @property
    def is_local(self) -> bool:
        return False


class Sessions:
    """The part of Spark that statements check to see whether it runs."""

    def require_alive(self, _: str = "") -> None:
        """Does nothing: Spark runs."""


class Catalog:
    """A warehouse whose source 1 is paused at epoch 2, with a reported status of its job."""

    def __init__(self, folder: Path, state: str, kind: type[Warehouse] = Warehouse) -> None:
        self.metastore = Metastore.open(str(folder))
        self.context = Context(
            warehouse=kind(str(folder)),
            metastore=self.metastore,
            sessions=cast("Any", Sessions()),
            owner="me",
        )
        source = SourceRecord(id=1, name="s", definition="", connector="kafka", options=(), is_shared=True)
        self.put(source)
        self.put(PauseRecord(id=2, name="s", source_id=1))
        self.metastore.jobs.write_job_status([JobStatus(job="ingest-1", object_id=1, state=state, run=4)])

    def put(self, record: SourceRecord | PauseRecord) -> None:
        operation = Operation(kind="TEST", statement="", objects=("s",), changes=(PutObject(record=record),))
        self.metastore.commit(operation, based_on=self.metastore.snapshot())

    def state(self) -> str:
        statuses = WarehouseInspector(self.context, self.metastore.snapshot()).jobs.statuses()
        return statuses["ingest-1"].state


@pytest.mark.parametrize("said", ["RUNNING", "STARTING", "STOPPING", "STALLED"])
def test_of_a_dead_owner_nothing_runs(tmp_path: Path, said: str) -> None:
    catalog = Catalog(tmp_path, said)
    assert catalog.state() == "STOPPED"
    assert catalog.metastore.jobs.take_lease(lease_of(gone(), gone()), None)
    assert catalog.state() == "STOPPED"


@pytest.mark.parametrize("said", ["STALLED", "STOPPED"])
def test_a_pause_that_is_not_applied_yet_is_no_proof_of_a_stop(
    tmp_path: Path, other: subprocess.Popen[bytes], said: str
) -> None:
    catalog = Catalog(tmp_path, said)
    lease = lease_of(of(other), gone(), applied_epoch=1)
    assert catalog.metastore.jobs.take_lease(lease, None)
    assert catalog.state() == "STOPPING"
    assert catalog.metastore.jobs.renew_lease(replace(lease, applied_epoch=2))
    assert catalog.state() == said


def test_statements_wait_for_an_owner_whose_heartbeat_is_late(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    catalog = Catalog(tmp_path, "RUNNING", ObjectStore)
    lease = late(lease_of(of(other), gone(), applied_epoch=2), 60)
    assert catalog.metastore.jobs.take_lease(lease, None)
    assert catalog.state() == "RUNNING"
    catalog.put(PauseRecord(id=3, name="all", source_id=None))
    follow_up = FollowUp(catalog.context, lambda: None)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(follow_up.wait_applied, 3, 60.0)
        assert catalog.metastore.jobs.renew_lease(replace(lease, applied_epoch=3))
        assert waiting.result()
    # A late report of the owner does not mean that a reader has stopped.
    with pytest.raises(SqlError, match="did not stop within"):
        lock_sources(catalog.context, catalog.metastore.snapshot(), [1], 0.1, lambda: None)


def test_the_owner_itself_needs_no_heartbeat(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path, "RUNNING", ObjectStore)
    # As a machine of another name wrote it, minutes ago by its clock.
    lease = late(replace(lease_of(gone(), gone(), applied_epoch=2), host="another machine"), 2 * GONE_SECONDS)
    assert catalog.metastore.jobs.take_lease(lease, None)
    assert not catalog.context.has_owner()
    assert catalog.state() == "STOPPED"
    catalog.context.owning.set()
    assert catalog.context.has_owner()
    assert catalog.state() == "RUNNING"


@pytest.mark.parametrize("store", [Warehouse, ObjectStore])
def test_a_quiesce_lock_ends_with_its_process_or_after_ten_minutes(tmp_path: Path, store: type[Warehouse]) -> None:
    """Its session may be suspended, or its question may stay without an answer over a weekend."""
    catalog = Catalog(tmp_path, "RUNNING", store)
    snapshot = catalog.metastore.snapshot()
    (hold,) = lock_sources(catalog.context, snapshot, [1], 1.0, lambda: None)
    assert is_in_force(hold, snapshot)
    pid, start = gone()
    assert not is_in_force(replace(hold, pid=pid, process_start=start), snapshot)
    assert now_ms() + 590_000 < hold.expires_ms <= now_ms() + 600_000
    assert not is_in_force(replace(hold, expires_ms=now_ms() - 1), snapshot)
