"""Every value of an Avro record is the one that Avro's own library reads, whoever wrote it."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.runtime.decoding.registry_reference import compare_values, read_values
from tests.support.avro_records import AvroWriter, encoded, record_schema
from tests.support.seeds import seed_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.schema_registry import RegistryInfo

pytestmark = [pytest.mark.spark, pytest.mark.registry]

SCHEMAS = 4
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


@pytest.fixture(scope="module")
def writer(schema_registry: RegistryInfo) -> AvroWriter:
    return AvroWriter(schema_registry.url)


def test_random_schemas_and_versions(spark: SparkSession, writer: AvroWriter, request: pytest.FixtureRequest) -> None:
    first = seed_of(request.config) * SCHEMAS
    for seed in range(first, first + SCHEMAS):
        compare_values(spark, writer, seed, records=60)


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def test_units_and_scales_are_the_writer_s(spark: SparkSession, writer: AvroWriter) -> None:
    reader = record_schema("Unit", {"at": MICROS, "n": decimal(12, 4), "deep": {"type": "array", "items": MICROS}})
    milli = record_schema("Unit", {"at": MILLIS, "n": decimal(8, 2), "deep": {"type": "array", "items": MILLIS}})
    finer = record_schema("Unit", {"at": MILLIS, "n": decimal(12, 5), "deep": {"type": "array", "items": MILLIS}})
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 6000, datetime.UTC)
    value = {"at": when, "n": Decimal("1.25"), "deep": [when]}
    values = [writer.framed(f"unit-{at}", schema, value) for at, schema in enumerate((reader, milli, finer))]
    first, second, third = read_values(spark, writer.url, "unit", reader, values)
    assert first == second == (value, None)
    assert third[1] is not None
    assert third[1].endswith("cannot be read: n is decimal(12, 5), which does not fit decimal(12, 4)")


def test_units_of_records_with_other_names_and_places(spark: SparkSession, writer: AvroWriter) -> None:
    old = record_schema("Old", {"at": MILLIS})
    new: dict[str, Any] = {**record_schema("New", {"at": MICROS}), "namespace": "other.place"}
    aliased = {**new, "aliases": [f"{old['namespace']}.Old" if "namespace" in old else "Old"]}
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 6000, datetime.UTC)
    data = writer.framed("moved-old", record_schema("Moved", {"part": ["null", old]}), {"part": {"at": when}})
    for number, part in enumerate((aliased, new)):
        reader = record_schema("Moved", {"part": ["null", part]})
        assert read_values(spark, writer.url, f"moved-{number}", reader, [data]) == [({"part": {"at": when}}, None)]
    # The record is defined in a field that the writer lacks.
    two = record_schema("Two", {"second": ["null", "New"]})
    two["fields"].insert(0, {"name": "first", "type": ["null", new], "default": None})
    two["fields"][1]["type"] = ["null", "other.place.New"]
    milli = {**record_schema("New", {"at": MILLIS}), "namespace": "other.place"}
    data = writer.framed("two-old", record_schema("Two", {"second": ["null", milli]}), {"second": {"at": when}})
    assert read_values(spark, writer.url, "two", two, [data]) == [({"first": None, "second": {"at": when}}, None)]


def test_a_union_is_a_struct_with_a_field_for_each_type(spark: SparkSession, writer: AvroWriter) -> None:
    card: dict[str, Any] = record_schema("Card", {"at": MICROS, "n": ["null", "int"]})
    cash = {"type": "enum", "name": "Cash", "symbols": ["EUR", "USD"]}
    lists = {"type": "array", "items": ["string", "Card"]}
    reader = record_schema("Paid", {"by": ["null", "string", card, cash, MICROS], "more": lists})
    milli = record_schema("Card", {"at": MILLIS})
    milli["fields"].append({"name": "n", "type": ["null", "int"], "default": None})
    older = record_schema("Paid", {"by": ["null", milli, cash, MILLIS], "more": lists})
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 6000, datetime.UTC)
    given = [("Card", {"at": when, "n": 7}), ("Cash", "USD"), when, None]
    values = [
        writer.framed(f"paid-{at}", schema, {"by": by, "more": ["x", ("Card", {"at": when, "n": None})]})
        for at, schema in enumerate((reader, older))
        for by in (*given, *(["text"] if schema is reader else []))
    ]
    none = dict.fromkeys(("string", "Card", "Cash", "long"))
    by = [{**none, "Card": {"at": when, "n": 7}}, {**none, "Cash": "USD"}, {**none, "long": when}, None]
    more = [{"string": "x", "Card": None}, {"string": None, "Card": {"at": when, "n": None}}]
    rows = read_values(spark, writer.url, "paid", reader, values)
    assert rows == [({"by": each, "more": more}, None) for each in (*by, {**none, "string": "text"}, *by)]


def test_a_record_without_a_needed_field_is_an_error(spark: SparkSession, writer: AvroWriter) -> None:
    reader, less = record_schema("Less", {"a": "int", "b": "int"}), record_schema("Less", {"a": "int"})
    values = [writer.framed("less-1", less, {"a": 1}), writer.framed("less-2", reader, {"a": 1, "b": 2})]
    bad, good = read_values(spark, writer.url, "less", reader, values)
    assert bad[1] is not None
    assert bad[1].startswith("the bytes are not a record of schema ")
    assert good == ({"a": 1, "b": 2}, None)


@pytest.mark.parametrize(("kind", "length"), [("bytes", 2**30), ("string", 2**30), ("array", 10**9), ("map", 10**9)])
def test_a_broken_length_is_an_error_of_its_record(
    spark: SparkSession, writer: AvroWriter, kind: str, length: int
) -> None:
    of = {"array": {"type": "array", "items": "long"}, "map": {"type": "map", "values": "long"}}.get(kind, kind)
    reader = record_schema("Broken", {"value": of})
    empty: Any = {"bytes": b"", "string": "", "array": [], "map": []}[kind]
    good = writer.framed(f"broken-{kind}", reader, {"value": {} if kind == "map" else empty})
    found = read_values(spark, writer.url, f"broken-{kind}", reader, [good, good[:5] + _varint(length)])
    assert found[0] == ({"value": empty}, None)
    assert found[1][1] is not None
    assert "the bytes are not a record of schema" in found[1][1]


def _varint(number: int) -> bytes:
    """A number as Avro writes it: zigzag, seven bits in each byte."""
    left, found = number * 2, bytearray()
    while left > 127:
        found.append(left & 127 | 128)
        left >>= 7
    return bytes((*found, left))


def test_a_decimal_beyond_its_precision_is_an_error_of_its_record(spark: SparkSession, writer: AvroWriter) -> None:
    """Spark reads the lowest 64 bits of a short decimal: 2^64 + 5 would be 5."""
    plain = decimal(18, 2)
    wide: dict[str, Any] = {**decimal(7, 0), "type": "fixed", "size": 12, "name": "Wide"}
    short: dict[str, Any] = {**decimal(5, 0), "type": "fixed", "size": 3, "name": "Short"}
    for name, kind, limit in (("bytes", plain, 10**18 - 1), ("wide", wide, 10**7 - 1), ("short", short, 99_999)):
        size = kind.get("size", 9)
        places: dict[str, tuple[Any, Any]] = {
            "field": (["null", kind], lambda value: value),
            "array": ({"type": "array", "items": kind}, lambda value: [value]),
            "map": ({"type": "map", "values": ["null", kind]}, lambda value: {"a": value, "b": None}),
            "union": (["string", kind], lambda value: {"string": None, "value": value}),
            "record": (record_schema(f"In{name}", {"deep": kind}), lambda value: {"deep": value}),
        }
        scale = kind["scale"]
        for place, (schema, made) in places.items():
            raw = _without_decimals(schema)
            reader = record_schema(f"Over_{name}_{place}", {"n": schema})
            frame = writer.framed(f"over-{name}-{place}", reader, {"n": _given(place, Decimal(1), kind)})[:5]
            texts = [limit, -limit, limit + 1, -limit - 1]
            if size > 8:
                texts += [2**64 + 5, -(2**64) - 5, 2 ** (8 * size - 1) - 1]
            bodies = [
                encoded(
                    record_schema(f"Over_{name}_{place}", {"n": raw}),
                    {"n": _given(place, number.to_bytes(size, "big", signed=True), kind)},
                )
                for number in texts
            ]
            rows = read_values(spark, writer.url, f"over-{name}-{place}", reader, [frame + body for body in bodies])
            for number, (row, fault) in zip(texts, rows, strict=True):
                if abs(number) > limit:
                    assert row == {"n": None}, (name, place, number)
                    assert fault is not None
                    assert "the bytes are not a record of schema" in fault
                    continue
                expected = made(Decimal(number).scaleb(-scale))
                if place == "map":
                    expected = sorted(expected.items())
                if place == "union":
                    expected = {"string": None, "bytes" if name == "bytes" else kind["name"]: expected["value"]}
                assert (row, fault) == ({"n": expected}, None), (name, place, number)


def _given(place: str, value: Any, kind: dict[str, Any]) -> Any:
    match place:
        case "array":
            return [value]
        case "map":
            return {"a": value, "b": None}
        case "record":
            return {"deep": value}
        case "union" if isinstance(value, bytes):
            return (kind.get("name", "bytes"), value)
    return value


def _without_decimals(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_decimals(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: value for key, value in schema.items() if key not in ("logicalType", "precision", "scale")}
    for key in ("items", "values"):
        if key in made:
            made[key] = _without_decimals(made[key])
    if "fields" in made:
        made["fields"] = [{**each, "type": _without_decimals(each["type"])} for each in made["fields"]]
    return made


def test_years_beyond_9999_are_an_error_of_their_record(spark: SparkSession, writer: AvroWriter) -> None:
    micros = (-62_135_596_800_000_000, 253_402_300_799_999_999)
    millis = (micros[0] // 1000, micros[1] // 1000)
    for kind, (first, last) in {
        "date": (-719_162, 2_932_896),
        "timestamp-millis": millis,
        "timestamp-micros": micros,
        "local-timestamp-millis": millis,
        "local-timestamp-micros": micros,
    }.items():
        plain = "int" if kind == "date" else "long"
        name = kind.replace("-", "_")
        raw = record_schema(f"Year_{name}", {"at": ["null", plain], "deep": {"type": "array", "items": plain}})
        timed = {"type": plain, "logicalType": kind}
        reader = record_schema(f"Year_{name}", {"at": ["null", timed], "deep": {"type": "array", "items": timed}})
        given = [(at, deep) for number in (first - 1, first, last, last + 1) for at, deep in ((number, 0), (0, number))]
        bodies = [encoded(raw, {"at": at, "deep": [deep]}) for at, deep in given]
        head = writer.framed(f"year-{kind}", reader, {"at": None, "deep": []})[:5]
        rows = read_values(spark, writer.url, f"year-{kind}", reader, [head + body for body in bodies])
        faults = [fault is not None for _, fault in rows]
        assert faults == [not first <= at + deep <= last for at, deep in given], kind


def test_an_id_beyond_those_of_registries_is_an_error_of_its_record(spark: SparkSession, writer: AvroWriter) -> None:
    """Some registries answer a request for such an id as if their address were wrong."""
    schema = record_schema("Id", {"id": "long"})
    good = writer.framed("id", schema, {"id": 1})
    values = [good, *(b"\0" + id_.to_bytes(4, "big") + good[5:] for id_ in (2**31, 2**32 - 1, 2**31 - 1)), good]
    rows = read_values(spark, writer.url, "id", schema, values)
    assert [row for row, _ in rows] == [{"id": 1}, *[{"id": None}] * 3, {"id": 1}]
    assert [fault for _, fault in rows] == [
        None,
        "schema 2147483648 is not in the registry",
        "schema 4294967295 is not in the registry",
        "schema 2147483647 is not in the registry",
        None,
    ]


def test_a_string_that_is_not_utf8_is_an_error_of_its_record(spark: SparkSession, writer: AvroWriter) -> None:
    schema = record_schema(
        "Texts",
        {
            "plain": "string",
            "listed": {"type": "array", "items": ["null", "string"]},
            "named": {"type": "map", "values": "string"},
        },
    )
    good = {"plain": "Z\u00fcrich", "listed": ["one", None], "named": {"key": "value"}}
    data = writer.framed("texts", schema, good)
    broken = [data.replace(text, b"\xff" * len(text)) for text in ("Z\u00fcrich".encode(), b"one", b"key", b"value")]
    first, *others = read_values(spark, writer.url, "texts", schema, [data, *broken])
    assert first == ({**good, "named": [("key", "value")]}, None)  # Arrow returns a map as a list of pairs.
    assert all(row == dict.fromkeys(good) for row, _ in others)
    assert all((error or "").startswith("the bytes are not a record of schema ") for _, error in others)


def test_a_map_as_json_has_its_whole_values(spark: SparkSession, writer: AvroWriter) -> None:
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    inner = record_schema("Inner", {"at": MICROS, "local": local, "none": ["null", "int"]})
    schema = record_schema(
        "Mapped",
        {
            "records": {"type": "map", "values": inner},
            "maps": {"type": "map", "values": {"type": "map", "values": ["null", "long"]}},
            "listed": {"type": "array", "items": {"type": "map", "values": "string"}},
        },
    )
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 123456, datetime.UTC)
    value = {"at": when, "local": when.replace(tzinfo=None), "none": None}
    data = writer.framed(
        "mapped", schema, {"records": {"a": value}, "maps": {"a": {"b": 1, "c": None}}, "listed": [{"a": "x"}]}
    )
    columns, option = "records JSONB, maps JSONB, listed JSONB[]", ", map.handling.mode = 'jsonb'"
    ((row, fault),) = read_values(spark, writer.url, "mapped", schema, [data], columns=columns, options=option)
    assert fault is None
    assert json.loads(row["records"]) == {
        "a": {"at": "2026-01-02T03:04:05.123456Z", "local": "2026-01-02T03:04:05.123456", "none": None}
    }
    assert json.loads(row["maps"]) == {"a": {"b": 1, "c": None}}
    assert [json.loads(each) for each in row["listed"]] == [{"a": "x"}]
