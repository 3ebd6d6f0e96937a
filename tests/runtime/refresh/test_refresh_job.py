"""The job of a refreshable table on a real catalog and a real Delta table, killed between any two of its steps.

Spark's part, loading and comparing, is done in memory here.
"""

from __future__ import annotations

import random
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.support.private_files import SecretText
from rw_sql.metastore.records import DropObject, PauseRecord, PutObject, SourceRecord, TableRecord
from rw_sql.metastore.refresh_records import FINISHING, IDLE, REFRESHING, RefreshRecord
from rw_sql.model.refresh_states import KILLED, given_up
from rw_sql.runtime.delta import job_output as output_module
from rw_sql.runtime.jobs.unfinished import unfinished_backfills
from rw_sql.runtime.refresh import job as job_module
from rw_sql.runtime.refresh.job import HELD_BACK, RefreshJob
from rw_sql.runtime.refresh.staging import Staged
from rw_sql.runtime.status.doctor import examine
from rw_sql.runtime.status.findings import FOLDER
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.warehouse import Warehouse
from tests.runtime.refresh.refresh_world import REFRESH, SOURCE, TABLE, World
from tests.support.waits import LAST_RESORT_SECONDS as SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

POINTS = (
    "refresh.before_claim",
    "refresh.before_recovery",
    "refresh.after_recovery",
    "refresh.before_load",
    "refresh.loaded",
    "refresh.staged",
    "refresh.before_chunk",
    "batch.before_merge",
    "batch.after_merge",
    "batch.before_append",
    "batch.after_append",
    "refresh.after_chunk",
    "refresh.merged",
    "refresh.cleaned",
    "refresh.idle",
)


def drawn(seed: int) -> dict[int, str]:
    draw = random.Random(seed)
    return {key: str(draw.randint(0, 2)) for key in range(30) if draw.random() < 0.7}


def test_nothing_is_loaded_before_it_is_asked_for(world: World) -> None:
    world.upstream = drawn(1)
    world.run_until(lambda: "fence.after" in world.passed)
    assert world.held() == {}
    assert world.record.refresh == 0


def test_what_is_asked_for_here_and_a_stop_are_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "_LOOK_SECONDS", SECONDS)
    job = RefreshJob.start(world.context, world.spec())
    for seed in (1, 2):
        world.upstream = drawn(seed)
        world.refresh()
        started = time.monotonic()
        while not world.is_idle():
            assert time.monotonic() < started + SECONDS / 2, world.passed[-5:]
            time.sleep(0.01)
        assert world.held() == drawn(seed)
    started = time.monotonic()
    job.stop()
    assert time.monotonic() < started + SECONDS / 2


def test_a_refresh_goes_through_its_states_and_ends_idle(world: World) -> None:
    for seed in range(3):
        world.upstream = drawn(seed)
        world.refresh()
        world.run_until(world.is_idle)
        assert world.held() == world.upstream
        assert (world.record.refresh, world.record.failure) == (seed + 1, None)
        assert world.record.succeeded_ms is not None
        told = world.context.metastore.jobs.chunks_of(TABLE)
        assert [chunk.chunk for chunk in told] == [-1, 0, 1, 2]
        assert all(chunk.is_done and chunk.refresh == seed + 1 for chunk in told)
        assert told[-1].position is not None
    kinds = [operation.kind for operation in world.context.metastore.operations() if operation.kind != "TEST"]
    assert kinds == ["REFRESH FINISHED", "REFRESH STAGED"] * 3
    assert not world.context.warehouse.list_names(world.context.warehouse.staging(TABLE, 1))
    assert not unfinished_backfills(world.context.metastore, world.context.metastore.snapshot())


def test_a_pause_holds_what_was_triggered_before_it(world: World) -> None:
    world.upstream = drawn(1)
    world.refresh()
    world.put(PutObject(record=PauseRecord(id=SOURCE + 9, name="t", source_id=SOURCE)))
    until = time.monotonic() + 0.5
    world.run_until(lambda: time.monotonic() > until)
    assert world.record.status == REFRESHING
    assert "refresh.before_load" not in world.passed
    world.put(DropObject(id=SOURCE + 9))
    world.run_until(world.is_idle)
    assert world.held() == world.upstream


