"""Views whose sources are paused become idle: which ones, the events that wake them, and their reported status."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.metastore.records import (
    DropObject,
    MaterializedViewRecord,
    ParameterRecord,
    PauseRecord,
    PutObject,
    SourceRecord,
)
from rw_sql.model.backfill_ranges import History, SplitHistory
from rw_sql.model.parameters import IDLE_JOB_TIMEOUT
from tests.runtime.controlled_jobs import Jobs

if TYPE_CHECKING:
    from pathlib import Path

SOURCE, VIEW, UPPER, PAUSE, PARAMETER = 1, 2, 3, 4, 5


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """A running source that never rests, a view of it and a view of that view; idle views rest at once."""
    made = Jobs(tmp_path / "warehouse", monkeypatch)
    made.commit(PutObject(record=ParameterRecord(id=PARAMETER, name=IDLE_JOB_TIMEOUT, value="50ms")))
    definition = "CREATE SOURCE s (id INT) WITH (connector = 'datagen')"
    source = SourceRecord(id=SOURCE, name="s", definition=definition, connector="datagen", options=(), is_shared=True)
    made.commit(PutObject(record=source))
    for id_, name, reads in ((VIEW, "v", SOURCE), (UPPER, "w", VIEW)):
        made.commit(PutObject(record=_view(id_, name, reads)))
    made.reach(lambda: set(made.jobs) == {"ingest-1", "mv-2", "mv-3"}, "all run")
    return made


def _view(id_: int, name: str, reads: int) -> MaterializedViewRecord:
    schema = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}}]}'
    return MaterializedViewRecord(
        id=id_, name=name, definition="", query=f"SELECT id FROM {reads}", schema=schema, inputs=(reads,)
    )


def pause(jobs: Jobs) -> int:
    return jobs.commit(PutObject(record=PauseRecord(id=PAUSE, name="s", source_id=SOURCE)))


def state_of(jobs: Jobs, job: str) -> str | None:
    status = jobs.status(job)
    return None if status is None else status.state


def reach_rest(jobs: Jobs, *names: str) -> None:
    jobs.reach(lambda: all(jobs.jobs[name].is_stopped for name in names), f"{names} rest")


def test_views_rest_also_while_their_source_runs_unless_no_job_may_rest(jobs: Jobs) -> None:
    reach_rest(jobs, "mv-2", "mv-3")
    assert not jobs.jobs["ingest-1"].is_stopped
    write_deltalake(jobs.context.warehouse.data(SOURCE, 1), pa.table({"id": [1]}))
    jobs.commit(PutObject(record=ParameterRecord(id=PARAMETER, name=IDLE_JOB_TIMEOUT, value="-1")))
    jobs.reach(lambda: not jobs.jobs["mv-2"].is_stopped, "the view reads what came")
    for _ in range(20):
        jobs.reconciler.reconcile()
        jobs.reconciler.wait_changed(0.01)
    assert not jobs.jobs["mv-2"].is_stopped


def test_a_view_rests_when_its_source_is_paused_then_the_view_of_it_and_both_count_as_running(jobs: Jobs) -> None:
    epoch = pause(jobs)
    reach_rest(jobs, "ingest-1", "mv-2", "mv-3")
    jobs.reach(lambda: jobs.reconciler.applied_epoch == epoch, "the pause is applied")
    assert [state_of(jobs, job) for job in ("mv-2", "mv-3")] == ["RUNNING", "RUNNING"]
    assert len(jobs.starts) == 3


def test_views_stay_at_rest_until_their_source_commits(jobs: Jobs) -> None:
    pause(jobs)
    reach_rest(jobs, "mv-2", "mv-3")
    epoch = jobs.commit(DropObject(id=PAUSE))
    jobs.reach(lambda: jobs.reconciler.applied_epoch == epoch, "the resumption is applied")
    assert [spec.job for spec in jobs.starts[3:]] == ["ingest-1"]
    write_deltalake(jobs.context.warehouse.data(SOURCE, 1), pa.table({"id": [1]}))
    jobs.reach(lambda: len(jobs.starts) == 5, "the view reads what it wrote")
    assert jobs.starts[-1].job == "mv-2"


def test_what_is_committed_to_an_input_wakes_a_view(jobs: Jobs) -> None:
    reach_rest(jobs, "mv-2")
    write_deltalake(jobs.context.warehouse.data(SOURCE, 1), pa.table({"id": [1]}))
    jobs.reach(lambda: [spec.job for spec in jobs.starts].count("mv-2") == 2, "it was started again")


def test_a_view_with_rows_to_read_does_not_rest(jobs: Jobs) -> None:
    log = jobs.context.warehouse.data(SOURCE, 1)
    write_deltalake(log, pa.table({"id": [1]}))
    assert DeltaTable(log).version() == 0
    pause(jobs)
    reach_rest(jobs, "ingest-1")
    for _ in range(20):
        jobs.reconciler.reconcile()
        jobs.reconciler.wait_changed(0.01)
    assert not jobs.jobs["mv-2"].is_stopped


def test_a_view_does_not_rest_within_a_batch_without_input(jobs: Jobs) -> None:
    warehouse = jobs.context.warehouse
    checkpoint = warehouse.view_checkpoint(VIEW, 1)
    for batch in (0, 1):
        warehouse.write_text(f"{checkpoint}/offsets/{batch}", "v1\n{}")
    warehouse.write_text(f"{checkpoint}/commits/0", "v1\n{}")
    for _ in range(20):
        jobs.reconciler.reconcile()
        jobs.reconciler.wait_changed(0.01)
    assert not jobs.jobs["mv-2"].is_stopped
    warehouse.write_text(f"{checkpoint}/commits/1", "v1\n{}")
    reach_rest(jobs, "mv-2")


def test_a_view_that_still_reads_its_history_does_not_rest(jobs: Jobs) -> None:
    before = SplitHistory(split="s-0", start=0, end=1000, since=1)
    history = History(source_id=SOURCE, log_version=0, splits=(before,)).to_text()
    jobs.commit(PutObject(record=replace(_view(UPPER, "w", SOURCE), histories=(history,))))
    pause(jobs)
    reach_rest(jobs, "mv-2")
    for _ in range(20):
        jobs.reconciler.reconcile()
        jobs.reconciler.wait_changed(0.01)
    assert not jobs.jobs["mv-3"].is_stopped


def test_a_view_that_rests_is_dropped(jobs: Jobs) -> None:
    pause(jobs)
    reach_rest(jobs, "mv-2", "mv-3")
    epoch = jobs.commit(DropObject(id=UPPER))
    jobs.reach(lambda: jobs.reconciler.applied_epoch == epoch, "the drop is applied")
    assert state_of(jobs, "mv-3") == "STOPPED"
    assert len(jobs.starts) == 3


def test_a_view_that_rests_is_started_as_a_statement_wants_it_now(jobs: Jobs) -> None:
    pause(jobs)
    reach_rest(jobs, "mv-2", "mv-3")
    changed = _view(UPPER, "w", VIEW)
    jobs.change(changed)
    jobs.reach(lambda: len(jobs.starts) == 4, "it was started again")
    assert jobs.starts[-1].job == "mv-3"
