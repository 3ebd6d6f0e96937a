"""The reconciler's loop with jobs that fail while starting, running and stopping."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.metastore.facts import JobStatus
from rw_sql.metastore.records import DISCOVERY, AssignSplits, Operation, PutObject
from rw_sql.model.job_ids import view_job
from rw_sql.model.job_specs import IngestSpec
from rw_sql.runtime.control import job_slot, retries
from rw_sql.runtime.control import reconciler as module
from rw_sql.runtime.control.quiesce import QUIESCED
from rw_sql.runtime.ingest.job import Ingest
from rw_sql.runtime.ingest.restart_reasons import only_adds_splits, was_discovered
from rw_sql.runtime.ingest.stopped_reader import StoppedReader
from rw_sql.runtime.ingest.warm_start import WarmStart
from rw_sql.runtime.jobs.streaming_run import StreamingRun
from rw_sql.runtime.rewind.scheduler import Rewinding
from rw_sql.runtime.support.failures import Failure, StalledError
from tests.runtime.controlled_jobs import FakeJob, Jobs, wait_until
from tests.support.waits import LAST_RESORT_SECONDS as WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rw_sql.model.job_specs import JobSpec
    from rw_sql.runtime.jobs.context import Context


SOURCE = "CREATE SOURCE s (id INT) WITH (connector = 'datagen') FORMAT PLAIN ENCODE JSON"


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    return Jobs(tmp_path / "warehouse", monkeypatch)


def test_what_nobody_expected_stalls_the_job_and_is_tried_again_later(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for place in (module, job_slot, retries):
        monkeypatch.setattr(place, "FIRST_RETRY_SECONDS", 0.05)
    jobs.start_error["mv-1"] = ValueError("no such thing")
    view, other = jobs.put_view("a"), jobs.put_view("b")
    assert (view.id, other.id) == (1, 2)
    with caplog.at_level(logging.ERROR):
        jobs.reach(lambda: [spec.job for spec in jobs.starts].count("mv-1") > 2, "three tries")
    status = jobs.status("mv-1")
    assert status is not None
    assert (status.state, status.reason) == ("STALLED", "ValueError: no such thing")
    running = jobs.status("mv-2")
    assert running is not None
    assert running.state == "RUNNING"
    assert [record.exc_info is not None for record in caplog.records][:2] == [True, False]


def test_a_job_that_fails_unexpectedly_holds_up_no_statement(jobs: Jobs) -> None:
    jobs.start_error["mv-1"] = KeyError("column")
    jobs.put_view("a")
    epoch = jobs.metastore.snapshot().epoch
    jobs.reach(lambda: jobs.reconciler.applied_epoch == epoch, "the epoch is applied")
    assert len(jobs.starts) == 1


def test_a_job_that_cannot_be_stopped_is_left_and_started_anew(jobs: Jobs) -> None:
    view = jobs.put_view("a")
    jobs.reach(lambda: "mv-1" in jobs.jobs, "it runs")
    first = jobs.jobs["mv-1"]
    first.stop_error = TypeError("not now")
    jobs.change(view)
    jobs.reach(lambda: jobs.jobs["mv-1"] is not first, "it runs again")
    jobs.reach(lambda: (status := jobs.status("mv-1")) is not None and status.state == "RUNNING", "it is running")


def test_a_final_failure_does_not_reach_what_a_statement_wants_meanwhile(jobs: Jobs) -> None:
    view = jobs.put_view("a")
    jobs.reach(lambda: "mv-1" in jobs.jobs, "it runs")
    first = jobs.jobs["mv-1"]
    first.may_stop.clear()
    first.problem = Failure(reason="RECREATED", is_final=True)
    jobs.reach(first.is_stopping.is_set, "it is being stopped")
    jobs.change(view)
    jobs.reconciler.reconcile()
    first.may_stop.set()
    jobs.reach(lambda: jobs.jobs["mv-1"] is not first, "what is wanted now was started")


def test_a_final_failure_stays_until_a_statement_changes_the_job(jobs: Jobs) -> None:
    view = jobs.put_view("a")
    jobs.reach(lambda: "mv-1" in jobs.jobs, "it runs")
    first = jobs.jobs["mv-1"]
    first.problem = Failure(reason="RECREATED", is_final=True)
    jobs.reach(lambda: (status := jobs.status("mv-1")) is not None and status.state == "STALLED", "it is stalled")
    for _ in range(3):
        jobs.reconciler.reconcile()
    assert len(jobs.starts) == 1
    jobs.change(view)
    jobs.reach(lambda: len(jobs.starts) == 2, "it is tried again")


def test_a_stall_found_outside_does_not_reach_what_a_statement_wants_meanwhile(jobs: Jobs) -> None:
    view = jobs.put_view("a")
    jobs.reach(lambda: "mv-1" in jobs.jobs, "it runs")
    first = jobs.jobs["mv-1"]
    first.may_stop.clear()
    jobs.reconciler.stall(first.spec, StalledError("ORPHAN", is_final=True))
    wait_until(first.is_stopping.is_set, "it is being stopped")
    jobs.change(view)
    jobs.reconciler.reconcile()
    first.may_stop.set()
    jobs.reach(lambda: jobs.jobs["mv-1"] is not first, "what is wanted now was started")
    jobs.reach(lambda: (status := jobs.status("mv-1")) is not None and status.state == "RUNNING", "it is running")


def test_what_passes_soon_is_not_written_down(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    facts, write = jobs.metastore.jobs, jobs.metastore.jobs.write_job_status

    def told(statuses: Sequence[JobStatus]) -> None:
        said.extend(f"{status.state} {status.run}" for status in statuses)
        write(statuses)

    monkeypatch.setattr(facts, "write_job_status", told)
    view = jobs.put_view("a")
    jobs.reach(lambda: said[-1:] == ["RUNNING 1"], "it runs")
    said.clear()  # The first report is written at once, even if the job is still starting.
    monkeypatch.setattr(job_slot, "_PASSING_SECONDS", 600.0)
    view = jobs.change(view)
    jobs.reach(lambda: said[-1:] == ["RUNNING 2"], "it runs again")
    assert said == ["RUNNING 2"]
    monkeypatch.setattr(job_slot, "_PASSING_SECONDS", 0.0)
    jobs.jobs["mv-1"].may_stop.clear()
    jobs.drop(view)
    jobs.reach(lambda: said[-1:] == ["STOPPING 2"], "it is being stopped")
    jobs.jobs["mv-1"].may_stop.set()
    jobs.reach(lambda: said[-1:] == ["STOPPED None"], "it has stopped")


def test_a_status_that_could_not_be_stored_is_stored_later(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    view = jobs.put_view("a")
    jobs.reach(lambda: (status := jobs.status("mv-1")) is not None and status.state == "RUNNING", "it is running")
    write = jobs.metastore.jobs.write_job_status
    refused: list[list[str]] = []

    def refuse(statuses: Sequence[JobStatus]) -> None:
        refused.append([status.state for status in statuses])
        raise OSError("the store does not answer")

    monkeypatch.setattr(jobs.metastore.jobs, "write_job_status", refuse)
    jobs.jobs["mv-1"].problem = Failure(reason="RECREATED", is_final=True)

    def is_refused() -> bool:
        with contextlib.suppress(OSError):
            jobs.reconciler.reconcile()
        return refused[-1:] == [["STALLED"]]

    wait_until(is_refused, "its stall is reported while the store is away")
    monkeypatch.setattr(jobs.metastore.jobs, "write_job_status", write)
    stored = jobs.status(view_job(view.id))
    assert stored is not None
    assert stored.state == "RUNNING"
    jobs.reconciler.reconcile()
    stored = jobs.status(view_job(view.id))
    assert stored is not None
    assert (stored.state, stored.reason) == ("STALLED", "RECREATED")
    written = jobs.metastore.jobs._statuses()._table.version
    jobs.reconciler.reconcile()
    assert jobs.metastore.jobs._statuses()._table.version == written


def test_a_job_that_is_begun_again_and_not_wanted_at_once_is_stopped(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_slot, "_PASSING_SECONDS", 3600.0)
    view = jobs.put_view("a")
    jobs.reach(lambda: "mv-1" in jobs.jobs, "it runs")
    jobs.drop(view)
    jobs.reach(lambda: (status := jobs.status("mv-1")) is not None and status.state == "STOPPED", "it has stopped")
    may_start = threading.Event()
    start = module._start

    def slowly(context: Context, spec: JobSpec, before: Any, prepared: Any) -> Any:
        assert may_start.wait(WAIT_SECONDS)
        return start(context, spec, before, prepared)

    monkeypatch.setattr(module, "_start", slowly)
    jobs.commit(PutObject(record=view))
    jobs.reconciler.reconcile()
    epoch = jobs.drop(view)
    for _ in range(3):
        jobs.reconciler.reconcile()
        assert "mv-1" in jobs.reconciler.pending
    may_start.set()
    jobs.reach(lambda: jobs.reconciler.applied_epoch == epoch, "the second drop is applied")
    assert jobs.jobs["mv-1"].is_stopped


def test_a_dropped_job_stops_and_is_forgotten(jobs: Jobs) -> None:
    view = jobs.put_view("a")
    jobs.reach(lambda: "mv-1" in jobs.jobs, "it runs")
    epoch = jobs.drop(view)
    jobs.reach(lambda: jobs.reconciler.applied_epoch == epoch, "the drop is applied")
    assert jobs.jobs["mv-1"].is_stopped


def test_a_job_that_fails_soon_after_every_start_is_tried_less_and_less_often(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (module, job_slot, retries):
        monkeypatch.setattr(place, "FIRST_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(retries, "LAST_RETRY_SECONDS", 0.4)
    jobs.put_view("a")
    tries = []
    for number in range(1, 5):
        jobs.reach(partial(has_started, jobs, number), "it is started")
        jobs.reach(lambda: (status := jobs.status("mv-1")) is not None and status.state == "RUNNING", "it is running")
        tries.append(time.monotonic())
        jobs.jobs["mv-1"].problem = Failure(reason="a row cannot be read")
        jobs.reach(lambda: (status := jobs.status("mv-1")) is not None and status.state == "STALLED", "it is stalled")
    pauses = [after - before for before, after in pairwise(tries)]
    assert pauses[0] >= 0.05
    assert pauses[1] >= 0.1
    assert pauses[2] >= 0.2


@pytest.mark.long
def test_a_retry_that_takes_long_is_reported_and_the_failure_before_it_too(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_slot, "_LONG_RETRY_SECONDS", 0.05)
    may_start = threading.Event()
    begin = module._start

    def start(context: Context, spec: JobSpec, *before: Any) -> Any:
        if jobs.starts:
            assert may_start.wait(WAIT_SECONDS)
        return begin(context, spec, *before)

    monkeypatch.setattr(module, "_start", start)
    jobs.start_error["mv-1"] = OSError("no worker")
    jobs.put_view("a")
    told: list[tuple[str, str | None]] = []

    def has_told(state: str, reason: str | None) -> bool:
        status = jobs.status("mv-1")
        if status is not None and (status.state, status.reason) not in told[-1:]:
            told.append((status.state, status.reason))
        return (state, reason) in told[-1:]

    jobs.reach(partial(has_told, "STALLED", "no worker"), "it is stalled")
    jobs.reach(partial(has_told, "STALLED", "no worker; retrying"), "it is started again")
    del jobs.start_error["mv-1"]
    may_start.set()
    jobs.reach(partial(has_told, "RUNNING", None), "it runs")
    assert {state for state, _ in told} <= {"STARTING", "STALLED", "RUNNING"}


def test_a_job_that_has_run_for_a_while_is_tried_again_soon(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (module, job_slot, retries):
        monkeypatch.setattr(place, "FIRST_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(retries, "LAST_RETRY_SECONDS", 3600.0)
    monkeypatch.setattr(retries, "_SOUND_AFTER_SECONDS", 0.0)
    jobs.put_view("a")
    for number in range(1, 12):
        jobs.reach(partial(has_started, jobs, number), "it is started")
        jobs.reach(lambda: (status := jobs.status("mv-1")) is not None and status.state == "RUNNING", "it is running")
        jobs.reconciler.reconcile()
        jobs.jobs["mv-1"].problem = Failure(reason="the broker went away")


def test_a_job_whose_first_batch_is_slow_to_fail_has_not_recovered(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (module, job_slot, retries):
        monkeypatch.setattr(place, "FIRST_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(retries, "LAST_RETRY_SECONDS", 3600.0)
    monkeypatch.setattr(retries, "_SOUND_AFTER_SECONDS", 0.0)
    jobs.make = lambda spec, run: FakeJob(spec=spec, run=run, is_unproven=True)
    jobs.put_view("a")
    for number in range(1, 4):
        jobs.reach(partial(is_running, jobs, number), "it is started")
        jobs.reach(lambda: (status := jobs.status("mv-1")) is not None and status.state == "RUNNING", "it is running")
        jobs.reconciler.reconcile()
        jobs.jobs["mv-1"].problem = Failure(reason="the disk is full")
    jobs.reach(lambda: (status := jobs.status("mv-1")) is not None and status.state == "STALLED", "it is stalled")
    assert jobs.reconciler._slots["mv-1"].delay >= 0.2


def test_splits_that_are_found_are_taken_up_after_the_batch() -> None:
    running = IngestSpec(
        job="ingest-1", source_id=1, name="s", definition="", options=(), generation=1, splits=("a",), since=3
    )
    assert only_adds_splits(running, replace(running, splits=("a", "b"), since=4))
    assert not only_adds_splits(running, running)
    assert not only_adds_splits(running, replace(running, splits=("b", "c"), since=4))
    assert not only_adds_splits(running, replace(running, splits=("a", "b"), since=4, definition="other"))


def has_started(jobs: Jobs, times: int) -> bool:
    return len(jobs.starts) == times


def is_running(jobs: Jobs, times: int) -> bool:
    """True if the job's start with this number has ended."""
    job = jobs.jobs.get("mv-1")
    return job is not None and job.run == times


