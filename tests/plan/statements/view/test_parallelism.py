"""The parallelism of a view: set by the warehouse or the view, fixed with the table that it shaped, changed by a
rebuild."""

from __future__ import annotations

import pytest

from rw_sql.metastore.codec import record_from_json, record_to_json
from rw_sql.metastore.records import SinkRecord
from rw_sql.model.job_specs import SinkSpec, ViewSpec, desired_jobs
from rw_sql.plan.statements.view.rebuild import rebuild_groups, swap_operation
from tests.plan.canned import CannedWorld, create_source, refused
from tests.plan.tables import create_table, sink, tables_world


def counted(name: str, options: str = "") -> str:
    return f"CREATE MATERIALIZED VIEW {name} {options}AS SELECT id, count(*) AS n FROM s GROUP BY id"


def parallelism(world: CannedWorld) -> dict[str, int]:
    """That of each job with a state."""
    jobs = desired_jobs(world.snapshot)
    return {job: spec.parallelism for job, spec in jobs.items() if isinstance(spec, ViewSpec | SinkSpec)}


def swap(world: CannedWorld) -> None:
    (group,) = rebuild_groups(world.snapshot)
    world.commit(swap_operation(world.snapshot, group, "the owner"))


def view_id(world: CannedWorld, name: str) -> int:
    record = world.snapshot.find("materialized_view", name)
    assert record is not None
    return record.id


def test_what_is_created_follows_the_warehouse_and_what_exists_stays() -> None:
    world = tables_world(create_source("s", "old"), counted("v"))
    v = view_id(world, "v")
    assert parallelism(world) == {f"mv-{v}": 2}
    world.run("ALTER SYSTEM SET streaming_parallelism = 8")
    assert parallelism(world) == {f"mv-{v}": 2}
    world.run(counted("w"))
    world.run(counted("x", "WITH (parallelism = 3) "))
    world.run(create_table("id INT PRIMARY KEY, name VARCHAR"))
    world.run(sink("UPSERT"))
    table, made = world.snapshot.find("table", "t"), world.snapshot.find("sink", "k")
    assert table is not None
    assert isinstance(made, SinkRecord)
    assert record_from_json(record_to_json(made)) == made
    assert parallelism(world) == {
        f"mv-{v}": 2,
        f"mv-{view_id(world, 'w')}": 8,
        f"mv-{view_id(world, 'x')}": 3,
        f"mv-{table.id}": 8,
        f"sink-{made.id}": 8,
    }


def test_a_rebuild_takes_that_of_the_warehouse_unless_the_view_has_its_own() -> None:
    world = tables_world(create_source("s", "old"), counted("v"), counted("x", "WITH (parallelism = 3) "))
    v, x = view_id(world, "v"), view_id(world, "x")
    world.run("ALTER SYSTEM SET streaming_parallelism = 8")
    world.run("REBUILD MATERIALIZED VIEW v")
    assert parallelism(world) == {f"mv-{v}": 2, f"mv-{v}.2": 8, f"mv-{x}": 3}
    for record in world.snapshot.all("rebuild"):
        assert record_from_json(record_to_json(record)) == record
    swap(world)
    assert parallelism(world) == {f"mv-{v}": 8, f"mv-{x}": 3}
    world.run("REBUILD MATERIALIZED VIEW x")
    swap(world)
    assert parallelism(world) == {f"mv-{v}": 8, f"mv-{x}": 3}


def test_set_parallelism_rebuilds_the_view_and_undo_returns_to_the_state_of_before() -> None:
    world = tables_world(create_source("s", "old"), counted("v"))
    v = view_id(world, "v")
    plan = world.run("ALTER MATERIALIZED VIEW v SET PARALLELISM = 4")
    assert [(row.object, row.change) for row in plan.changes] == [("v", "REBUILDING")]
    assert parallelism(world) == {f"mv-{v}": 2, f"mv-{v}.2": 4}
    swap(world)
    assert parallelism(world) == {f"mv-{v}": 4}
    view = world.snapshot.find("materialized_view", "v")
    assert view is not None
    assert view.definition.startswith("CREATE MATERIALIZED VIEW v WITH (parallelism = 4) AS"), view.definition
    assert world.run("ALTER MATERIALIZED VIEW v SET PARALLELISM TO 4").operation is None
    world.run("ALTER MATERIALIZED VIEW v SET PARALLELISM TO DEFAULT")
    swap(world)
    assert parallelism(world) == {f"mv-{v}": 2}


def test_a_view_that_reads_it_is_rebuilt_with_its_own() -> None:
    top = "CREATE MATERIALIZED VIEW top WITH (parallelism = 5) AS SELECT n, count(*) AS m FROM v GROUP BY n"
    world = tables_world(create_source("s", "old"), counted("v"), top)
    v, over = view_id(world, "v"), view_id(world, "top")
    world.run("ALTER MATERIALIZED VIEW v SET PARALLELISM = 4")
    assert parallelism(world) == {f"mv-{v}": 2, f"mv-{v}.2": 4, f"mv-{over}": 5, f"mv-{over}.2": 5}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ALTER MATERIALIZED VIEW v SET PARALLELISM = 0", "must be a number of partitions from 1 to 10000, not '0'"),
        ("ALTER MATERIALIZED VIEW v SET PARALLELISM = ADAPTIVE", "must be a number of partitions"),
        ("ALTER MATERIALIZED VIEW v SET PARALLELISM = 4 DEFERRED", "cannot be deferred"),
        (
            "CREATE MATERIALIZED VIEW w WITH (parallelism = 'many') AS SELECT id FROM s",
            "must be a number of partitions",
        ),
        ("ALTER SYSTEM SET streaming_parallelism = 0", "must be a number of partitions from 1 to 10000"),
        ("SET streaming_parallelism = 4", 'unrecognized session parameter "streaming_parallelism"'),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    world = tables_world(create_source("s", "old"), counted("v"))
    error = refused(world, text)
    assert said in error.message
    if text.startswith("SET"):
        assert error.hint == "it is a parameter of the warehouse: ALTER SYSTEM SET streaming_parallelism = …"
