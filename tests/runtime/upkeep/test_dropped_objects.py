"""The sweep of old generations, also beside the owner of another resource group."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import JobStatus, PointDependent, RewindPoint
from rw_sql.metastore.records import (
    DropObject,
    MaterializedViewRecord,
    Operation,
    PutObject,
    RebuildRecord,
    SinkRecord,
    SourceRecord,
)
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.upkeep.dropped_objects import sweep

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rw_sql.metastore.records import ObjectRecord


def put(metastore: Metastore, record: ObjectRecord) -> int:
    operation = Operation(kind="TEST", statement="", objects=(), changes=(PutObject(record=record),))
    return metastore.commit(operation, based_on=metastore.snapshot()).epoch


def opened(folder: Path) -> Context:
    warehouse = Warehouse.at(str(folder / "warehouse"))
    metastore = Metastore.open(warehouse.uri)
    return Context(warehouse=warehouse, metastore=metastore, sessions=cast("Any", None), owner="a test")


def view_of(generation: int, **fields: Any) -> MaterializedViewRecord:
    return MaterializedViewRecord(
        id=1, name="v", definition="", query="SELECT 1", schema="", inputs=(), generation=generation, **fields
    )


@pytest.mark.parametrize(
    ("view", "rebuilds", "left"),
    [
        # The previous generation is kept, and a rebuild makes the next one.
        (view_of(3), (4,), [2, 3, 4]),
        # The rebuild was cancelled.
        (view_of(1, last_generation=2), (), [1]),
        (view_of(1), (2,), [1, 2]),
        # This view was never rebuilt, so its folders are not listed: the folders of the other generations are not real.
        (view_of(1), (), [1, 2, 3, 4, 5]),
    ],
)
def test_staging_tables_go_with_the_generation_that_they_were_made_for(
    tmp_path: Path, view: MaterializedViewRecord, rebuilds: tuple[int, ...], left: list[int]
) -> None:
    context = opened(tmp_path)
    warehouse, metastore = context.warehouse, context.metastore
    epoch = put(metastore, view)
    for generation in rebuilds:
        epoch = put(metastore, RebuildRecord(id=2, name="v", view_id=1, generation=generation))
    for generation in (1, 2, 3, 4, 5):
        warehouse.make_folders(*(warehouse.history(1, generation, source) for source in (7, 12)))
    others = ["other", "refresh-1", "history-1", "1-rewind-0a1b2c3d"]
    warehouse.make_folders(*(f"{warehouse.uri}/data/1/{name}" for name in others))
    assert sweep(context, epoch)
    staged = [f"history-{generation}-{source}" for generation in left for source in (7, 12)]
    assert sorted(warehouse.list_names(f"{warehouse.uri}/data/1")) == sorted([*others, *staged])


def test_rejected_rows_go_with_the_generation_of_their_sink(tmp_path: Path) -> None:
    context = opened(tmp_path)
    warehouse, metastore = context.warehouse, context.metastore
    sink = SinkRecord(
        id=1,
        name="k",
        definition="",
        connector="jdbc",
        options=(),
        inputs=(),
        schema="",
        type="upsert",
        generation=4,
    )
    epoch = put(metastore, sink)
    points = (PointDependent(id=1, generation=2, version=0, batch=0),)
    metastore.jobs.write_rewind_points(
        (RewindPoint(source_id=7, operation=1, made_ms=0, folder="points", dependents=points),)
    )
    warehouse.make_folders(*(warehouse.rejected(1, generation) for generation in (1, 2, 3, 4)))
    assert sweep(context, epoch)
    assert sorted(warehouse.list_names(f"{warehouse.uri}/data/1")) == ["rejected-2", "rejected-3", "rejected-4"]


def test_the_table_of_an_earlier_generation_of_a_view_goes_although_there_is_a_rewind_point(tmp_path: Path) -> None:
    """No REWIND restores it."""
    context = opened(tmp_path)
    warehouse, metastore = context.warehouse, context.metastore
    epoch = put(metastore, view_of(4))
    points = (PointDependent(id=1, generation=2, version=0, batch=0),)
    metastore.jobs.write_rewind_points(
        (RewindPoint(source_id=7, operation=1, made_ms=0, folder="points", dependents=points),)
    )
    folders = (f"{warehouse.uri}/data/1", f"{warehouse.uri}/checkpoints/mv-1")
    for folder in folders:
        warehouse.make_folders(*(f"{folder}/{generation}" for generation in (2, 3, 4)))
    assert sweep(context, epoch)
    assert [sorted(warehouse.list_names(folder)) for folder in folders] == [["3", "4"]] * 2


def test_the_rewind_points_of_a_dropped_source_go_with_it(tmp_path: Path) -> None:
    context = opened(tmp_path)
    warehouse, metastore = context.warehouse, context.metastore
    for id_ in (1, 2):
        record = SourceRecord(id=id_, name=f"s{id_}", definition="", connector="datagen", options=(), is_shared=True)
        put(metastore, record)
        metastore.jobs.write_rewind_points(
            (RewindPoint(source_id=id_, operation=id_, made_ms=0, folder=f"rewind-{id_}/{id_}-0"),)
        )
        warehouse.make_folders(f"{warehouse.uri}/checkpoints/rewind-{id_}/{id_}-0")
    operation = Operation(kind="TEST", statement="", objects=(), changes=(DropObject(id=1),))
    epoch = metastore.commit(operation, based_on=metastore.snapshot()).epoch
    assert sweep(context, epoch)
    assert [point.source_id for point in metastore.jobs.rewind_points()] == [2]
    assert warehouse.list_names(f"{warehouse.uri}/checkpoints") == ["rewind-2"]


def test_only_objects_that_were_dropped_lose_their_statuses_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of another group may report the job of an object that is newer than the sweep's catalog."""
    context = opened(tmp_path)
    jobs, metastore = context.metastore.jobs, context.metastore
    put(metastore, view_of(1))
    dropped = DropObject(id=1)
    operation = Operation(kind="TEST", statement="", objects=(), changes=(dropped,))
    epoch = metastore.commit(operation, based_on=metastore.snapshot()).epoch
    jobs.claim_runs(["mv-1", "mv-2"], 1, "a test")
    jobs.write_job_status([JobStatus(job=f"mv-{id_}", object_id=id_, state="RUNNING") for id_ in (1, 2)])
    forgotten: list[int] = []
    monkeypatch.setattr(jobs, "forget_dropped", lambda is_dropped: forgotten.extend(filter(is_dropped, (1, 2))))
    statuses = jobs.job_statuses

    def with_a_statement() -> Mapping[str, JobStatus]:
        """As if the view 2 were created at this moment."""
        if metastore.snapshot().epoch == epoch:
            put(metastore, replace(view_of(1), id=2, name="w"))
        return statuses()

    monkeypatch.setattr(jobs, "job_statuses", with_a_statement)
    assert sweep(context, epoch)
    assert jobs.job_statuses().keys() == {"mv-2"}
    assert forgotten == [1]


def test_the_folders_of_a_rebuild_that_begins_during_the_sweep_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = opened(tmp_path)
    warehouse, metastore = context.warehouse, context.metastore
    epoch = put(metastore, view_of(3, resource_group="other"))
    folders = (f"{warehouse.uri}/data/1", f"{warehouse.uri}/checkpoints/mv-1")
    for folder in folders:
        warehouse.make_folders(*(f"{folder}/{generation}" for generation in (1, 2, 3)))
    list_names = Warehouse.list_names

    def with_a_statement(self: Warehouse, folder: str) -> list[str]:
        """As if the owner of the other group began to rebuild the view at this moment."""
        if folder == folders[0] and metastore.snapshot().epoch == epoch:
            put(Metastore.open(warehouse.uri), RebuildRecord(id=2, name="v", view_id=1, generation=4))
            warehouse.make_folders(*(f"{folder}/4" for folder in folders))
        return list_names(self, folder)

    monkeypatch.setattr(Warehouse, "list_names", with_a_statement)
    assert sweep(context, epoch)
    assert [sorted(list_names(warehouse, folder)) for folder in folders] == [["2", "3", "4"]] * 2
