"""Columns of tables whose records are decoded with a stored schema: added, dropped, refreshed, and those of the key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rw_sql.connectors.schemas.client import RegisteredSchema
from rw_sql.syntax import canonical_type
from tests.plan.canned import CannedWorld
from tests.plan.statements.source.test_schema_registry import REGISTRY, error_of, of, record, source, world_with
from tests.plan.tables import analyzed, table

ID: dict[str, Any] = {"name": "id", "type": "long"}
NOTE: dict[str, Any] = {"name": "note", "type": ["null", "string"], "default": None}
AT: dict[str, Any] = {
    "name": "at",
    "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}],
    "default": None,
}
KEYED = {"format": "UPSERT", "include": "INCLUDE key AS k"}
MESSAGE = """syntax = "proto3"; package shop;
    message Order { int64 id = 1; Node tree = 2; string note = 3; }
    message Node { Node next = 1; }"""
REFRESH = "ALTER TABLE s REFRESH SCHEMA"


def shown_type(world: CannedWorld, name: str) -> str:
    """The type of the column id of a source."""
    return next(canonical_type(column.data_type) for column in source(world, name).columns if column.name == "id")


def put(world: CannedWorld, *fields: dict[str, Any], part: str = "value") -> None:
    """Registers a newer schema."""
    id_ = 1 + max((each.id for each in world.schemas.values()), default=0)
    world.schemas[f"t-{part}"] = RegisteredSchema(id=id_, kind="AVRO", text=record(list(fields)), version=id_)


def messages(columns: str) -> CannedWorld:
    world = CannedWorld()
    world.put_topic("t", (0, 10))
    world.schemas["t-value"] = RegisteredSchema(id=1, kind="PROTOBUF", text=MESSAGE)
    options = f"{REGISTRY}, message = 'shop.Order'"
    world.run(f"CREATE TABLE s ({columns}, PRIMARY KEY (k)) {of(options=options, **KEYED).replace('AVRO', 'PROTOBUF')}")
    return world


def test_an_added_column_must_be_a_field_of_the_stored_schema() -> None:
    world = world_with(value=record([ID]))
    world.run(f"CREATE TABLE s (*, PRIMARY KEY (k)) {of(**KEYED)}")
    put(world, ID, NOTE)
    for column in ("note VARCHAR", "nosuch INT", "other VARCHAR FROM note"):
        error = error_of(world, f"ALTER TABLE s ADD COLUMN {column}")
        assert error.message.endswith("is defined in SQL but not found in the source")
        assert error.hint == REFRESH
    world.run("ALTER TABLE s ADD COLUMN twice BIGINT AS (id * 2)")
    world.run(REFRESH)
    assert [column.name for column in source(world).columns] == ["id", "note"]


def test_an_added_column_has_a_type_of_the_stored_schema() -> None:
    world = world_with(value=record([ID, NOTE, AT]))
    world.run(f"CREATE TABLE s (id BIGINT, PRIMARY KEY (k)) {of(**KEYED)}")
    error = error_of(world, "ALTER TABLE s ADD COLUMN note BIGINT")
    assert error.message.startswith('Data type mismatch for column "note". Defined in SQL as "BIGINT"')
    assert error.hint == "write note CHARACTER VARYING"
    world.run(*(f"ALTER TABLE s ADD COLUMN {column}" for column in ("note VARCHAR", "at TIMESTAMPTZ")))
    assert [column.name for column in source(world).columns] == ["id", "note", "at"]


def test_an_added_column_of_a_message_is_one_of_its_fields() -> None:
    world = messages("id BIGINT")
    assert error_of(world, "ALTER TABLE s ADD COLUMN nosuch INT").hint == REFRESH
    assert "circular reference" in error_of(world, "ALTER TABLE s ADD COLUMN tree JSONB").message
    world.run("ALTER TABLE s ADD COLUMN note VARCHAR")


def test_a_source_without_a_stored_schema_gets_any_column() -> None:
    world = CannedWorld()
    world.put_topic("t", (0, 10))
    world.run(f"CREATE TABLE s (id BIGINT PRIMARY KEY) {of().replace('AVRO', 'JSON').replace(f'({REGISTRY})', '')}")
    world.run("ALTER TABLE s ADD COLUMN note VARCHAR")


def test_json_is_decoded_without_its_schema() -> None:
    world = CannedWorld()
    world.put_topic("t", (0, 10))
    properties = {"id": {"type": "integer"}}
    world.schemas["t-value"] = RegisteredSchema(id=1, kind="JSON", text=json.dumps({"properties": properties}))
    world.run(
        f"CREATE TABLE s (*, PRIMARY KEY (k)) {of(**KEYED).replace('AVRO', 'JSON')}",
        "ALTER TABLE s ADD COLUMN n INT",
    )
    more = {"properties": {**properties, "n": {"type": "integer"}, "m": {"type": "string"}}}
    world.schemas["t-value"] = RegisteredSchema(id=2, kind="JSON", text=json.dumps(more))
    world.run(REFRESH)
    assert [column.name for column in source(world).columns] == ["id", "n", "m"]


def test_a_refresh_compares_the_declared_types_with_the_new_schema() -> None:
    world = world_with(value=record([ID, AT]))
    world.run(f"CREATE TABLE s (id BIGINT, at BIGINT, PRIMARY KEY (k)) {of(**KEYED)}")
    text = {"type": "string", "connect.name": "io.debezium.time.IsoTimestamp"}
    put(world, ID, {"name": "at", "type": ["null", text], "default": None})
    error = error_of(world, REFRESH)
    assert error.message == "columns do not have the types of the new schema: (at: BIGINT, not TIMESTAMP)"


def test_a_refresh_does_not_bring_back_a_dropped_column() -> None:
    world = world_with(value=record([ID, NOTE]))
    world.run(f"CREATE TABLE s (*, PRIMARY KEY (k)) {of(**KEYED)}", "ALTER TABLE s DROP COLUMN note")
    put(world, ID)
    world.run(REFRESH)
    put(world, ID, NOTE, AT)
    told = [row.detail for row in world.run(REFRESH).changes]
    assert told == [
        "column at TIMESTAMP added: NULL in existing rows",
        "field note has no column: a column for it was dropped, and the log still contains that column's values",
    ]
    assert [column.name for column in source(world).columns] == ["id", "at"]
    assert error_of(world, "ALTER TABLE s ADD COLUMN note VARCHAR").message.startswith('table "s" had a column')


def test_a_refreshed_column_does_not_get_the_name_of_another_column_in_the_files() -> None:
    world = world_with(value=record([ID]))
    world.analyze = analyzed
    world.run(
        f"CREATE TABLE s (*, g BIGINT AS (id * 2), PRIMARY KEY (k)) {of(**KEYED)}",
        "ALTER TABLE s RENAME COLUMN g TO h",
    )
    put(world, ID, {**NOTE, "name": "g"})
    world.run(REFRESH)
    assert table(world, "s").stored_names == (("h", "g"), ("g", "g_2"))


def test_a_refresh_skips_fields_that_nobody_reads() -> None:
    world = messages("id BIGINT")
    text = MESSAGE.replace("note = 3;", "note = 3; bool paid = 4;")
    world.schemas["t-value"] = RegisteredSchema(id=2, kind="PROTOBUF", text=text, version=2)
    world.run(REFRESH)
    assert [column.name for column in source(world).columns] == ["id", "paid"]


@pytest.mark.parametrize("key", [record([{"name": "id", "type": "string"}], "Key"), '"string"'])
def test_with_upsert_a_primary_key_has_the_type_of_the_records_keys(key: str) -> None:
    world = world_with(value=record([ID, NOTE]), key=key)
    clause = of("UPSERT", key="KEY ENCODE AVRO")
    error = error_of(world, f"CREATE TABLE s (id BIGINT, note VARCHAR, PRIMARY KEY (id)) {clause}")
    assert error.message == (
        'Data type mismatch for column "id". Defined in SQL as "BIGINT", but found in the source as "CHARACTER VARYING"'
    )
    assert error.hint == "write id CHARACTER VARYING"
    world.run(f"CREATE TABLE s (id VARCHAR, note VARCHAR, PRIMARY KEY (id)) {clause}")
    world.run(f"CREATE TABLE taken (*, PRIMARY KEY (id)) {clause}")
    assert [shown_type(world, name) for name in ("s", "taken")] == ["CHARACTER VARYING"] * 2
    put(world, ID, NOTE, AT)
    world.run(REFRESH)
    put(world, {"name": "id", "type": "int"}, part="key")
    assert "(id: CHARACTER VARYING -> INT)" in error_of(world, REFRESH).message


def test_fields_of_a_key_outside_of_the_primary_key_need_no_column() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    world = world_with(value=record([NOTE]), key=record([ID, {"name": "tree", "type": node}], "Key"))
    world.run(f"CREATE TABLE s (*, PRIMARY KEY (id)) {of('UPSERT', key='KEY ENCODE AVRO')}")
    assert {column.name for column in source(world).columns} == {"id", "note"}