def test_where_nothing_changed_nothing_is_written(world: World) -> None:
    world.upstream = drawn(1)
    for _ in range(2):
        world.refresh()
        job = world.run_until(world.is_idle)
    assert job is not None
    assert job.output.table.history(1)[0].get("operation") == "WRITE"  # the fence
    assert world.record.refresh == 2


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_the_end_is_right(world: World, point: str) -> None:
    if point not in ("batch.before_append", "batch.after_append"):
        # These two points apply to an empty table.
        world.upstream = drawn(1)
        world.refresh()
        world.run_until(world.is_idle)
    before = world.held() if world.record.refresh else {}
    world.upstream = drawn(2)
    world.refresh()
    world.kill_at = point
    world.passed.clear()
    if point.endswith("_recovery"):
        # The fault points in between apply if a load was killed.
        world.kill_at = "refresh.before_load"
        world.run_until(world.is_idle)
        world.kill_at = point
    world.run_until(world.is_idle)
    assert world.kill_at == "", "it was never there"
    stood = world.record.status
    if stood == REFRESHING:
        assert world.held() == before
    if stood == FINISHING:
        world.upstream = {}  # what was loaded is merged, whatever upstream is by now
        world.run_until(world.is_idle)
        assert world.held() == drawn(2)
        return
    begun_before = any(chunk.refresh == world.record.refresh for chunk in chunks(world))
    world.run_until(world.is_idle)
    if stood == REFRESHING and begun_before:
        assert (world.record.status, world.record.failure) == (IDLE, KILLED)
        assert world.held() == before
        world.refresh()
        world.run_until(world.is_idle)
    if world.record.failure == KILLED:
        world.refresh()
        world.run_until(world.is_idle)
    assert world.held() == drawn(2)
    assert world.record.failure is None


def chunks(world: World) -> tuple[Any, ...]:
    return world.context.metastore.jobs.chunks_of(TABLE)


def test_a_load_that_fails_changes_nothing_and_says_why(world: World) -> None:
    world.upstream = drawn(1)
    world.refresh()
    world.run_until(world.is_idle)
    world.upstream, world.fails = drawn(2), OSError("connection refused")
    world.refresh()
    job = world.run_until(world.is_idle)
    assert job is not None
    assert job.failure() is None
    assert (world.record.status, world.record.failure) == (IDLE, "connection refused")
    assert world.held() == drawn(1)
    world.fails = None
    world.refresh()
    world.run_until(world.is_idle)
    assert (world.held(), world.record.failure) == (drawn(2), None)


def test_a_cancelled_load_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Staged] = job_module.__dict__["load"]

    def cancelled(*given: Any) -> Staged:
        staged = real(*given)
        world.put(given_up(world.record, "CANCEL JOBS"))
        return staged

    world.upstream = drawn(1)
    monkeypatch.setattr(job_module, "load", cancelled)
    world.refresh()
    world.run_until(lambda: "refresh.staged" in world.passed)
    assert (world.record.status, world.record.failure) == (IDLE, "CANCEL JOBS")
    assert world.held() == {}
    assert not world.context.warehouse.list_names(world.context.warehouse.staging(TABLE, 1))


def rename(world: World, name: str) -> None:
    """What ALTER TABLE … RENAME TO, or SET SCHEMA, does to the records of the table."""
    snapshot = world.context.metastore.snapshot()
    records = [snapshot.get(id) for id in (SOURCE, TABLE, REFRESH)]
    world.put(*(PutObject(record=replace(record, name=name)) for record in records if record is not None))


@pytest.mark.parametrize("fails", [None, OSError("connection refused")], ids=["loaded", "failed"])
@pytest.mark.parametrize("name", ["u", "other.t"])
def test_a_table_keeps_the_name_that_it_gets_while_a_refresh_loads(
    world: World, name: str, fails: Exception | None
) -> None:
    world.upstream, world.fails = drawn(1), fails
    world.refresh()
    world.meanwhile["refresh.before_load"] = lambda: rename(world, name)
    job = world.run_until(world.is_idle)
    assert job is not None
    assert job.failure() is None
    assert world.record.name == name
    assert world.record.failure == (None if fails is None else "connection refused")
    assert world.held() == ({} if fails else drawn(1))
    done = world.context.metastore.operations()[0]
    assert done.objects == (name,)
    assert f"of table {name}: " in done.statement


