"""Schemas whose columns, and parts of columns, may all be NULL."""

from __future__ import annotations

import json

from rw_sql.connectors.support.nullable_schemas import nullable_schema


def test_every_part_of_a_type_is_nullable() -> None:
    inner = {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": False, "metadata": {}}]}
    kinds = [
        "long",
        inner,
        {"type": "array", "elementType": inner, "containsNull": False},
        {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": False},
    ]
    fields = [
        {"name": f"c{at}", "type": kind, "nullable": False, "metadata": {"k": 1}} for at, kind in enumerate(kinds)
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    assert nullable_schema(schema) == schema.replace("false", "true")
