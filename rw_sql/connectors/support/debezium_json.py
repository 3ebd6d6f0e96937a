"""Builds change records in Debezium's envelope. Each record contains the schema that Kafka Connect's JSON converter
expects.

See https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-change-events-value
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.sink import DELETE, INSERT

if TYPE_CHECKING:
    from rw_sql.connectors.sink import SinkShape

_WORDS = {
    "boolean": "boolean",
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "binary": "bytes",
}
"""Maps Spark types to the names of Kafka Connect's types. All other types, such as text, NUMERIC and time types, are
named ``string``, because their values are written as strings.
"""

_SOURCE_FIELDS = ({"field": "db", "type": "string"}, {"field": "table", "type": "string"})


def change_record(
    shape: SinkShape, operation: str, before: dict[str, Any] | None, row: dict[str, Any], now_ms: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the key and the value of one change's record. ``row`` is the new row; for a delete, it is the deleted
    row."""
    key_schema, value_schema = _schemas(shape)
    op = "d" if operation == DELETE else "c" if operation == INSERT else "u"
    payload = {
        "before": row if op == "d" else before,
        "after": None if op == "d" else row,
        "op": op,
        "ts_ms": now_ms,
        "source": {"db": "rw_sql", "table": shape.name, "ts_ms": now_ms},
    }
    key = {name: row[name] for name in shape.keys}
    return {"schema": key_schema, "payload": key}, {"schema": value_schema, "payload": payload}


@lru_cache(maxsize=256)
def _schemas(shape: SinkShape) -> tuple[dict[str, Any], dict[str, Any]]:
    name = f"rw_sql.{shape.name}"
    columns = shape.columns
    row = [_field(column, kind) for column, kind in columns.items()]
    value = {"type": "struct", "optional": True, "name": f"{name}.Value", "fields": row}
    source = {
        "type": "struct",
        "optional": False,
        "name": "rw_sql.Source",
        "field": "source",
        "fields": [*({**field, "optional": False} for field in _SOURCE_FIELDS), _time("ts_ms")],
    }
    envelope = {
        "type": "struct",
        "optional": False,
        "name": f"{name}.Envelope",
        "fields": [
            {**value, "field": "before"},
            {**value, "field": "after"},
            source,
            {"field": "op", "type": "string", "optional": False},
            _time("ts_ms"),
        ],
    }
    key = {
        "type": "struct",
        "optional": False,
        "name": f"{name}.Key",
        "fields": [_field(column, columns[column]) for column in shape.keys],
    }
    return key, envelope


def _time(name: str) -> dict[str, Any]:
    return {"field": name, "type": "int64", "optional": False}


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"field": name, "optional": True, **_type(kind)}


def _type(kind: Any) -> dict[str, Any]:
    match kind:
        case {"type": "struct", "fields": [*fields]}:
            return {"type": "struct", "fields": [_field(field["name"], field["type"]) for field in fields]}
        case {"type": "array", "elementType": element}:
            return {"type": "array", "items": {"optional": True, **_type(element)}}
        case {"type": "map", "valueType": value}:
            # A JSON object has text keys, and the converter treats a map as an object only if the keys of the map are
            # strings.
            keys = {"optional": False, "type": "string"}
            return {"type": "map", "keys": keys, "values": {"optional": True, **_type(value)}}
        case _:
            return {"type": _WORDS.get(kind, "string")}