@pytest.mark.parametrize("fails", [None, OSError("connection refused")], ids=["loaded", "failed"])
def test_a_refresh_goes_on_after_the_table_has_swapped_its_name_with_another(
    world: World, fails: Exception | None
) -> None:
    other = [10 * id for id in (SOURCE, TABLE, REFRESH)]
    snapshot = world.context.metastore.snapshot()
    source, table, refresh = (snapshot.get(id) for id in (SOURCE, TABLE, REFRESH))
    assert isinstance(source, SourceRecord)
    assert isinstance(table, TableRecord)
    assert isinstance(refresh, RefreshRecord)
    copies = (
        replace(source, id=other[0], name="u"),
        replace(table, id=other[1], name="u", source_id=other[0]),
        replace(refresh, id=other[2], name="u", table_id=other[1]),
    )
    world.put(*(PutObject(record=record) for record in copies))

    def swap() -> None:
        now = world.context.metastore.snapshot()
        names = {SOURCE: "u", TABLE: "u", REFRESH: "u"} | dict.fromkeys(other, "t")
        records = [(now.get(id), name) for id, name in names.items()]
        world.put(*(PutObject(record=replace(record, name=name)) for record, name in records if record is not None))

    world.upstream, world.fails = drawn(1), fails
    world.refresh()
    world.meanwhile["refresh.before_load"] = swap
    job = world.run_until(world.is_idle)
    assert job is not None
    assert job.failure() is None
    assert world.record.name == "u"
    assert world.record.failure == (None if fails is None else "connection refused")
    assert world.held() == ({} if fails else drawn(1))


def test_each_refresh_releases_its_spark_session(world: World) -> None:
    for seed, fails in enumerate([None, OSError("connection refused"), None]):
        world.upstream, world.fails = drawn(seed), fails
        world.refresh()
        world.run_until(world.is_idle)
        assert (world.sessions.requested, world.sessions.held) == (seed + 1, [])


