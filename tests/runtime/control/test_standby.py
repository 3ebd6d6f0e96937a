"""A process that waits for the lease of another one, and the record of the time without an owner."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.runtime.control.owner import Owner
from rw_sql.runtime.jobs.downtime import downtime, note_downtime
from rw_sql.runtime.jobs.lease import GONE_SECONDS
from rw_sql.runtime.support.processes import now_ms
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.metastore.facts import Lease


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    return WrittenWarehouse(tmp_path / "warehouse")


def beat(written: WrittenWarehouse, lease: Lease, seconds: float) -> Lease:
    """A heartbeat of an owner on another machine, whose clock is ``seconds`` behind."""
    at = now_ms() - int(seconds * 1000)
    renewed = replace(lease, host="elsewhere 1 2", heartbeat_ms=at, expires_ms=at + 15_000)
    assert written.metastore.jobs.renew_lease(renewed)
    return renewed


def standby(written: WrittenWarehouse) -> Owner:
    sessions = cast("Any", SimpleNamespace(jvm_pid=1))
    return Owner(replace(written.context(), owner="standby", sessions=sessions))


def test_a_standby_whose_clock_is_ahead_records_no_time_without_an_owner(written: WrittenWarehouse) -> None:
    lease = written.lease()
    waiting = standby(written)
    for _ in range(5):
        lease = beat(written, lease, 61.0)
        waiting._try_take()
        assert not waiting.is_owner
    assert downtime(written.context().warehouse) == []


def test_the_time_since_the_last_heartbeat_is_recorded_once_the_lease_is_free(
    written: WrittenWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = beat(written, written.lease(), GONE_SECONDS)
    assert written.metastore.jobs.release_lease(lease)
    waiting = standby(written)
    jobs = waiting._context.metastore.jobs
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "take_lease", lambda *_, **__: False)
        for _ in range(3):
            waiting._try_take()
            assert not waiting.is_owner
    ((start, end),) = downtime(waiting._context.warehouse)
    assert start == lease.heartbeat_ms
    note_downtime(waiting._context.warehouse, lease, end + 5)
    assert downtime(waiting._context.warehouse) == [(start, end + 5)]
