"""Change records in Debezium's envelope: each value has the form that its schema declares."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from rw_sql.connectors.kafka.sink import records
from rw_sql.connectors.sink import INSERT, OP, SinkShape

NUMBERS = ("int8", "int16", "int32", "int64", "float", "double")


def fits(schema: dict[str, Any], value: Any) -> bool:
    """True if Kafka Connect's JSON converter reads the value with this schema (``JsonConverter.convertToConnect``)."""
    if value is None:
        return bool(schema["optional"])
    kind = schema["type"]
    if kind == "struct":
        return isinstance(value, dict) and all(fits(field, value[field["field"]]) for field in schema["fields"])
    if kind == "array":
        return isinstance(value, list) and all(fits(schema["items"], item) for item in value)
    if kind == "map" and schema["keys"]["type"] == "string":
        return isinstance(value, dict) and all(fits(schema["values"], item) for item in value.values())
    if kind == "map":
        return isinstance(value, list) and all(
            isinstance(pair, list) and fits(schema["keys"], pair[0]) and fits(schema["values"], pair[1])
            for pair in value
        )
    if kind == "boolean":
        return isinstance(value, bool)
    return isinstance(value, int | float) if kind in NUMBERS else isinstance(value, str)


def test_every_value_has_the_form_that_its_schema_declares() -> None:
    struct = {
        "type": "struct",
        "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}],
    }

    def map_of(key: Any, value: Any) -> dict[str, Any]:
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}

    columns: dict[str, tuple[Any, pa.DataType, Any]] = {
        "id": ("integer", pa.int32(), 1),
        "is": ("boolean", pa.bool_(), True),
        "d": ("decimal(10,2)", pa.decimal128(10, 2), None),
        "raw": ("binary", pa.binary(), b"\0"),
        "texts": (map_of("string", "double"), pa.map_(pa.string(), pa.float64()), {"a": 0.5}),
        "numbers": (map_of("integer", "string"), pa.map_(pa.int32(), pa.string()), [(1, "one"), (2, None)]),
        "flags": (map_of("boolean", struct), pa.map_(pa.bool_(), pa.struct([("n", pa.int64())])), [(True, {"n": 1})]),
        "lists": (
            {"type": "array", "elementType": map_of("date", "long"), "containsNull": True},
            pa.list_(pa.map_(pa.date32(), pa.int64())),
            [[(0, 1)], None],
        ),
    }
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, (kind, _, _) in columns.items()]
    shape = SinkShape(
        name="k", type="debezium", schema=json.dumps({"type": "struct", "fields": fields}), encode="JSON", keys=("id",)
    )
    rows = pa.table({name: pa.array([value], kind) for name, (_, kind, value) in columns.items()} | {OP: [INSERT]})
    ((key, value),) = records(rows, shape, now_ms=0)
    assert key is not None
    assert value is not None
    for part in (key, value):
        record = json.loads(part)
        assert fits(record["schema"], record["payload"])
    after = json.loads(value)["payload"]["after"]
    assert after["numbers"] == {"1": "one", "2": None}
    assert after["lists"] == [{"1970-01-01": 1}, None]
