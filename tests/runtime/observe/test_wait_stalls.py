"""WAIT follows a view through passing stalls, and reports no stall that a later statement has made obsolete."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.errors import SqlError
from rw_sql.metastore.facts import JobStatus
from rw_sql.metastore.records import MaterializedViewRecord, Operation, PutObject, RebuildRecord
from rw_sql.runtime.observe.wait_statement import wait_until_made
from rw_sql.runtime.support.processes import now_ms
from tests.runtime.support.test_stall_timeout import Made
from tests.support.waits import LAST_RESORT_SECONDS as WAIT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

LONG_AGO_MS = 20_000
BACKFILL = "mv-2"
REBUILD = "mv-2.2"


def stalled(job: str, *, ago_ms: int = 0) -> JobStatus:
    return JobStatus(job=job, object_id=2, state="STALLED", reason="UNREACHABLE x", updated_ms=now_ms() - ago_ms)


def owned(folder: Path, job: str) -> Made:
    """A warehouse whose owner in this process has applied the backfill of a view, or its rebuild."""
    made = Made(folder)
    made.context.owning.set()
    if job == REBUILD:
        view = made.metastore.snapshot().get(2)
        assert isinstance(view, MaterializedViewRecord)
        rebuild = RebuildRecord(id=3, name="v", view_id=2, generation=2, histories=view.histories)
        commit(made, PutObject(record=replace(view, histories=())), PutObject(record=rebuild))
    made.context.applied.tell(made.metastore.snapshot().epoch, ())
    return made


def commit(made: Made, *changes: Any) -> None:
    operation = Operation(kind="TEST", statement="", objects=(), changes=changes)
    made.metastore.commit(operation, based_on=made.metastore.snapshot())


@pytest.mark.parametrize("job", [BACKFILL, REBUILD])
def test_a_wait_goes_on_through_a_stall_that_passes(tmp_path: Path, job: str) -> None:
    made = owned(tmp_path, job)
    made.metastore.jobs.write_job_status([stalled(job)])
    found: list[Any] = []
    looks = threading.Semaphore(0)
    made.context.sessions.require_alive = lambda *_: looks.release()  # type: ignore[method-assign]

    def wait() -> None:
        found.append(wait_until_made(made.context, ["mv-2"], WAIT_SECONDS, gives_up=True))

    work = threading.Thread(target=wait, daemon=True)
    work.start()
    assert looks.acquire(timeout=WAIT_SECONDS)
    assert looks.acquire(timeout=WAIT_SECONDS), found
    made.metastore.jobs.write_job_status([replace(stalled(job), state="RUNNING", reason=None)])
    if job == REBUILD:
        made.finish_rebuild()
    else:
        made.say(100, is_over=True)
    work.join(WAIT_SECONDS)
    assert found == [()]


@pytest.mark.parametrize("job", [BACKFILL, REBUILD])
def test_a_wait_ends_with_the_reason_of_a_stall_that_lasts(tmp_path: Path, job: str) -> None:
    made = owned(tmp_path, job)
    made.metastore.jobs.write_job_status([stalled(job, ago_ms=LONG_AGO_MS)])
    (notice,) = wait_until_made(made.context, ["mv-2"], WAIT_SECONDS, gives_up=True)
    assert (notice.object, notice.change) == ("v", "NOTICE")
    assert notice.detail.endswith("STALLED: UNREACHABLE x")


@pytest.mark.parametrize("job", [BACKFILL, REBUILD])
@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_stall_of_before_a_statement_that_is_not_applied_yet_ends_no_wait(
    tmp_path: Path, job: str, where: str
) -> None:
    made = owned(tmp_path, job)
    made.metastore.jobs.write_job_status([stalled(job, ago_ms=LONG_AGO_MS)])
    (rebuild,) = made.metastore.snapshot().all("rebuild") or (None,)
    view = made.metastore.snapshot().get(2)
    assert view is not None
    if where == "elsewhere":
        made.context.owning.clear()
    commit(made, PutObject(record=rebuild or replace(view)))
    with pytest.raises(SqlError) as caught:
        wait_until_made(made.context, ["mv-2"], 0.05, gives_up=True)
    assert caught.value.code == "RW406"
    if where == "here":
        made.context.applied.tell(made.metastore.snapshot().epoch, [job])
        with pytest.raises(SqlError):
            wait_until_made(made.context, ["mv-2"], 0.05, gives_up=True)
        made.context.applied.tell(made.metastore.snapshot().epoch, ())
        assert wait_until_made(made.context, ["mv-2"], 0.05, gives_up=True)


@pytest.mark.parametrize("job", [BACKFILL, REBUILD])
def test_a_wait_goes_on_while_the_process_that_runs_the_jobs_is_restarted(tmp_path: Path, job: str) -> None:
    made = owned(tmp_path, job)
    made.context.owning.clear()
    (lease,) = made.metastore.jobs.leases().values()
    gone = replace(lease, is_released=True, heartbeat_ms=now_ms())
    assert made.metastore.jobs.take_lease(gone, replacing=lease)
    with pytest.raises(SqlError, match="WAIT gave up: no progress for"):
        wait_until_made(made.context, ["mv-2"], 0.05, gives_up=True)
    assert made.metastore.jobs.take_lease(replace(gone, heartbeat_ms=now_ms() - 60_000), replacing=gone)
    (notice,) = wait_until_made(made.context, ["mv-2"], WAIT_SECONDS, gives_up=True)
    assert "no process runs the jobs of this warehouse" in notice.detail


def test_a_view_is_complete_as_soon_as_its_rebuilt_table_serves(tmp_path: Path) -> None:
    """Its own job does not run the new table yet, and its status is still that of the old one."""
    made = owned(tmp_path, REBUILD)
    made.metastore.jobs.write_job_status([stalled(BACKFILL, ago_ms=LONG_AGO_MS)])
    made.finish_rebuild()
    made.context.applied.tell(made.metastore.snapshot().epoch, ())
    assert wait_until_made(made.context, ["mv-2"], WAIT_SECONDS, gives_up=True) == ()


@pytest.mark.parametrize("is_of_new_definition", [False, True])
def test_a_wait_names_the_rate_limit_that_holds_a_rebuild(tmp_path: Path, *, is_of_new_definition: bool) -> None:
    """The limit is that of the new definition, if the rebuild has one. The limit of the rows that queries still read
    does not matter then."""
    made = owned(tmp_path, REBUILD)
    view, rebuild = (made.metastore.snapshot().get(id_) for id_ in (2, 3))
    assert isinstance(view, MaterializedViewRecord)
    assert isinstance(rebuild, RebuildRecord)
    held = replace(view, backfill_rate_limit=0)
    if is_of_new_definition:
        commit(made, PutObject(record=replace(rebuild, view=held)))
    else:
        commit(made, PutObject(record=held))
    made.context.applied.tell(made.metastore.snapshot().epoch, ())
    (notice,) = wait_until_made(made.context, ["mv-2"], WAIT_SECONDS, gives_up=True)
    assert notice.detail == "it is being rebuilt; backfill_rate_limit is 0"
    commit(made, PutObject(record=held), PutObject(record=replace(rebuild, view=view)))
    made.context.applied.tell(made.metastore.snapshot().epoch, ())
    with pytest.raises(SqlError, match="WAIT gave up: no progress for"):
        wait_until_made(made.context, ["mv-2"], 0.05, gives_up=True)
