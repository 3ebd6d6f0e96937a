"""Sources and tables whose columns come from a schema registry, in lowering."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from rw_sql.connectors.schemas.client import RegisteredSchema
from rw_sql.connectors.schemas.protobuf import compiled
from rw_sql.errors import SqlError
from rw_sql.model.definitions import definition_of, stored_schema
from rw_sql.model.job_specs import IngestSpec, desired_jobs
from rw_sql.plan.deploy.folder import FolderObject
from rw_sql.plan.deploy.order import named_by
from rw_sql.plan.offline.script import ScriptChecker
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import CreateSource
from tests.plan.canned import HERE, CannedWorld

REGISTRY = "schema.registry = 'http://registry:8081'"
NAMED = ", message = 'shop.Order'"
BY_RECORD = f"{REGISTRY}, schema.registry.name.strategy = 'record_name_strategy'"
ORDER: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
]
ALL_TYPES = "id BIGINT, amount NUMERIC(10, 2), at TIMESTAMP WITH TIME ZONE"


def record(fields: list[dict[str, Any]], name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": fields})


def world_with(**schemas: str) -> CannedWorld:
    """Topic ``t`` and the schemas of the subjects ``t-value`` and ``t-key``."""
    world = CannedWorld()
    world.put_topic("t", (0, 10))
    for at, (part, text) in enumerate(schemas.items(), start=1):
        world.schemas[f"t-{part}"] = RegisteredSchema(id=at, kind="AVRO", text=text, version=1)
    return world


def of(format: str = "PLAIN", options: str = REGISTRY, key: str = "", include: str = "") -> str:
    where = f"WITH (connector = 'kafka', properties.bootstrap.server = '{HERE}', topic = 't')"
    return f"{include} {where} FORMAT {format} ENCODE AVRO ({options}) {key}"


JSON = of().replace("AVRO", "JSON").replace(f"({REGISTRY})", "")


def source(world: CannedWorld, name: str = "s") -> CreateSource:
    found = world.snapshot.find("source", name)
    assert found is not None
    return definition_of(found)


def shown(world: CannedWorld, kind: str = "SOURCE", name: str = "s") -> str:
    table = world.plan(f"SHOW CREATE {kind} {name}").table
    assert table is not None
    return str(table.rows[0][1])


def error_of(world: CannedWorld, text: str) -> SqlError:
    with pytest.raises(SqlError) as told:
        world.plan(text)
    assert told.value.hint
    assert told.value.span is not None
    return told.value


@pytest.mark.parametrize("columns", ["", "()", "(*)"])
def test_columns_are_taken_over_and_stored_with_the_schema(columns: str) -> None:
    world = world_with(value=record(ORDER))
    world.run(f"CREATE SOURCE s {columns} {of()}")
    text = " ".join(shown(world).split())
    assert ALL_TYPES in text
    assert "_rw_schema" not in text
    stored = stored_schema(source(world))
    assert stored is not None
    assert json.loads(stored)["name"] == "shop.Order"
    # A later schema changes nothing of it.
    world.schemas["t-value"] = RegisteredSchema(id=9, kind="AVRO", text=record(ORDER[:1]))
    assert world.plan(f"CREATE OR REPLACE SOURCE s {columns} {of()}").changes[0].change == "NOTHING"
    assert world.run(text.replace(" s ", " again ", 1).replace(f"( {ALL_TYPES} )", "(id BIGINT)")).operation is not None


def test_a_list_is_a_part_in_any_order_with_equal_types() -> None:
    world = world_with(value=record(ORDER))
    world.run(f"CREATE SOURCE s (at TIMESTAMPTZ, id BIGINT) {of()}")
    assert [column.name for column in source(world).columns] == ["at", "id"]
    missing = error_of(world, f"CREATE SOURCE x (amout NUMERIC) {of()}")
    assert missing.message == 'Column "amout" is defined in SQL but not found in the source'
    assert missing.hint == 'did you mean "amount"?'
    other = error_of(world, f"CREATE SOURCE x (id INT) {of()}")
    assert other.message == (
        'Data type mismatch for column "id". Defined in SQL as "INT", but found in the source as "BIGINT"'
    )
    assert other.hint == "write id BIGINT"
    world.run(f"CREATE SOURCE x (amount NUMERIC) {of()}")


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("*, id BIGINT", REGISTRY, 'When there\'s a wildcard ("*"), only generated columns are allowed'),
        ("*", "message = 'm'", "missing either a schema location or a schema registry"),
        ("*", f"{REGISTRY}, schema.location = 'l'", "only need either the schema location or the schema registry"),
        ("*", "schema.registry = 'r'", "must be a list of URLs"),
        ("*", "schema.location = 'l'", "schema.location is not supported for Avro"),
        ("*", f"{REGISTRY}, message = 'm'", '"message" has no meaning with'),
        (
            "*",
            BY_RECORD.replace("_strategy'", "'"),
            "expect strategy name in topic_name_strategy, record_name_strategy",
        ),
        ("*", BY_RECORD, "record_name_strategy requires a non-empty `message` field"),
        ("*", f"{REGISTRY}, schema.registry.password = 'p'", "accepts only a secret, not a literal value"),
        ("*", "schema.registri = 'r'", "unknown format_encode_options for PLAIN AVRO: schema.registri"),
    ],
)
def test_what_the_statement_alone_shows_is_refused(columns: str, options: str, message: str) -> None:
    error = error_of(world_with(value=record(ORDER)), f"CREATE SOURCE x ({columns}) {of(options=options)}")
    assert message in error.message


def test_a_wildcard_needs_a_schema() -> None:
    error = error_of(CannedWorld(), f"CREATE SOURCE x (*) {JSON}")
    assert error.message.startswith("Wildcard in user-defined schema is only allowed when")


def test_a_source_with_a_registry_is_shared() -> None:
    world = world_with(value=record(ORDER))
    text = f"CREATE SOURCE s (*) {of()}"
    error = error_of(world, text.replace("topic = 't'", "topic = 't', shared = 'false'"))
    assert error.message.startswith("a source with a schema registry is shared")
    world.shares_sources = False
    world.run(text)
    found = world.snapshot.find("source", "s")
    assert found is not None
    assert found.is_shared


def test_what_the_registry_says() -> None:
    world = world_with(key='"string"')
    assert error_of(world, f"CREATE SOURCE x (*) {of()}").message == 'the schema registry has no subject "t-value"'
    world.schemas["t-value"] = RegisteredSchema(id=1, kind="PROTOBUF", text="")
    error = error_of(world, f"CREATE SOURCE x (*) {of()}")
    assert (error.message, error.hint) == (
        'subject "t-value" has a schema of type PROTOBUF, but the statement has ENCODE AVRO',
        "write ENCODE PROTOBUF",
    )
    world.registry_error = "HTTP 401"
    error = error_of(world, f"CREATE SOURCE x (*) {of()}")
    assert (error.code, error.message) == ("RW401", 'the schema registry of source "x" does not answer: HTTP 401')


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (NODE, "circular reference detected in Avro schema: Order -> Node -> Node"),
        ("null", "the Avro type null is not supported"),
        ({"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}, "the Avro type duration"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "the Avro type timestamp-nanos"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}, "a decimal of 40 digits"),
        (["string", NODE], "circular reference detected in Avro schema: Order -> Node -> Node"),
        ("Nosuch", "the Avro schema is not valid: type shop.Nosuch is not defined"),
    ],
)
def test_types_without_a_column_are_refused_and_can_be_left_out(kind: Any, message: str) -> None:
    world = world_with(value=record([{"name": "id", "type": "long"}, {"name": "x", "type": kind}]))
    assert message in error_of(world, f"CREATE SOURCE s (*) {of()}").message
    if "valid" not in message:
        world.run(f"CREATE SOURCE s (id BIGINT) {of()}")


def test_a_union_has_a_field_for_each_type() -> None:
    card = {"type": "record", "name": "Card", "fields": [{"name": "digits", "type": "string"}]}
    kinds: list[Any] = [
        "null",
        "string",
        card,
        {"type": "enum", "name": "Cash", "symbols": ["EUR"]},
        {"type": "record", "name": "CARD", "namespace": "old", "fields": []},
        {"type": "long", "logicalType": "timestamp-millis"},
    ]
    fields: list[dict[str, Any]] = [
        {"name": "id", "type": "long"},
        {"name": "paid", "type": kinds},
        {"name": "back", "type": ["Card", "int"]},
    ]
    world = world_with(value=record(fields))
    world.run(f"CREATE SOURCE s (*) {of()}")
    assert (
        'id BIGINT, paid STRUCT<string CHARACTER VARYING, "shop.Card" STRUCT<digits CHARACTER VARYING>, '
        '"Cash" CHARACTER VARYING, "old.CARD" STRUCT< >, long TIMESTAMP WITH TIME ZONE>, '
        'back STRUCT<"Card" STRUCT<digits CHARACTER VARYING>, int INT>'
    ) in " ".join(shown(world).split())


def test_a_key_is_that_of_the_keys_schema() -> None:
    key = record([{"name": "id", "type": "long"}], "Key")
    world = world_with(value=record(ORDER[1:]), key=key)
    world.run(f"CREATE TABLE s (*) {of('UPSERT', key='KEY ENCODE AVRO')}")
    assert "PRIMARY KEY (id)" in shown(world, "TABLE")
    assert {column.name for column in source(world).columns} == {"id", "amount", "at"}
    world.run(f"CREATE TABLE k (*, PRIMARY KEY (k)) {of('UPSERT', include='INCLUDE key AS k')}")
    assert (
        error_of(world, f"CREATE TABLE x (*, PRIMARY KEY (at)) {of('UPSERT')}").message == "INCLUDE KEY clause not set"
    )
    single = world_with(value=record(ORDER), key='"long"')
    single.run(f"CREATE TABLE s (*, PRIMARY KEY (id)) {of('UPSERT', key='KEY ENCODE AVRO')}")


def test_a_debezium_table_takes_rows_and_key_from_the_schemas() -> None:
    row = {"type": "record", "name": "Value", "fields": ORDER}
    envelope = record(
        [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "op", "type": "string"},
        ],
        "Envelope",
    )
    world = world_with(value=envelope, key=record(ORDER[:1], "Key"))
    world.run(f"CREATE TABLE s {of('DEBEZIUM')}")
    text = " ".join(shown(world, "TABLE").split())
    assert ALL_TYPES in text
    assert "PRIMARY KEY (id)" in text
    assert error_of(world, f"CREATE SOURCE x {of('DEBEZIUM')}").message == "can't CREATE SOURCE with FORMAT DEBEZIUM"
    plain = world_with(value=record(ORDER), key='"long"')
    assert "not a schema of Debezium's change events" in error_of(plain, f"CREATE TABLE s {of('DEBEZIUM')}").message


def test_a_connection_reaches_every_source() -> None:
    world = world_with(value=record(ORDER))
    world.run(
        "CREATE SECRET p WITH (backend = 'meta') AS 'x'",
        f"CREATE CONNECTION r WITH (type = 'schema_registry', {REGISTRY}, schema.registry.username = 'u', "
        "schema.registry.password = SECRET p)",
        f"CREATE SOURCE s (*) {of(options='connection = r')}",
        f"CREATE SOURCE other (*) {of()}",
        *(f"CREATE MATERIALIZED VIEW v{name} AS SELECT id FROM {name}" for name in ("s", "other")),
    )
    assert error_of(world, "DROP CONNECTION r").message.startswith('cannot drop connection "r"')
    assert error_of(world, "DROP SECRET p").message.startswith('cannot drop secret "p"')
    before = {spec.name: spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, IngestSpec)}
    assert dict(before["s"].options)["schema.registry"] == "http://registry:8081"
    plan = world.run("ALTER CONNECTION r SET (schema.registry.retries.max = '5')")
    after = {spec.name: spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, IngestSpec)}
    assert {name for name in before if before[name] != after[name]} == {"s"}
    assert not plan.is_unsafe
    assert world.plan("ALTER CONNECTION r SET (schema.registry = 'http://other')").is_unsafe
    world.run(f"CREATE CONNECTION k WITH (type = 'kafka', properties.bootstrap.server = '{HERE}')")
    wrong = error_of(world, f"CREATE SOURCE x (*) {of(options='connection = k')}")
    assert wrong.message == "connection \"k\" is of type 'kafka', not 'schema_registry'"
    world.registry_error = "HTTP 401"
    told = error_of(world, f"CREATE CONNECTION q WITH (type = 'schema_registry', {REGISTRY})")
    assert "HTTP 401" in told.message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("schema.registry.username = 'u'", 'missing property "schema.registry"'),
        ("schema.registry = 'registry:8081'", "must be a list of URLs"),
        (f"{REGISTRY}, schema.registry.retries.max = 'x'", "must be a whole number"),
        (f"{REGISTRY}, message = 'x'", 'connections of type "schema_registry" have no property "message"'),
        (f"{REGISTRY}, schema.registry.password = 'x'", "accepts only a secret"),
    ],
)
def test_a_wrong_connection_is_refused(options: str, message: str) -> None:
    error = error_of(CannedWorld(), f"CREATE CONNECTION r WITH (type = 'schema_registry', {options})")
    assert message in error.message


def test_refresh_schema_shows_the_difference_and_adds_columns() -> None:
    world = world_with(value=record(ORDER[:2]))
    world.run(f"CREATE SOURCE s (*) {of()}", "CREATE MATERIALIZED VIEW v AS SELECT * FROM s")
    refresh = "ALTER SOURCE s REFRESH SCHEMA"
    assert world.plan(refresh).changes[0].detail == "the registry has no newer schema"
    world.schemas["t-value"] = RegisteredSchema(id=2, kind="AVRO", text=record(ORDER))
    assert "column at TIMESTAMP WITH TIME ZONE added" in world.explained(refresh)
    before = desired_jobs(world.snapshot)
    world.run(refresh)
    assert [column.name for column in source(world).columns] == ["id", "amount", "at"]
    after = desired_jobs(world.snapshot)
    assert {job for job in before if before[job] != after[job] and "mv" in job} == set()
    assert world.plan(refresh).operation is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (ORDER[:1], "this altering statement will drop columns, which is not supported yet: (amount: NUMERIC(10, 2))"),
        (
            [{"name": "id", "type": "string"}, ORDER[1]],
            "the new schema changes the types of columns, which is not supported yet: "
            "(id: BIGINT -> CHARACTER VARYING)",
        ),
        ([*ORDER[:2], {"name": "new", "type": "int"}], 'field "new" of the new schema has no default'),
    ],
)
def test_refresh_schema_refuses_what_would_change_rows(fields: list[dict[str, Any]], message: str) -> None:
    world = world_with(value=record(ORDER[:2]))
    world.run(f"CREATE SOURCE s (*) {of()}")
    world.schemas["t-value"] = RegisteredSchema(id=2, kind="AVRO", text=record(fields))
    assert message in error_of(world, "ALTER SOURCE s REFRESH SCHEMA").message


def test_refresh_schema_of_a_table_and_without_a_registry() -> None:
    world = world_with(value=record(ORDER[:2]), key=record(ORDER[:1], "Key"))
    world.run(f"CREATE TABLE s (*) {of('UPSERT', key='KEY ENCODE AVRO')}")
    world.schemas["t-value"] = RegisteredSchema(id=2, kind="AVRO", text=record(ORDER))
    world.run("ALTER TABLE s REFRESH SCHEMA")
    assert [column.name for column in source(world).columns] == ["id", "amount", "at"]
    assert "at TIMESTAMP WITH TIME ZONE" in shown(world, "TABLE")
    world.run(f"CREATE SOURCE j (id INT) {JSON}")
    told = error_of(world, "ALTER SOURCE j REFRESH SCHEMA")
    assert told.message == "altering a source without schema registry"


def test_check_says_what_only_the_registry_knows() -> None:
    given, taken = ScriptChecker(), ScriptChecker()
    statement = f"CREATE SOURCE s (id BIGINT) {of()}; CREATE MATERIALIZED VIEW v AS SELECT nosuch FROM s"
    checked = list(given.check(statement, "x"))
    assert any("the schema registry" in fact for fact in checked[0].unchecked)
    assert [error.code for error in checked[1].errors] == ["RW205"]
    over = f"CREATE SOURCE s (*) {of()}; CREATE MATERIALIZED VIEW v AS SELECT anything FROM s"
    assert [error for each in taken.check(over, "x") for error in each.errors] == []
    slip = of(options="schema.registri = 'r'")
    wrong = list(ScriptChecker().check(f"CREATE SOURCE s (*) {slip}", "x"))
    assert 'did you mean "schema.registry"?' in [error.hint for error in wrong[0].errors]


def test_columns_of_a_json_schema() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}}}},
        "properties": {
            "id": {"type": "integer"},
            "note": {"type": ["null", "string"]},
            "price": {"oneOf": [{"type": "null"}, {"type": "number"}]},
            "where": {"$ref": "#/$defs/place"},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
            "more": {"type": "object", "additionalProperties": {"type": "string"}},
            "any": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        },
    }
    world = CannedWorld()
    world.put_topic("t", (0, 10))
    world.schemas["t-value"] = RegisteredSchema(id=1, kind="JSON", text=json.dumps(schema))
    world.files["file:///s.json"] = json.dumps(schema)
    columns = (
        "id BIGINT, note CHARACTER VARYING, price DOUBLE, where STRUCT<city CHARACTER VARYING, zip BIGINT>, "
        "tags CHARACTER VARYING[], more JSONB, any JSONB"
    )
    for name, options in (("s", REGISTRY), ("f", "schema.location = 'file:///s.json'")):
        world.run(f"CREATE SOURCE {name} (*) {of(options=options).replace('AVRO', 'JSON')}")
        assert columns.replace("where", '"where"').replace("any J", '"any" J') in " ".join(
            shown(world, name=name).split()
        )
    schema["properties"]["new"] = {"type": "boolean"}
    world.schemas["t-value"] = RegisteredSchema(id=2, kind="JSON", text=json.dumps(schema))
    assert "column new BOOLEAN added" in world.explained("ALTER SOURCE s REFRESH SCHEMA")
    node = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    world.schemas["t-value"] = RegisteredSchema(id=3, kind="JSON", text=json.dumps(node))
    world.run(f"CREATE SOURCE x (next STRUCT<next JSONB>) {of().replace('AVRO', 'JSON')}")
    stray = error_of(world, f"CREATE SOURCE y (id INT) {JSON} (message = 'm')")
    assert stray.message == 'property "message" has no meaning without schema.registry or schema.location'


def test_a_json_schema_with_references_is_refreshed() -> None:
    place = json.dumps({"type": "object", "properties": {"city": {"type": "string"}}})
    properties: dict[str, Any] = {"id": {"type": "integer"}, "place": {"$ref": "place.json"}}

    def register(world: CannedWorld, id_: int) -> None:
        text = json.dumps({"type": "object", "properties": properties})
        world.schemas["t-value"] = RegisteredSchema(id=id_, kind="JSON", text=text, imports=(("place.json", place),))

    world = world_with()
    register(world, 1)
    world.run(f"CREATE SOURCE s (*) {of().replace('AVRO', 'JSON')}")
    assert "(id BIGINT, place STRUCT<city CHARACTER VARYING>)" in " ".join(shown(world).split())
    assert "column" not in world.explained("ALTER SOURCE s REFRESH SCHEMA")
    properties["new"] = {"type": "array", "items": {"$ref": "place.json#/properties/city"}}
    register(world, 2)
    assert "column new CHARACTER VARYING[] added" in world.explained("ALTER SOURCE s REFRESH SCHEMA")
    world.run("ALTER SOURCE s REFRESH SCHEMA")
    assert [column.name for column in source(world).columns] == ["id", "place", "new"]
    place = place.replace("string", "integer")
    register(world, 3)
    assert "changes the types of columns" in error_of(world, "ALTER SOURCE s REFRESH SCHEMA").message


def test_columns_of_a_protobuf_message() -> None:
    text = """syntax = "proto3"; package shop;
        message Order { int64 id = 1; optional string note = 2; repeated Line lines = 3; }
        message Line { string sku = 1; Line next = 2; }"""
    world = CannedWorld()
    world.put_topic("t", (0, 10))
    world.schemas["t-value"] = RegisteredSchema(id=1, kind="PROTOBUF", text=text)

    def of_message(options: str) -> str:
        return of(options=options).replace("AVRO", "PROTOBUF")

    missing = error_of(world, f"CREATE SOURCE s (*) {of_message(REGISTRY)}")
    assert missing.message == "Must specify 'message' in WITH clause"
    near = error_of(world, f"CREATE SOURCE s (*) {of_message(REGISTRY + NAMED.replace('Order', 'Oder'))}")
    assert (near.message, near.hint) == ("Cannot find message shop.Oder in schema", 'did you mean "shop.Order"?')
    circular = error_of(world, f"CREATE SOURCE s (*) {of_message(REGISTRY + NAMED)}")
    assert circular.message.startswith("circular reference detected: shop.Order -> shop.Line -> shop.Line. Adding")
    as_json = f"{REGISTRY}{NAMED}, messages_as_jsonb = 'shop.Line'"
    world.run(f"CREATE SOURCE s (*) {of_message(as_json)}")
    assert "( id BIGINT, note CHARACTER VARYING, lines JSONB[] )" in " ".join(shown(world).split())
    world.files["file:///s.pb"] = base64.b64decode(compiled(text)).decode("latin1")
    in_file = f"schema.location = 'file:///s.pb'{NAMED}"
    world.run(f"CREATE SOURCE f (note VARCHAR) {of_message(in_file)}")
    world.run(f"CREATE TABLE u (*, PRIMARY KEY (k)) INCLUDE key AS k {of_message(as_json).replace('PLAIN', 'UPSERT')}")
    newer = text.replace("= 3;", "= 3; map<string, bytes> more = 4;")
    world.schemas["t-value"] = RegisteredSchema(id=2, kind="PROTOBUF", text=newer)
    assert "column more MAP(CHARACTER VARYING, BYTEA) added" in world.explained("ALTER SOURCE s REFRESH SCHEMA")


def test_a_connection_that_moves_to_another_schema_is_named_again() -> None:
    world = world_with(value=record(ORDER), key=record(ORDER[:1], "Key"))
    world.run(
        "CREATE SCHEMA raw",
        f"CREATE CONNECTION r WITH (type = 'schema_registry', {REGISTRY})",
        f"CREATE SOURCE s (*) {of(options='connection = r')}",
        f"CREATE TABLE k (*) {of('UPSERT', options='connection = r', key='KEY ENCODE AVRO')}",
        "ALTER CONNECTION r SET SCHEMA raw",
    )
    assert "connection = raw.r" in shown(world)
    assert "connection = raw.r" in shown(world, "TABLE", "k")
    world.run("ALTER CONNECTION raw.r SET (schema.registry.retries.max = '5')")


def test_a_folder_creates_the_connection_first() -> None:
    options = "connection = r, schema.registry.password = SECRET p"
    statement = parse_statement(f"CREATE SOURCE a (*) {of(options=options)}")
    assert isinstance(statement, CreateSource)
    wanted = FolderObject(kind="source", name="a", statement=statement, file="x.sql", line=1)
    assert set(named_by(wanted)) >= {("connection", "r"), ("secret", "p")}
