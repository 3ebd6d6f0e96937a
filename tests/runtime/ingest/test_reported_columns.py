"""Columns that appear upstream, for the tables that share the upstream table, without a server."""

from __future__ import annotations

import logging
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.connectors.changes import SchemaChange, TableProgress
from rw_sql.runtime.ingest.capture import ADD_COLUMNS, Capture
from rw_sql.runtime.support.failures import StalledError
from tests.plan.statements.table.test_cdc_tables import cdc_world, ingest, source

if TYPE_CHECKING:
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

    specs = {table.upstream: table for table in ingest(world).tables}
    capture = Capture(
        context=cast(
            "Any",
            SimpleNamespace(metastore=SimpleNamespace(snapshot=lambda: world.snapshot), made={ADD_COLUMNS: add}),
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
    change = SchemaChange(table=UPSTREAM, position=1, added=dict.fromkeys(columns, "integer"))
    taken: Any = SimpleNamespace(notices=(), changes=(change,))
    with suppress(StalledError):
        capture.require_known((taken,))
    return calls


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
