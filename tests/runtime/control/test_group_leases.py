"""Leases, statuses and epochs of resource groups, and statements on a group that nobody runs, without Spark."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SOURCE_IS_RUNNING, SqlError
from rw_sql.metastore.facts import JobStatus
from rw_sql.metastore.records import (
    DEFAULT_GROUP,
    MaterializedViewRecord,
    PutObject,
)
from rw_sql.runtime.control.executor import Executor
from rw_sql.runtime.control.quiesce import lock_sources
from rw_sql.runtime.control.session_state import SessionState
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.groups import holding, least_applied, owned_groups, possibly_owned_groups, unapplied
from rw_sql.runtime.jobs.lease import GONE_SECONDS, LEASE_SECONDS, LeaseWatch, try_take
from rw_sql.runtime.jobs.statuses import present_statuses
from rw_sql.runtime.spark.no_spark import NoSpark
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.syntax import parse_statement
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.metastore.facts import Lease


def test_leases_of_groups_are_apart_and_one_of_today_is_the_default_group(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "warehouse")
    facts = written.metastore.jobs
    assert facts.leases() == {}
    first = try_take(facts, "one", os.getpid(), is_local=True)
    second = try_take(facts, "two", os.getpid(), is_local=True, group="a")
    assert first is not None
    assert second is not None
    assert try_take(facts, "three", os.getpid(), is_local=True, group="a") is None
    assert facts.lease() == first
    assert facts.leases() == {DEFAULT_GROUP: first, "a": second}
    assert facts.release_lease(second)
    assert facts.lease() == first
    assert facts.lease("a") == replace(second, is_released=True)
    assert first.version


def test_statuses_and_epochs_count_per_group(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "warehouse")
    written.commit(written.view(1, "v"))
    view = written.metastore.snapshot().get(1)
    assert isinstance(view, MaterializedViewRecord)
    written.commit(written.view(2, "w"), PutObject(record=replace(view, resource_group="a")))
    at = now_ms()
    for id_ in (1, 2):
        status = JobStatus(job=f"mv-{id_}", object_id=id_, state="RUNNING", updated_ms=at)
        written.metastore.jobs.write_job_status([status])
    lease = written.lease(applied=1)
    context = written.context()
    other = replace(lease, owner="other", group="a", applied_epoch=2)
    assert written.metastore.jobs.take_lease(replace(other, is_released=True), replacing=None)
    assert {job: status.state for job, status in present_statuses(context).items()} == {
        "mv-1": "STOPPED",
        "mv-2": "RUNNING",
    }
    assert owned_groups(context) == {DEFAULT_GROUP}
    assert written.metastore.jobs.take_lease(other, replacing=replace(other, is_released=True))
    assert {status.state for status in present_statuses(context).values()} == {"RUNNING"}
    assert least_applied(context) == 1
    assert unapplied(context, 2) == {DEFAULT_GROUP: lease}
    assert unapplied(context, 2, without=DEFAULT_GROUP) == {}


@pytest.mark.parametrize("skew_ms", [-1_800_000, -60_000, 0, 60_000, 1_800_000])
def test_owners_on_other_machines_are_judged_by_this_ones_clock(tmp_path: Path, skew_ms: int) -> None:
    """The other machine's clock is ahead or behind: its owner counts as long as it renews its lease."""
    written = WrittenWarehouse(tmp_path / "warehouse")
    context, clock, facts = written.context(), [0.0], written.metastore.jobs
    context.lease_watches["a"] = LeaseWatch(clock=lambda: clock[0])
    lease = replace(written.lease(), owner="other", group="a", host="another machine", applied_epoch=1, let_go_epoch=1)

    def beaten(lease: Lease) -> Lease:
        at = lease.heartbeat_ms + 2000
        return replace(lease, heartbeat_ms=at, expires_ms=at + 15_000)

    def others() -> set[str]:
        return set(unapplied(context, 2, without=DEFAULT_GROUP))

    lease = replace(lease, heartbeat_ms=now_ms() + skew_ms, expires_ms=now_ms() + skew_ms + 15_000)
    assert facts.take_lease(lease, replacing=None)
    for _ in range(12):
        clock[0] += 2.0
        lease = beaten(lease)
        assert facts.renew_lease(lease)
        assert others() == holding(context, 2).keys() == {"a"}
    clock[0] += LEASE_SECONDS - 0.1
    assert others() == {"a"}
    clock[0] += 0.2
    assert not others()
    assert not holding(context, 2)


@pytest.mark.parametrize("skew_ms", [-1_800_000, -130_000, 1_800_000])
def test_an_owner_whose_clock_is_wrong_is_an_owner(tmp_path: Path, skew_ms: int) -> None:
    written = WrittenWarehouse(tmp_path / "warehouse")
    context, clock, facts = written.context(), [0.0], written.metastore.jobs
    context.lease_watches["a"] = LeaseWatch(clock=lambda: clock[0])
    at = now_ms() + skew_ms
    lease = replace(written.lease(), owner="other", group="a", host="another machine", heartbeat_ms=at, expires_ms=at)
    assert facts.take_lease(lease, replacing=None)
    assert "a" in possibly_owned_groups(context)
    clock[0] += 2.0
    assert facts.renew_lease(replace(lease, heartbeat_ms=at + 2000))
    assert "a" in owned_groups(context)
    if skew_ms < 0:
        clock[0] += LEASE_SECONDS
        assert "a" in owned_groups(context)
        clock[0] += GONE_SECONDS
        assert "a" not in possibly_owned_groups(context)


