"""Takeover: an owner that is suspended is ended by force alone, and only on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.runtime.control.takeover import take_over
from rw_sql.runtime.jobs import silent_owners
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.lease import is_of_copy, new_owner_name, try_take
from rw_sql.runtime.spark.no_spark import NoSpark
from rw_sql.runtime.status.doctor import examine
from rw_sql.runtime.support.processes import process_start, this_machine
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.support.write_obstacles import Obstacle
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def stopped() -> Iterator[subprocess.Popen[bytes]]:
    """A process that a signal has stopped."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    os.kill(process.pid, signal.SIGSTOP)
    yield process
    process.kill()
    process.wait()


def test_a_stopped_owner_is_named_and_ended_by_force_alone(tmp_path: Path, stopped: subprocess.Popen[bytes]) -> None:
    written = WrittenWarehouse(tmp_path / "warehouse")
    context = Context(
        warehouse=Warehouse.at(written.uri), metastore=written.metastore, sessions=NoSpark(), owner="a test"
    )
    assert "no process runs the jobs" in take_over(context, DEFAULT_GROUP, is_forced=True).said
    lease = written.lease()
    with pytest.raises(SqlError) as refused:
        take_over(context, DEFAULT_GROUP, is_forced=True)
    assert refused.value.code == "RW426"
    assert refused.value.hint is not None
    assert refused.value.hint.startswith(f"kill {os.getpid()}")
    written.metastore.jobs.release_lease(lease)
    process = (stopped.pid, process_start(stopped.pid))
    held = replace(
        lease, python_pid=process[0], python_start=process[1], jvm_pid=process[0], jvm_start=process[1], owner="stopped"
    )
    assert written.metastore.jobs.take_lease(held, replacing=written.metastore.jobs.lease())
    with pytest.raises(SqlError) as refused:
        take_over(context, DEFAULT_GROUP, is_forced=False)
    assert refused.value.message == (
        f"process {stopped.pid}, which runs the jobs of resource group default, is suspended"
    )
    assert refused.value.hint == (
        f"kill -CONT {stopped.pid} resumes it; rw-sql takeover --force --warehouse {written.uri} ends its processes "
        f"({stopped.pid})"
    )
    assert stopped.poll() is None
    assert try_take(written.metastore.jobs, "next", 1, is_local=True) is None
    found = take_over(context, DEFAULT_GROUP, is_forced=True)
    assert found.ended == (stopped.pid,)
    assert stopped.wait() == -signal.SIGKILL
    assert try_take(written.metastore.jobs, "next", 1, is_local=True) is not None


def test_an_owner_on_another_machine_is_not_ended_from_here(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "warehouse")
    lease = replace(written.lease(), host="elsewhere 1 2")
    assert written.metastore.jobs.renew_lease(lease)
    context = written.context()
    with pytest.raises(SqlError, match="is on another machine, elsewhere"):
        take_over(context, DEFAULT_GROUP, is_forced=True)
    assert this_machine() != "elsewhere 1 2"


