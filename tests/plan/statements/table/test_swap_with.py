"""RENAME TO and SWAP WITH: names change; rows and the readers of objects stay."""

from __future__ import annotations

import pytest

from rw_sql.model.definitions import view_definition
from rw_sql.model.job_specs import desired_jobs
from tests.plan.canned import HERE, CannedWorld, create_source, moved_world, refused
from tests.plan.tables import create_table, tables_world

KINDS = ("source", "table", "materialized_view", "sink")


def ids(world: CannedWorld, kind: str) -> dict[str, int]:
    return {record.name: record.id for record in world.snapshot.all(kind)}


def query(world: CannedWorld, name: str) -> str:
    record = world.snapshot.find("materialized_view", name)
    assert record is not None
    assert view_definition(record.definition).query.text == record.query
    return record.query


def two_views() -> CannedWorld:
    world = moved_world()
    world.run(
        "CREATE MATERIALIZED VIEW w AS SELECT id FROM s",
        "CREATE MATERIALIZED VIEW on_v AS SELECT v.id FROM v",
        "CREATE MATERIALIZED VIEW on_both AS SELECT v.id FROM v JOIN w ON v.id = w.id",
    )
    return world


def test_views_swap_and_their_readers_go_on() -> None:
    world = two_views()
    before, inputs = (
        ids(world, "materialized_view"),
        {v.name: v.inputs for v in world.snapshot.all("materialized_view")},
    )
    plan = world.run("ALTER MATERIALIZED VIEW v SWAP WITH w")
    after = ids(world, "materialized_view")
    assert (after["v"], after["w"]) == (before["w"], before["v"])
    assert {v.name: v.inputs for v in world.snapshot.all("materialized_view")}["on_v"] == inputs["on_v"]
    assert query(world, "on_v") == "SELECT v.id FROM w AS v"
    assert query(world, "on_both") == "SELECT v.id FROM w AS v JOIN v AS w ON v.id = w.id"
    assert [(row.object, row.change, row.detail) for row in plan.changes] == [
        ("w", "RENAMED", "was v"),
        ("v", "RENAMED", "was w"),
        ("on_v", "ALTERED", "reads the same rows, which now belong to w"),
        ("on_both", "ALTERED", "reads the same rows, which now belong to w and v"),
    ]


def test_a_swap_is_undone_and_done_again() -> None:
    world = two_views()
    before = ids(world, "materialized_view")
    world.run("ALTER MATERIALIZED VIEW v SWAP WITH w")
    swap = world.snapshot.epoch
    # Objects that were created or altered since then stay.
    world.run(
        "CREATE MATERIALIZED VIEW later AS SELECT id FROM v", "ALTER MATERIALIZED VIEW v SET backfill_rate_limit = 5"
    )
    world.run(f"UNDO OPERATION {swap}")
    undo = world.snapshot.epoch
    after = ids(world, "materialized_view")
    assert {name: after[name] for name in before} == before
    assert query(world, "later") == "SELECT id FROM w AS v"
    assert query(world, "on_v") == "SELECT v.id FROM v AS v"
    error = refused(world, f"UNDO OPERATION {swap}")
    assert error.code == "RW330"
    world.run(f"UNDO OPERATION {undo}")
    assert ids(world, "materialized_view")["v"] == before["w"]


def test_a_swap_that_others_rest_on_is_not_undone() -> None:
    world = two_views()
    world.run("ALTER MATERIALIZED VIEW v SWAP WITH w")
    swap = world.snapshot.epoch
    world.run("ALTER MATERIALIZED VIEW v RENAME TO x")
    error = refused(world, f"UNDO OPERATION {swap}")
    assert "was renamed or dropped since then" in error.message


def test_sources_swap_with_their_pauses() -> None:
    world = moved_world()
    world.run(create_source("t", "new"), "PAUSE SOURCE s")
    before = ids(world, "source")
    splits = world.assigned("s")
    world.run("ALTER SOURCE s SWAP WITH t")
    assert ids(world, "source") == {"s": before["t"], "t": before["s"]}
    assert world.assigned("t") == splits
    assert [hold.name for hold in world.snapshot.all("pause")] == ["t"]
    assert query(world, "v") == "SELECT id FROM t AS s"
    world.run("RESUME SOURCE t", f"UNDO OPERATION {world.snapshot.epoch}")
    assert ids(world, "source") == before


def test_tables_swap_with_their_sources() -> None:
    world = tables_world(
        create_table("id INT PRIMARY KEY"), create_table("id INT PRIMARY KEY, n INT", name="u", topic="new")
    )
    world.run("CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
    before = {kind: ids(world, kind) for kind in KINDS}
    world.run("ALTER TABLE t SWAP WITH u")
    for kind in ("source", "table"):
        assert ids(world, kind) == {"t": before[kind]["u"], "u": before[kind]["t"]}
    assert query(world, "v") == "SELECT id FROM u AS t"
    for record in world.snapshot.all("table"):
        assert world.snapshot.table_of(record.source_id or 0) == record
    world.run(f"UNDO OPERATION {world.snapshot.epoch}")
    assert {kind: ids(world, kind) for kind in KINDS} == before


def test_sinks_and_sources_are_renamed_and_write_and_read_on() -> None:
    world = moved_world()
    world.run(
        f"CREATE SINK k FROM s WITH (connector = 'kafka', topic = 'new', properties.bootstrap.server = '{HERE}') "
        "FORMAT PLAIN ENCODE JSON",
        "ALTER SINK k RENAME TO kept",
        "ALTER SOURCE s RENAME TO renamed",
    )
    assert ids(world, "sink").keys() == {"kept"}
    assert ids(world, "source").keys() == {"renamed"}
    record = world.snapshot.find("sink", "kept")
    assert record is not None
    assert "FROM renamed" in record.definition.replace("\n", " ").replace("  ", " ")
    assert query(world, "v") == "SELECT id FROM renamed AS s"
    assert all(spec for spec in desired_jobs(world.snapshot).values())


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("ALTER MATERIALIZED VIEW v SWAP WITH s", "RW236", '"s" is a source, not a materialized view'),
        ("ALTER MATERIALIZED VIEW v SWAP WITH v", "RW105", "with itself"),
        ("ALTER MATERIALIZED VIEW v SWAP WITH vv", "RW203", "does not exist"),
        ("ALTER SOURCE s RENAME TO v", "RW201", "already exists"),
        ("ALTER MATERIALIZED VIEW v RENAME TO part", "RW301", 'already uses the name "part" in WITH'),
    ],
)
def test_what_is_refused(text: str, code: str, said: str) -> None:
    world = moved_world()
    world.run("CREATE MATERIALIZED VIEW with_part AS WITH part AS (SELECT id FROM v) SELECT id FROM part")
    error = refused(world, text)
    assert error.code == code
    assert said in error.message


def test_a_source_of_a_table_has_its_name() -> None:
    world = tables_world(create_table("id INT PRIMARY KEY"), create_source("s", "new"))
    assert refused(world, "ALTER SOURCE s SWAP WITH t").code == "RW236"
    error = refused(world, "ALTER SOURCE t RENAME TO other")
    assert error.code == "RW236"
    assert error.hint is not None
    assert "ALTER TABLE t" in error.hint
