"""An owner that was suspended while another process took over its jobs, and does not know this yet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import JobStatus
from rw_sql.metastore.records import MaterializedViewRecord, PutObject, SourceRecord
from rw_sql.runtime.control.reconciler import Reconciler
from rw_sql.runtime.jobs.lease import try_take
from rw_sql.runtime.jobs.statuses import IDLE
from tests.runtime.controlled_jobs import Jobs, lock_from_elsewhere

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """The jobs of the present owner."""
    made = Jobs(tmp_path / "warehouse", monkeypatch)
    assert try_take(made.metastore.jobs, made.context.owner, 1, is_local=True) is not None
    return made


def late_owner(jobs: Jobs) -> Reconciler:
    """The jobs of an owner whose lease the present owner has taken."""
    metastore = Metastore.open(jobs.context.warehouse.uri)
    return Reconciler(replace(jobs.context, metastore=metastore, owner="late"))


def state_of(jobs: Jobs, job: str) -> tuple[str, str | None] | None:
    status = jobs.status(job)
    return None if status is None else (status.state, status.reason)


def test_an_owner_reports_again_what_a_late_owner_has_replaced(jobs: Jobs) -> None:
    jobs.put_view("a")
    jobs.reach(lambda: state_of(jobs, "mv-1") == ("RUNNING", None), "it runs")
    others = Metastore.open(jobs.context.warehouse.uri).jobs
    others.write_job_status([JobStatus(job="mv-1", object_id=1, state="STALLED", reason="connection reset")])
    jobs.reconciler.reconcile()
    assert state_of(jobs, "mv-1") == ("RUNNING", None)
    others.drop_jobs(["mv-1"])
    jobs.reconciler.reconcile()
    assert state_of(jobs, "mv-1") == ("RUNNING", None)
    written = jobs.metastore.jobs._statuses()._table.version
    jobs.reconciler.reconcile()
    assert jobs.metastore.jobs._statuses()._table.version == written


def test_an_owner_reports_a_job_at_rest_again_too(jobs: Jobs) -> None:
    jobs.set_idle_timeout("50ms")
    definition = "CREATE SOURCE s (id INT) WITH (connector = 'datagen')"
    source = SourceRecord(id=2, name="s", definition=definition, connector="datagen", options=(), is_shared=True)
    view = MaterializedViewRecord(id=3, name="v", definition="", query="SELECT id", schema="", inputs=(2,))
    jobs.commit(PutObject(record=source), PutObject(record=view))

    def rests() -> bool:
        status = jobs.status("mv-3")
        return status is not None and (status.reason or "").startswith(IDLE)

    jobs.reach(rests, "it rests")
    starts = len(jobs.starts)
    late = JobStatus(job="mv-3", object_id=3, state="STALLED", reason="connection reset")
    Metastore.open(jobs.context.warehouse.uri).jobs.write_job_status([late])
    assert not rests()
    jobs.reach(rests, "its report is written again")
    assert len(jobs.starts) == starts


def test_a_late_owner_replaces_no_report_of_its_successor(jobs: Jobs) -> None:
    jobs.put_view("a")
    jobs.reach(lambda: state_of(jobs, "mv-1") == ("RUNNING", None), "it runs")
    late, starts = late_owner(jobs), len(jobs.starts)
    written = jobs.metastore.jobs._statuses()._table.latest_version()
    late.reconcile()
    while late.wait_changed(0.1) or late.pending:
        late.reconcile()
    late.reconcile()
    assert late._slots["mv-1"].reason == "another process has taken over the jobs of this warehouse"
    # A start would claim a run, and so fence the run of the present owner.
    assert len(jobs.starts) == starts
    assert jobs.metastore.jobs._statuses()._table.latest_version() == written


def test_a_late_owner_does_not_say_that_the_readers_of_its_successor_have_stopped(jobs: Jobs) -> None:
    definition = "CREATE SOURCE s (id INT) WITH (connector = 'datagen')"
    source = SourceRecord(id=1, name="s", definition=definition, connector="datagen", options=(), is_shared=True)
    view = MaterializedViewRecord(id=2, name="v", definition="", query="SELECT id", schema="", inputs=(1,))
    jobs.commit(PutObject(record=source), PutObject(record=view))
    jobs.reach(lambda: "ingest-1" in jobs.jobs, "the reader runs")
    facts = jobs.metastore.jobs
    lock_from_elsewhere(jobs.metastore)
    late_owner(jobs).reconcile()
    assert not any(found.is_taken for found in facts.quiesce_locks())
    jobs.reach(lambda: all(found.is_taken for found in facts.quiesce_locks()), "the lock is acknowledged")
    assert jobs.jobs["ingest-1"].is_stopped
