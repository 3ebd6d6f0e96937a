"""The fields of Avro records that a source reads: only those that have a column."""

from __future__ import annotations

import json
from typing import Any

from rw_sql.connectors.schemas import avro
from rw_sql.runtime.decoding.registry.records import SchemaRecords
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import CreateSource
from tests.support.avro_records import record_schema

STATE = {"type": "enum", "name": "State", "symbols": ["new", "paid"]}
WEI = {"type": "bytes", "logicalType": "decimal", "precision": 78, "scale": 0}
NODE = record_schema("Node", {"next": ["null", "Node"]})
VALUE = record_schema(
    "Value", {"legacy": "int", "before": STATE, "id": "long", "wei": WEI, "node": NODE, "state": "State"}
)
ENVELOPE = record_schema(
    "Envelope",
    {"before": ["null", VALUE], "after": ["null", "Value"], "source": record_schema("Source", {}), "op": "string"},
)
KEY = record_schema("Key", {"tenant": WEI, "id": "long"})


def read(format: str, columns: str, schema: dict[str, Any], key: dict[str, Any] | None) -> SchemaRecords:
    stored = json.dumps(avro.normal_form(json.dumps(schema))).replace("'", "''")
    more = "" if key is None else f", _rw_key_schema = '{json.dumps(avro.normal_form(json.dumps(key)))}'"
    statement = parse_statement(
        f"CREATE SOURCE s ({columns}) WITH (connector = 'kafka') FORMAT {format} ENCODE AVRO "
        f"(schema.registry = 'http://r:1', _rw_schema = '{stored}'{more})"
    )
    assert isinstance(statement, CreateSource)
    found = SchemaRecords.of(statement, {"schema.registry": "http://r:1", "topic": "t"})
    assert found is not None
    return found


def names(schema: avro.Schema) -> list[str]:
    return [each["name"] for each in schema["fields"]]


def test_the_rows_of_an_envelope_have_only_the_declared_columns() -> None:
    found = read("DEBEZIUM", "id BIGINT, state VARCHAR, PRIMARY KEY (id)", ENVELOPE, KEY)
    reader = found.value.writers.reader
    assert names(reader) == ["before", "after", "op"]
    before, after = (reader["fields"][at]["type"] for at in (0, 1))
    assert names(before[1]) == ["id", "state"]
    # The definition of the enum is at its first occurrence that is left.
    assert before[1]["fields"][1]["type"] == STATE
    assert after == ["null", "Value"]
    assert found._conversion().fields.keys() == {"id", "state"}


def test_a_key_has_only_the_columns_of_the_primary_key() -> None:
    for format, schema in (("DEBEZIUM", ENVELOPE), ("UPSERT", VALUE)):
        found = read(format, "id BIGINT, state VARCHAR, PRIMARY KEY (id)", schema, KEY)
        assert found.key is not None
        assert names(found.key.writers.reader) == ["id"]


def test_a_plain_record_has_only_the_declared_columns() -> None:
    found = read("PLAIN", "id BIGINT, state VARCHAR", VALUE, None)
    assert names(found.value.writers.reader) == ["id", "state"]
    assert found.value.writers.reader["fields"][1]["type"] == STATE
