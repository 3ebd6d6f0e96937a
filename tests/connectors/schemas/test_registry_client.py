"""The client of a schema registry against a real one, and against one that does not answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pytest

from rw_sql.connectors.kafka import schema_registry_records
from rw_sql.connectors.kafka.schema_registry_records import RegisteredRecords, RegisteredSchemas
from rw_sql.connectors.schemas import client as client_module
from rw_sql.connectors.schemas.avro import columns_of, normal_form
from rw_sql.connectors.schemas.client import RegistryClient, RegistryError, addresses_of
from rw_sql.connectors.sink import OP, SinkShape
from tests.support.avro_records import record_schema
from tests.support.registry_proxy import RegistryProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.cli.servers.schema_registry import RegistryInfo

pytestmark = pytest.mark.registry
QUICK = {"schema.registry.backoff.duration.ms": "1", "schema.registry.retries.max": "2"}


@pytest.fixture
def proxy(schema_registry: RegistryInfo) -> Iterator[RegistryProxy]:
    proxy = RegistryProxy(schema_registry.url)
    yield proxy
    proxy.stop()


def test_what_is_registered_is_read_back(proxy: RegistryProxy) -> None:
    client, subject = RegistryClient({"schema.registry": proxy.start(), **QUICK}), f"s/{uuid4()}"
    first, second = record_schema("A", {"id": "int"}), record_schema("A", {"id": "long"})
    ids = [client.register(subject, "AVRO", json.dumps(schema)) for schema in (first, second, first)]
    assert ids[0] == ids[2] != ids[1]
    assert set(client.ids_of(subject)) == set(ids)
    latest = client.latest(subject)
    assert latest is not None
    assert (latest.id, latest.kind, json.loads(latest.text)) == (ids[1], "AVRO", second)
    assert subject in client.subjects()
    assert client.latest(f"{subject}-not") is None
    assert client.ids_of(f"{subject}-not") == ()
    assert client.schema(2**31 - 1) is None
    asked = len(proxy.requests)
    found = [RegistryClient(client.options).schema(ids[0]) for _ in range(3)]
    assert len(proxy.requests) - asked == 1  # An id is not asked for again at once.
    assert {None if each is None else each.id for each in found} == {ids[0]}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every use of a cached schema reads it again."""
    monkeypatch.setattr(client_module, "VERIFY_SECONDS", 0.0)
    monkeypatch.setattr(schema_registry_records, "VERIFY_SECONDS", 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_registry_created_again_has_other_schemas_under_its_ids(proxy: RegistryProxy) -> None:
    """Two registries behind one address, one after the other."""
    client, subject = RegistryClient({"schema.registry": proxy.start(), **QUICK}), f"s/{uuid4()}"
    first, second = record_schema("A", {"id": "int"}), record_schema("B", {"id": "int", "more": "string"})
    one = client.register(subject, "AVRO", json.dumps(first))
    other = client.register(f"{subject}-2", "AVRO", json.dumps(second))
    found = client.schema(one)
    assert found is not None
    assert json.loads(found.text) == first
    again = client.schema(one)
    assert again is found
    proxy.is_down = True  # A cached schema needs no registry, and a silent one is asked once only.
    asked = len(proxy.requests)
    assert client.schema(one) is found
    assert len(proxy.requests) - asked == 1
    proxy.is_down, proxy.ids = False, {one: other, other: 2**31 - 1}
    replaced = client.schema(one)
    assert replaced is not None
    assert (replaced.id, json.loads(replaced.text)) == (one, second)
    proxy.ids = {}
    before = client.schema(other)
    proxy.ids = {other: 2**31 - 1}
    assert before is not None
    assert client.schema(other) is before  # A schema that was removed stays as it was read.


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_a_sink_registers_its_schemas_in_a_registry_created_again(proxy: RegistryProxy, kind: str) -> None:
    topic = f"again-{uuid4()}"
    given = (("message", "shop.Row"),) if kind == "PROTOBUF" else ()
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
    text = json.dumps({"type": "struct", "fields": fields})
    shape = SinkShape(name="s", type="append-only", schema=text, encode=kind, encode_options=given)
    records = RegisteredRecords({"schema.registry": proxy.start(), **QUICK}, shape, topic)
    rows = pa.table({OP: ["insert"], "id": pa.array([7], pa.int64())})
    [(_, (_, first))] = records.numbered(rows)
    proxy.is_down = True
    assert [(0, (None, first))] == list(records.numbered(rows))
    proxy.is_down, proxy.prefix = False, "again-"  # Another registry: it has none of the subjects.
    [(_, (_, second))] = records.numbered(rows)
    assert first is not None
    assert second is not None
    client = RegistryClient({"schema.registry": proxy.target})
    assert client.ids_of(f"again-{topic}-value") == (int.from_bytes(second[1:5], "big"),)
    assert second[5:] == first[5:]


def test_references_are_part_of_a_schema(schema_registry: RegistryInfo) -> None:
    client, prefix = RegistryClient({"schema.registry": schema_registry.url}), uuid4().hex
    place = {**record_schema("Place", {"city": "string"}), "namespace": "geo"}
    client.register(f"{prefix}-place", "AVRO", json.dumps(place))
    home = {**record_schema("Home", {"at": "geo.Place", "was": ["null", "geo.Place"]}), "namespace": "shop"}
    body = {
        "schema": json.dumps(home),
        "references": [{"name": "geo.Place", "subject": f"{prefix}-place", "version": 1}],
    }
    id_ = client._post(f"/subjects/{prefix}-home/versions", body)["id"]
    found = client.schema(id_)
    assert found is not None
    columns = columns_of(normal_form(found.text, found.imports))
    kind = 'STRUCT<"city" CHARACTER VARYING>'
    assert columns == (("at", kind), ("was", kind))


def test_compatibility_is_what_the_registry_says(schema_registry: RegistryInfo) -> None:
    client, subject = RegistryClient({"schema.registry": schema_registry.url}), f"c-{uuid4()}"
    first, other = record_schema("A", {"id": "int"}), record_schema("A", {"id": "string"})
    assert client.incompatibility(subject, "AVRO", json.dumps(first)) is None
    client.register(subject, "AVRO", json.dumps(first))
    client._request("PUT", f"/config/{subject}", {"compatibility": "BACKWARD"})
    assert client.incompatibility(subject, "AVRO", json.dumps(first)) is None
    assert client.incompatibility(subject, "AVRO", json.dumps(other))


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF", "JSON"])
def test_a_sink_s_new_columns_are_compatible_and_new_types_are_not(schema_registry: RegistryInfo, kind: str) -> None:
    client, topic = RegistryClient({"schema.registry": schema_registry.url}), f"t-{uuid4()}"

    def schema(**columns: str) -> str:
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
        given = (("message", "shop.Row"),) if kind == "PROTOBUF" else ()
        text = json.dumps({"type": "struct", "fields": fields})
        shape = SinkShape(name="s", type="append-only", schema=text, encode=kind, encode_options=given)
        return RegisteredSchemas.of(shape, "t").value.text

    client.register(topic, kind, schema(id="long", name="string"))
    client._request("PUT", f"/config/{topic}", {"compatibility": "BACKWARD"})
    assert client.incompatibility(topic, kind, schema(id="long", name="string")) is None
    assert client.incompatibility(topic, kind, schema(id="string", name="string")) is not None
    if kind != "JSON":  # There any name may have had any value before.
        assert client.incompatibility(topic, kind, schema(id="long", name="string", more="date")) is None


def test_a_registry_that_does_not_answer_is_tried_again(proxy: RegistryProxy) -> None:
    url = proxy.start()
    client = RegistryClient({"schema.registry": url, **QUICK})
    proxy.is_down = True
    with pytest.raises(RegistryError, match="HTTP 503"):
        client.subjects()
    assert len(proxy.requests) == 3
    proxy.is_down, proxy.login = False, ("u", "p")
    with pytest.raises(RegistryError, match="refuses the user or the password"):
        client.subjects()
    assert len(proxy.requests) == 4  # Another try would be refused too.
    both = {"schema.registry": f"http://127.0.0.1:1/, {url}", "schema.registry.username": "u", **QUICK}
    assert isinstance(RegistryClient({**both, "schema.registry.password": "p"}).subjects(), tuple)


def test_addresses_are_a_list() -> None:
    assert addresses_of(" http://a/ ,http://b,, http://a") == ("http://a", "http://b")
