"""Columns that appear upstream, for the tables that share the upstream table, without a server."""

from __future__ import annotations

import logging
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.changes import SchemaChange, TableProgress
from rw_sql.metastore.records import TableRecord
from rw_sql.plan.ports.positions import Positions
from rw_sql.runtime.ingest import capture as capture_module
from rw_sql.runtime.ingest.capture import ADD_COLUMNS, Capture
from rw_sql.runtime.ingest.unread_columns import UnreadColumns
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.warehouse import Warehouse
from tests.plan.statements.table.test_cdc_tables import cdc_world, ingest, source

if TYPE_CHECKING:
    from pathlib import Path

    from tests.plan.canned import CannedWorld

UPSTREAM = "public.orders"
A = f"CREATE TABLE a (id INT PRIMARY KEY, word VARCHAR) FROM pg TABLE '{UPSTREAM}'"
B = f"CREATE TABLE b (id INT PRIMARY KEY, said VARCHAR FROM word, amount NUMERIC(10, 2)) FROM pg TABLE '{UPSTREAM}'"


def report(world: CannedWorld, *columns: str, adds: bool, has_added: bool = True) -> list[set[str]]:
    """The reader reports new columns. Returns those that were to be added, once for each call."""
    calls: list[set[str]] = []

    def add(_id: int, _table: str, _known: Any, added: dict[str, str]) -> bool:
        calls.append(set(added))
        return has_added

    with suppress(StalledError):
        notice_of(world, *columns, adds=adds, made={ADD_COLUMNS: add})
    return calls


def notice_of(
    world: CannedWorld, *columns: str, adds: bool = False, made: dict[str, Any] | None = None, kind: str = "integer"
) -> str | None:
    """The notice of a running source whose reader reports new columns."""
    specs = {table.upstream: table for table in ingest(world).tables}
    capture = Capture(
        context=cast(
            "Any", SimpleNamespace(metastore=SimpleNamespace(snapshot=lambda: world.snapshot), made=made or {})
        ),
        source=source(world),
        split="shop",
        specs=specs,
        feed=cast("Any", None),
        tables={UPSTREAM: ("", TableProgress(table=UPSTREAM, columns={"id": "integer", "word": "text"}))},
        made=cast("Any", None),
        columns={name: frozenset(spec.columns) for name, spec in specs.items()},
        adds_columns=adds,
        _written={},
    )
    change = SchemaChange(table=UPSTREAM, position=1, added=dict.fromkeys(columns, kind))
    now = TableProgress(table=UPSTREAM, columns={"id": "integer", "word": "text", **change.added})
    taken: Any = SimpleNamespace(notices=(), changes=(change,), progress={UPSTREAM: now})
    capture.require_known((taken,))
    return capture.notice


def test_a_column_that_another_table_reads_already_is_added_too(caplog: pytest.LogCaptureFixture) -> None:
    assert report(cdc_world(A, B), "amount", adds=True) == [{"amount"}]
    assert report(cdc_world(B), "amount", adds=True) == []
    assert report(cdc_world(A, B), "word", adds=True) == [], "the table b has this column under another name"
    assert not caplog.messages


def test_a_table_that_leaves_out_columns_on_purpose_is_not_named_for_a_column_that_another_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    few = f"CREATE TABLE few (id INT PRIMARY KEY) FROM pg TABLE '{UPSTREAM}'"
    assert report(cdc_world(B, few), "amount", adds=True, has_added=False) == []
    assert not caplog.messages
    assert report(cdc_world(B, few), "more", adds=True, has_added=False) == [{"more"}]
    assert "few" in caplog.text


