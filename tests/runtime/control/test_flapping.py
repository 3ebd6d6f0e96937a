"""A job that starts and fails again and again reports it, is retried less and less often, and recovers by a longer
run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore.facts import JobStatus
from rw_sql.model.job_specs import IngestSpec, ReaderSpec, ViewSpec
from rw_sql.plan.statements.show.job_states import view_state
from rw_sql.runtime.control import job_slot, retries
from rw_sql.runtime.control import reconciler as module
from rw_sql.runtime.control.job_slot import JobSlot
from rw_sql.runtime.control.retries import Trouble
from rw_sql.runtime.ingest.restart_reasons import goes_on_with_more
from rw_sql.runtime.jobs.lease import try_take
from rw_sql.runtime.jobs.statuses import run_mark
from rw_sql.runtime.observe.metrics import Metrics
from rw_sql.runtime.observe.stall_grace import StallGrace
from rw_sql.runtime.support.failures import Failure
from rw_sql.runtime.support.stall_timeout import spoken_seconds
from tests.runtime.controlled_jobs import Jobs

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    """A clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("rw_sql.runtime.control.job_slot.time.monotonic", lambda: self.now)


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    for place in (module, job_slot, retries):
        monkeypatch.setattr(place, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(retries, "LAST_RETRY_SECONDS", 0.02)
    return Jobs(tmp_path / "warehouse", monkeypatch)


def fail(jobs: Jobs, times: int) -> None:
    """Makes the view's runs fail that often, and restarts them."""
    for number in range(times):
        starts = len(jobs.starts)
        jobs.jobs["mv-1"].problem = Failure(reason=f"row {number} cannot be read")
        jobs.reach(lambda starts=starts: len(jobs.starts) > starts, "it is started again")  # type: ignore[misc]
        jobs.reach(lambda: jobs.reconciler._slots["mv-1"].running is jobs.jobs["mv-1"], "it runs")


def status(jobs: Jobs) -> JobStatus:
    jobs.reconciler.reconcile()
    found = jobs.status("mv-1")
    assert found is not None
    return found


def test_a_job_that_fails_in_a_loop_says_so_while_it_runs(jobs: Jobs) -> None:
    view = jobs.put_view("a")
    jobs.reach(lambda: "mv-1" in jobs.jobs, "it runs")
    fail(jobs, 3)
    assert (status(jobs).state, status(jobs).reason) == ("RUNNING", None)
    fail(jobs, 10)
    told = status(jobs)
    assert told.state == "STALLED"
    assert told.reason is not None
    assert told.reason.startswith("FLAPPING: restarted 13 times in ")
    assert told.reason.endswith("; last failure: row 9 cannot be read")
    assert view_state(jobs.metastore.snapshot(), view, told) == ("STALLED", told.reason)
    assert StallGrace().is_over(told, told.updated_ms + 6_000)
    assert try_take(jobs.metastore.jobs, "a test", 1, is_local=True) is not None
    figures = {sample.name: sample.value for sample in Metrics(jobs.context).samples()}
    assert (figures["rw_sql_job_running"], figures["rw_sql_job_flapping"]) == (0, 1)
    assert figures["rw_sql_job_restarts_total"] == 13
    # A statement's change may remove the cause of the failure.
    jobs.change(view)
    jobs.reach(lambda: status(jobs).state == "RUNNING", "it is given another chance")


def test_a_job_that_gets_on_with_a_long_batch_says_so(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.put_view("a")
    jobs.reach(lambda: "mv-1" in jobs.jobs and status(jobs).state == "RUNNING", "it runs")
    before = status(jobs)
    assert status(jobs) == before
    monkeypatch.setattr(jobs.reconciler._beats, "of", lambda running, *_: list(running))
    jobs.reach(lambda: status(jobs).updated_ms > before.updated_ms, "its status is renewed")
    assert run_mark(status(jobs)) != run_mark(before)
    # A job that fails in a loop is renewed by no batch.
    fail(jobs, 4)
    told = status(jobs)
    assert (told.state, status(jobs).updated_ms) == ("STALLED", told.updated_ms)


def test_what_a_dead_owner_said_of_jobs_is_no_figure(jobs: Jobs) -> None:
    jobs.put_view("a")
    jobs.reach(lambda: (found := jobs.status("mv-1")) is not None and found.state == "RUNNING", "it runs")
    figures = {sample.name: sample.value for sample in Metrics(jobs.context).samples()}
    assert figures["rw_sql_job_running"] == 0


@pytest.mark.parametrize("lasts", [1.0, 12.0, 60.0, 250.0])
def test_runs_that_last_for_some_batches_are_no_recovery(monkeypatch: pytest.MonkeyPatch, lasts: float) -> None:
    clock, slot = Clock(monkeypatch), JobSlot(job_id="mv-1", object_id=1)
    for number in range(6):
        slot.started_at = clock.now
        slot.ease(clock.now)
        clock.now += lasts
        slot.ease(clock.now)
        if number:
            assert slot.trouble.failures == number
        slot.note_failed_run("no room")
        slot.back_off("no room")
    assert slot.trouble.is_flapping
    assert slot.delay == 30.0
    period = spoken_seconds(5 * lasts)
    assert slot.trouble.told == f"FLAPPING: restarted 6 times in {period}; last failure: no room"
    # A run that lasts clearly longer has recovered.
    slot.ease(clock.now)
    clock.now += 1.9 * max(lasts, 5.0)
    slot.ease(clock.now)
    assert slot.trouble.is_flapping
    clock.now += 0.2 * max(lasts, 5.0)
    slot.ease(clock.now)
    assert (slot.trouble, slot.delay) == (Trouble(), 1.0)


def test_a_run_that_failed_after_days_has_recovered_after_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slot = Clock(monkeypatch), JobSlot(job_id="mv-1", object_id=1)
    slot.started_at = clock.now
    clock.now += 3 * 86_400
    slot.note_failed_run("the broker went away")
    assert slot.trouble.seconds_to_recover == 600.0


def test_splits_that_are_found_do_not_end_the_trouble() -> None:
    ingest = IngestSpec(
        job="ingest-1", source_id=1, name="s", definition="", options=(), generation=1, splits=("a",), since=3
    )
    assert goes_on_with_more(ingest, replace(ingest, splits=("a", "b"), since=4))
    assert not goes_on_with_more(ingest, replace(ingest, since=4))
    reader = ReaderSpec(
        fragment="mv-2:1", source_id=1, name="s", connector="kafka", definition="", options=(), splits=("a",), since=3
    )
    view = ViewSpec(
        job="mv-2", view_id=2, name="v", query="", schema="", keys=(), generation=1, inputs=(), readers=(reader,)
    )
    assert goes_on_with_more(view, replace(view, readers=(replace(reader, splits=("a", "b"), since=4),)))
    assert not goes_on_with_more(view, replace(view, readers=(replace(reader, since=4),)))
    assert not goes_on_with_more(view, replace(view, readers=()))
    assert not goes_on_with_more(view, replace(view, query="other"))
    assert not goes_on_with_more(view, ingest)


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "0.2 s"), (1.4, "1 s"), (90, "90 s"), (240, "4 min"), (7300, "2 h"), (86_400, "24 h")]
)
def test_periods_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert spoken_seconds(seconds) == said
