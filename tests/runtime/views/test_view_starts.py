"""A start of a view that fails: what it has begun ends, and its Spark sessions are left to other jobs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import rw_sql.runtime.views.job as module
import rw_sql.runtime.views.row_mode as row_mode
from rw_sql.runtime.direct.readers import DirectReaders
from rw_sql.runtime.jobs.batch_mode import LeftToSparkError
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.views.job import View
from rw_sql.runtime.views.row_batches import PreparedRows, RowBatches

GIVEN: Any = SimpleNamespace(id=7)
SPEC: Any = SimpleNamespace(
    job="mv-1",
    writer="mv-1",
    view_id=1,
    name="v",
    generation=1,
    inputs=(GIVEN,),
    parallelism=4,
    keyed=None,
    keys=(),
    maintenance=SimpleNamespace(strategy="", is_one_row=False),
)


class Frame:
    """The frame of a stream, and the writer of its query."""

    def __init__(self, world: World) -> None:
        self.world, self.writeStream = world, self

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: self

    def start(self) -> Any:
        if "query" in self.world.failing:
            raise OSError("no space left on device")
        self.world.steps.append("query started")
        return self.world.query


class World:
    """The steps of a start, in their order. The steps named in ``failing`` fail."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.failing: set[str] = set()
        self.unfinished: list[int | None] = []
        self.created = 0
        self.query = SimpleNamespace(stop=self.noted("query stopped"), awaitTermination=self.wait, runId="1")
        sessions = SimpleNamespace(spark=None, new=self.new, release_if_alive=self.release, release=self.release)
        wakes = SimpleNamespace(follow=self.noted("followed"), unfollow=lambda *given: None)
        self.context: Any = SimpleNamespace(
            warehouse=SimpleNamespace(
                view_checkpoint=lambda *given: "checkpoint", exists=lambda path: True, data=lambda *given: "table"
            ),
            metastore=SimpleNamespace(
                jobs=SimpleNamespace(claim_run=lambda *given: SimpleNamespace(run=7, epoch=3)),
                snapshot=lambda: SimpleNamespace(epoch=3, get=lambda id_: SimpleNamespace(id=id_)),
            ),
            owner="me",
            note_batch=None,
            sessions=sessions,
            wakes=wakes,
        )
        self.readers = SimpleNamespace(
            align_checkpoint=lambda done: self.unfinished.pop(0) if self.unfinished else None,
            packages=(),
            on_executors=(),
            know_lines=lambda frame: None,
            close=self.noted("readers closed"),
            interval_ms=0,
            lives={},
            terms={},
            require_same_log=None,
        )

    def noted(self, step: str) -> Any:
        return lambda *given, **named: self.steps.append(step)

    def fail_at(self, step: str) -> Any:
        def act(*given: Any, **named: Any) -> Any:
            if step in self.failing:
                raise OSError("503 Slow Down")
            return SimpleNamespace(query=SimpleNamespace(kinds=()), has_next=lambda: True)

        return act

    def new(self, *given: Any) -> str:
        self.created += 1
        return f"session {self.created}"

    def release(self, session: str | None) -> None:
        if session is not None:
            self.steps.append(f"{session} released")

    def wait(self, seconds: int) -> bool:
        self.fail_at("wait")()
        return True

    def start(self) -> View:
        return View.start(self.context, SPEC)

    @property
    def released(self) -> list[str]:
        return sorted(step for step in self.steps if step.endswith("released"))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(module, "MaterializedViewRecord", SimpleNamespace)
    for name in ("require_input", "require_columns", "require_executors", "require_versions", "require_whole"):
        monkeypatch.setattr(module, name, lambda *given: None)
    for name in ("writer_of", "Upkeep", "remove_leftovers"):
        monkeypatch.setattr(module, name, lambda *given, **named: None)
    monkeypatch.setattr(DirectReaders, "look", lambda *given: None)
    monkeypatch.setattr(module, "is_live", lambda *given: True)
    monkeypatch.setattr(module, "_open_output", lambda *given: SimpleNamespace(done=-1))
    monkeypatch.setattr(module, "_strategy_of", lambda run: SimpleNamespace(stream=lambda s: (Frame(made), "append")))
    monkeypatch.setattr(module, "leave_histories", made.fail_at("histories"))
    return made


def test_a_query_is_stopped_if_its_start_fails_afterwards(world: World) -> None:
    world.failing.add("histories")
    with pytest.raises(OSError, match="503"):
        world.start()
    assert world.steps == ["query started", "query stopped", "session 1 released"]


def test_a_query_runs_on_after_a_start_that_succeeds(world: World) -> None:
    job = world.start()
    assert world.steps == ["query started"]
    assert not job.streaming.is_over


def test_a_query_that_finishes_a_batch_is_stopped_if_the_wait_for_it_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DirectReaders, "look", lambda *given: world.readers)
    world.failing.add("wait")
    world.unfinished.append(3)
    with pytest.raises(OSError, match="503"):
        world.start()
    assert world.steps == ["query started", "query stopped", "readers closed", "session 1 released"]


def test_a_batch_that_is_not_finished_leaves_no_session_behind(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DirectReaders, "look", lambda *given: world.readers)
    world.unfinished += [3, 3]
    with pytest.raises(StalledError, match="UNFINISHED batch 3 of v"):
        world.start()
    assert world.released == ["session 1 released"]


@pytest.mark.parametrize("at", ["prepared", "prepare", "open", "next", "query", "histories"])
def test_a_failed_start_of_a_view_that_may_be_row_by_row_releases_all_its_sessions(
    world: World, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    def take(*given: Any) -> bool:
        world.fail_at("prepare")()
        return True

    def has_next() -> bool:
        raise LeftToSparkError("too many rows")

    def rows_of(*given: Any) -> Any:
        world.fail_at("open")()
        return SimpleNamespace(has_next=has_next if at in ("query", "histories") else world.fail_at("next"))

    monkeypatch.setattr(module, "writer_of", lambda run: SimpleNamespace(prepare=take))
    monkeypatch.setattr(row_mode, "may_have_row_batches", lambda *given: True)
    monkeypatch.setattr(RowBatches, "may_begin", lambda run: True)
    monkeypatch.setattr(RowBatches, "of", rows_of)
    monkeypatch.setattr(PreparedRows, "of", world.fail_at("prepared"))
    world.failing.add(at)
    with pytest.raises(OSError, match=r"503|space"):
        world.start()
    assert world.created == (2 if at in ("query", "histories") else 1)
    assert world.released == [f"session {number} released" for number in range(1, world.created + 1)]
    assert world.steps.count("query started") == world.steps.count("query stopped") == (at == "histories")
