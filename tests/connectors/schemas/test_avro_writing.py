"""What a sink writes as Avro is what Avro's own library reads."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rw_sql.connectors.kafka.schema_registry_records import RegisteredSchemas
from rw_sql.connectors.schemas.avro_writing import namespace_of, row_encoder, schema_of
from rw_sql.connectors.sink import SinkShape
from rw_sql.errors import SqlError

COLUMNS: dict[str, Any] = {
    "flag": "boolean",
    "small": "short",
    "n": "integer",
    "big": "long",
    "f": "float",
    "d": "double",
    "text": "string",
    "raw": "binary",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "amount": "decimal(20,4)",
    "wide": "decimal(38,10)",
    "items": {"type": "array", "elementType": "long", "containsNull": True},
    "pairs": {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
    "inner": {
        "type": "struct",
        "fields": [
            {"name": "a", "type": "integer", "nullable": True, "metadata": {}},
            {
                "name": "b",
                "type": {"type": "array", "elementType": "string", "containsNull": True},
                "nullable": True,
                "metadata": {},
            },
        ],
    },
}
TYPES = pa.schema(
    {
        "flag": pa.bool_(),
        "small": pa.int16(),
        "n": pa.int32(),
        "big": pa.int64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "text": pa.string(),
        "raw": pa.binary(),
        "day": pa.date32(),
        "at": pa.timestamp("us", tz="UTC"),
        "local": pa.timestamp("us"),
        "amount": pa.decimal128(20, 4),
        "wide": pa.decimal128(38, 10),
        "items": pa.list_(pa.int64()),
        "pairs": pa.map_(pa.string(), pa.int32()),
        "inner": pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())}),
    }
)


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
WHEN = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "small": signed(16),
    "n": signed(32),
    "big": signed(64),
    "f": st.floats(width=32, allow_nan=False),
    "d": st.floats(allow_nan=False),
    "text": TEXT,
    "raw": st.binary(max_size=5),
    "day": st.dates(),
    "at": WHEN.map(lambda at: at.replace(tzinfo=datetime.UTC)),
    "local": WHEN,
    "amount": signed(64).map(lambda number: Decimal(number).scaleb(-4)),
    "wide": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda number: Decimal(f"{number}E-10")),
    "items": st.lists(st.none() | signed(64), max_size=3),
    "pairs": st.dictionaries(TEXT, st.none() | signed(32), max_size=3),
    "inner": st.fixed_dictionaries(
        {"a": st.none() | signed(32), "b": st.none() | st.lists(st.none() | TEXT, max_size=2)}
    ),
}
ROW = st.fixed_dictionaries({name: st.none() | value for name, value in VALUES.items()})


@given(st.lists(ROW, min_size=1, max_size=3))
def test_every_value_is_read_back(rows: list[dict[str, Any]]) -> None:
    schema = schema_of("Value", "a.b", COLUMNS)
    listed = [{**row, "pairs": list(row["pairs"].items()) if row["pairs"] is not None else None} for row in rows]
    table = pa.Table.from_pylist(listed, schema=TYPES)
    columns = [table.column(name).to_pylist() for name in COLUMNS]
    parsed = fastavro.parse_schema(schema)
    encoded = row_encoder(schema)
    for row, values in zip(rows, zip(*columns, strict=True), strict=True):
        data = encoded(b"head", values)
        assert data[:4] == b"head"
        stream = io.BytesIO(data[4:])
        assert fastavro.schemaless_reader(stream, parsed, parsed) == row
        assert not stream.read()


def test_numbers_keep_all_their_digits() -> None:
    """Python's arithmetic rounds to 28 digits, and NUMERIC has up to 38."""
    encode = row_encoder(schema := schema_of("Value", "", {"wide": "decimal(38,10)"}))
    for text in ("1234567890123456789012345678.9012345678", "-9999999999999999999999999999.9999999999", "0E-10"):
        stream = io.BytesIO(encode(b"", [Decimal(text)]))
        assert fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None) == {"wide": Decimal(text)}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a b": "integer"}, 'column "a b" cannot be a field of Avro'),
        ({"a": "interval day to second"}, 'cannot encode column "a" as Avro: interval day to second'),
        ({"a": {"type": "map", "keyType": "integer", "valueType": "string"}}, "map with keys of type integer"),
    ],
)
def test_what_avro_does_not_have_is_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(SqlError) as told:
        schema_of("Value", "", columns)
    assert message in told.value.message


def test_subjects_and_names() -> None:
    schema = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}}]}'
    shape = SinkShape(name="s", type="upsert", schema=schema, encode="AVRO", keys=("id",))
    plain = RegisteredSchemas.of(shape, "shop.orders-1")
    assert [schema.subject for schema in plain.both] == ["shop.orders-1-value", "shop.orders-1-key"]
    names = [(made["namespace"], made["name"]) for made in (json.loads(schema.text) for schema in plain.both)]
    assert names == [("shop.orders_1", "Value"), ("shop.orders_1", "Key")]
    given_name = (("schema.registry.name.strategy", "topic_record_name_strategy"), ("message", "a.b.Order"))
    named = RegisteredSchemas.of(
        SinkShape(name="s", type="append-only", schema=schema, encode="AVRO", encode_options=given_name), "t"
    )
    assert named.both == [named.value]
    assert named.value.subject == "t-a.b.Order"
    made = json.loads(named.value.text)
    assert (made["namespace"], made["name"]) == ("a.b", "Order")
    assert namespace_of("1a..b c") == "_1a.b_c"
