"""The reader's schema with a writer's time units and decimal scales, without a registry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rw_sql.connectors.schemas.avro import definitions, normal_form
from rw_sql.runtime.decoding.registry.writers import Alignment

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}


def logical(name: str, kind: str = "long") -> dict[str, Any]:
    return {"type": kind, "logicalType": name}


def aligned(reader: Any, writer: Any) -> tuple[Any, str | None]:
    """The type in which a field is read, and the refusal."""
    one, other = (
        normal_form(json.dumps({"type": "record", "name": "R", "fields": [{"name": "at", "type": each}]}))
        for each in (reader, writer)
    )
    alignment = Alignment(definitions(one), definitions(other))
    return alignment.aligned(one, other, "")["fields"][0]["type"], alignment.refusal


@pytest.mark.parametrize(
    ("reader", "writer", "reading"),
    [
        ("timestamp-micros", "timestamp-millis", "timestamp-millis"),
        ("timestamp-micros", "local-timestamp-millis", "timestamp-millis"),
        ("timestamp-millis", "local-timestamp-millis", "timestamp-millis"),
        ("timestamp-millis", "local-timestamp-micros", "timestamp-micros"),
        ("local-timestamp-micros", "timestamp-millis", "local-timestamp-millis"),
        ("local-timestamp-millis", "timestamp-micros", "local-timestamp-micros"),
        # Avro ignores a logical type that it does not know, or on another type than that which it is for.
        ("timestamp-millis", "my-number", "timestamp-millis"),
        ("timestamp-millis", "date", "timestamp-millis"),
    ],
)
def test_a_time_has_the_kind_of_the_reader_and_the_unit_of_the_writer(reader: str, writer: str, reading: str) -> None:
    assert aligned(logical(reader), logical(writer)) == (logical(reading), None)
    union = ["null", logical(reader)]
    assert aligned(union, ["null", "string", logical(writer)]) == (["null", logical(reading)], None)


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (logical("timestamp-millis"), logical("date", "int")),
        (logical("timestamp-millis"), logical("time-millis", "int")),
        (logical("timestamp-micros"), logical("time-micros")),
        (logical("local-timestamp-micros"), logical("time-micros")),
        (logical("time-micros"), logical("timestamp-micros")),
        (logical("time-micros"), logical("local-timestamp-millis")),
        (logical("time-micros"), logical("date", "int")),
        (logical("date", "int"), logical("time-millis", "int")),
        (logical("time-millis", "int"), logical("date", "int")),
        (logical("timestamp-micros"), logical("timestamp-nanos")),
        (logical("local-timestamp-micros"), logical("timestamp-nanos")),
        (DECIMAL, logical("uuid", "string")),
        (DECIMAL, logical("big-decimal", "bytes")),
    ],
)
def test_another_kind_of_value_is_refused(reader: Any, writer: Any) -> None:
    told = f"at is {writer['logicalType']}, which does not fit {reader['logicalType']}"
    assert aligned(reader, writer) == (reader, told)


@pytest.mark.parametrize(
    "writer",
    [
        ["null", logical("date", "int")],
        logical("date", "int"),
        ["null", logical("timestamp-millis"), logical("date", "int")],
    ],
)
def test_a_branch_is_compared_only_with_the_branch_that_avro_reads_as_it(writer: Any) -> None:
    reader = ["null", logical("timestamp-millis"), logical("date", "int")]
    assert aligned(reader, writer) == (reader, None)
    # Without a branch of the same type, a date would be read as a timestamp.
    assert aligned(reader[:2], logical("date", "int"))[1] == "at is date, which does not fit timestamp-millis"