def test_a_reader_ends_its_batch_before_it_takes_up_what_was_found(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    found = IngestSpec(
        job="ingest-1", source_id=1, name="s", definition="", options=(), generation=1, splits=("a", "b"), since=4
    )
    more = replace(found, splits=("a", "b", "c"), since=5)
    monkeypatch.setattr(module, "was_discovered", lambda _, running, wanted: wanted in (found, more))
    streaming = StreamingRun("ingest-1")
    running: Any = SimpleNamespace(streaming=streaming, spec=None, failure=lambda: None)
    slot = job_slot.JobSlot(job_id="ingest-1", object_id=1, wanted=found)
    for ends_by_itself in (True, False):
        batch = streaming.batch()
        batch.__enter__()
        slot.wanted = found
        waiting = threading.Thread(target=jobs.reconciler._await_batch, args=(slot, running))
        waiting.start()
        wait_until(lambda: slot.awaiting == found, "it waits")
        assert slot.matches_catalog
        slot.wanted = more
        wait_until(lambda: slot.awaiting == more, "it waits on")
        if ends_by_itself:
            batch.__exit__(None, None, None)
        else:
            slot.wanted = None
        waiting.join(WAIT_SECONDS)
        assert not waiting.is_alive()
        assert slot.awaiting is None


def test_a_job_starts_after_the_end_of_its_last_query(jobs: Jobs) -> None:
    ending: Future[None] = Future()
    record = jobs.put_view("v")
    jobs.reconciler._stopped_readers[f"mv-{record.id}"] = StoppedReader(
        query=ending, reader=None, since=time.monotonic()
    )
    jobs.reconciler.reconcile()
    wait_until(lambda: not jobs.reconciler._stopped_readers, "it is about to start")
    assert not jobs.starts
    ending.set_result(None)
    wait_until(lambda: bool(jobs.starts), "it starts")


@pytest.mark.parametrize("is_recent", [True, False])
def test_a_reader_goes_on_with_what_the_last_one_left_for_a_while(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, is_recent: bool
) -> None:
    ended: Future[None] = Future()
    ended.set_result(None)
    noted = threading.Event()
    left: Any = SimpleNamespace(note=noted.set, opening=SimpleNamespace(release_session=lambda: None))
    since = time.monotonic() - (0 if is_recent else module.STOPPED_READER_SECONDS + 1)
    jobs.reconciler._stopped_readers["mv-1"] = StoppedReader(query=ended, reader=left, since=since)
    jobs.reconciler.reconcile()
    assert ("mv-1" in jobs.reconciler._stopped_readers) is is_recent
    jobs.put_view("v")
    jobs.reach(lambda: bool(jobs.starts), "it starts")
    assert jobs.followed == [left if is_recent else None]
    # The next process knows the position; if it does not, the position is recorded.
    if is_recent:
        assert not noted.is_set()
    else:
        wait_until(noted.is_set, "it is written down where it stood")
    assert not jobs.reconciler._stopped_readers


def test_a_reader_whose_query_did_not_end_in_order_is_not_gone_on_with(jobs: Jobs) -> None:
    failed: Future[None] = Future()
    failed.set_exception(TimeoutError("its thread did not end"))
    released = threading.Event()
    left: Any = SimpleNamespace(opening=SimpleNamespace(release_session=released.set))
    jobs.reconciler._stopped_readers["mv-1"] = StoppedReader(query=failed, reader=left, since=time.monotonic())
    jobs.put_view("v")
    jobs.reach(lambda: bool(jobs.starts), "it starts")
    assert jobs.followed == [None]
    assert released.is_set()


def _ending(**left: Any) -> StoppedReader:
    ended: Future[None] = Future()
    ended.set_result(None)
    reader: Any = SimpleNamespace(session=None, run=4, opening=SimpleNamespace(release_session=lambda: None), **left)
    return StoppedReader(query=ended, reader=reader, since=time.monotonic())


def test_a_reader_that_waits_for_a_rewind_point_prepares_its_next_run(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    early: list[int] = []
    made = SimpleNamespace(start_early=early.append)
    monkeypatch.setattr(WarmStart, "of", lambda *_, **__: made)
    jobs.put_view("v")
    spec: Any = IngestSpec(
        job="mv-1", source_id=1, name="s", definition=SOURCE, options=(), generation=1, splits=("a",), since=1
    )
    withheld = {"mv-1"}
    monkeypatch.setattr(jobs.reconciler._rewinding, "withheld", lambda *_: frozenset(withheld))
    monkeypatch.setattr(module, "desired_jobs_of_group", lambda *_: {"mv-1": spec})
    ending = jobs.reconciler._stopped_readers["mv-1"] = _ending()
    jobs.reconciler.reconcile()
    wait_until(lambda: ending.prepared is not None and ending.prepared.done(), "it gets ready")
    assert not jobs.starts
    assert early == [5], "its query is started for the run that comes next"
    withheld.clear()
    jobs.reach(lambda: bool(jobs.starts), "it starts")
    assert jobs.prepared == [made]


def test_a_reader_that_is_not_wanted_any_more_does_not_get_ready(jobs: Jobs) -> None:
    stop_async = threading.Event()
    ready: Future[Any] = Future()
    ready.set_result(SimpleNamespace(abandon=stop_async.set))
    ending = jobs.reconciler._stopped_readers["ingest-7"] = _ending()
    ending.prepared = ready
    jobs.put_view("v")
    jobs.reconciler.reconcile()
    wait_until(stop_async.is_set, "what was prepared is let go of")
    assert jobs.reconciler._stopped_readers["ingest-7"] is ending, "the next run may still continue with what it has"


def test_what_a_stopped_reader_has_is_kept_while_its_query_ends(jobs: Jobs) -> None:
    ending: Future[None] = Future()
    jobs.reconciler._stopped_readers["ingest-7"] = StoppedReader(query=ending, reader=None, since=-1e9)
    jobs.reconciler.reconcile()
    assert "ingest-7" in jobs.reconciler._stopped_readers
    ending.set_result(None)
    jobs.reconciler.reconcile()
    assert not jobs.reconciler._stopped_readers


@pytest.mark.parametrize("problem", [None, Failure(reason="it broke")])
def test_only_a_reader_that_ended_in_order_is_gone_on_with(jobs: Jobs, problem: Failure | None) -> None:
    running: Any = Ingest.__new__(Ingest)
    running.opening = SimpleNamespace(release_session=lambda: None)
    slot = job_slot.JobSlot(job_id="ingest-1", object_id=jobs.put_view("v").id)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Ingest, "stop_async", lambda _: lambda: None)
        jobs.reconciler._stop(slot, running, is_sound=problem is None)
    assert jobs.reconciler._stopped_readers["ingest-1"].reader is (running if problem is None else None)


def test_only_a_discovery_waits(jobs: Jobs) -> None:
    running = IngestSpec(
        job="ingest-1", source_id=1, name="s", definition="", options=(), generation=1, splits=("a",), since=1
    )
    for kind, expected in (("RESET SOURCE SPLITS", False), (DISCOVERY, True)):
        snapshot = jobs.metastore.snapshot()
        operation = Operation(
            kind=kind, statement="", objects=("s",), changes=(AssignSplits(fragment="f", splits=(kind,)),)
        )
        epoch = jobs.metastore.commit(operation, based_on=snapshot).epoch
        wanted = replace(running, splits=("a", "b"), since=epoch)
        assert was_discovered(jobs.context, running, wanted) is expected
    assert not was_discovered(jobs.context, running, None)


def test_the_next_owner_reports_why_a_job_still_has_to_wait(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that is killed in the middle of a block leaves a status that is no longer true."""
    jobs.put_view("a")
    stale = JobStatus(job="mv-1", object_id=1, state="STOPPED", reason=QUIESCED)
    jobs.metastore.jobs.write_job_status([stale])
    waits = {"mv-1"}
    monkeypatch.setattr(Rewinding, "withheld", lambda *_: frozenset(waits))
    jobs.reconciler.reconcile()
    status = jobs.status("mv-1")
    assert status is not None
    assert (status.state, status.reason) == ("STOPPED", module.WITHHELD)
    assert jobs.starts == []
    waits.clear()
    jobs.reach(lambda: (status := jobs.status("mv-1")) is not None and status.state == "RUNNING", "it runs")
