"""Logical types that Avro ignores, and those of a union that Spark reads as one number."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rw_sql.connectors.schemas import avro, connect_types
from rw_sql.errors import SqlError
from rw_sql.runtime.decoding.registry.avro_decimals import FitCheck, narrow_decimal, wide_decimal

DIGITS = {"precision": 10, "scale": 2}
IGNORED: list[tuple[Any, dict[str, Any], str]] = [
    ("string", {"logicalType": "decimal", **DIGITS}, "CHARACTER VARYING"),
    ("double", {"logicalType": "decimal", **DIGITS}, "DOUBLE"),
    ("long", {"logicalType": "time-millis"}, "BIGINT"),
    ("int", {"logicalType": "time-micros"}, "INT"),
    ("string", {"logicalType": "time-millis"}, "CHARACTER VARYING"),
    ("int", {"logicalType": "timestamp-millis"}, "INT"),
    ("long", {"logicalType": "date"}, "BIGINT"),
    ("int", {"logicalType": "timestamp-nanos"}, "INT"),
    ("long", {"logicalType": "nosuch"}, "BIGINT"),
    ("bytes", {"logicalType": "decimal"}, "BYTEA"),
    ("bytes", {"logicalType": "decimal", "precision": 2, "scale": 3}, "BYTEA"),
    ("bytes", {"logicalType": "decimal", "precision": 0}, "BYTEA"),
    ("bytes", {"logicalType": "decimal", "precision": "10"}, "BYTEA"),
    ("bytes", {"logicalType": "decimal", "precision": 10, "scale": -1}, "BYTEA"),
    ("fixed", {"name": "F", "size": 4, "logicalType": "decimal", "precision": 20}, "BYTEA"),
    ("fixed", {"name": "F", "size": 4, "logicalType": "duration"}, "BYTEA"),
    ("enum", {"name": "E", "symbols": ["a"], "logicalType": "decimal", **DIGITS}, "CHARACTER VARYING"),
]
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def normal(kind: Any) -> Any:
    return avro.normal_form(json.dumps({"type": "record", "name": "Row", "fields": [{"name": "x", "type": kind}]}))


@pytest.mark.parametrize(("kind", "attributes", "column"), IGNORED)
def test_a_logical_type_that_avro_ignores_changes_nothing(kind: str, attributes: dict[str, Any], column: str) -> None:
    schema = normal({"type": kind, **attributes})
    assert avro.columns_of(schema) == (("x", column),)
    part = schema["fields"][0]["type"]
    assert narrow_decimal(part) is None
    assert wide_decimal(part) == part
    assert (FitCheck({}).of(part) is None) is (kind not in ("string",))
    assert connect_types.count_of(part) is None


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 10}, "NUMERIC(10, 0)"),
        (
            {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 9},
            "NUMERIC(9, 9)",
        ),
        ({"type": "int", "logicalType": "date"}, "DATE"),
        (MILLIS, "TIMESTAMP WITH TIME ZONE"),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "BYTEA"),
    ],
)
def test_a_valid_logical_type_is_used(kind: Any, column: str) -> None:
    assert avro.columns_of(normal(kind)) == (("x", column),)


@pytest.mark.parametrize(
    ("branches", "column"),
    [
        (["int", {"type": "long", "connect.type": "int64"}], "BIGINT"),
        (["null", {"type": "int", "logicalType": "time-micros"}, "long"], "BIGINT"),
        ([{"type": "float", "doc": "x", "a": 1}, "double"], "DOUBLE"),
        (["int", MILLIS, "string"], 'STRUCT<"int" INT, "long" TIMESTAMP WITH TIME ZONE, "string" CHARACTER VARYING>'),
    ],
)
def test_a_union_of_two_numbers_is_one_number(branches: list[Any], column: str) -> None:
    schema = normal(branches)
    assert avro.columns_of(schema) == (("x", column),)
    assert (FitCheck({}).of(schema["fields"][0]["type"]) is None) is (column in ("BIGINT", "DOUBLE"))


def test_a_union_of_two_numbers_with_a_logical_type_is_refused() -> None:
    with pytest.raises(SqlError) as told:
        avro.columns_of(normal([{"type": "int", "logicalType": "date"}, MILLIS]))
    assert told.value.message == (
        'column "x" cannot be read: a union of int and long with the logical type date is not supported'
    )
