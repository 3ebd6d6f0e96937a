"""A thread and a query take each other's place as the writer of one run's batches."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from rw_sql.runtime.jobs.batch_mode import BatchMode, LeftToSparkError
from rw_sql.runtime.jobs.streaming_run import BrokenOffError, StreamingRun
from rw_sql.runtime.support.failures import Failure, StalledError
from tests.support.waits import LAST_RESORT_SECONDS, wait_until


class _Query:
    isActive = True  # noqa: N815 - as Spark calls it

    def stop(self) -> None:
        self.isActive = False


@dataclass
class _Run:
    """A run whose input and batches are set by the test. ``told`` lists what happened."""

    streaming: StreamingRun = field(default_factory=lambda: StreamingRun("mv-1"))
    told: list[str] = field(default_factory=list)
    inputs: list[Exception | None] = field(default_factory=list)
    batches: list[Exception | None] = field(default_factory=list)
    is_completed: bool = True
    may_open: bool = True
    noted: int = 0

    def mode(self) -> BatchMode:
        self.streaming = StreamingRun("mv-1", self.note)
        return BatchMode(
            job="mv-1",
            streaming=self.streaming,
            start_query=self.start_query,
            end_query=self.end_query,
            has_completed=lambda _: self.is_completed,
            open=self.open,
            has_next=self.has_next,
            write_next=self.write_next,
            look_seconds=0.001,
        )

    def note(self, *_: object) -> None:
        self.noted += 1

    def start_query(self) -> None:
        self.told.append("query")
        query: Any = _Query()
        self.streaming.query = query

    def end_query(self) -> None:
        self.told.append("end of the query")
        self.streaming.end_query()

    def open(self) -> bool:
        self.told.append("thread")
        return self.may_open

    def has_next(self) -> bool:
        if not self.inputs:
            return False
        found = self.inputs.pop(0)
        if found is not None:
            raise found
        return True

    def write_next(self) -> None:
        found = self.batches.pop(0)
        if found is not None:
            raise found
        self.told.append("batch")


@pytest.fixture
def run() -> _Run:
    return _Run()


def test_the_thread_writes_until_a_batch_is_left_to_spark(run: _Run) -> None:
    mode = run.mode()
    run.inputs, run.batches = [None, None, None], [None, None, LeftToSparkError("the batch is not small")]
    mode.start_thread()
    wait_until(lambda: run.streaming.query is not None and run.streaming.thread is None, "the query")
    assert run.told == ["batch", "batch", "query"]
    assert run.noted == 2
    assert run.streaming.failure() is None
    mode.stop()


def test_a_thread_takes_the_place_of_a_query_that_has_read_everything(run: _Run) -> None:
    mode = run.mode()
    run.inputs = [LeftToSparkError("there are many commits")]
    mode.start_thread()
    wait_until(lambda: run.told == ["query"] and run.streaming.thread is None, "the query")
    query: Any = run.streaming.query
    # After the first return to a query, two successive small batches are needed.
    for batch, is_small in enumerate((True, False, True)):
        mode.require_query()
        mode.after_batch(batch, is_small=is_small)
        assert run.streaming.thread is None
    run.is_completed = False
    mode.after_batch(3, is_small=True)
    # The query's next batch must not be written, because the thread begins after the last one.
    with pytest.raises(BrokenOffError):
        mode.require_query()
    assert query.isActive
    run.is_completed = True
    wait_until(lambda: run.told == ["query", "end of the query", "thread"], "the thread")
    assert not query.isActive
    run.inputs, run.batches = [None], [None]
    wait_until(lambda: run.told[-1] == "batch", "a batch")
    mode.stop()
    assert run.streaming.failure() is not None


def test_a_query_goes_on_if_no_thread_can(run: _Run) -> None:
    mode = run.mode()
    run.start_query()
    run.may_open = False
    mode.after_batch(0, is_small=True)
    wait_until(lambda: run.told == ["query", "end of the query", "thread", "query"], "another query")
    mode.after_batch(0, is_small=True, prepare=lambda: False)
    mode.after_batch(1, is_small=True, prepare=lambda: False)
    assert not mode.is_possible
    mode.stop()


def test_a_final_reason_keeps_the_query(run: _Run) -> None:
    mode = run.mode()
    run.inputs = [LeftToSparkError("its rows cannot be computed here", is_final=True)]
    mode.start_thread()
    wait_until(lambda: run.told == ["query"] and run.streaming.thread is None, "the query")
    for batch in range(100):
        mode.after_batch(batch, is_small=True)
    assert run.streaming.thread is None
    mode.stop()


def test_a_stall_that_the_check_for_input_reports_is_the_reason_of_the_run(run: _Run) -> None:
    mode = run.mode()
    run.inputs = [StalledError("RECREATED t: RESET SOURCE SPLITS s", is_final=True)]
    mode.start_thread()
    wait_until(lambda: run.streaming.failure() is not None, "the reason")
    assert run.streaming.failure() == Failure(reason="RECREATED t: RESET SOURCE SPLITS s", is_final=True)


def test_nothing_changes_once_the_run_is_being_stopped(run: _Run) -> None:
    mode, may_go_on = run.mode(), threading.Event()

    def has_next() -> bool:
        assert may_go_on.wait(LAST_RESORT_SECONDS)
        raise LeftToSparkError("there are many commits")

    mode.has_next = has_next
    mode.start_thread()
    thread = run.streaming.thread
    assert thread is not None
    run.streaming.expect_stop()
    may_go_on.set()
    mode.cancel()
    wait_until(lambda: not thread._thread.is_alive(), "the end of the thread")
    assert run.told == []
