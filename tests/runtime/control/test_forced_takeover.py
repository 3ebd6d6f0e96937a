"""Takeover: an owner that is suspended is ended by force alone, and only on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.runtime.control.takeover import take_over
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.lease import try_take
from rw_sql.runtime.spark.no_spark import NoSpark
from rw_sql.runtime.support.processes import process_start, this_machine
from rw_sql.runtime.support.warehouse import Warehouse
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
