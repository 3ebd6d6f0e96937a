"""Work that takes long on a busy machine counts as progress while its thread computes."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pytest

from rw_sql.runtime.backfill.job import Backfill
from rw_sql.runtime.control import heartbeats
from rw_sql.runtime.control.heartbeats import LEAST_CPU_SECONDS, Beats
from rw_sql.runtime.jobs.statuses import run_mark
from rw_sql.runtime.jobs.streaming_run import StreamingRun
from rw_sql.runtime.refresh.job import RefreshJob
from rw_sql.runtime.sinks.job import Sink
from rw_sql.runtime.spark.jvm import cpu_time_of
from rw_sql.runtime.spark.work_progress import WorkerThread, task_seconds
from rw_sql.runtime.support.background import prepare
from rw_sql.runtime.views.job import View
from tests.runtime.controlled_jobs import FakeJob, Jobs
from tests.support.waits import LAST_RESORT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.model.job_specs import JobSpec
    from rw_sql.runtime.jobs.job import Job


_Kind: TypeAlias = "Callable[[Callable[[], None]], AbstractContextManager[Job]]"


class Work:
    """Work of a thread until it may end: it computes, or it waits for a time again and again."""

    def __init__(self, wait_seconds: float = 0.0) -> None:
        self.may_end = threading.Event()
        self._wait_seconds = wait_seconds

    def __call__(self) -> None:
        limit = time.monotonic() + LAST_RESORT_SECONDS
        while not self.may_end.is_set() and time.monotonic() < limit:
            if self._wait_seconds:
                sum(range(10_000))  # as a loop that looks at files or at the catalog
                self.may_end.wait(self._wait_seconds)


@contextmanager
def _batch(work: Callable[[], None]) -> Iterator[Job]:
    """A sink whose thread writes a batch."""
    job = object.__new__(Sink)
    job.streaming = StreamingRun("sink-1")
    running = prepare(lambda: job.streaming.guarded(lambda *_: work())("0", 0), "a batch")
    wait_until(lambda: job.streaming.busy_seconds > 0, "the batch begins")
    yield job
    running.result()


@contextmanager
def _refresh(work: Callable[[], None]) -> Iterator[Job]:
    """A refreshable table whose job loads rows."""
    job = object.__new__(RefreshJob)
    job.worker = job.group = None

    def load() -> None:
        with job._at_work():
            work()

    running = prepare(load, "a refresh")
    wait_until(lambda: job.worker is not None, "loading begins")
    yield job
    running.result()
    assert job.worker is None


@contextmanager
def _backfill(work: Callable[[], None]) -> Iterator[Job]:
    """A view whose backfill reads a chunk."""
    spec = cast("Any", SimpleNamespace(job="mv-1", generation=1))
    view = object.__new__(View)
    view.streaming = StreamingRun("mv-1")
    view.backfill = _Backfill(
        context=cast("Any", None),
        spec=spec,
        run=1,
        epoch=1,
        checkpoint="",
        open_query=lambda _: None,
        running_query=lambda: None,
        reading=work,
    )
    view.backfill.begin()
    wait_until(lambda: view.backfill is not None and view.backfill.worker is not None, "the backfill begins")
    yield view
    view.backfill.wait(LAST_RESORT_SECONDS)
    assert view.backfill.failure() is None


@dataclass(slots=True, kw_only=True)
class _Backfill(Backfill):
    """A backfill whose reading is ``reading``."""

    reading: Callable[[], None]

    def _run(self) -> None:
        self.reading()


def _beats(job: Job, seconds: float) -> bool:
    """True if the job progresses within some seconds."""
    beats, limit = Beats(), time.monotonic() + seconds
    while time.monotonic() < limit:
        if beats.of({"a job": job}, {}, time.monotonic()):
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(autouse=True)
def _short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "BEAT_SECONDS", 0.05)


@pytest.mark.parametrize("kind", [_batch, _refresh, _backfill])
def test_a_thread_that_computes_progresses(kind: _Kind) -> None:
    work = Work()
    with kind(work) as job:
        assert _beats(job, LAST_RESORT_SECONDS)
        work.may_end.set()


@pytest.mark.parametrize("kind", [_batch, _refresh, _backfill])
@pytest.mark.parametrize("wait_seconds", [0.2, LAST_RESORT_SECONDS])
def test_a_thread_that_waits_does_not(kind: _Kind, wait_seconds: float) -> None:
    work = Work(wait_seconds)
    with kind(work) as job:
        wait_until(lambda: not _beats(job, 1.0), "the thread only waits")
        work.may_end.set()


def test_a_start_that_computes_progresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, work = Jobs(tmp_path / "warehouse", monkeypatch), Work()

    def start(spec: JobSpec, run: int) -> FakeJob:
        work()
        return FakeJob(spec=spec, run=run)

    jobs.make = start
    jobs.put_view("a")

    def state() -> str:
        status = jobs.status("mv-1")
        return "" if status is None else status.state

    jobs.reach(lambda: state() == "STARTING", "the long start is reported")
    before = run_mark(jobs.status("mv-1"))
    jobs.reach(lambda: run_mark(jobs.status("mv-1")) != before, "the start progresses")
    assert state() == "STARTING"
    work.may_end.set()
    jobs.reach(lambda: state() == "RUNNING", "it runs")


def _is_still(value: Callable[[], object]) -> bool:
    """True if a value does not change for a while."""
    before = value()
    time.sleep(0.5)
    return value() == before


@pytest.mark.spark
def test_work_in_the_jvm_counts_for_the_thread_that_called_it(spark: SparkSession) -> None:
    """The thread itself only waits for the JVM, which computes without tasks, as it does while it plans."""
    found: list[WorkerThread] = []
    may_end = threading.Event()

    def plan() -> None:
        found.append(WorkerThread.of_spark())
        while not may_end.is_set():
            # A single call: the JVM sorts and formats for a while.
            spark.sparkContext._jvm.java.util.stream.LongStream.range(0, 30_000_000).sum()  # type: ignore[union-attr]

    def idle() -> None:
        found.append(WorkerThread.of_spark())
        may_end.wait(LAST_RESORT_SECONDS)

    def jvm_seconds() -> int:
        assert found[0].serving is not None
        return cpu_time_of(found[0].context, found[0].serving)

    for work, is_busy in ((plan, True), (idle, False)):
        found.clear()
        may_end.clear()
        running = prepare(work, "work")
        wait_until(lambda: len(found) == 1, "the thread begins")
        assert found[0].serving is not None
        before = jvm_seconds()
        if is_busy:
            wait_until(lambda before=before: jvm_seconds() > before, "the JVM computes")  # type: ignore[misc]
        else:
            wait_until(lambda: _is_still(lambda: jvm_seconds()), "the JVM's thread waits")
        may_end.set()
        running.result()


def test_a_thread_that_has_ended_has_no_times() -> None:
    worker = prepare(WorkerThread.current, "short").result()
    wait_until(lambda: worker.cpu_seconds() is None, "the thread has ended")
    assert WorkerThread.current() is WorkerThread.current()
    assert WorkerThread.current().cpu_seconds() is not None


@pytest.mark.spark
@pytest.mark.parametrize("is_busy", [True, False])
def test_tasks_that_have_read_nothing_yet_progress_while_they_compute(spark: SparkSession, is_busy: bool) -> None:
    """A task starts a Python process, which imports packages, or decompresses for a while before the first record."""
    context, group = spark.sparkContext, f"tasks that compute: {is_busy}"

    def compute(_: object) -> Iterator[int]:
        limit = time.monotonic() + LAST_RESORT_SECONDS
        while time.monotonic() < limit:
            if is_busy:
                sum(range(1_000_000))
            else:
                time.sleep(0.2)
        yield 1

    def run() -> None:
        context.setJobGroup(group, group, interruptOnCancel=True)
        with suppress(Exception):  # The test cancels the task.
            context.parallelize([0], 1).mapPartitions(compute).count()

    running = prepare(run, "tasks")
    wait_until(lambda: bool(context.statusTracker().getJobIdsForGroup(group)), "the job begins")
    try:
        if is_busy:
            wait_until(lambda: task_seconds(group) > 0, "the task begins")
            before = task_seconds(group)
            wait_until(lambda: task_seconds(group) >= before + LEAST_CPU_SECONDS, "the task computes")
        else:
            wait_until(lambda: _is_still(lambda: round(task_seconds(group), 1)), "the task waits")
    finally:
        context.cancelJobGroup(group)
        running.result()
    wait_until(lambda: task_seconds(group) == 0, "the task has ended")
