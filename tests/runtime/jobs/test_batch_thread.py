"""Threads that write batches in the place of a query of Spark."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from rw_sql.runtime.delta.job_output import FencedError
from rw_sql.runtime.jobs import batch_thread
from rw_sql.runtime.jobs.batch_thread import BatchThread, InputThread
from rw_sql.runtime.jobs.streaming_run import StreamingRun
from rw_sql.runtime.support.failures import StalledError
from tests.support.waits import LAST_RESORT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable


def started(run: StreamingRun, write: Callable[[str, int], None], *, interval_seconds: float = 0.0) -> BatchThread:
    thread = BatchThread("ingest-1", run.guarded(write), interval_seconds=interval_seconds)
    run.thread = thread
    thread.start()
    return thread


def test_each_announced_batch_is_written_once_and_in_order() -> None:
    run, written = StreamingRun("ingest-1"), list[tuple[str, int]]()
    thread = started(run, lambda entry, batch: written.append((entry, batch)))
    writers = [threading.Thread(target=thread.announce) for _ in range(20)]
    for writer in writers:
        writer.start()
    wait_until(lambda: len(written) == 20, "all batches")
    assert written == [(str(number), number) for number in range(20)]
    assert run.failure() is None
    run.cancel()
    assert not thread.is_active


def test_an_interval_keeps_batches_apart_and_does_not_delay_a_stop() -> None:
    run, begun = StreamingRun("ingest-1"), list[float]()
    thread = started(run, lambda _entry, _batch: begun.append(time.monotonic()), interval_seconds=0.2)
    announced = time.monotonic()  # The first batch may note its beginning late.
    thread.announce()
    thread.announce()
    wait_until(lambda: len(begun) == 2, "two batches")
    assert begun[1] - announced >= 0.2
    slow = started(StreamingRun("ingest-1"), lambda *_: None, interval_seconds=LAST_RESORT_SECONDS * 10)
    slow.announce()
    slow.announce()
    slow.stop()
    wait_until(lambda: not slow._thread.is_alive(), "the end of a thread that waits for its interval")
    run.cancel()


def test_a_failed_batch_ends_the_thread_with_its_reason() -> None:
    def write(_entry: str, batch: int) -> None:
        if batch == 1:
            raise OSError("no space left on device")

    run = StreamingRun("ingest-1")
    thread = started(run, write)
    for _ in range(3):
        thread.announce()
    wait_until(lambda: not thread.is_active, "the failure")
    failure = run.failure()
    assert failure is not None
    assert failure.reason == "OSError: no space left on device"


def test_a_batch_that_stalls_is_told_as_a_stall() -> None:
    def write(_entry: str, _batch: int) -> None:
        raise StalledError("COLUMNS have changed", is_final=True)

    run = StreamingRun("ingest-1")
    started(run, write).announce()
    wait_until(lambda: run.failure() is not None, "the stall")
    failure = run.failure()
    assert failure is not None
    assert failure.is_final
    assert failure.reason == "COLUMNS have changed"


def test_after_a_stop_a_batch_in_progress_commits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_thread, "_END_SECONDS", 0.01)
    run, is_stopped, committed, errors = StreamingRun("ingest-1"), threading.Event(), list[int](), list[Exception]()

    def write(_entry: str, batch: int) -> None:
        is_stopped.wait(LAST_RESORT_SECONDS)
        try:
            with run.turn():
                committed.append(batch)
        except FencedError as error:
            errors.append(error)
            raise

    thread = started(run, write)
    thread.announce()
    wait_until(lambda: run.busy_seconds > 0, "the batch")
    run.cancel()
    assert run.forbid()
    is_stopped.set()
    wait_until(lambda: not thread._thread.is_alive(), "the end of the batch")
    assert (committed, len(errors), thread.error) == ([], 1, None)


def test_a_thread_with_an_input_writes_whenever_the_input_has_a_batch() -> None:
    run, waiting, written = StreamingRun("mv-1"), ["a", "b"], list[str]()
    thread = InputThread("mv-1", run.guarded(lambda *_: written.append(waiting.pop(0))), lambda: bool(waiting))
    run.thread = thread
    thread.start()
    wait_until(lambda: written == ["a", "b"], "the batches that were there")
    waiting.append("c")
    thread.announce()
    wait_until(lambda: written == ["a", "b", "c"], "a batch that was announced")
    waiting.append("d")
    wait_until(lambda: written == ["a", "b", "c", "d"], "a batch that nobody announced")
    assert run.failure() is None
    run.cancel()
    assert not thread.is_active


def test_an_error_of_the_check_for_input_is_the_failure_of_the_run() -> None:
    def broken() -> bool:
        raise OSError("no such folder")

    run = StreamingRun("mv-1")
    run.thread = InputThread("mv-1", lambda *_: None, broken)
    run.thread.start()
    wait_until(lambda: run.failure() is not None, "the failure")
    failure = run.failure()
    assert failure is not None
    assert failure.reason == "OSError: no such folder"


def test_a_stop_from_within_a_batch_ends_the_thread() -> None:
    run, written = StreamingRun("mv-1"), list[int]()

    def write(_entry: str, batch: int) -> None:
        written.append(batch)
        thread.stop()

    thread = InputThread("mv-1", write, lambda: True)
    run.thread = thread
    thread.start()
    wait_until(lambda: not thread.is_active, "the end of the thread")
    assert written == [0]


def test_the_interval_grows_with_the_durations_of_batches() -> None:
    begun: list[float] = []

    def write(_entry: str, batch: int) -> None:
        begun.append(time.monotonic())
        time.sleep(0.02 if batch == 0 else 0.1)

    thread = InputThread("ingest-1", write, lambda: True, look_seconds=0.0, interval_factor=6.0)
    thread.start()
    wait_until(lambda: len(begun) == 3, "three batches")
    thread.stop()
    assert begun[1] - begun[0] >= 0.12
    assert begun[2] - begun[1] >= 0.25


def test_a_thread_whose_check_waits_itself_checks_again_at_once() -> None:
    checks: list[float] = []

    def has_input() -> bool:
        checks.append(time.monotonic())
        time.sleep(0.001)
        return False

    thread = InputThread("ingest-1", lambda *_: None, has_input, look_seconds=0.0)
    thread.start()
    wait_until(lambda: len(checks) > 100, "a hundred checks")
    thread.stop()
    assert not thread.is_active