def test_a_cancelled_load_ends_even_if_its_progress_cannot_be_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = RefreshJob.start(world.context, world.spec())
    job.stop()
    job.stopping.clear()
    world.refresh()
    goes_on = job._told_of(world.record)
    assert goes_on(1, 2)

    def report(*given: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(RefreshJob, "_report", report)
    with pytest.raises(OSError, match="no space"):
        goes_on(1, 2)
    world.put(given_up(world.record, "CANCEL JOBS"))
    assert not goes_on(1, 2)


def suspended(world: World, point: str) -> RefreshJob | None:
    """Suspends a job at a fault point, while the next owner ends its refresh, loads another one, and is killed before
    it merges that one; returns the suspended job after it has woken and ended."""

    def next_owner() -> None:
        world.run_until(world.is_idle)
        world.upstream = drawn(2)
        world.refresh()
        world.kill_at = "refresh.before_chunk"
        world.run_until(world.is_idle)

    world.upstream = drawn(1)
    world.refresh()
    world.meanwhile[point] = next_owner
    return world.run_until(lambda: world.record.refresh == 2 and world.is_idle())


@pytest.mark.parametrize("point", ["refresh.loaded", "refresh.merged", "refresh.cleaned"])
def test_an_owner_that_wakes_leaves_the_refresh_of_the_next_one_alone(world: World, point: str) -> None:
    woken = suspended(world, point)
    assert woken is not None
    assert (failure := woken.failure()) is not None
    assert "has taken over" in failure.reason
    assert (world.record.status, world.record.refresh) == (FINISHING, 2)
    assert world.context.warehouse.list_names(world.staging)
    world.run_until(world.is_idle)
    assert world.held() == drawn(2)


def test_a_refresh_is_ended_by_its_number(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner is suspended right after it has checked that it is the owner."""
    monkeypatch.setattr(output_module.JobOutput, "require_own_run", lambda self: None)
    suspended(world, "refresh.cleaned")
    assert (world.record.status, world.record.refresh) == (FINISHING, 2)
    world.run_until(world.is_idle)
    assert world.held() == drawn(2)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_what_an_ended_refresh_has_staged_goes_at_the_next_start(world: World, is_cancelled: bool) -> None:
    world.upstream = drawn(1)
    world.refresh()
    world.kill_at = "refresh.loaded"
    world.run_until(world.is_idle)
    assert world.context.warehouse.list_names(world.staging)
    if is_cancelled:
        world.put(given_up(world.record, "CANCEL JOBS"))
    world.run_until(lambda: world.is_idle() and not world.context.warehouse.list_names(world.staging))
    assert world.record.failure == ("CANCEL JOBS" if is_cancelled else KILLED)
    assert world.held() == {}


def test_in_an_object_store_a_start_deletes_the_staging_tables_of_ended_refreshes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Warehouse, "is_local", False)
    warehouse = world.context.warehouse

    def left() -> list[str]:
        return sorted(warehouse.list_names(world.staging))

    world.upstream = drawn(1)
    world.refresh()
    world.kill_at = "refresh.loaded"
    world.run_until(world.is_idle)
    world.put(given_up(world.record, "CANCEL JOBS"))
    world.refresh()
    assert left() == ["1"]
    world.kill_at = "refresh.before_chunk"
    world.run_until(world.is_idle)
    assert (world.record.status, left()) == (FINISHING, ["2"])
    world.run_until(world.is_idle)
    assert (world.held(), left()) == (drawn(1), [])


def test_a_scheduled_refresh_begins_by_itself_in_the_job(world: World) -> None:
    world.put(PutObject(record=replace(world.record, interval_s=1)))
    world.upstream = drawn(1)
    world.run_until(lambda: world.record.succeeded_ms is not None)
    assert world.held() == drawn(1)
    (trigger,) = [found for found in world.context.metastore.operations() if found.kind == "REFRESH TABLE"]
    assert (trigger.statement, trigger.reason) == ("REFRESH TABLE t", "refresh_interval_sec = 1")


def test_what_a_client_says_is_reported_without_the_secret() -> None:
    options = {"user": "reader", "password": SecretText("open sesame")}
    assert job_module._reason(OSError("open sesame is wrong for reader"), options) == "[secret] is wrong for reader"
    assert job_module._reason(KeyError("column"), options) == "KeyError: 'column'"
    assert job_module._reason(ValueError(), options) == "ValueError"


def test_a_scheduled_refresh_waits_while_a_statement_holds_readers_stopped(world: World) -> None:
    world.put(PutObject(record=replace(world.record, interval_s=1)))
    world.upstream = drawn(1)
    looks: list[str] = []

    def is_held_back() -> bool:
        looks.append(world.record.status)
        return len(looks) < 3

    world.context.made[HELD_BACK] = is_held_back
    world.run_until(lambda: world.record.succeeded_ms is not None)
    assert looks[:3] == [IDLE] * 3
    assert world.held() == drawn(1)


def test_a_lost_table_is_not_made_anew(world: World) -> None:
    """A new table would be empty until the next refresh."""
    world.upstream = drawn(1)
    world.refresh()
    world.run_until(world.is_idle)
    folder = Path(world.context.warehouse.data(TABLE, 1))
    shutil.rmtree(folder)
    with pytest.raises(StalledError, match=r"TABLE lost: t has been refreshed, .*DROP TABLE t and create it again"):
        RefreshJob.start(world.context, world.spec())
    assert not folder.exists()


def doctor_found(world: World) -> list[tuple[str, str]]:
    found = (finding for finding in examine(world.context) if finding.about == FOLDER)
    return [(finding.problem, finding.remedy) for finding in found if finding.subject == 'table "t"']


def test_a_merge_whose_staging_table_is_lost_stalls_with_the_repair(world: World) -> None:
    world.upstream = drawn(1)
    world.refresh()
    world.kill_at = "refresh.after_chunk"
    world.run_until(lambda: False)
    assert world.record.status == FINISHING
    assert doctor_found(world) == []
    shutil.rmtree(world.staging)
    problem = f"has 2 of 3 chunks of its refresh to merge, but their rows in {world.staging} no longer exist"
    remedy = "restore the folder, or DROP TABLE t and create it again"
    with pytest.raises(StalledError) as caught:
        RefreshJob.start(world.context, world.spec())
    assert caught.value.reason == f"STAGING lost: t {problem}: {remedy}"
    assert doctor_found(world) == [(f"it {problem}", remedy)]


def test_a_merge_that_is_complete_needs_no_staging_table(world: World) -> None:
    world.upstream = drawn(1)
    world.refresh()
    world.kill_at = "refresh.cleaned"
    world.run_until(lambda: False)
    assert world.record.status == FINISHING
    assert doctor_found(world) == []
    world.run_until(world.is_idle)
    assert world.held() == world.upstream


def test_doctor_finds_a_refreshable_table_that_is_lost(world: World) -> None:
    assert doctor_found(world) == []  # A table that was never refreshed has nothing to lose.
    world.upstream = drawn(1)
    world.refresh()
    world.run_until(world.is_idle)
    assert doctor_found(world) == []
    path = world.context.warehouse.data(TABLE, 1)
    shutil.rmtree(path)
    problem = f"has been refreshed, but its table {path} no longer exists"
    remedy = "restore the table, or DROP TABLE t and create it again"
    with pytest.raises(StalledError) as caught:
        RefreshJob.start(world.context, world.spec())
    assert caught.value.reason == f"TABLE lost: t {problem}: {remedy}"
    assert doctor_found(world) == [(f"it {problem}", remedy)]
