"""The jobs that a catalog requires, and the steps that lead there."""

from __future__ import annotations

import pytest

from rw_sql.errors import SqlError
from rw_sql.model.job_specs import desired_jobs
from tests.plan.canned import CannedWorld, create_source, moved_world


def jobs(world: CannedWorld) -> set[str]:
    return set(desired_jobs(world.snapshot))


def actions(world: CannedWorld, text: str) -> list[str]:
    """The job steps of a statement, which is then run."""
    plan = world.run(text)
    return [step.describe() for step in plan.steps if not step.is_catalog]


def test_a_source_runs_while_somebody_reads_it_and_nothing_holds_it() -> None:
    world = CannedWorld()
    world.put_topic("a", (0, 5))
    assert actions(world, create_source("s", "a")) == []
    assert actions(world, "CREATE MATERIALIZED VIEW v AS SELECT id FROM s") == ["StartJob ingest-1", "StartJob mv-2"]
    assert actions(world, "CREATE MATERIALIZED VIEW w AS SELECT id FROM s") == ["StartJob mv-3"]
    assert actions(world, "PAUSE SOURCE s") == ["StopJob ingest-1"]
    assert jobs(world) == {"mv-2", "mv-3"}
    assert actions(world, "PAUSE ALL SOURCES") == []
    assert actions(world, "RESUME SOURCE s") == []
    assert actions(world, "RESUME ALL SOURCES") == ["StartJob ingest-1"]
    assert actions(world, "DROP MATERIALIZED VIEW v") == ["StopJob mv-2"]
    assert actions(world, "DROP MATERIALIZED VIEW w") == ["StopJob ingest-1", "StopJob mv-3"]
    assert actions(world, "DROP SOURCE s") == []
    assert world.snapshot.all("source") == ()


def test_views_are_not_touched_by_what_happens_to_their_source() -> None:
    world = moved_world()
    before = desired_jobs(world.snapshot)["mv-2"]
    assert actions(world, "ALTER SOURCE s UNSAFE SET (topic = 'new')") == ["RestartJob ingest-1"]
    assert actions(world, "RESET SOURCE SPLITS s") == ["RestartJob ingest-1"]
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s TO LATEST", "RESUME SOURCE s")
    assert desired_jobs(world.snapshot)["mv-2"] == before


def test_created_paused() -> None:
    world = CannedWorld()
    world.put_topic("a", (0, 5))
    world.run(create_source("s", "a", "paused = 'true'"))
    assert actions(world, "CREATE MATERIALIZED VIEW v AS SELECT id FROM s") == ["StartJob mv-3"]
    record = world.snapshot.find("source", "s")
    assert record is not None
    assert "paused" not in record.definition
    assert actions(world, "RESUME SOURCE s") == ["StartJob ingest-1"]


def test_drop_cascade_takes_the_dependents_first_and_leaves_nothing() -> None:
    world = moved_world()
    world.run("CREATE MATERIALIZED VIEW w AS SELECT id FROM v", "PAUSE SOURCE s")
    with pytest.raises(SqlError, match='"v", materialized view "w"'):
        world.run("DROP SOURCE s")
    assert [row.object for row in world.run("DROP SOURCE s CASCADE").changes] == ["w", "v", "s"]
    for kind in ("source", "materialized_view", "pause"):
        assert world.snapshot.all(kind) == ()
    assert not world.snapshot.splits("ingest-1")
    assert not world.snapshot.states("ingest-1")


def test_an_epoch_of_another_source_does_not_restart_this_one() -> None:
    world = moved_world()
    before = desired_jobs(world.snapshot)
    world.put_topic("a", (0, 5))
    world.run(create_source("t", "a"), "PAUSE SOURCE t", "ALTER SYSTEM SET enable_unsafe_ops = true")
    after = desired_jobs(world.snapshot)
    assert {job: after[job] for job in before} == before