@pytest.fixture
def working() -> Iterator[subprocess.Popen[bytes]]:
    """A process that works."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


def owned(folder: Path, process: subprocess.Popen[bytes]) -> WrittenWarehouse:
    """A warehouse whose jobs a process runs, with a heartbeat that is old, as in a copy."""
    written = WrittenWarehouse(folder)
    fresh = written.lease()
    written.metastore.jobs.release_lease(fresh)
    start = process_start(process.pid)
    lease = replace(
        fresh,
        owner=new_owner_name(Warehouse.at(written.uri)),
        python_pid=process.pid,
        python_start=start,
        jvm_pid=process.pid,
        jvm_start=start,
        heartbeat_ms=fresh.heartbeat_ms - 60_000,
    )
    assert written.metastore.jobs.take_lease(lease, replacing=written.metastore.jobs.lease())
    return written


def opened(uri: str) -> Context:
    return Context(warehouse=Warehouse.at(uri), metastore=Metastore.open(uri), sessions=NoSpark(), owner="a test")


def test_the_owner_of_the_original_is_not_ended_for_a_copy(tmp_path: Path, working: subprocess.Popen[bytes]) -> None:
    original = owned(tmp_path / "warehouse", working)
    shutil.copytree(original.folder, tmp_path / "copy")
    copy = opened(str(tmp_path / "copy"))
    (finding,) = examine(copy)
    assert finding.about == "owner"
    assert "from which this one was copied" in finding.problem
    with pytest.raises(SqlError, match=r"from which .*copy was copied") as refused:
        take_over(copy, DEFAULT_GROUP, is_forced=False)
    assert (refused.value.hint or "").endswith("releases the lease of the copy, and ends no process")
    assert try_take(copy.metastore.jobs, "next", 1, is_local=True) is None
    found = take_over(copy, DEFAULT_GROUP, is_forced=True)
    assert found.ended == ()
    assert working.poll() is None
    assert try_take(copy.metastore.jobs, "next", 1, is_local=True) is not None
    # The lease of the original is unchanged.
    assert try_take(original.metastore.jobs, "next", 1, is_local=True) is None


def test_a_lease_that_was_copied_just_now_is_not_released(tmp_path: Path, working: subprocess.Popen[bytes]) -> None:
    original = owned(tmp_path / "warehouse", working)
    lease = original.metastore.jobs.lease()
    assert lease is not None
    assert original.metastore.jobs.renew_lease(replace(lease, heartbeat_ms=lease.heartbeat_ms + 60_000))
    shutil.copytree(original.folder, tmp_path / "copy")
    copy = opened(str(tmp_path / "copy"))
    with pytest.raises(SqlError, match="the copied lease has not expired"):
        take_over(copy, DEFAULT_GROUP, is_forced=True)
    assert working.poll() is None


def test_a_warehouse_at_another_path_or_in_another_folder_is_not_a_copy(
    tmp_path: Path, working: subprocess.Popen[bytes]
) -> None:
    """A renamed or bind-mounted folder keeps its identity, and a restored folder its path: the owner may use both."""
    written = owned(tmp_path / "warehouse", working)
    lease = written.metastore.jobs.lease()
    assert lease is not None
    assert not is_of_copy(lease, Warehouse.at(written.uri))
    written.folder.rename(tmp_path / "renamed")
    assert not is_of_copy(lease, Warehouse.at(str(tmp_path / "renamed")))
    shutil.copytree(tmp_path / "renamed", written.folder)
    assert not is_of_copy(lease, Warehouse.at(written.uri))
    assert not is_of_copy(replace(lease, owner="prod-1-4711-1a2b3c4d"), Warehouse.at(str(tmp_path / "elsewhere")))
    in_store = replace(lease, owner=new_owner_name(Warehouse("s3://lake/rw")))
    assert not is_of_copy(in_store, Warehouse("s3a://lake/rw"))
    assert is_of_copy(in_store, Warehouse("s3://lake/copy"))


def test_an_owner_that_hangs_in_its_own_warehouse_is_ended(tmp_path: Path, working: subprocess.Popen[bytes]) -> None:
    written = owned(tmp_path / "warehouse", working)
    assert take_over(opened(written.uri), DEFAULT_GROUP, is_forced=True).ended == (working.pid,)
    assert working.wait() == -signal.SIGKILL


def refused(written: WrittenWarehouse) -> SqlError:
    """The error of a takeover without force."""
    with pytest.raises(SqlError) as caught:
        take_over(opened(written.uri), DEFAULT_GROUP, is_forced=False)
    return caught.value


def test_an_owner_that_only_writes_nothing_is_not_to_be_resumed(
    tmp_path: Path, working: subprocess.Popen[bytes]
) -> None:
    written = owned(tmp_path / "warehouse", working)
    error = refused(written)
    assert error.message == (
        f"process {working.pid}, which runs the jobs of resource group default, writes no heartbeat"
    )
    assert error.hint == (
        f"the log of process {working.pid} contains the reason; rw-sql takeover --force --warehouse {written.uri} ends "
        f"its processes ({working.pid})"
    )


def test_the_obstacle_of_an_owner_that_cannot_write_is_named(
    tmp_path: Path, working: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = owned(tmp_path / "warehouse", working)
    full = Obstacle(problem="the file system of the warehouse is full", remedy="free some space (df -h /srv)")
    monkeypatch.setattr(silent_owners, "visible_obstacle", lambda *_, **__: full)
    error = refused(written)
    assert error.message.endswith("default, cannot write the warehouse: the file system of the warehouse is full")
    assert (error.hint or "").startswith("free some space (df -h /srv); rw-sql takeover --force")
