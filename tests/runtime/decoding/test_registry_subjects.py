"""The subjects whose versions a source loads before its first large batch."""

from __future__ import annotations

import json

import pytest

from rw_sql.connectors.schemas.avro import Schema
from rw_sql.runtime.decoding.registry.records import SchemaRecords
from rw_sql.runtime.decoding.registry.writers import Writers, subjects_of
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import CreateSource
from tests.support.avro_records import record_schema

ROW = record_schema("Order", {"id": "long"})
OPTIONS = {"schema.registry": "http://r:1", "topic": "a, b"}


def source(strategy: str = "", format: str = "PLAIN", more: str = "") -> CreateSource:
    named = f", schema.registry.name.strategy = '{strategy}', message = 'shop.Order'" if strategy else ""
    made = parse_statement(
        f"CREATE SOURCE s (id BIGINT, PRIMARY KEY (id)) WITH (connector = 'kafka') FORMAT {format} ENCODE AVRO "
        f"(schema.registry = 'http://r:1', _rw_schema = '{json.dumps(ROW)}'{named}{more})"
    )
    assert isinstance(made, CreateSource)
    return made


@pytest.mark.parametrize(
    ("strategy", "subjects"),
    [
        ("", ("a-value", "b-value")),
        ("topic_name_strategy", ("a-value", "b-value")),
        ("record_name_strategy", ("shop.Order",)),
        ("topic_record_name_strategy", ("a-shop.Order", "b-shop.Order")),
    ],
)
def test_every_topic_has_the_subjects_of_its_strategy(strategy: str, subjects: tuple[str, ...]) -> None:
    assert subjects_of(source(strategy), OPTIONS) == subjects


def test_the_schemas_of_the_keys_are_loaded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[tuple[str, Schema]] = []
    monkeypatch.setattr(Writers, "add_versions", lambda self, subject: loaded.append((subject, self.reader["name"])))
    key = record_schema("Key", {"id": "long"})
    found = SchemaRecords.of(source(format="UPSERT", more=f", _rw_key_schema = '{json.dumps(key)}'"), OPTIONS)
    assert found is not None
    found.add_versions()
    assert loaded == [
        (f"{topic}-{part}", name) for part, name in (("value", "Order"), ("key", "Key")) for topic in "ab"
    ]
