"""The columns of Kafka Connect's and Debezium's types in Avro schemas."""

from __future__ import annotations

import json
from typing import Any

from rw_sql.connectors.schemas import avro

VARIABLE = {
    "type": "record",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}
MICROS = {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"}
MONEY = {
    "type": "bytes",
    "logicalType": "decimal",
    "precision": 64,
    "scale": 2,
    "connect.parameters": {"scale": "2"},
    "connect.name": "org.apache.kafka.connect.data.Decimal",
}


def normal(**fields: Any) -> Any:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return avro.normal_form(json.dumps({"type": "record", "name": "Row", "fields": listed}))


SCHEMA = normal(
    at=["null", MICROS],
    ats=["null", {"type": "array", "items": ["null", MICROS]}],
    free=["null", VARIABLE],
    other=["null", VARIABLE["name"]],
    money=MONEY,
    small={"type": "int", "connect.type": "int16"},
    text="string",
)


def test_a_name_determines_the_column_and_the_plain_type_remains() -> None:
    assert dict(avro.columns_of(SCHEMA)) == {
        "at": "TIMESTAMP",
        "ats": "TIMESTAMP[]",
        "free": "NUMERIC",
        "other": "NUMERIC",
        "money": "NUMERIC(38, 2)",
        "small": "SMALLINT",
        "text": "CHARACTER VARYING",
    }
    plain = dict(avro.columns_of(SCHEMA, is_plain=True))
    assert (plain["at"], plain["ats"], plain["small"]) == ("BIGINT", "BIGINT[]", "INT")
    assert plain["free"] == plain["other"] == 'STRUCT<"scale" INT, "value" BYTEA>'


def test_other_types_of_a_column() -> None:
    others = avro.other_types(SCHEMA, texts=("NUMERIC",))
    assert others["at"] == ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
    assert others["ats"] == ("TIMESTAMP[]", "TIMESTAMP WITH TIME ZONE[]")
    assert others["other"] == ("NUMERIC", "CHARACTER VARYING")
    assert others["text"] == ("NUMERIC",)
    assert others["money"] == ()
    assert avro.other_types(SCHEMA)["text"] == ()


def test_a_name_on_another_type_is_no_type_of_debezium() -> None:
    schema = normal(
        at={**MICROS, "type": "string"}, many={**MONEY, "connect.parameters": {"connect.decimal.precision": "64"}}
    )
    assert avro.columns_of(schema, needed=["at"]) == (("at", "CHARACTER VARYING"),)