def test_an_owner_that_ended_is_known_as_such_after_a_wait(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "warehouse")
    context, clock = written.context(), [0.0]
    context.lease_watches["a"] = LeaseWatch(clock=lambda: clock[0])
    at = now_ms() - 600_000
    lease = replace(written.lease(), owner="other", group="a", host="another machine", heartbeat_ms=at, expires_ms=at)
    assert written.metastore.jobs.take_lease(lease, replacing=None)
    assert "a" not in owned_groups(context)
    assert "a" in possibly_owned_groups(context)
    clock[0] += LEASE_SECONDS
    assert "a" not in possibly_owned_groups(context)


def test_a_reader_of_an_owner_whose_clock_is_wrong_is_waited_for(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "warehouse")
    written.commit(*written.source(1, "s"))
    here, at = written.lease(), now_ms() - 130_000
    lease = replace(here, owner="other", host="another machine", heartbeat_ms=at, expires_ms=at)
    assert written.metastore.jobs.take_lease(lease, replacing=here)
    context = written.context()
    assert possibly_owned_groups(context) == {DEFAULT_GROUP}

    def renew() -> None:
        written.metastore.jobs.renew_lease(replace(lease, heartbeat_ms=at + 2000))

    with pytest.raises(SqlError) as refused:
        lock_sources(context, written.metastore.snapshot(), [1], 0.1, renew)
    assert refused.value.kind == SOURCE_IS_RUNNING


def test_a_short_timeout_does_not_refuse_a_lock_because_of_an_owner_that_has_ended(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "warehouse")
    written.commit(*written.source(1, "s"))
    here, at = written.lease(), now_ms() - 600_000
    lease = replace(here, owner="other", host="another machine", heartbeat_ms=at, expires_ms=at)
    assert written.metastore.jobs.take_lease(lease, replacing=here)
    context, looks = written.context(), itertools.count()
    context.lease_watches[DEFAULT_GROUP] = LeaseWatch(clock=lambda: next(looks) / 4)
    assert lock_sources(context, written.metastore.snapshot(), [1], 0.05, lambda: None)


def test_a_group_whose_owner_has_ended_on_another_machine_is_refused(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "warehouse")
    at = now_ms() - 600_000
    lease = replace(written.lease(), owner="n", group="a", host="another machine", heartbeat_ms=at, expires_ms=at)
    assert written.metastore.jobs.take_lease(lease, replacing=None)
    context, looks = written.context(), itertools.count()
    context.lease_watches["a"] = LeaseWatch(clock=lambda: next(looks) * 4.0)
    created = (
        "CREATE SOURCE s (id INT) WITH (connector = 'datagen', fields.id.kind = 'sequence', "
        "datagen.rows.per.second = '1', resource_group = 'a') FORMAT PLAIN ENCODE JSON"
    )
    with pytest.raises(SqlError, match="no process runs the jobs of resource group a"):
        answers(Executor(replace(context, sessions=NoSpark()), None), created)
    assert written.metastore.snapshot().epoch == 0


def answers(executor: Executor, text: str) -> list[tuple[object, ...]]:
    return list(executor.run(parse_statement(text), SessionState()).rows)


def test_a_group_that_nobody_runs_is_refused_with_the_command(tmp_path: Path) -> None:
    written = WrittenWarehouse(tmp_path / "warehouse")
    context = Context(
        warehouse=Warehouse.at(written.uri), metastore=written.metastore, sessions=NoSpark(), owner="a test"
    )
    executor = Executor(context, None)
    with_list = "(connector = 'datagen', fields.id.kind = 'sequence', datagen.rows.per.second = '1'"
    created = f"CREATE SOURCE s (id INT) WITH {with_list}, resource_group = 'Nightly') FORMAT PLAIN ENCODE JSON"
    with pytest.raises(SqlError) as refused:
        answers(executor, created)
    assert refused.value.code == "RW425"
    assert refused.value.hint == f"rw-sql serve --warehouse {written.uri} --resource-group nightly"
    assert written.metastore.snapshot().epoch == 0
    answers(executor, f"CREATE SOURCE s (id INT) WITH {with_list}) FORMAT PLAIN ENCODE JSON")
    with pytest.raises(SqlError, match="no process runs the jobs of resource group nightly"):
        answers(executor, "ALTER SOURCE s SET RESOURCE_GROUP TO nightly")
    lease = replace(written.lease(), group="nightly", owner="n", version="9")
    assert written.metastore.jobs.take_lease(lease, replacing=None)
    moved = answers(executor, "ALTER SOURCE s SET RESOURCE_GROUP TO nightly")
    assert moved[0] == ("s", "ALTERED", "resource_group: default -> nightly")
    assert answers(executor, "ALTER SOURCE s SET RESOURCE_GROUP = 'nightly'")[0][1] == "NOTHING"
    shown = {row[0]: row for row in answers(executor, "SHOW CLUSTER")}
    assert (shown["nightly"][1], shown["nightly"][5], shown["nightly"][9]) == ("RUNNING", "9", 1)
    assert shown["default"][1] == "RUNNING"
    create = str(answers(executor, "SHOW CREATE SOURCE s")[0][1])
    assert "resource_group = 'nightly'" in create
    # Out of a group whose owner has ended.
    assert written.metastore.jobs.release_lease(lease)
    shown = {row[0]: row for row in answers(executor, "SHOW CLUSTER")}
    assert shown["nightly"][1] == "NONE"
    assert shown["nightly"][10] == f"rw-sql serve --warehouse {written.uri} --resource-group nightly"
    answers(executor, "ALTER SOURCE s RESET RESOURCE_GROUP")
    assert "resource_group" not in str(answers(executor, "SHOW CREATE SOURCE s")[0][1])
    for wrong in ("TO 'a b'", "TO 5", "TO a, b"):
        with pytest.raises(SqlError):
            answers(executor, f"ALTER SOURCE s SET RESOURCE_GROUP {wrong}")
