"""Builds the JSON Schema for the rows that a sink with ENCODE JSON writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXT = {"type": ["null", "string"]}
_PLAIN: dict[str, dict[str, Any]] = {
    "boolean": {"type": ["null", "boolean"]},
    **{kind: {"type": ["null", "integer"]} for kind in ("byte", "short", "integer", "long")},
    **{kind: {"type": ["null", "number"]} for kind in ("float", "double")},
    "binary": {**_TEXT, "contentEncoding": "base64"},
    "date": {**_TEXT, "format": "date"},
    "timestamp": {**_TEXT, "format": "date-time"},
}
"""Maps Spark's types to their JSON Schema. Values of all other types, such as NUMERIC and TIMESTAMP, are written as
text."""


def schema_text(title: str, columns: Mapping[str, Any]) -> str:
    """Returns the schema of objects with these columns (name → type in Spark's JSON form). The value of each column may
    be null."""
    properties = {name: _type(kind) for name, kind in columns.items()}
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": title, "type": "object"}
    return json.dumps({**head, "properties": properties}, ensure_ascii=False)


def _type(kind: Any) -> dict[str, Any]:
    match kind:
        case {"type": "struct", "fields": [*fields]}:
            return {
                "type": ["null", "object"],
                "properties": {field["name"]: _type(field["type"]) for field in fields},
            }
        case {"type": "array", "elementType": element}:
            return {"type": ["null", "array"], "items": _type(element)}
        case {"type": "map", "valueType": value}:
            return {"type": ["null", "object"], "additionalProperties": _type(value)}
        case _:
            return _PLAIN.get(kind, _TEXT)
