"""The place in a source's log after which a new table of a change data capture source reads changes."""

from __future__ import annotations

from rw_sql.metastore.records import PutSplitStates
from tests.plan.statements.table.test_cdc_tables import TABLE, cdc_world, ingest, table

LIVE = "CREATE TABLE live (*) WITH (snapshot = 'false') FROM pg TABLE 'public.orders'"


def test_a_table_without_a_snapshot_begins_at_the_end_of_the_server_s_log() -> None:
    world = cdc_world("PAUSE SOURCE pg")
    world.grown["shop"] = 0x7000
    world.run(TABLE, LIVE, "RESUME SOURCE pg")
    made = [table(world, name).live_from for name in ("orders", "live")]
    assert [each.offset for each in made if each is not None] == [0x5000, 0x7000]
    assert ingest(world).tables[0].live_from == 0x7000
    world.grown["shop"] = 0x9000
    world.run(LIVE.replace("live", "later"))
    assert ingest(world).tables[0].live_from == 0x7000
    world.run("DROP TABLE live")
    assert ingest(world).tables[0].live_from == 0x9000
    world.run("PAUSE SOURCE pg", "RESET SOURCE SPLITS pg ALLOW GAPS WITH (FORGET_OFFSETS = true)", "RESUME SOURCE pg")
    assert ingest(world).tables[0].live_from == 0, "the table reads everything after the new position"


def test_the_end_of_another_server_s_log_is_not_the_beginning_of_a_table() -> None:
    world = cdc_world()
    ((fragment, states),) = ((fragment, each) for fragment, each in world.snapshot.stored.items())
    of_other = {split: row.state.replace("7:1", "8:1") for split, row in states.items()}
    world.apply((PutSplitStates(fragment=fragment, states=of_other),))
    world.grown["shop"] = 0x7000
    world.run(LIVE)
    made = table(world, "live").live_from
    assert made is not None
    assert made.offset == 0x5000


def test_a_table_begins_at_the_position_of_the_split_that_is_read() -> None:
    world = cdc_world("PAUSE SOURCE pg", "ALTER SOURCE pg UNSAFE SET (database.name = 'other')", TABLE)
    of_other = table(world, "orders").live_from
    assert of_other is not None
    assert (of_other.split, of_other.run) == ("other", 1)
    world.run_number = 4
    world.run("ALTER SOURCE pg UNSAFE SET (database.name = 'shop')", TABLE.replace("orders (", "again ("))
    of_shop = table(world, "again").live_from
    assert of_shop is not None
    assert (of_shop.split, of_shop.run) == ("shop", 4)
    assert of_shop.since < of_other.since, "the split continues with its older position"


def test_a_new_column_of_a_table_without_a_snapshot_waits_for_changes() -> None:
    world = cdc_world(TABLE.replace("(*)", "(id INT PRIMARY KEY)"), LIVE.replace("(*)", "(id INT PRIMARY KEY)"))
    details = [world.answers(f"ALTER TABLE {name} ADD COLUMN word VARCHAR") for name in ("orders", "live")]
    assert details == [
        [("ALTERED", "column word added: NULL in existing rows until the table has been read again")],
        [("ALTERED", "column word added: NULL in existing rows until they change upstream")],
    ]