@pytest.mark.parametrize("adds", [False, True])
def test_the_notice_names_the_tables_that_lack_the_column(adds: bool, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        report(cdc_world(A, B), "amount", adds=adds, has_added=False)
    (notice,) = caplog.messages
    assert notice.endswith("new columns upstream: amount integer: ALTER TABLE a ADD COLUMN … adds one")


def test_the_running_source_shows_the_statement_that_adds_a_column() -> None:
    assert notice_of(cdc_world(A, B), "amount", "more") == (
        "table public.orders has new columns upstream: amount integer, more integer: "
        "ALTER TABLE a ADD COLUMN amount integer; ALTER TABLE a ADD COLUMN more integer; "
        "ALTER TABLE b ADD COLUMN more integer"
    )
    assert str(notice_of(cdc_world(A), "at", kind="tsvector")).endswith("at tsvector: ALTER TABLE a ADD COLUMN at …")
    assert notice_of(cdc_world(B), "amount") is None
    added = {ADD_COLUMNS: lambda *_: False}
    assert notice_of(cdc_world(A), "more", adds=True, made=added) is not None


def test_columns_that_no_table_reads_are_known_after_a_restart(tmp_path: Path) -> None:
    world = cdc_world(A)
    warehouse, record = Warehouse.at(str(tmp_path)), source(world)
    tables = [found for found in world.snapshot.all("table") if isinstance(found, TableRecord)]
    columns = UnreadColumns.of(warehouse, record)
    assert columns.notice(UPSTREAM, tables, ()) is None
    columns.note(SchemaChange(table=UPSTREAM, position=1, added={"more": "integer", "last": "text"}), ("more", "last"))
    columns.note(SchemaChange(table=UPSTREAM, position=2, dropped={"last": "text"}, retyped={"more": "bigint"}), ())
    again = UnreadColumns.of(warehouse, record)
    assert again.columns == {UPSTREAM: {"more": "bigint"}}
    assert again.notice(UPSTREAM, tables, ("id", "word", "more")) == columns.notice(UPSTREAM, tables, ())
    assert again.notice(UPSTREAM, tables, ("id", "word")) is None, "another upstream table has no such column"


def test_a_file_that_a_power_cut_emptied_counts_as_missing(tmp_path: Path) -> None:
    world = cdc_world(A)
    warehouse, record = Warehouse.at(str(tmp_path)), source(world)
    columns = UnreadColumns.of(warehouse, record)
    columns.note(SchemaChange(table=UPSTREAM, position=1, added={"more": "integer"}), ("more",))
    warehouse.write_text(columns.path, "")
    assert UnreadColumns.of(warehouse, record).columns == {}


def test_a_table_that_is_created_later_leaves_a_known_column_out_on_purpose(tmp_path: Path) -> None:
    world = cdc_world(A)
    warehouse, record = Warehouse.at(str(tmp_path)), source(world)

    def notice() -> str | None:
        tables = [found for found in world.snapshot.all("table") if isinstance(found, TableRecord)]
        return UnreadColumns.of(warehouse, record).notice(UPSTREAM, tables, ("id", "word", "amount"))

    change = SchemaChange(table=UPSTREAM, position=1, added={"amount": "numeric(10,2)"})
    UnreadColumns.of(warehouse, record).note(change, ("amount",))
    assert "ALTER TABLE a ADD COLUMN amount" in str(notice())
    world.run("ALTER TABLE a ADD COLUMN amount NUMERIC(10, 2)")
    assert notice() is None
    world.run(B.replace("TABLE b", "TABLE c").replace(", amount NUMERIC(10, 2)", ""))
    assert notice() is None


def test_a_reader_is_closed_if_the_columns_cannot_be_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, its connection would use the slot, and no later run could read."""
    world = cdc_world(A)
    record, spec = source(world), ingest(world)
    warehouse = Warehouse.at(str(tmp_path))
    change = SchemaChange(table=UPSTREAM, position=1, added={"word": "text"})
    UnreadColumns.of(warehouse, record).note(change, ("word",))
    closed: list[bool] = []
    reader = SimpleNamespace(open=lambda *_, **_named: None, close=lambda: closed.append(True))
    begun = SplitState(split="shop", offset=1)
    progress = TableProgress(table=UPSTREAM, columns={"id": "integer", "word": "text"})
    stored = {table.upstream: (table.snapshot, progress) for table in spec.tables}
    monkeypatch.setattr(capture_module, "begin_upstream", lambda *_, **_named: begun)
    monkeypatch.setattr(capture_module, "stored_progress", lambda *_: stored)

    def refuse(*_: Any, **_named: Any) -> None:
        raise OSError("the store is away")

    monkeypatch.setattr(Warehouse, "write_text", refuse)
    context: Any = SimpleNamespace(warehouse=warehouse, metastore=SimpleNamespace(snapshot=lambda: world.snapshot))
    kind: Any = SimpleNamespace(change_reader=lambda _: reader)
    positions = Positions(states=dict.fromkeys(spec.splits, begun), log_version=0, read_splits=frozenset(spec.splits))
    with pytest.raises(OSError, match="the store is away"):
        Capture.open(context, world.snapshot, kind, record, spec, {}, positions, 10)
    assert closed == [True]
