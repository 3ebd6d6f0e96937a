"""The settings of a snapshot that several tables of a change data capture source share."""

from __future__ import annotations

from tests.plan.statements.table.test_cdc_tables import cdc_world, ingest


def test_the_lowest_limits_of_all_tables_apply_to_their_snapshot() -> None:
    text = "CREATE TABLE {} (*) {} FROM pg TABLE 'public.orders'"
    world = cdc_world(
        text.format("a", "WITH (backfill_rate_limit = 10, snapshot.batch_size = '9')"),
        text.format("b", ""),
        text.format("c", "WITH (backfill_rate_limit = 20, snapshot.batch_size = '7')"),
        text.format("live", "WITH (snapshot = 'false')"),
    )
    (orders,) = ingest(world).tables
    assert (orders.rate, orders.chunk_rows) == (10, 7)
    world.run("ALTER TABLE a SET backfill_rate_limit = 0")
    assert ingest(world).tables[0].rate == 0
    world.run("DROP TABLE a")
    assert ingest(world).tables[0].rate == 20
    world.run("DROP TABLE c")
    (orders,) = ingest(world).tables
    assert (orders.rate, orders.chunk_rows) == (None, None)
