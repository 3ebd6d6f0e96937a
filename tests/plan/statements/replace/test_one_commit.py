"""CREATE OR REPLACE of several statements is one commit: the epochs in its records are those of that commit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore.records import MaterializedViewRecord, PutObject, RebuildRecord
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.plan.result.steps import in_one_commit
from tests.plan.canned import create_source, moved_world
from tests.plan.statements.table.test_cdc_tables import ORDERS, TABLE
from tests.plan.statements.table.test_cdc_tables import source as captured
from tests.plan.tables import tables_world

if TYPE_CHECKING:
    from tests.plan.canned import CannedWorld

VIEW = "CREATE OR REPLACE MATERIALIZED VIEW v WITH (backfill_rate_limit = 5, resource_group = 'b') AS SELECT id FROM s"
SOURCE = create_source("s", "old", "source_rate_limit = 100", "resource_group = 'b'").replace(
    "CREATE ", "CREATE OR REPLACE "
)


def group_of(world: CannedWorld, kind: str, name: str) -> tuple[str, int]:
    """The resource group of an object, and since when it is in that group."""
    record = world.snapshot.find(kind, name)
    return getattr(record, "resource_group"), getattr(record, "group_since")  # noqa: B009 - both kinds have them


@pytest.mark.parametrize(("text", "kind", "name"), [(SOURCE, "source", "s"), (VIEW, "materialized_view", "v")])
def test_an_object_joins_a_resource_group_with_the_commit_that_also_changes_it(text: str, kind: str, name: str) -> None:
    world = moved_world()
    before = world.snapshot.epoch
    plan = world.run(text)
    assert len([row for row in plan.changes if row.change == "ALTERED"]) > 1
    assert world.snapshot.epoch == before + 1
    assert group_of(world, kind, name) == ("b", world.snapshot.epoch)


def test_the_tables_of_a_captured_source_are_read_again_from_the_commit_that_moves_it() -> None:
    """Only if the source's snapshot has the epoch of its position, a slot may be created there."""
    world = tables_world()
    world.upstream_tables = {"public.orders": ORDERS}
    for name, database in (("c1", "shop"), ("c2", "other")):
        world.run(
            f"CREATE CONNECTION {name} WITH (type = 'postgres', hostname = 'db', username = 'u', "
            f"database.name = '{database}')"
        )
    text = "SOURCE pg WITH (connector = 'postgres-cdc', connection = c1, slot.name = 'rw', publication.name = 'rw')"
    world.run(f"CREATE {text}", TABLE)
    world.run("CREATE OR REPLACE " + text.replace("c1", "c2").replace("slot.name = 'rw'", "slot.name = 'rw2'"))
    positions = world.snapshot.states(ingest_fragment(captured(world).id))
    assert positions["other"].epoch == captured(world).snapshot == world.snapshot.epoch


def test_the_record_in_a_rebuild_has_the_epoch_of_the_commit_too() -> None:
    world = moved_world()
    view = world.snapshot.find("materialized_view", "v")
    assert isinstance(view, MaterializedViewRecord)
    later = replace(view, group_since=world.snapshot.epoch + 2)
    rebuild = RebuildRecord(id=90, name="v", view_id=view.id, generation=2, view=later)
    (change,) = in_one_commit(world.snapshot, (PutObject(record=rebuild),))
    assert isinstance(change, PutObject)
    assert isinstance(change.record, RebuildRecord)
    assert change.record.view is not None
    assert change.record.view.group_since == world.snapshot.epoch + 1
