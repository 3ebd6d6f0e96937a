"""An owner that has taken a statement of a session without a JVM, and then does nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.metastore.facts import TAKEN, Request
from rw_sql.runtime.remote import remote_executor
from rw_sql.runtime.remote.request_server import owner_silent
from rw_sql.runtime.support.processes import process_start
from tests.runtime.remote.remote_sessions import SOURCE, Client, Pair
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rw_sql.metastore.facts import Lease


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield started
    started.kill()
    started.wait()


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(WrittenWarehouse(tmp_path / "warehouse"))


@pytest.fixture
def lease(pair: Pair, process: subprocess.Popen[bytes]) -> Lease:
    """The lease of an owner that is this process."""
    facts = pair.written.metastore.jobs
    lease = facts.lease()
    assert lease is not None
    start = process_start(process.pid)
    made = replace(lease, python_pid=process.pid, python_start=start, jvm_pid=process.pid, jvm_start=start)
    assert facts.renew_lease(made)
    return made


@pytest.fixture
def client(pair: Pair, lease: Lease, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A session whose statement the owner takes at once."""
    made = Client(pair.written.uri)
    requests = made.context.metastore.jobs.requests
    added = requests.add

    def add(request: Request) -> None:
        added(request)
        assert pair.written.metastore.jobs.requests.change(request, replace(request, state=TAKEN, taken_by=lease.owner))

    monkeypatch.setattr(requests, "add", add)
    monkeypatch.setattr(remote_executor, "_OWNER_SECONDS", 0.05)
    return made


def test_a_suspended_owner_is_named_when_the_statement_has_waited_long_enough(
    pair: Pair, client: Client, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = client.context.metastore.jobs.requests
    taken = requests.add

    def suspend(request: Request) -> None:
        taken(request)
        os.kill(process.pid, signal.SIGSTOP)

    monkeypatch.setattr(requests, "add", suspend)
    client.state.parameters["statement_timeout"] = "200ms"
    error = client.error(SOURCE)
    assert error.message == (
        f"process {process.pid}, which runs the statement, is suspended: the statement may or may not take effect"
    )
    assert (error.hint or "").startswith(
        f"kill -CONT {process.pid} resumes it; rw-sql takeover --force --warehouse {pair.written.uri} ends the process;"
    )


def test_an_owner_without_heartbeats_is_named_when_it_counts_as_gone_elsewhere(
    pair: Pair, client: Client, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_executor, "GONE_SECONDS", 0.5)
    client.state.parameters["statement_timeout"] = "100ms"
    error = client.error(SOURCE)
    assert error.message.startswith(f"process {process.pid}, which runs the statement, has written no heartbeat for ")
    assert pair.context.metastore.snapshot().epoch == 0


def test_a_suspension_during_an_earlier_statement_does_not_count(
    lease: Lease, client: Client, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.state.parameters["statement_timeout"] = "200ms"
    waited: list[float] = []

    def told(lease: Lease, suspended: int | None, seconds: float, warehouse: str) -> SqlError:
        waited.append(seconds)
        return owner_silent(lease, suspended, seconds, warehouse)

    monkeypatch.setattr(remote_executor, "owner_silent", told)
    added = client.context.metastore.jobs.requests.add

    def suspend(request: Request) -> None:
        added(request)
        os.kill(process.pid, signal.SIGSTOP)

    monkeypatch.setattr(client.context.metastore.jobs.requests, "add", suspend)
    client.error(SOURCE)
    os.kill(process.pid, signal.SIGCONT)
    began = time.monotonic()
    client.error(SOURCE)
    assert waited[1] <= time.monotonic() - began
