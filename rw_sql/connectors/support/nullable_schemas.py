"""Makes all columns and nested fields of a Spark schema, given as JSON, nullable."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def nullable_schema(schema: str) -> str:
    """Returns a Spark schema in JSON in which all columns, and all parts of their types, are nullable.

    Columns must be nullable, because only the keys of a deleted row are known. Parts of types must be nullable because
    of Delta tables with a TIMESTAMP column: such a table lists its features, and would then need another feature for
    fields that are not nullable.
    """
    return nullable_fields(json.loads(schema)["fields"])


def nullable_fields(fields: Iterable[dict[str, object]]) -> str:
    """Does the same as :func:`nullable_schema`, for the fields of a schema."""
    return json.dumps({"type": "struct", "fields": [_nullable_field(field) for field in fields]})


def _nullable_field(field: dict[str, object]) -> dict[str, object]:
    return {**field, "type": _nullable_type(field["type"]), "nullable": True}


def _nullable_type(kind: Any) -> Any:
    match kind:
        case {"type": "array", "elementType": element}:
            return {**kind, "elementType": _nullable_type(element), "containsNull": True}
        case {"type": "map", "keyType": key, "valueType": value}:
            return {
                **kind,
                "keyType": _nullable_type(key),
                "valueType": _nullable_type(value),
                "valueContainsNull": True,
            }
        case {"type": "struct", "fields": [*fields]}:
            return {**kind, "fields": [_nullable_field(field) for field in fields]}
        case _:
            return kind
