"""Waits that end when nothing progresses, not when the machine is slow."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.errors import SqlError
from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import BackfillProgress, JobStatus
from rw_sql.metastore.records import MaterializedViewRecord, Operation, PutObject
from rw_sql.model.backfill_ranges import History, SplitHistory
from rw_sql.plan.statements.view.rebuild import swap_operation
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.lease import try_take
from rw_sql.runtime.jobs.statuses import run_mark
from rw_sql.runtime.observe import wait_statement as module
from rw_sql.runtime.observe.wait_statement import wait_until_made
from rw_sql.runtime.support.stall_timeout import StallTimeout
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.waits import LAST_RESORT_SECONDS as WAIT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_wait_lasts_as_long_as_something_moves() -> None:
    clock = Clock()
    limit = StallTimeout(60, clock=clock)
    limit.note({"v": 0, "s": 0})
    for position in range(1, 100):
        clock.now += 59
        limit.note({"v": position, "s": 0})
        assert not limit.is_over
    clock.now += 60
    limit.note({"v": 99, "s": 0})
    assert limit.is_over
    assert limit.told == "no progress for 60 s (v advanced last)"
    assert limit.longer == "5min"


def test_signs_of_life_alone_prolong_a_wait_tenfold() -> None:
    clock = Clock()
    limit = StallTimeout(60, clock=clock)
    limit.note({"applied": 3}, {"heart": -1})
    for beat in range(300):
        clock.now = 2.0 * beat
        limit.note({"applied": 3}, {"heart": beat})
        assert not limit.is_over
    clock.now = 600.0
    limit.note({"applied": 3}, {"heart": 300})
    assert limit.is_over
    assert limit.told == "no progress for 60 s"


def test_what_is_noted_for_the_first_time_has_the_whole_time_from_then() -> None:
    clock = Clock()
    limit = StallTimeout(1, clock=clock)
    clock.now = 5.0
    found = [limit.is_over]
    limit.note({"v": 5})
    found.append(limit.is_over)
    clock.now = 6.0
    limit.note({"v": 5})
    found.append(limit.is_over)
    assert limit.told == "no progress for 1 s"
    limit.begin()
    assert [*found, limit.is_over] == [True, False, True, False]


@pytest.mark.parametrize(("seconds", "longer"), [(0.0, "1s"), (0.2, "1s"), (10, "50s"), (60, "5min"), (600, "50min")])
def test_a_longer_wait_can_be_typed(seconds: float, longer: str) -> None:
    assert StallTimeout(seconds).longer == longer


def test_a_job_that_stalls_makes_no_progress_however_often_it_is_tried() -> None:
    running = JobStatus(job="mv-1", object_id=1, state="RUNNING", run=3, updated_ms=5)
    assert run_mark(running) == ("RUNNING", 3, 5)
    assert run_mark(JobStatus(job="mv-1", object_id=1, state="STALLED", run=3, updated_ms=5)) is None
    assert run_mark(None) is None


class Made:
    """A warehouse, owned by this process, whose view "v" is on its way through its history."""

    def __init__(self, folder: Path) -> None:
        warehouse = Warehouse.at(str(folder / "warehouse"))
        self.metastore = Metastore.open(warehouse.uri)
        sessions = type("Sessions", (), {"require_alive": lambda *_: None})()
        self.context = Context(
            warehouse=warehouse, metastore=self.metastore, sessions=cast("Any", sessions), owner="this one"
        )
        history = History(source_id=1, log_version=0, splits=(SplitHistory(split="t:0", start=0, end=100),))
        view = MaterializedViewRecord(
            id=2, name="v", definition="", query="", schema="", inputs=(), histories=(history.to_text(),)
        )
        operation = Operation(kind="TEST", statement="", objects=(), changes=(PutObject(record=view),))
        self.metastore.commit(operation, based_on=self.metastore.snapshot())
        assert try_take(self.metastore.jobs, "this one", 1, is_local=True) is not None
        self.say(0)

    def say(self, done: int, *, is_over: bool = False, generation: int = 1) -> None:
        self.metastore.jobs.write_backfill(
            BackfillProgress(
                job="mv-2" if generation == 1 else f"mv-2.{generation}",
                object_id=2,
                generation=generation,
                phase="reading history",
                done=done,
                total=100,
                started_ms=0,
                updated_ms=0,
                is_over=is_over,
            )
        )

    def finish_rebuild(self) -> None:
        """As the owner does: the rebuild has its history, and the view gets its table."""
        snapshot = self.metastore.snapshot()
        (rebuild,) = snapshot.all("rebuild")
        self.say(100, is_over=True, generation=rebuild.generation)
        self.metastore.commit(swap_operation(snapshot, [rebuild], "this one"), based_on=snapshot)


def test_a_wait_wakes_when_what_it_waits_for_is_written_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_OWN_LOOK_SECONDS", 3600.0)
    made, told = Made(tmp_path), threading.Event()
    found: list[Any] = []
    work = threading.Thread(
        target=lambda: found.append(wait_until_made(made.context, None, 3600.0, lambda _: told.set())), daemon=True
    )
    work.start()
    assert told.wait(WAIT_SECONDS)
    made.say(100, is_over=True)
    work.join(WAIT_SECONDS)
    assert found == [()]


def test_wait_gives_up_when_nothing_moves_and_says_what(tmp_path: Path) -> None:
    made = Made(tmp_path)
    with pytest.raises(SqlError) as caught:
        wait_until_made(made.context, None, 0.05, gives_up=True)
    assert caught.value.code == "RW406"
    assert caught.value.message == (
        "WAIT gave up: no progress for 0.05 s: v is reading history: 0.00% (0/100) (not started)"
    )
    assert caught.value.hint == ("wait longer: SET statement_timeout = '1s'; WAIT; SHOW JOBS shows what each job does")


def test_wait_goes_on_while_a_history_is_read_however_slowly(tmp_path: Path) -> None:
    made, limit = Made(tmp_path), 0.4
    stop = threading.Event()
    began = time.monotonic()

    def read() -> None:
        for done in range(1, 20):
            stop.wait(limit / 8)
            made.say(done)
        made.say(100, is_over=True)

    work = threading.Thread(target=read, daemon=True)
    work.start()
    assert wait_until_made(made.context, None, limit, gives_up=True) == ()
    assert time.monotonic() - began > limit
    work.join()
