"""Sources and tables whose schemas are in a real registry, in a live session."""

from __future__ import annotations

import base64
import datetime
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from google.protobuf import message_factory

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from rw_sql.connectors.schemas.client import RegistryClient
from rw_sql.connectors.schemas.protobuf import Messages, compiled
from rw_sql.errors import SqlError
from rw_sql.runtime.delta.job_output import SMALL_ROWS
from tests.integration.attached import AttachedSession, wait_until
from tests.support.avro_records import AvroWriter, record_schema
from tests.support.registry_proxy import RegistryProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from rw_sql.cli.servers.schema_registry import RegistryInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.registry]

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
STATE = {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"], "default": "NEW"}
ORDER = record_schema("Order", {"id": "long", "amount": DECIMAL})
ORDER_2 = record_schema(
    "Order",
    {
        "id": "long",
        "amount": DECIMAL,
        "at": {"type": ["null", MILLIS], "default": None},
        "state": {
            "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"], "default": "NEW"},
            "default": "NEW",
        },
        "tags": {"type": {"type": "map", "values": "int"}, "default": {}},
    },
)
ORDER_3 = record_schema("Order", {"gone": "string", "amount": DECIMAL, "id": "int", "at": ["null", MILLIS]})
NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)


class Topics:
    """The topics of this module, and the options with which a source reads them."""

    def __init__(self, bootstrap: str, registry: str, proxied: str) -> None:
        self.bootstrap, self.writer, self.proxied = bootstrap, AvroWriter(registry), proxied
        self._prefix = f"registry-{uuid4().hex[:8]}"

    def topic(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def put(self, name: str, *records: Record) -> None:
        produce(self.bootstrap, self.topic(name), list(records))

    def value(self, name: str, schema: Any, value: Any, **more: Any) -> Record:
        return self.writer.record(self.topic(name), schema, value, **more)

    def of(self, name: str, format: str, more: str = "", key: str = "") -> str:
        """The rest of a statement that reads a topic."""
        server = f"properties.bootstrap.server = '{self.bootstrap}'"
        return (
            f"WITH (connector = 'kafka', topic = '{self.topic(name)}', {server}) "
            f"FORMAT {format} ENCODE AVRO (schema.registry = '{self.proxied}'{more}) {key}"
        )


@pytest.fixture(scope="module")
def proxy(schema_registry: RegistryInfo) -> Iterator[RegistryProxy]:
    proxy = RegistryProxy(schema_registry.url)
    yield proxy
    proxy.stop()


@pytest.fixture(scope="module")
def topics(broker: BrokerInfo, schema_registry: RegistryInfo, proxy: RegistryProxy) -> Topics:
    topics = Topics(broker.bootstrap, schema_registry.url, proxy.start())
    for name in ("orders", "users", "keyed", "changes", "many", "out", "proto", "json", "out_proto", "out_json"):
        create_topic(broker.bootstrap, topics.topic(name), 1)
    return topics


@pytest.fixture(scope="module")
def live(spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttachedSession]:
    session = AttachedSession(spark, str(tmp_path_factory.mktemp("registry") / "warehouse"))
    topics.put("orders", topics.value("orders", ORDER, {"id": 1, "amount": Decimal("1.10")}))
    topics.writer.register(f"{topics.topic('orders')}-value", ORDER_2)
    user = record_schema("User", {"id": "long", "name": ["null", "string"]})
    topics.put("users", topics.value("users", user, {"id": 7, "name": "Ada"}, raw_key=b"k7"))
    session.run(
        "SET timezone = 'UTC'",
        f"CREATE SOURCE orders (*) {topics.of('orders', 'PLAIN')}",
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM orders",
        f"CREATE TABLE users (*, PRIMARY KEY (k)) INCLUDE key AS k {topics.of('users', 'UPSERT')}",
    )
    yield session
    session.detach()


def test_several_writers_are_read_by_the_schema_of_create(live: AttachedSession, topics: Topics) -> None:
    assert [(row.name, row.type) for row in live.sql("DESCRIBE orders")] == [
        ("id", "BIGINT"),
        ("amount", "DECIMAL(10, 2)"),
        ("at", "TIMESTAMP"),
        ("state", "STRING"),
        ("tags", "MAP<STRING, INT>"),
    ]
    shown = live.sql("SHOW CREATE SOURCE orders")[0].create_sql
    assert "_rw_schema" not in shown
    assert "amount NUMERIC(10, 2)" in shown
    topics.put(
        "orders",
        topics.value(
            "orders", ORDER_2, {"id": 2, "amount": Decimal("2.20"), "at": NOON, "state": "PAID", "tags": {"a": 1}}
        ),
        topics.value("orders", ORDER_3, {"gone": "x", "amount": Decimal("-3.30"), "id": 3, "at": None}),
        Record(value=b"\0\x7f\xff\xff\xff\x02"),
        Record(value=b"{}"),
        Record(value=b"\0\0\0"),
        Record(
            value=topics.writer.framed(f"{topics.topic('orders')}-value", ORDER, {"id": 1, "amount": Decimal(1)})[:6]
        ),
    )
    live.sql("FLUSH")
    columns = "id, amount, unix_millis(at), state, map_entries(tags)"
    expected = [
        (1, Decimal("1.10"), None, "NEW", []),
        (2, Decimal("2.20"), 1_767_355_200_000, "PAID", [("a", 1)]),
        (3, Decimal("-3.30"), None, "NEW", []),
    ]
    assert live.rows_of("v", columns) == expected
    assert live.rows_of("orders", columns) == expected
    live.sql("CREATE MATERIALIZED VIEW later AS SELECT * FROM orders")
    assert live.flushed_rows_of("later", columns) == expected
    errors = {row.reason: row.bytes for row in live.sql("SELECT bytes, reason FROM `orders$errors`")}
    first = topics.writer.ids[f"{topics.topic('orders')}-value", json.dumps(ORDER)]
    assert set(errors) == {
        "schema 2147483647 is not in the registry",
        "failed to match the magic byte 0",
        "failed to read the 4-byte schema ID",
        f"the bytes are not a record of schema {first} that the source's schema can read",
    }
    assert bytes(errors["failed to match the magic byte 0"]) == b"{}"


def test_a_registry_out_of_reach_stalls_the_reader_and_loses_nothing(
    live: AttachedSession, topics: Topics, proxy: RegistryProxy
) -> None:
    proxy.is_down = True
    newer = record_schema("Order", {"id": "long", "amount": DECIMAL, "newer": "int"})
    topics.put("orders", topics.value("orders", newer, {"id": 4, "amount": Decimal("4.40"), "newer": 1}))
    wait_until(lambda: "REGISTRY does not answer" in live.job("orders").reason, "the reader stalls")
    with pytest.raises(SqlError, match="the schema registry of source"):
        live.sql(f"CREATE SOURCE other (*) {topics.of('orders', 'PLAIN')}")
    proxy.is_down = False
    wait_until(lambda: live.job("orders").state == "RUNNING", "the reader continues")
    assert live.flushed_rows_of("v", "id")[-1] == (4,)


def test_upsert_by_the_record_s_key(live: AttachedSession, topics: Topics) -> None:
    user = record_schema("User", {"id": "long", "name": ["null", "string"]})
    assert live.flushed_rows_of("users", "k, id, name") == [(bytearray(b"k7"), 7, "Ada")]
    topics.put(
        "users",
        topics.value("users", user, {"id": 8, "name": None}, raw_key=b"k8"),
        topics.value("users", user, None, raw_key=b"k7"),
    )
    assert live.flushed_rows_of("users", "k, id, name") == [(bytearray(b"k8"), 8, None)]


def test_keys_are_read_by_their_own_schema(live: AttachedSession, topics: Topics) -> None:
    key, old_key = record_schema("Key", {"id": "long"}), record_schema("Key", {"id": "int", "part": "string"})
    row = record_schema("Row", {"name": ["null", "string"], "n": "int"})
    topics.put(
        "keyed",
        topics.value("keyed", row, {"name": "a", "n": 1}, key=(old_key, {"id": 1, "part": "x"})),
        topics.value("keyed", row, {"name": "b", "n": 2}, key=(key, {"id": 2})),
        topics.value("keyed", row, {"name": "c", "n": 3}, raw_key=b"{}"),
    )
    live.sql(f"CREATE TABLE keyed (*) {topics.of('keyed', 'UPSERT', key='KEY ENCODE AVRO')}")
    assert live.flushed_rows_of("keyed", "id, name, n") == [(1, "a", 1), (2, "b", 2)]
    assert [row.reason for row in live.sql("SELECT reason FROM `keyed$errors`")] == [
        "the key: failed to match the magic byte 0"
    ]
    topics.put(
        "keyed",
        topics.value("keyed", row, None, key=(key, {"id": 1})),
        topics.value("keyed", row, {"name": None, "n": 5}, key=(key, {"id": 2})),
    )
    assert live.flushed_rows_of("keyed", "id, name, n") == [(2, None, 5)]


def test_debezium_s_events_make_the_table_of_the_database(live: AttachedSession, topics: Topics) -> None:
    value = record_schema(
        "Value", {"id": "long", "name": ["null", "string"], "amount": DECIMAL, "raw": ["null", "bytes"]}
    )
    envelope = record_schema(
        "Envelope",
        {
            "before": {"type": ["null", value], "default": None},
            "after": {"type": ["null", "Value"], "default": None},
            "source": record_schema("Source", {"db": "string"}),
            "op": "string",
            "ts_ms": ["null", "long"],
        },
    )
    key = record_schema("Key", {"id": "long"})

    def event(op: str, before: Any = None, after: Any = None) -> Record:
        told = {"before": before, "after": after, "source": {"db": "shop"}, "op": op, "ts_ms": 1}
        return topics.value("changes", envelope, told, key=(key, {"id": (after or before)["id"]}))

    def row(id_: int, name: str | None, raw: bytes | None = b"x") -> dict[str, Any]:
        return {"id": id_, "name": name, "amount": Decimal("1.50"), "raw": raw}

    unchanged = "__debezium_unavailable_value"
    topics.put(
        "changes",
        event("r", after=row(1, "one")),
        event("c", after=row(2, "two")),
        event("c", after=row(3, "three")),
        event("c", after=row(4, "four")),
        event("u", before=row(2, "two"), after=row(2, "zwei")),
        event("d", before=row(3, "three")),
        topics.value("changes", envelope, None, key=(key, {"id": 3})),
        event("u", after=row(1, unchanged, unchanged.encode())),
        event("u", before=row(4, "four"), after=row(5, "five")),
        event("x", after=row(6, "six")),
        event("d", after=row(7, "seven")),
    )
    live.sql(f"CREATE TABLE changes {topics.of('changes', 'DEBEZIUM')}")
    expected = [
        (1, "one", Decimal("1.50"), bytearray(b"x")),
        (2, "zwei", Decimal("1.50"), bytearray(b"x")),
        (5, "five", Decimal("1.50"), bytearray(b"x")),
    ]
    assert live.flushed_rows_of("changes", "id, name, amount, raw") == expected
    assert sorted(row.reason for row in live.sql("SELECT reason FROM `changes$errors`")) == [
        "before is missing for delete event",
        "unknown debezium op: x",
    ]


def test_a_large_batch_may_bring_new_schemas(live: AttachedSession, topics: Topics) -> None:
    first = record_schema("Many", {"id": "long"})
    others = [record_schema("Many", {"id": "long", f"f{at}": "int"}) for at in range(3)]
    topics.put("many", topics.value("many", first, {"id": -1}))
    live.sql(f"CREATE SOURCE many (id BIGINT) {topics.of('many', 'PLAIN')}")
    live.sql("CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS n, sum(id) AS s FROM many")
    assert live.flushed_rows_of("sums") == [(1, -1)]
    live.sql("PAUSE SOURCE many")
    many = SMALL_ROWS + 10
    records = [topics.value("many", first, {"id": at}) for at in range(many)]
    # Under subjects that the topic does not name: only the records tell their ids.
    for at, other in enumerate(others):
        frame = topics.writer.framed(f"{topics.topic('many')}-elsewhere-{at}", other, {"id": 1_000_000, f"f{at}": 1})
        records[at * 100] = Record(value=frame)
    topics.put("many", *records, Record(value=b"\0\x7f\xff\xff\xff\x02"))
    live.sql("RESUME SOURCE many")
    lost = sum(at * 100 for at in range(3))
    assert live.flushed_rows_of("sums") == [(many + 1, many * (many - 1) // 2 - 1 - lost + 3_000_000)]
    assert [row.reason for row in live.sql("SELECT reason FROM `many$errors`")] == [
        "schema 2147483647 is not in the registry"
    ]


def test_refresh_schema_adds_what_later_views_see(live: AttachedSession, topics: Topics) -> None:
    subject = f"{topics.topic('many')}-value"
    wider = record_schema("Many", {"id": "long", "more": {"type": "string", "default": "none"}})
    topics.writer.register(subject, wider)
    assert [row.detail for row in live.sql("ALTER SOURCE many REFRESH SCHEMA")] == [
        "column more CHARACTER VARYING added: NULL in existing rows"
    ]
    topics.put("many", topics.value("many", wider, {"id": -5, "more": "text"}))
    topics.put("many", topics.value("many", record_schema("Many", {"id": "long"}), {"id": -6}))
    live.sql("CREATE MATERIALIZED VIEW wide AS SELECT id, more FROM many WHERE id < 0")
    assert live.flushed_rows_of("wide") == [(-6, "none"), (-5, "text"), (-1, None)]


def test_a_secret_of_a_connection_opens_the_registry(
    live: AttachedSession, topics: Topics, proxy: RegistryProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RW_SQL_SECRET_KEY", base64.b64encode(bytes(32)).decode())
    proxy.login = ("reader", "right")
    try:
        live.run(
            "CREATE SECRET good WITH (backend = 'meta') AS 'right'",
            "CREATE SECRET bad WITH (backend = 'meta') AS 'wrong'",
        )
        address = f"schema.registry = 'http://127.0.0.1:1,{topics.proxied}'"  # The first one does not answer.
        login = f"type = 'schema_registry', {address}, schema.registry.username = 'reader'"
        with pytest.raises(SqlError, match="refuses the user or the password"):
            live.sql(f"CREATE CONNECTION r WITH ({login}, schema.registry.password = SECRET bad)")
        live.sql(f"CREATE CONNECTION r WITH ({login}, schema.registry.password = SECRET good)")
        of = topics.of("orders", "PLAIN").replace(f"schema.registry = '{topics.proxied}'", "connection = r")
        live.sql(f"CREATE SOURCE opened (id BIGINT) {of}")
        assert live.sql("SELECT count(*) AS n FROM opened")[0].n == 4
    finally:
        proxy.login = None


def test_a_sink_registers_its_schemas_and_is_read_back(
    live: AttachedSession, topics: Topics, schema_registry: RegistryInfo
) -> None:
    of = topics.of("out", "UPSERT", key="KEY ENCODE AVRO")
    live.sql(f"CREATE SINK out FROM keyed {of}")
    live.sql("FLUSH")
    live.sql(f"CREATE TABLE back (*) {of}")
    assert live.flushed_rows_of("back", "id, name, n") == live.rows_of("keyed", "id, name, n")
    key, row = record_schema("Key", {"id": "long"}), record_schema("Row", {"name": ["null", "string"], "n": "int"})
    topics.put(
        "keyed",
        topics.value("keyed", row, None, key=(key, {"id": 2})),
        topics.value("keyed", row, {"name": "z", "n": 9}, key=(key, {"id": 9})),
    )
    live.sql("FLUSH")
    wait_until(lambda: live.rows_of("back", "id, name, n") == [(9, "z", 9)], "the sink's changes are read back")
    subject = f"{topics.topic('out')}-value"
    client = RegistryClient({"schema.registry": schema_registry.url})
    client._request("PUT", f"/config/{subject}", {"compatibility": "BACKWARD"})
    plain = of.replace("KEY ENCODE AVRO", "").replace("UPSERT", "PLAIN")
    with pytest.raises(SqlError, match=f'the schema is not compatible with subject "{subject}"'):
        live.sql(f"CREATE SINK other AS SELECT id, true AS n FROM opened {plain}")
    assert "other" not in live.jobs()


def test_a_sink_of_messages_and_one_of_json_are_read_back(
    live: AttachedSession, topics: Topics, schema_registry: RegistryInfo
) -> None:
    message = ", message = 'shop.Row'"
    proto = topics.of("out_proto", "UPSERT", message).replace("AVRO", "PROTOBUF")
    as_json = topics.of("out_json", "UPSERT").replace("AVRO", "JSON")
    columns = "id, amount, at, array(amount) AS amounts, map('a', id) AS ids, named_struct('id', id) AS part"
    live.sql(f"CREATE MATERIALIZED VIEW typed AS SELECT {columns} FROM v")
    keyed = [clause.replace("WITH (", "WITH (primary_key = 'id', ") for clause in (proto, as_json)]
    live.sql(f"CREATE SINK messages_out AS SELECT * FROM typed {keyed[0]}")
    live.sql(f"CREATE SINK json_out AS SELECT id, amount, at, part FROM typed {keyed[1]}")
    live.sql("FLUSH")
    plain = proto.replace("UPSERT", "PLAIN")
    live.sql(f"CREATE SOURCE messages_back (*) INCLUDE key AS k {plain}")
    live.sql(f"CREATE TABLE json_back (*, PRIMARY KEY (id)) {as_json}")
    live.sql("FLUSH")
    wanted = live.rows_of("typed", "id, CAST(amount AS STRING), amounts[0], ids['a'], part.id, unix_micros(at)")
    assert wanted
    found = "id, amount, amounts[0], ids['a'], part.id, at.seconds * 1000000 + at.nanos / 1000"
    assert live.rows_of("messages_back", found) == [(*row[:2], str(row[2]), *row[3:]) for row in wanted]
    found = "id, amount, part.id, unix_micros(CAST(at AS TIMESTAMP))"
    assert live.rows_of("json_back", found) == [(row[0], row[1], row[4], row[5]) for row in wanted]
    client = RegistryClient({"schema.registry": schema_registry.url})
    subjects = {f"{topics.topic(name)}-value": kind for name, kind in (("out_proto", "PROTOBUF"), ("out_json", "JSON"))}
    for subject, kind in subjects.items():
        latest = client.latest(subject)
        assert latest is not None
        assert latest.kind == kind
        client._request("PUT", f"/config/{subject}", {"compatibility": "FULL"})
    assert client.latest(f"{topics.topic('out_proto')}-key") is not None
    for clause in (plain, as_json.replace("UPSERT", "PLAIN")):
        with pytest.raises(SqlError, match="the schema is not compatible with subject"):
            live.sql(f"CREATE SINK other AS SELECT CAST(id AS STRING) AS id FROM v {clause}")
    assert "other" not in live.jobs()


PROTO = """syntax = "proto3"; package shop; enum State { NEW = 0; PAID = 1; }
message Order { int64 id = 1; optional string note = 2; State state = 3; map<string, int32> counts = 4; Line line = 5;
  message Line { string sku = 1; uint64 n = 2; } }"""


PAYMENT = """syntax = "proto3"; package shop; message Refund { int64 id = 1; } message Payment { int64 amount = 1; }"""


def test_protobuf_messages_and_json_by_their_schemas(live: AttachedSession, topics: Topics) -> None:
    head = topics.writer.register(f"{topics.topic('proto')}-value", PROTO, "PROTOBUF").to_bytes(4, "big")
    order = message_factory.GetMessageClass(Messages(compiled(PROTO), "shop.Order").descriptor)

    other = topics.writer.register(f"{topics.topic('proto')}-other", PAYMENT, "PROTOBUF")

    def framed(**values: Any) -> Record:
        return Record(value=b"\0" + head + b"\0" + order(**values).SerializeToString(), key=b"k1")

    topics.put(
        "proto",
        framed(id=1, note="", state=1, counts={"a": 1}, line={"sku": "x", "n": 2**64 - 1}),
        Record(value=b"no", key=b"k2"),
        # Its bytes are those of an order.
        Record(value=b"\0" + other.to_bytes(4, "big") + b"\2\2\x08\x07", key=b"k3"),
        framed(id=2),
    )
    of = topics.of("proto", "PLAIN", ", message = 'shop.Order'").replace("AVRO", "PROTOBUF")
    live.sql(f"CREATE SOURCE proto (*) {of}")
    live.sql("CREATE MATERIALIZED VIEW messages AS SELECT * FROM proto")
    live.sql(f"CREATE TABLE latest (*, PRIMARY KEY (k)) INCLUDE key AS k {of.replace('PLAIN', 'UPSERT')}")
    columns = "id, note, state, map_entries(counts), line.sku, line.n"
    first: tuple[Any, ...] = (1, "", "PAID", [("a", 1)], "x", Decimal(2**64 - 1))
    second: tuple[Any, ...] = (2, None, "NEW", [], None, None)
    assert live.flushed_rows_of("messages", columns) == [first, second]
    assert live.rows_of("proto", columns) == [first, second]
    assert live.rows_of("latest", f"k, {columns}") == [(bytearray(b"k1"), *second)]
    assert sorted(row.reason for row in live.sql("SELECT reason FROM `proto$errors`")) == [
        f"according to schema {other}, the record is a message shop.Payment, not a message shop.Order",
        "failed to match the magic byte 0",
    ]
    tags = {"type": "array", "items": {"type": "string"}}
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "tags": tags}}
    head = topics.writer.register(f"{topics.topic('json')}-value", schema, "JSON").to_bytes(4, "big")
    topics.put("json", Record(value=b"\0" + head + b'{"id": 1, "tags": ["a"]}'), Record(value=b'{"id": 2}'))
    live.sql(f"CREATE SOURCE objects (*) {topics.of('json', 'PLAIN').replace('AVRO', 'JSON')}")
    live.sql("CREATE MATERIALIZED VIEW listed AS SELECT * FROM objects")
    assert live.flushed_rows_of("listed", "id, tags") == [(1, ["a"]), (2, None)]


def test_a_large_batch_of_messages(live: AttachedSession, topics: Topics) -> None:
    order = message_factory.GetMessageClass(Messages(compiled(PROTO), "shop.Order").descriptor)
    head = topics.writer.register(f"{topics.topic('proto')}-value", PROTO, "PROTOBUF").to_bytes(4, "big")
    live.sql("PAUSE SOURCE proto")
    many = SMALL_ROWS + 10
    frame = b"\0" + head + b"\0"
    newer = topics.writer.register(
        f"{topics.topic('proto')}-value", PROTO.replace("id = 1;", "id = 1; int64 m = 9;"), "PROTOBUF"
    )
    other = topics.writer.register(f"{topics.topic('proto')}-other", PAYMENT, "PROTOBUF")
    topics.put(
        "proto",
        *(Record(value=frame + order(id=at).SerializeToString()) for at in range(many - 1)),
        Record(value=b"\0" + newer.to_bytes(4, "big") + b"\0" + order(id=many - 1).SerializeToString()),
        Record(value=b"\0" + other.to_bytes(4, "big") + b"\2\2\x08\x07"),
    )
    live.sql("RESUME SOURCE proto")
    live.sql("FLUSH")
    total = live.sql("SELECT count(*) AS n, sum(id) AS s FROM messages")[0]
    assert (total.n, total.s) == (many + 2, many * (many - 1) // 2 + 3)
    assert live.sql("SELECT count(*) AS n FROM `proto$errors`")[0].n == 3
