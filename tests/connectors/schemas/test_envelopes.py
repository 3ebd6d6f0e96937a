"""Schemas of Debezium's events, reduced to the fields that a table needs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rw_sql.connectors.schemas import avro
from tests.support.avro_records import record_schema

COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED"]}
ID = {"type": "fixed", "name": "Id", "size": 16}


def envelope(before: Any, after: Any) -> Any:
    return avro.normal_form(json.dumps(record_schema("Envelope", {"op": "string", "before": before, "after": after})))


def types_of(schema: Any) -> dict[str, Any]:
    return {each["name"]: each["type"] for each in schema["fields"]}


def test_the_row_before_has_only_the_key_in_a_type_of_its_own() -> None:
    row = {**record_schema("Value", {"id": "long", "name": "string"}), "aliases": ["Older"]}
    found = types_of(avro.with_old_keys(envelope(["null", row], ["null", "Value"]), ("id",)))
    assert found == {
        "op": "string",
        "before": ["null", record_schema("Value_rw_before", {"id": "long"})],
        "after": ["null", row],
    }


def test_a_named_type_is_defined_where_it_occurs_first() -> None:
    row = record_schema("Value", {"id": ID, "colour": COLOUR, "other": "Id"})
    found = types_of(avro.with_old_keys(envelope(["null", row], ["null", "Value"]), ("id",)))
    assert found["before"] == ["null", record_schema("Value_rw_before", {"id": ID})]
    assert found["after"] == ["null", record_schema("Value", {"id": "Id", "colour": COLOUR, "other": "Id"})]


@pytest.mark.parametrize("is_union", [False, True])
def test_the_row_after_may_have_another_type(is_union: bool) -> None:
    old, new = (record_schema(name, {"id": "long", "name": "string"}) for name in ("Old", "New"))
    before, after = [["null", old], ["null", new]] if is_union else [old, new]
    key = record_schema("Old_rw_before", {"id": "long"})
    found = types_of(avro.with_old_keys(envelope(before, after), ("id",)))
    assert found == {"op": "string", "before": ["null", key] if is_union else key, "after": after}


def test_a_row_before_that_is_no_record_remains() -> None:
    schema = envelope("string", record_schema("Value", {"id": "long"}))
    assert avro.with_old_keys(schema, ("id",)) == schema
