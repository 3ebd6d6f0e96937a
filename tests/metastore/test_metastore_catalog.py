from __future__ import annotations

import json
from typing import Any

import pytest
import sqlglot
from deltalake import DeltaTable

from rw_sql.assets import list_assets, read_asset
from rw_sql.errors import SqlError
from rw_sql.metastore import Metastore, migrations
from rw_sql.metastore.catalog import AddColumns, CreateTable, load_catalog, parse_catalog
from rw_sql.metastore.table import create_table
from tests.metastore.metastore_model import Make

TABLE = "CREATE TABLE rw_catalog.things (id BIGINT NOT NULL COMMENT 'it''s; its (id)', names ARRAY<STRING>);"


def test_the_shipped_files_parse_and_name_their_views() -> None:
    catalog = load_catalog()
    assert {"migrations", "operations", "objects", "fragment_splits", "source_state"} <= set(catalog.tables())
    assert {"rw_sources", "rw_materialized_views", "rw_fragment_splits", "rw_source_state", "rw_operations"} <= set(
        catalog.views
    )
    assert {"rw_jobs", "rw_depend", "rw_event_logs", "rw_parameters"} <= set(catalog.views)


def test_a_table_becomes_a_delta_schema() -> None:
    text = TABLE.replace("names", "at TIMESTAMP, sizes MAP<STRING, ARRAY<INT>>, names").replace(
        ");", ") TBLPROPERTIES ('delta.appendOnly' = 'true');"
    )
    (migration,) = parse_catalog([("0001_things.sql", text)]).migrations
    (table,) = migration.statements
    assert isinstance(table, CreateTable)
    assert table.properties == {"delta.appendOnly": "true"}
    fields = json.loads(table.schema.to_json())["fields"]
    assert [(f["name"], f["nullable"]) for f in fields] == [
        ("id", False),
        ("at", True),
        ("sizes", True),
        ("names", True),
    ]
    assert fields[0]["metadata"] == {"comment": "it's; its (id)"}
    assert fields[2]["type"]["valueType"]["elementType"] == "integer"


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"0001_a.sql": TABLE, "0001_b.sql": TABLE}, "same number"),
        ({"0001_a.sql": TABLE, "0003_b.sql": TABLE}, "gap"),
        ({"0002_a.sql": TABLE}, "gap"),
        ({"one.sql": TABLE}, "not named"),
        ({"0001_a.sql": "DROP TABLE rw_catalog.things"}, "not understood"),
        ({"0001_a.sql": "CREATE TABLE rw_catalog.things (id BIGINT) PARTITIONED BY (id)"}, "not understood"),
        ({"0001_a.sql": "CREATE TABLE rw_catalog.things (id NUMBER)"}, "not a type"),
        ({"0001_a.sql": "CREATE TABLE rw_catalog.things (id)"}, "not a column"),
        ({"0001_a.sql": "CREATE TABLE rw_catalog.things (id BIGINT"}, "does not close"),
    ],
)
def test_a_catalog_that_is_wrong_is_refused(files: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_catalog(files.items())


def test_a_later_definition_of_a_view_replaces_the_earlier(warehouse: str) -> None:
    catalog = parse_catalog(
        [
            ("0001_a.sql", TABLE + "CREATE VIEW rw_catalog.rw_things AS SELECT 1 FROM rw_catalog.things"),
            ("0002_b.sql", "CREATE OR REPLACE VIEW rw_catalog.rw_things AS SELECT 'a;b' FROM rw_catalog.things t"),
        ]
    )
    assert catalog.view_definitions("/w`h/rw_catalog") == (
        ("rw_things", "SELECT 'a;b' FROM delta.`/w``h/rw_catalog/things` t"),
    )


def test_views_read_the_tables_of_their_warehouse(metastore: Metastore, warehouse: str) -> None:
    definitions = dict(metastore.view_definitions())
    assert f"delta.`{warehouse}/rw_catalog/objects`" in definitions["rw_sources"]
    assert not any("rw_catalog.objects" in text for text in definitions.values())


def test_every_view_is_a_query(metastore: Metastore) -> None:
    for _, text in metastore.view_definitions():
        assert isinstance(sqlglot.parse_one(text, read="spark"), sqlglot.exp.Query)


def _shipped() -> list[tuple[str, str]]:
    return [(name, read_asset("catalog", name)) for name in list_assets("catalog", ".sql")]


def test_a_newer_format_is_refused_and_nothing_changes(warehouse: str, make: Make) -> None:
    shipped = _shipped()
    number = len(shipped) + 1
    newer = parse_catalog(
        [*shipped, (f"{number:04d}_later.sql", "ALTER TABLE rw_catalog.operations ADD COLUMNS (later STRING)")]
    )
    metastore = Metastore.open(warehouse, catalog=newer)
    metastore.commit(make.source_with_splits(1, "orders", 2), based_on=metastore.snapshot())
    version = metastore.version()
    with pytest.raises(SqlError) as refused:
        Metastore.open(warehouse)
    assert refused.value.code == "RW308"
    assert f"format {number}" in refused.value.message
    assert metastore.version() == version


def test_an_older_format_is_brought_up_to_date_with_its_rows(warehouse: str, make: Make) -> None:
    metastore = Metastore.open(warehouse)
    metastore.commit(make.source_with_splits(1, "orders", 2), based_on=metastore.snapshot())
    shipped = _shipped()
    later = (
        f"{len(shipped) + 1:04d}_later.sql",
        "ALTER TABLE rw_catalog.operations ADD COLUMNS (later STRING, counts ARRAY<BIGINT>);"
        "CREATE TABLE rw_catalog.more (id BIGINT);",
    )
    catalog = parse_catalog([*shipped, later])
    assert isinstance(catalog.migrations[-1].statements[0], AddColumns)
    newer = Metastore.open(warehouse, catalog=catalog)
    snapshot = newer.snapshot()
    assert snapshot.find("source", "orders") == make.source(1, "orders")
    committed = newer.commit(make.source_with_splits(2, "more", 1), based_on=snapshot)
    again = Metastore.open(warehouse, catalog=catalog).snapshot()
    assert (again.epoch, len(again.all("source"))) == (committed.epoch, 2)
    assert [record.epoch for record in newer.operations()] == [2, 1]


def _applied(warehouse: str) -> tuple[int, list[int]]:
    """The version of the table ``migrations``, and the numbers in it."""
    table = DeltaTable(f"{warehouse}/rw_catalog/migrations")
    return table.version(), table.to_pyarrow_table().column("number").to_pylist()


def test_migrations_are_recorded_in_one_commit(warehouse: str) -> None:
    shipped = _shipped()
    Metastore.open(warehouse, catalog=parse_catalog(shipped[:3]))
    assert _applied(warehouse) == (1, [1, 2, 3])
    Metastore.open(warehouse)
    version, numbers = _applied(warehouse)
    assert (version, sorted(numbers)) == (2, list(range(1, len(shipped) + 1)))


def test_migrations_that_were_interrupted_are_applied_again(
    warehouse: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = load_catalog().tables()
    for last in (tables[0], tables[5], tables[-1]):

        def until_last(uri: str, *given: Any, last: str = last) -> None:
            if uri.endswith(f"/{last}"):
                raise KeyboardInterrupt
            create_table(uri, *given)

        with monkeypatch.context() as patch:
            patch.setattr(migrations, "create_table", until_last)
            with pytest.raises(KeyboardInterrupt):
                Metastore.open(warehouse)
    metastore = Metastore.open(warehouse)
    assert _applied(warehouse) == (1, [migration.number for migration in load_catalog().migrations])
    metastore.commit(make.source_with_splits(1, "orders", 2), based_on=metastore.snapshot())
    assert Metastore.open(warehouse).snapshot().find("source", "orders") == make.source(1, "orders")
