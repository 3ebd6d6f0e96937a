"""The number of transactions that a move of a change data capture source skips or repeats."""

from __future__ import annotations

from rw_sql.connectors.changes import ChangeCount
from tests.plan.canned import refused
from tests.plan.canned_inspector import CannedUpstreams
from tests.plan.statements.table.test_cdc_tables import TABLE, cdc_world

LINES = "CREATE TABLE lines (*) FROM pg TABLE 'public.lines'"


def test_numbers_that_the_server_did_not_send_in_time_are_lower_limits() -> None:
    world = cdc_world(TABLE, LINES)
    world.run("PAUSE SOURCE pg")
    for is_exact, said in ((True, "skips 3 transactions with 40 changes"), (False, "skips at least 3 transactions")):
        world.changes = ChangeCount(transactions=3, changes=40, first_end=0x5100, is_exact=is_exact)
        plan = world.plan("SKIP RECORD AT 'shop' 20480 ON SOURCE pg")
        assert plan.preview is not None
        assert any(said in notice for notice in plan.preview.notices)


def test_changes_are_counted_in_the_tables_of_the_source() -> None:
    world = cdc_world(TABLE, LINES)
    world.run("PAUSE SOURCE pg")
    world.changes = ChangeCount(transactions=1, changes=3, first_end=0x5100)
    world.plan("SKIP RECORD AT 'shop' 20480 ON SOURCE pg")
    found = world.asked_of(CannedUpstreams.count_changes)
    assert [asked["tables"] for asked in found] == 2 * [("public.lines", "public.orders")]
    world = cdc_world(TABLE)
    world.run("PAUSE SOURCE pg")
    assert "did not report its end" in refused(world, "SKIP RECORD AT 'shop' 20480 ON SOURCE pg").message
    assert [asked["tables"] for asked in world.asked_of(CannedUpstreams.count_changes)] == [("public.orders",)]
