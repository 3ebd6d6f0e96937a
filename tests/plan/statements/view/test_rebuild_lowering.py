"""REBUILD MATERIALIZED VIEW: the new table beside the old rows, the switch, and the refusals."""

from __future__ import annotations

import pytest

from rw_sql.errors import SqlError
from rw_sql.metastore.records import MaterializedViewRecord, Operation, RebuildRecord
from rw_sql.model.job_specs import ViewSpec, desired_jobs
from rw_sql.plan.statements.view.rebuild import SWAP, rebuild_groups, swap_operation
from tests.plan.canned import CannedWorld, moved_world
from tests.plan.statements.move.test_rewind_lowering import with_point


def stacked() -> CannedWorld:
    """A view ``v`` on a source and a view ``top`` on that."""
    world = moved_world()
    world.run("CREATE MATERIALIZED VIEW top AS SELECT id FROM v")
    return world


def view(world: CannedWorld, name: str) -> MaterializedViewRecord:
    found = world.snapshot.find("materialized_view", name)
    assert found is not None
    return found


def view_jobs(world: CannedWorld) -> dict[str, ViewSpec]:
    return {job: spec for job, spec in desired_jobs(world.snapshot).items() if isinstance(spec, ViewSpec)}


def swap(world: CannedWorld) -> Operation:
    """The owner's commit when all rebuilds have caught up."""
    (group,) = rebuild_groups(world.snapshot)
    return swap_operation(world.snapshot, group, "the owner")


def test_both_run_until_the_new_one_serves() -> None:
    world = moved_world()
    plan = world.run("REBUILD MATERIALIZED VIEW v REASON 'late rows'")
    assert not plan.is_unsafe
    assert [(row.change, row.detail) for row in plan.changes] == [
        ("REBUILDING", "queries read its old rows until the new ones have caught up")
    ]
    id_ = view(world, "v").id
    assert [step.describe() for step in plan.steps if not step.is_catalog] == [f"StartJob mv-{id_}.2"]
    jobs = view_jobs(world)
    assert {job: (spec.generation, spec.writer) for job, spec in jobs.items()} == {
        f"mv-{id_}": (1, f"mv-{id_}"),
        f"mv-{id_}.2": (2, f"mv-{id_}"),
    }
    operation = swap(world)
    assert (operation.kind, operation.objects) == (SWAP, ("v",))
    world.commit(operation)
    assert view(world, "v").generation == 2
    assert {job: spec.generation for job, spec in view_jobs(world).items()} == {f"mv-{id_}": 2}
    assert rebuild_groups(world.snapshot) == ()


def test_what_was_repeated_is_in_the_new_rows_once() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 15)", "RESUME SOURCE s")
    world.read_on("s", old_0=40)
    plan = world.run("REBUILD MATERIALIZED VIEW v")
    (rebuild,) = world.snapshot.all("rebuild")
    assert rebuild.histories
    assert not view(world, "v").histories
    assert "records of history to read" in plan.changes[0].detail
    (old, new) = view_jobs(world).values()
    assert (old.inputs[0].history, new.inputs[0].history) == ("", rebuild.histories[0])
    operation = swap(world)
    world.commit(operation)
    assert view(world, "v").histories == rebuild.histories


def test_a_rebuild_of_a_view_that_is_being_rebuilt_begins_again() -> None:
    world = moved_world()
    world.run("REBUILD MATERIALIZED VIEW v", "REBUILD MATERIALIZED VIEW v")
    (rebuild,) = world.snapshot.all("rebuild")
    assert rebuild == RebuildRecord(
        id=rebuild.id,
        name="v",
        view_id=view(world, "v").id,
        generation=3,
        created_at_ms=1_700_000_000_000,
        parallelism=2,
    )
    world.run("DROP MATERIALIZED VIEW v")
    assert world.snapshot.all("rebuild") == ()


def test_views_on_it_are_rebuilt_with_cascade() -> None:
    world = stacked()
    with pytest.raises(SqlError, match='other objects depend on it: materialized view "top"') as caught:
        world.run("REBUILD MATERIALIZED VIEW v")
    assert (caught.value.code, caught.value.hint) == (
        "RW306",
        "REBUILD MATERIALIZED VIEW v CASCADE also rebuilds these objects",
    )
    world.run("REBUILD MATERIALIZED VIEW v CASCADE")
    jobs = view_jobs(world)
    below, top = view(world, "v").id, view(world, "top").id
    assert {job: spec.inputs[0].generation for job, spec in jobs.items()} == {
        f"mv-{below}": 1,
        f"mv-{top}": 1,
        f"mv-{below}.2": 1,
        f"mv-{top}.2": 2,
    }
    operation = swap(world)
    assert operation.objects == ("v", "top")
    world.commit(operation)
    assert {spec.inputs[0].generation for job, spec in view_jobs(world).items() if job == f"mv-{top}"} == {2}


def test_views_that_do_not_read_each_other_do_not_wait_for_each_other() -> None:
    world = stacked()
    world.run("CREATE MATERIALIZED VIEW other AS SELECT id FROM s")
    world.run("REBUILD MATERIALIZED VIEW other", "REBUILD MATERIALIZED VIEW v CASCADE")
    groups = rebuild_groups(world.snapshot)
    assert [[found.name for found in group] for group in groups] == [["v", "top"], ["other"]]


def test_nothing_is_made_on_a_view_that_is_about_to_be_another_table() -> None:
    world = moved_world()
    world.run("REBUILD MATERIALIZED VIEW v")
    with pytest.raises(SqlError, match='materialized view "v" is being rebuilt') as caught:
        world.run("CREATE MATERIALIZED VIEW top AS SELECT id FROM v")
    assert caught.value.code == "RW309"
    world.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('0' = 15)")
    operation = world.operations[0].epoch
    with_point(world, operation)
    with pytest.raises(SqlError, match="materialized view v is being rebuilt"):
        world.run(f"REWIND SOURCE s TO OPERATION {operation}")


def test_a_sink_on_it_prevents_a_rebuild() -> None:
    world = moved_world()
    world.put_topic("out", (0, 0))
    world.run(
        "CREATE SINK k FROM v WITH (connector = 'kafka', topic = 'out', type = 'append-only', "
        "force_append_only = 'true', properties.bootstrap.server = '127.0.0.1:9092') FORMAT PLAIN ENCODE JSON"
    )
    with pytest.raises(SqlError, match='other objects depend on it: sink "k"') as caught:
        world.run("REBUILD MATERIALIZED VIEW v CASCADE")
    assert (caught.value.hint or "").startswith("DROP SINK k")


def test_show_jobs_lists_both() -> None:
    world = moved_world()
    world.run("REBUILD MATERIALIZED VIEW v")
    table = world.plan("SHOW JOBS").table
    assert table is not None
    id_ = view(world, "v").id
    assert (f"mv-{id_}.2", "materialized_view", "v", "WAITING") in [row[:4] for row in table.rows]
