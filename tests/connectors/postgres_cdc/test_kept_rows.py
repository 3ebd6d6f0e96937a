"""What the reader of a slot keeps when another snapshot begins, without a server."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rw_sql.connectors.changes import CaptureError, TableProgress
from rw_sql.connectors.postgres_cdc import followed as followed_module
from rw_sql.connectors.postgres_cdc import reader as reader_module
from rw_sql.connectors.postgres_cdc.followed import BEGIN, COLUMNS_FROM, with_begin
from rw_sql.connectors.postgres_cdc.reader import PostgresReader
from rw_sql.connectors.postgres_cdc.tables import CatalogTable

FRESH = TableProgress(table="public.t")
KEPT = replace(FRESH, columns={"id": "integer"}, continues="7/8")


def found(monkeypatch: pytest.MonkeyPatch, progress: TableProgress) -> TableProgress:
    """The progress with which the reader begins, while the server's log ends at 0/10."""
    monkeypatch.setattr(reader_module, "followed", lambda _, given, *__: (replace(given, identity="7/8"), None))
    reader = PostgresReader({"slot.name": "s", "database.name": "d", "publication.name": "p"})
    connection = SimpleNamespace(execute=lambda _: SimpleNamespace(fetchone=lambda: ("0/10",)))
    return reader._found(cast("Any", connection), progress)


def test_the_begin_of_a_snapshot_stays_when_another_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, FRESH).traits == {BEGIN: "16"}
    begun = found(monkeypatch, replace(KEPT, traits={BEGIN: "9"}))
    assert (begun.traits, begun.continues) == ({BEGIN: "9", COLUMNS_FROM: "16"}, None)


def test_no_change_is_ignored_that_a_table_without_a_snapshot_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, replace(FRESH, has_live_tables=True)).traits == {}
    assert found(monkeypatch, replace(KEPT, has_live_tables=True)).traits == {}
    names_only = replace(KEPT, has_live_tables=True, columns={"id": ""})
    assert found(monkeypatch, names_only).traits == {COLUMNS_FROM: "16"}


def test_a_table_without_a_snapshot_needs_no_change_from_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    live = replace(FRESH, has_live_tables=True, live_from=9)
    assert found(monkeypatch, live).traits == {BEGIN: "9"}
    assert found(monkeypatch, replace(live, is_done=True)).traits == {BEGIN: "9"}
    assert found(monkeypatch, replace(live, live_from=20)).traits == {BEGIN: "16"}
    begun = replace(FRESH, traits={BEGIN: "16", COLUMNS_FROM: "5"})
    assert with_begin(begun) == begun
    assert with_begin(replace(begun, has_live_tables=True, live_from=9)).traits == {BEGIN: "9", COLUMNS_FROM: "5"}
    assert with_begin(replace(begun, has_live_tables=True)).traits == {COLUMNS_FROM: "5"}


def test_the_rows_that_are_kept_belong_to_the_same_table() -> None:
    table = cast("CatalogTable", SimpleNamespace(membership="1/2", is_published=True, stored_identity="9/9"))
    for progress in (KEPT, replace(FRESH, identity="7/8")):
        with pytest.raises(CaptureError, match="is not the table that was read"):
            followed_module._require_membership(cast("Any", None), table, progress, "p")
    followed_module._require_membership(cast("Any", None), table, FRESH, "p")
    followed_module._require_membership(cast("Any", None), table, replace(KEPT, continues="9/9"), "p")
