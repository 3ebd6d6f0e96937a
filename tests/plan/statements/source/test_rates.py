"""The rate of a source, changed while it runs; a rate of 0 stops only the reading."""

from __future__ import annotations

import pytest

from rw_sql.errors import SqlError
from rw_sql.model.job_specs import IngestSpec, desired_jobs
from tests.plan.canned import HERE, CannedWorld, create_source, moved_world

STOPPED = "source_rate_limit is 0: ALTER SOURCE s SET source_rate_limit = DEFAULT"


def options(world: CannedWorld) -> dict[str, object]:
    """The options of the running reader of ``s``."""
    spec = desired_jobs(world.snapshot)["ingest-1"]
    assert isinstance(spec, IngestSpec)
    return dict(spec.options)


def state(world: CannedWorld, name: str = "s") -> tuple[object, object]:
    """State and reason in SHOW SOURCES."""
    table = world.plan("SHOW SOURCES").table
    assert table is not None
    columns = [column for column, _ in table.columns]
    row = next(row for row in table.rows if row[0] == name)
    return row[columns.index("state")], row[columns.index("reason")]


def test_rate_and_pace_change_at_run_time_and_go_back() -> None:
    world = moved_world()
    assert world.answers("ALTER SOURCE s SET SOURCE_RATE_LIMIT TO 1000") == [
        ("ALTERED", "source_rate_limit = 1000 (new)")
    ]
    assert options(world)["source_rate_limit"] == "1000"
    plan = world.plan("ALTER SOURCE s SET barrier_interval_ms = 500")
    assert [step.describe() for step in plan.steps if not step.is_catalog] == ["RestartJob ingest-1"]
    assert not plan.is_unsafe
    world.run("ALTER SOURCE s SET barrier_interval_ms = 500")
    assert options(world)["barrier_interval_ms"] == "500"
    assert world.answers("ALTER SOURCE s SET source_rate_limit = 1000") == [
        ("NOTHING", "source_rate_limit already has this value")
    ]
    world.run("ALTER SOURCE s SET source_rate_limit = DEFAULT", "ALTER SOURCE s SET barrier_interval_ms TO DEFAULT")
    assert not {"source_rate_limit", "barrier_interval_ms"} & options(world).keys()
    assert world.answers("ALTER SOURCE s SET source_rate_limit = DEFAULT")[0][0] == "NOTHING"


def test_the_upstream_is_not_asked() -> None:
    world = moved_world()
    world.silent.add(HERE)
    world.asked.clear()
    world.run("ALTER SOURCE s SET source_rate_limit = 5")
    assert world.asked == []


def test_a_rate_of_0_stops_the_reading_and_nothing_else() -> None:
    world = moved_world()
    assert world.answers("ALTER SOURCE s SET source_rate_limit = 0") == [
        ("ALTERED", "source_rate_limit = 0 (new)"),
        ("NOTICE", STOPPED),
    ]
    assert set(desired_jobs(world.snapshot)) == {"mv-2"}
    assert state(world) == ("THROTTLED", STOPPED)
    world.run("CREATE MATERIALIZED VIEW w AS SELECT id FROM s", "DROP MATERIALIZED VIEW w")
    world.run("PAUSE SOURCE s")
    assert state(world)[0] == "PAUSED"
    world.run("INJECT SOURCE OFFSETS s TO LATEST", "RESUME SOURCE s")
    assert set(desired_jobs(world.snapshot)) == {"mv-2"}
    assert state(world)[0] == "THROTTLED"
    world.run("PAUSE SOURCE s")
    assert world.answers("ALTER SOURCE s SET source_rate_limit = DEFAULT") == [
        ("ALTERED", "source_rate_limit dropped (was 0)"),
        ("NOTICE", "it is paused and stays paused until RESUME"),
    ]
    world.run("RESUME SOURCE s")
    assert set(desired_jobs(world.snapshot)) == {"ingest-1", "mv-2"}


def test_a_source_may_be_made_with_a_rate_of_0() -> None:
    world = CannedWorld()
    world.put_topic("a", (0, 5))
    world.run(create_source("s", "a", "source_rate_limit = '0'"), "CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
    assert set(desired_jobs(world.snapshot)) == {"mv-2"}
    assert state(world) == ("THROTTLED", STOPPED)
    world.run("ALTER SOURCE s CONNECTOR WITH (source_rate_limit = '7')")
    assert options(world)["source_rate_limit"] == "7"
    world.run("DROP SOURCE s CASCADE")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ALTER SOURCE s SET barrier_interval_ms = 3600001", "must be a whole number from 0 to 3600000"),
        ("ALTER SOURCE other SET source_rate_limit = 1", "does not exist"),
        ("ALTER SOURCE s SET parallelism = 1", "not supported"),
        ("ALTER TABLE s SET source_rate_limit = 1", "is a source, not a table"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    world = moved_world()
    before = world.snapshot
    with pytest.raises(SqlError, match=message):
        world.run(text)
    assert world.snapshot is before
