"""Which owner a session without a JVM asks if the owner of one group has ended and another group's owner runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.runtime.control.executor import Executor
from rw_sql.runtime.jobs.lease import LEASE_SECONDS, LeaseWatch
from rw_sql.runtime.remote import remote_executor
from rw_sql.runtime.remote.request_server import RequestServer
from rw_sql.runtime.support.processes import now_ms
from tests.runtime.remote.remote_sessions import Client, context_of
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rw_sql.metastore.facts import Lease, Request


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    """A warehouse whose default group's owner, on another machine, ended ten minutes ago."""
    made = WrittenWarehouse(tmp_path / "warehouse")
    here = made.lease()
    assert made.metastore.jobs.take_lease(elsewhere(here, "dead", DEFAULT_GROUP, 600), replacing=here)
    return made


def elsewhere(lease: Lease, owner: str, group: str, seconds: int) -> Lease:
    at = now_ms() - seconds * 1000
    return replace(lease, owner=owner, group=group, host=f"machine of {owner}", heartbeat_ms=at, expires_ms=at + 15_000)


def run_group_a(written: WrittenWarehouse, seconds: int) -> None:
    lease = written.metastore.jobs.lease()
    assert lease is not None
    assert written.metastore.jobs.take_lease(elsewhere(lease, "alive", "a", seconds), replacing=None)


@pytest.fixture
def server_of_a(written: WrittenWarehouse) -> Iterator[RequestServer]:
    context = replace(context_of(written.uri, "alive"), group="a")
    context.owning.set()
    server = RequestServer(context, Executor(context, None).run)
    server.start()
    yield server
    server.stop()


@pytest.mark.usefixtures("server_of_a")
def test_an_owner_that_certainly_runs_is_asked_before_one_that_may_have_ended(written: WrittenWarehouse) -> None:
    run_group_a(written, 0)
    client = Client(written.uri)
    assert client.run("SHOW SOURCES") == []
    assert client.executor._owned_group() == "a"


@pytest.mark.usefixtures("server_of_a")
def test_the_owner_of_another_group_is_asked_when_the_first_proves_to_have_ended(
    written: WrittenWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_group_a(written, 130)
    monkeypatch.setattr(remote_executor, "_OWNER_SECONDS", 0.05)
    client, clock, asked = Client(written.uri), [0.0], list[str]()
    client.context.lease_watches[DEFAULT_GROUP] = LeaseWatch(clock=lambda: clock[0])
    requests = client.context.metastore.jobs.requests
    added = requests.add

    def add(request: Request) -> None:
        added(request)
        asked.append(request.resource_group)
        clock[0] += LEASE_SECONDS

    monkeypatch.setattr(requests, "add", add)
    assert client.run("SHOW SOURCES") == []
    assert asked == [DEFAULT_GROUP, "a"]


def test_a_statement_in_a_block_is_not_sent_to_another_owner(written: WrittenWarehouse) -> None:
    run_group_a(written, 0)
    client = Client(written.uri)
    assert client.executor._owned_group(is_in_block=True) == DEFAULT_GROUP
