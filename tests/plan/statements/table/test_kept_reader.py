"""The reader of a captured database runs on after its last table is dropped, so that the server can discard its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.registry import has_slot
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.job_specs import desired_jobs
from rw_sql.plan.statements import common
from rw_sql.plan.statements.show.job_states import source_state
from rw_sql.plan.statements.view.rebuild import rebuild_groups, swap_operation
from tests.plan.canned import create_source
from tests.plan.statements.table.test_cdc_tables import TABLE, cdc_world, ingest, source

if TYPE_CHECKING:
    import pytest


def test_the_reader_goes_on_when_the_last_table_is_dropped() -> None:
    """Otherwise, the server would keep its log for the slot without a limit."""
    world = cdc_world(TABLE, "CREATE TABLE lines (*) FROM pg TABLE 'public.lines'")
    world.run("DROP TABLE lines")
    assert not source(world).keeps_reader
    assert [row.change for row in world.run("DROP TABLE orders").changes] == ["DROPPED"]
    assert source(world).keeps_reader
    assert ingest(world).tables == ()
    assert source_state(world.snapshot, source(world), {})[0] == "WAITING"
    world.run("PAUSE SOURCE pg")
    assert not desired_jobs(world.snapshot)
    world.run("RESUME SOURCE pg", TABLE)
    assert [each.upstream for each in ingest(world).tables] == ["public.orders"]
    world.run("DROP SOURCE pg CASCADE")
    assert not desired_jobs(world.snapshot)


def test_the_reader_goes_on_when_the_last_view_or_sink_is_dropped() -> None:
    world = cdc_world("CREATE MATERIALIZED VIEW v AS SELECT op FROM pg")
    world.run("DROP MATERIALIZED VIEW v")
    assert ingest(world).tables == ()


def test_the_reader_goes_on_when_the_last_view_gets_another_query() -> None:
    world = cdc_world(create_source("other", "new"), "CREATE MATERIALIZED VIEW v AS SELECT op FROM pg")
    world.run("ALTER MATERIALIZED VIEW v AS SELECT id FROM other")
    (group,) = rebuild_groups(world.snapshot)
    world.commit(swap_operation(world.snapshot, group, "the owner"))
    assert source(world).keeps_reader
    assert ingest_fragment(source(world).id) in desired_jobs(world.snapshot)


def test_the_reader_of_a_source_without_a_slot_ends_with_its_last_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [has_slot(name) for name in ("postgres-cdc", "mysql-cdc", "kafka")] == [True, False, False]
    world = cdc_world(TABLE)
    monkeypatch.setattr(common, "has_slot", lambda _connector: False)
    world.run("DROP TABLE orders")
    assert not source(world).keeps_reader
    assert not desired_jobs(world.snapshot)


def test_an_operation_before_the_last_table_was_dropped_can_be_undone_and_the_reader_goes_on() -> None:
    world = cdc_world(TABLE, "ALTER SOURCE pg CONNECTOR WITH (username = 'other')")
    operation = world.snapshot.epoch
    world.run("DROP TABLE orders")
    world.run(f"UNDO OPERATION {operation}")
    assert "username = 'u'" in source(world).definition
    assert source(world).keeps_reader


def test_a_source_that_nothing_has_read_has_no_reader() -> None:
    world = cdc_world()
    assert not desired_jobs(world.snapshot)
    assert source_state(world.snapshot, source(world), {})[0] == "IDLE"
