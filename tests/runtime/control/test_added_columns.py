"""Columns of a database's table that appear there are added to the tables that read all of its columns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from rw_sql.connectors.changes import UpstreamColumn, UpstreamTable
from rw_sql.metastore.records import SourceRecord, TableRecord
from rw_sql.model.definitions import table_definition
from rw_sql.runtime.control import added_columns
from tests.plan.canned import CannedWorld
from tests.plan.tables import tables_world

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Operation
    from rw_sql.runtime.jobs.context import Context

SOURCE = (
    "CREATE SOURCE pg WITH (connector = 'postgres-cdc', hostname = 'db', username = 'u', database.name = 'shop', "
    "slot.name = 'rw', publication.name = 'rw')"
)


def _column(name: str) -> UpstreamColumn:
    return UpstreamColumn(name=name, type="integer", canonical="INT")


def _upstream(*names: str) -> dict[str, UpstreamTable]:
    columns = tuple(_column(name) for name in names)
    return {"public.t": UpstreamTable(table="public.t", columns=columns, key=("id",))}


def _world(*texts: str) -> CannedWorld:
    world = tables_world()
    world.upstream_tables = _upstream("id", "old", "same")
    world.run(SOURCE, *texts)
    return world


def _add(world: CannedWorld, monkeypatch: pytest.MonkeyPatch, known: set[str], *added: str) -> bool:
    def commit(operation: Operation, *, based_on: Snapshot) -> None:
        assert based_on == world.snapshot
        world.commit(operation)

    monkeypatch.setattr(added_columns, "WarehouseInspector", lambda _context, _snapshot: world.inspector)
    metastore = SimpleNamespace(snapshot=lambda: world.snapshot, commit=commit)
    context = cast("Context", SimpleNamespace(metastore=metastore, owner="owner"))
    source = world.snapshot.find("source", "pg")
    assert isinstance(source, SourceRecord)
    return added_columns.add_columns(context, source.id, "public.t", known, dict.fromkeys(added, "integer"))


def _columns(world: CannedWorld, name: str) -> list[str]:
    found = world.snapshot.find("table", name)
    assert isinstance(found, TableRecord)
    return [column.name for column in table_definition(found.definition).columns]


def test_a_renamed_column_comes_after_the_old_one_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _world(
        "CREATE TABLE whole (*) FROM pg TABLE 'public.t'",
        "CREATE TABLE part (id INT PRIMARY KEY, old INT) FROM pg TABLE 'public.t'",
    )
    world.upstream_tables = _upstream("id", "new", "same")
    world.run("ALTER TABLE whole DROP COLUMN old", "ALTER TABLE part DROP COLUMN old")
    assert _add(world, monkeypatch, {"id", "old", "same"}, "new")
    assert _columns(world, "whole") == ["id", "same", "new"]
    assert _columns(world, "part") == ["id"]


def test_a_new_column_comes_though_another_is_gone_and_not_dropped_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _world("CREATE TABLE whole (*) FROM pg TABLE 'public.t'")
    world.upstream_tables = _upstream("id", "same", "new")
    assert _add(world, monkeypatch, {"id", "old", "same"}, "new")
    assert _columns(world, "whole") == ["id", "old", "same", "new"]


def test_a_new_column_that_is_gone_again_is_not_added(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _world("CREATE TABLE whole (*) FROM pg TABLE 'public.t'")
    assert not _add(world, monkeypatch, {"id", "old", "same"}, "new")
    assert _columns(world, "whole") == ["id", "old", "same"]


def test_a_new_column_comes_to_the_tables_that_lack_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _world("CREATE TABLE whole (*) FROM pg TABLE 'public.t'")
    world.upstream_tables = _upstream("id", "old", "same", "new")
    world.run("CREATE TABLE named (id INT PRIMARY KEY, old INT, same INT, other INT FROM new) FROM pg TABLE 'public.t'")
    assert _add(world, monkeypatch, {"id", "old", "same"}, "new")
    assert _columns(world, "whole") == ["id", "old", "same", "new"]
    assert _columns(world, "named") == ["id", "old", "same", "other"]
    assert not _add(world, monkeypatch, {"id", "old", "same"}, "new")
