"""The lookup of writer schemas in a real registry: ids that it lacks, at first or for good."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from rw_sql.connectors.schemas.avro import definitions, normal_form
from rw_sql.connectors.schemas.client import RegistryClient
from rw_sql.runtime.decoding.registry import writers
from rw_sql.runtime.decoding.registry.writers import Writers, head_of
from rw_sql.runtime.support.failures import StalledError
from tests.support.avro_records import record_schema
from tests.support.registry_proxy import RegistryProxy
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.cli.servers.schema_registry import RegistryInfo

pytestmark = pytest.mark.registry

READER = record_schema("A", {"id": "long"})


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


def record(name: str, at: Any, **more: Any) -> dict[str, Any]:
    fields = [{"name": "at", "type": at}, *({"name": key, "type": kind} for key, kind in more.items())]
    return {"type": "record", "name": name, "fields": fields}


def cents(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def top(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Top", "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


@pytest.mark.parametrize(
    ("reader", "writer", "reading"),
    [
        # By an alias, in another namespace, under another name: Avro reads all of them.
        (
            top(part=["null", {**record("b.New", MICROS), "aliases": ["a.Old"]}]),
            top(part=["null", record("a.Old", MILLIS)]),
            top(part=["null", {**record("b.New", MILLIS), "aliases": ["a.Old"]}]),
        ),
        (
            top(part=["null", record("b.Part", cents(12, 4))]),
            top(part=["null", record("a.Part", cents(8, 2))]),
            top(part=["null", record("b.Part", cents(8, 2))]),
        ),
        (
            top(part=["null", "string", record("New", MICROS)]),
            top(part=record("Old", MILLIS)),
            top(part=["null", "string", record("New", MILLIS)]),
        ),
        # The writer lacks the field in which the record is defined, and uses the record in another one.
        (
            top(first=["null", record("Part", MICROS)], second=["null", "Part"]),
            top(second=["null", record("Part", MILLIS)]),
            top(first=["null", record("Part", MILLIS)], second=["null", "Part"]),
        ),
        (
            top(first={"type": "array", "items": record("Part", MICROS)}, second={"type": "map", "values": "Part"}),
            top(second={"type": "map", "values": record("Part", MILLIS)}),
            top(first={"type": "array", "items": record("Part", MILLIS)}, second={"type": "map", "values": "Part"}),
        ),
        # A record that the writer has under its own name is not taken for another one.
        (
            top(one=["null", record("Card", MICROS)], two=["null", "Card", record("Cash", MICROS)]),
            top(two=["null", record("Cash", MILLIS)], one=["null", record("Card", MICROS)]),
            top(one=["null", record("Card", MICROS)], two=["null", "Card", record("Cash", MILLIS)]),
        ),
        # A record that contains itself.
        (
            top(part=record("Part", MICROS, next=["null", "Part"])),
            top(part=record("Part", MILLIS, next=["null", "Part"])),
            top(part=record("Part", MILLIS, next=["null", "Part"])),
        ),
    ],
)
def test_units_are_those_of_the_record_that_avro_reads(reader: Any, writer: Any, reading: Any) -> None:
    reader, writer, reading = (normal_form(json.dumps(each)) for each in (reader, writer, reading))
    alignment = writers.Alignment(definitions(reader), definitions(writer))
    assert alignment.aligned(reader, writer, "") == reading
    assert alignment.refusal is None


@pytest.fixture
def proxy(schema_registry: RegistryInfo) -> Iterator[RegistryProxy]:
    proxy = RegistryProxy(schema_registry.url)
    yield proxy
    proxy.stop()


def registered(client: RegistryClient) -> int:
    """The id of a schema that the registry did not have."""
    name = f"f{uuid4().hex}"
    return client.register(f"w-{name}", "AVRO", json.dumps(record_schema("A", {"id": "long", name: "int"})))


def found(of: Writers, id_: int) -> bool:
    return [writer.head for writer in of.known([head_of(id_)])] == [head_of(id_)]


def test_a_schema_that_is_registered_a_moment_after_its_record_is_found(
    proxy: RegistryProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "_GRACE_SECONDS", 600.0)  # The lookup ends when the schema is there.
    client = RegistryClient({"schema.registry": proxy.start()})
    of = Writers(client, normal_form(json.dumps(READER), ()))
    next_id = registered(client) + 1
    looked = len(proxy.requests)
    told: list[bool] = []
    looking = threading.Thread(target=lambda: told.append(found(of, next_id)), daemon=True)
    looking.start()
    wait_until(lambda: len(proxy.requests) > looked + 1, "the id is looked up again")
    assert registered(client) == next_id
    looking.join(60)
    assert told == [True]


def test_an_id_that_is_lacking_for_good_is_waited_for_once_and_never_forgotten(
    proxy: RegistryProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = RegistryClient({"schema.registry": proxy.start()})
    source, table = (Writers(client, normal_form(json.dumps(READER), ())) for _ in range(2))
    next_id = registered(client) + 1
    looked = len(proxy.requests)
    assert not found(source, next_id)
    assert len(proxy.requests) > looked + 1
    # From now on, one request answers for each batch, whichever reader asks.
    for of in (source, table, source):
        before = len(proxy.requests)
        assert not found(of, next_id)
        assert len(proxy.requests) == before + 1
    assert registered(client) == next_id
    assert found(source, next_id)
    assert found(table, next_id)
    asked = len(proxy.requests)
    assert found(source, next_id)
    assert len(proxy.requests) == asked
    proxy.is_down = True
    with pytest.raises(StalledError, match="REGISTRY does not answer"):
        found(source, 2**31 - 1)


def test_bytes_that_are_no_frame_are_not_looked_up(proxy: RegistryProxy) -> None:
    of = Writers(RegistryClient({"schema.registry": proxy.start()}), normal_form(json.dumps(READER), ()))
    assert of.known([b"", b"\0\0", b"{id: 1", b"{}"]) == ()
    assert proxy.requests == []
