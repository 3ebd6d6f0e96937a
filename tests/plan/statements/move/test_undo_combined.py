"""UNDO OPERATION after other changes of the same source: a drop, another name, another cluster, new columns."""

from __future__ import annotations

from rw_sql.connectors.schemas.client import RegisteredSchema
from tests.plan.canned import ELSEWHERE, HERE, CannedWorld, create_source, moved_world, refused
from tests.plan.statements.move.test_undo import undo
from tests.plan.statements.source.test_schema_registry import ORDER, of, record, world_with


def world_with_connection() -> CannedWorld:
    """Like ``moved_world``, with the address in a connection, and the same topic in another cluster."""
    world = CannedWorld()
    world.put_topic("old", (10, 50), (0, 50))
    world.put_topic("old", (100, 200), at=ELSEWHERE)
    world.run(
        f"CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '{HERE}')",
        "CREATE SOURCE s (id INT) WITH (connector = 'kafka', connection = c, topic = 'old') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
    )
    world.read_on("s", old_0=40, old_1=50)
    return world


def test_no_pause_is_restored_of_a_source_that_was_dropped() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "RESUME SOURCE s")
    resumed = undo(world)
    world.run("DROP SOURCE s CASCADE")
    error = refused(world, resumed)
    assert error.code == "RW330"
    assert error.message.endswith('source "s", which it would pause, was dropped since')
    # Nothing is left that would keep another source of that name from being paused.
    world.run(create_source("s", "new"), "PAUSE SOURCE s")


def test_no_splits_are_restored_of_a_source_that_was_dropped() -> None:
    world = moved_world()
    world.run("RESET SOURCE SPLITS s WITH (REDISCOVER = false)")
    reset = undo(world)
    # With no splits left, the drop itself changes none.
    world.run("DROP SOURCE s CASCADE")
    error = refused(world, reset)
    assert "the source, or the view that read it, was dropped since" in error.message
    assert not any(world.snapshot.assigned.values())


def test_a_restored_pause_has_the_present_name_of_its_source() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "RESUME SOURCE s")
    resumed = undo(world)
    world.run("ALTER SOURCE s RENAME TO t")
    assert [(row.object, row.change) for row in world.run(resumed).changes] == [("t", "PAUSED")]
    assert [pause.name for pause in world.snapshot.all("pause")] == ["t"]
    world.run(create_source("s", "new"), "PAUSE SOURCE s", "RESUME SOURCE t", "RESUME SOURCE s")
    assert not world.snapshot.all("pause")


def test_undo_does_not_remove_the_columns_of_a_refreshed_schema() -> None:
    world = world_with(value=record(ORDER[:2]))
    world.run(f"CREATE SOURCE s (*) {of()}")
    world.schemas["t-value"] = RegisteredSchema(id=2, kind="AVRO", text=record(ORDER))
    world.run("ALTER SOURCE s REFRESH SCHEMA")
    refreshed = undo(world)
    world.run("CREATE MATERIALIZED VIEW v AS SELECT at FROM s")
    error = refused(world, refreshed)
    assert "it added columns, which the log contains and views may read" in error.message
    table = world.plan("SHOW UNSAFE OPERATIONS").table
    assert table is not None


def test_a_move_to_the_same_topic_of_another_cluster_is_undone_from_its_end() -> None:
    world = moved_world()
    world.put_topic("old", (100, 200), at=ELSEWHERE)
    world.run(f"ALTER SOURCE s UNSAFE SET (properties.bootstrap.server = '{ELSEWHERE}')")
    moved = undo(world)
    world.run("RESET SOURCE SPLITS s")
    reset = undo(world)
    world.read_on("s", old_0=150)
    assert refused(world, moved).hint == f"{reset}; then {moved}"
    plan = world.run(reset)
    assert any(f"the source stalls until {moved}" in row.detail for row in plan.changes)
    assert plan.preview is not None
    # The offsets of two clusters are not compared.
    assert plan.preview.splits[0].verdict == "UNKNOWN (other cluster)"
    assert not any(split.gaps or split.duplicates for split in plan.preview.splits)
    world.run(moved)
    assert world.states("s") == {"old:0": 40, "old:1": 50}


def test_a_connection_is_not_undone_below_a_reset_of_what_uses_it() -> None:
    world = world_with_connection()
    world.run(f"ALTER CONNECTION c SET (properties.bootstrap.server = '{ELSEWHERE}')")
    altered = undo(world)
    world.run("RESET SOURCE SPLITS s")
    reset = undo(world)
    world.silent.add(HERE)  # What is known of the other cluster would be a second reason.
    error = refused(world, altered)
    assert "later operations depend on it" in error.message
    assert error.hint == f"{reset}; then {altered}"
    world.silent.clear()
    world.run(reset, altered)
    assert world.states("s") == {"old:0": 40, "old:1": 50}


def test_an_object_in_another_group_is_moved_back_first() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "ALTER SOURCE s UNSAFE SET (topic = 'new')")
    moved = undo(world)
    world.run("ALTER SOURCE s SET RESOURCE_GROUP TO g")
    for statement in (moved, undo(world)):
        error = refused(world, statement)
        assert '"s": it was in resource group default then, and is in g now' in error.message
        assert error.hint == "ALTER SOURCE s SET RESOURCE_GROUP TO 'default'; then repeat this statement"
    world.run("ALTER SOURCE s SET RESOURCE_GROUP TO 'default'", moved)
    assert world.named("s") == ("old",)
    source = world.snapshot.find("source", "s")
    assert source is not None
    assert source.resource_group == "default"


def test_a_later_change_besides_the_group_blocks_the_undo() -> None:
    world = moved_world()
    world.run("PAUSE SOURCE s", "ALTER SOURCE s UNSAFE SET (topic = 'new')")
    moved = undo(world)
    world.run("ALTER SOURCE s SET RESOURCE_GROUP TO g", "ALTER SOURCE s SET source_rate_limit = 5")
    limited = world.operations[0].epoch
    error = refused(world, moved)
    assert f"later operations depend on it: {limited} " in error.message


def test_a_table_and_its_source_are_in_one_group_whichever_is_named() -> None:
    world = CannedWorld()
    world.put_topic("a", (0, 50))
    world.put_topic("b", (0, 50))
    world.run(
        "CREATE TABLE t (id INT PRIMARY KEY) WITH (connector = 'kafka', topic = 'a', "
        f"properties.bootstrap.server = '{HERE}') FORMAT UPSERT ENCODE JSON",
        "ALTER TABLE t UNSAFE SET (topic = 'b')",
    )
    moved = undo(world)

    def groups() -> set[str]:
        records = (world.snapshot.find("table", "t"), world.snapshot.find("source", "t"))
        return {record.resource_group for record in records if record is not None}

    world.run("ALTER SOURCE t SET RESOURCE_GROUP TO g")
    assert groups() == {"g"}
    assert refused(world, moved).hint == "ALTER TABLE t SET RESOURCE_GROUP TO 'default'; then repeat this statement"
    world.run("ALTER TABLE t SET RESOURCE_GROUP TO 'default'")
    assert groups() == {"default"}
    world.run(moved)
    assert world.named("t") == ("a",)
