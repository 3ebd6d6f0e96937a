"""A start of a reader that fails: what it has begun ends, and its Spark session is left to other jobs once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import rw_sql.runtime.ingest.job as module
from rw_sql.runtime.ingest.job import Ingest
from rw_sql.runtime.ingest.warm_start import WarmStart
from rw_sql.runtime.jobs.arrow_batches import ArrowBatches

SPEC: Any = SimpleNamespace(job="ingest-1", splits=(), source_id=1)


class World:
    """The steps of a start, in their order. The store refuses to delete old checkpoints if ``refuses`` is true."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.refuses = True
        self.context: Any = SimpleNamespace(
            warehouse=None,
            owner="me",
            note_batch=None,
            sessions=SimpleNamespace(spark=None),
            ensure_log=lambda source: None,
            log_path=lambda source: "log",
            metastore=SimpleNamespace(
                jobs=SimpleNamespace(claim_run=lambda *given: SimpleNamespace(run=7, epoch=3)),
            ),
        )

    def note(self, step: str) -> Any:
        return lambda *given, **named: self.steps.append(step)

    def remove_others(self) -> None:
        if self.refuses:
            raise OSError("503 Slow Down")

    def query(self) -> Any:
        self.steps.append("query started")
        return SimpleNamespace(stop=self.note("query stopped"))

    def opening(self, session: str | None) -> Any:
        made = SimpleNamespace(
            session=session, fetcher=None, feed=None, may_follow=False, statement=None, options={},
            kind=SimpleNamespace(watch=lambda options: None),
            stream=lambda states: None, end=lambda: None, close=lambda: None,
        )  # fmt: skip
        made.release_session = self.note(f"{session} session released")
        return made

    def prepared(self, *, is_current: bool = True, early: Any = None) -> Any:
        opening = self.opening("last")
        return SimpleNamespace(
            snapshot=SimpleNamespace(epoch=3, states=lambda fragment: {}),
            source=SimpleNamespace(id=1, name="s", generation=1),
            upstream=SimpleNamespace(splits={}),
            opening=opening,
            pace=SimpleNamespace(per_second=None, batch_records=1, interval_ms=0),
            is_current=lambda spec: is_current,
            early=early,
            may_begin_small=lambda states: False,
            abandon=self.note("abandoned"),
            query=lambda run: SimpleNamespace(
                start=lambda *given: self.query(), remove_others=self.remove_others, has_completed=lambda batch: True
            ),
        )

    def before(self) -> Any:
        output = SimpleNamespace(
            fit=lambda *given, **named: None,
            table=SimpleNamespace(schema=lambda: SimpleNamespace(to_arrow=lambda: pa.schema([]))),
        )
        return SimpleNamespace(
            session="last",
            opening=self.opening("last"),
            output=SimpleNamespace(followed_by=lambda *given, **named: output),
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    for name in (
        "packages_on_executors",
        "require_executors",
        "log_statistics",
        "added_fields",
        "Decoder",
        "schema_records",
        "retention_of",
    ):
        monkeypatch.setattr(module, name, lambda *given: None)
    monkeypatch.setattr(module, "log_schema", lambda statement: SimpleNamespace(json=lambda: ""))
    monkeypatch.setattr(module, "read_positions", lambda *given: SimpleNamespace(states={}))
    monkeypatch.setattr(ArrowBatches, "of", lambda *given: None)
    return made


def has_early(world: World) -> Any:
    return SimpleNamespace(fits=lambda run, states: True, go_on=lambda write: world.query())


@pytest.mark.parametrize("is_early", [False, True], ids=["query", "speculative query"])
def test_a_query_is_stopped_before_the_session_of_a_failed_start_is_released(world: World, is_early: bool) -> None:
    prepared = world.prepared(early=has_early(world) if is_early else None)
    with pytest.raises(OSError, match="503"):
        Ingest.start(world.context, SPEC, world.before(), prepared)
    assert world.steps == ["query started", "query stopped", "abandoned", "last session released"]


def test_a_query_runs_on_after_a_start_that_succeeds(world: World) -> None:
    world.refuses = False
    job = Ingest.start(world.context, SPEC, world.before(), world.prepared())
    assert world.steps == ["query started"]
    assert not job.streaming.is_over


@pytest.mark.parametrize("prepares", [False, True], ids=["nothing prepared", "an old warm start"])
def test_the_session_of_the_last_run_is_released_if_the_upstream_does_not_respond(
    world: World, monkeypatch: pytest.MonkeyPatch, prepares: bool
) -> None:
    def of(*given: Any, **named: Any) -> WarmStart:
        raise OSError("connection refused")

    monkeypatch.setattr(WarmStart, "of", of)
    with pytest.raises(OSError, match="refused"):
        Ingest.start(world.context, SPEC, world.before(), world.prepared(is_current=False) if prepares else None)
    assert world.steps == [*(["abandoned"] if prepares else []), "last session released"]
    world.steps.clear()
    with pytest.raises(OSError, match="refused"):
        Ingest.start(world.context, SPEC)
    assert world.steps == []
