"""The sweep of old generations beside the owner of another resource group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.metastore import Metastore
from rw_sql.metastore.records import MaterializedViewRecord, Operation, PutObject, RebuildRecord
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.upkeep.dropped_objects import sweep

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.metastore.records import ObjectRecord


def put(metastore: Metastore, record: ObjectRecord) -> int:
    operation = Operation(kind="TEST", statement="", objects=(), changes=(PutObject(record=record),))
    return metastore.commit(operation, based_on=metastore.snapshot()).epoch


def test_the_folders_of_a_rebuild_that_begins_during_the_sweep_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = Warehouse.at(str(tmp_path / "warehouse"))
    metastore = Metastore.open(warehouse.uri)
    context = Context(warehouse=warehouse, metastore=metastore, sessions=cast("Any", None), owner="a test")
    view = MaterializedViewRecord(
        id=1, name="v", definition="", query="SELECT 1", schema="", inputs=(), generation=3, resource_group="other"
    )
    epoch = put(metastore, view)
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
