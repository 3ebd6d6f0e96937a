"""Jobs at rest in several resource groups."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.metastore.records import (
    MaterializedViewRecord,
    PutObject,
    SourceRecord,
)
from rw_sql.runtime.control.reconciler import Reconciler
from rw_sql.runtime.jobs.applied_epoch import Applied
from rw_sql.runtime.jobs.wakes import Wakes
from tests.runtime.rested_sources import World

if TYPE_CHECKING:
    pass


def _moved(world: World, id_: int, group: str) -> None:
    """Moves an object to a resource group."""
    snapshot = world.metastore.snapshot()
    record = snapshot.get(id_)
    assert isinstance(record, SourceRecord | MaterializedViewRecord)
    world.commit(PutObject(record=replace(record, resource_group=group, group_since=snapshot.epoch + 1)))


def test_a_view_wakes_when_its_source_is_moved_to_another_group_and_rests_no_more(world: World) -> None:
    for id_ in (10, 20):
        world.source(id_)
    world.rest(10, 20)
    world.starts.clear()
    _moved(world, 10, "b")
    world.reach(lambda: world.started() == ["mv-11"], "the view was started")
    world.passes()
    assert world.started() == ["mv-11"]
    assert not world.jobs["mv-11"].is_stopped
    assert world.status("ingest-20").state == "RUNNING"  # type: ignore[union-attr]
    # The source comes back: its view may rest again.
    _moved(world, 10, "default")
    world.rest(10, 20)


def test_a_process_does_not_leave_at_rest_a_view_whose_source_was_moved_while_none_ran(world: World) -> None:
    world.source(10)
    world.rest(10)
    world.again()
    _moved(world, 10, "b")
    world.reach(lambda: world.started() == ["mv-11"], "the view was started")


def test_each_group_has_its_own_list_of_jobs_at_rest(world: World) -> None:
    for id_ in (10, 20):
        world.source(id_)
    for id_ in (20, 21):
        _moved(world, id_, "b")
    world.rest(10)
    assert not any(spec.object_id in (20, 21) for spec in world.starts)
    of_default, default = world.reconciler, world.context
    world.context = replace(world.context, group="b", wakes=Wakes(), applied=Applied())
    world.reconciler = Reconciler(world.context)
    world.rest(20)
    world.again()
    of_default.stop_all()
    of_default.report_stopped()
    folder = f"{world.context.warehouse.uri}/checkpoints"
    assert set(json.loads(default.warehouse.read_text(f"{folder}/resting.json"))) == {"ingest-10", "mv-11"}
    assert set(json.loads(default.warehouse.read_text(f"{folder}/resting-b.json"))) == {"ingest-20", "mv-21"}
    world.rest(20)
    assert not world.starts
    world.cluster.ends["t20:0"] = 4
    world.reach(lambda: len(world.starts) == 2, "what reads the topic was started")
    assert set(world.started()) == {"ingest-20", "mv-21"}
