"""Changes in Debezium's Avro events: which values a record omits, and the keys of its rows."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rw_sql.connectors.schemas import avro
from rw_sql.runtime.decoding.decoder import decode
from rw_sql.runtime.spark.sessions import SparkSessions
from rw_sql.spark_jars import installed_jars
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import CreateSource
from tests.runtime.decoding.test_connect_values import VARIABLE, named, variable
from tests.support.avro_records import AvroWriter, record_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.schema_registry import RegistryInfo

pytestmark = [pytest.mark.spark, pytest.mark.registry]

GONE = "__debezium_unavailable_value"
NUMBERS = list(GONE.encode())
ROW = record_schema(
    "Value",
    {
        "id": VARIABLE,
        "body": {"type": "string", "default": "none"},
        "hex": ["null", "string"],
        "raw": ["null", "bytes"],
        "numbers": ["null", {"type": "array", "items": ["null", "long"]}],
        "uuids": ["null", {"type": "array", "items": ["null", named("string", "data.Uuid")]}],
        "pairs": ["null", {"type": "map", "values": ["null", "string"]}],
        "json_pairs": ["null", named("string", "data.Json")],
        "at": ["null", named("long", "time.NanoTimestamp")],
    },
)
ENVELOPE = record_schema("Envelope", {"before": ["null", ROW], "after": ["null", "Value"], "op": "string"})
KEY = record_schema("Key", {"id": VARIABLE})
KNOWN = ("id", "body", "hex", "raw", "numbers", "uuids", "pairs", "json_pairs", "at")


@pytest.fixture(scope="module")
def writer(schema_registry: RegistryInfo) -> AvroWriter:
    return AvroWriter(schema_registry.url)


def row(number: str, body: str = "b", **more: Any) -> dict[str, Any]:
    return {**dict.fromkeys(KNOWN), "id": variable(number), "body": body, **more}


def changes_of(
    spark: SparkSession, writer: AvroWriter, *records: tuple[str, str, Any, Any]
) -> list[tuple[int | None, dict[str, Any], list[str] | None, str | None]]:
    """Operation, row without NULLs, omitted values and error of each change.

    A record is its key, ``op``, ``before`` and ``after``; without ``op``, it is a tombstone.
    """
    SparkSessions(spark).load((installed_jars().avro,))
    schema, key = avro.normal_form(json.dumps(ENVELOPE)), avro.normal_form(json.dumps(KEY))
    columns = ", ".join(f'"{name}" {kind}' for name, kind in avro.columns_of(avro.normal_form(json.dumps(ROW))))
    stored, stored_key = (json.dumps(each).replace("'", "''") for each in (schema, key))
    statement = parse_statement(
        f"CREATE SOURCE s ({columns}, PRIMARY KEY (id)) WITH (connector = 'kafka') FORMAT DEBEZIUM ENCODE AVRO "
        f"(schema.registry = '{writer.url}', _rw_schema = '{stored}', _rw_key_schema = '{stored_key}')"
    )
    assert isinstance(statement, CreateSource)
    keys = [writer.framed("changes-key", KEY, {"id": variable(number)}) for number, *_ in records]
    values = [
        writer.framed("changes-value", ENVELOPE, {"op": op, "before": before, "after": after}) if op else None
        for _, op, before, after in records
    ]
    table = pa.table(
        {
            "_rw_split": pa.array(["0"] * len(records)),
            "_rw_offset": pa.array(range(len(records)), pa.int64()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )
    options = {"schema.registry": writer.url, "topic": "changes"}
    made = decode(spark.createDataFrame(table), statement, options, run=1, batch=1, bucket=1)
    rows = made.orderBy("_rw_offset", "_rw_op").select("_rw_op", *KNOWN, "_rw_unchanged", "_rw_error").collect()
    return [
        (
            each["_rw_op"],
            {name: each[name] for name in KNOWN if each[name] is not None},
            each["_rw_unchanged"],
            each["_rw_error"],
        )
        for each in rows
    ]


def test_every_form_of_the_placeholder_is_an_omitted_value(spark: SparkSession, writer: AvroWriter) -> None:
    omitted = {
        "hex": GONE.encode().hex(),
        "raw": GONE.encode(),
        "numbers": NUMBERS,
        "uuids": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
        "pairs": {GONE: GONE},
        # hstore.handling.mode = json
        "json_pairs": f'{{"{GONE}":"{GONE}"}}',
    }
    (change,) = changes_of(spark, writer, ("1", "u", None, row("1", GONE, **omitted)))
    assert change == (1, {"id": Decimal(1)}, ["body", *omitted], None)


def test_a_value_with_other_elements_than_the_placeholder_is_data(spark: SparkSession, writer: AvroWriter) -> None:
    given: dict[str, Any] = {
        "numbers": [*NUMBERS, 0],
        "uuids": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a", None],
        "pairs": {GONE: GONE, "a": "b"},
        "json_pairs": f'{{"{GONE}":"x"}}',
    }
    (change,) = changes_of(spark, writer, ("1", "u", None, row("1", **given)))
    assert change == (1, {"id": Decimal(1), "body": "b", **given}, None, None)


def test_a_default_in_the_row_before_is_no_value(spark: SparkSession, writer: AvroWriter) -> None:
    # With REPLICA IDENTITY USING INDEX, a NOT NULL column outside of the index has its default there.
    (change,) = changes_of(spark, writer, ("1", "u", row("1", "none"), row("1", GONE, hex="ff")))
    assert change == (1, {"id": Decimal(1), "hex": "ff"}, ["body"], None)


def test_a_key_is_the_same_with_another_scale(spark: SparkSession, writer: AvroWriter) -> None:
    same, moved, gone, after = (
        ("1", "u", row("1.0"), row("1.00")),
        ("2.0", "u", row("1"), row("2.0")),
        ("2.00", "", None, None),
        ("3", "d", row("3.000"), None),
    )
    assert changes_of(spark, writer, same, moved, gone, after) == [
        (1, {"id": Decimal(1), "body": "b"}, None, None),
        (-1, {"id": Decimal(1)}, None, None),
        (1, {"id": Decimal(2), "body": "b"}, None, None),
        (-1, {"id": Decimal(2)}, None, None),
        (-1, {"id": Decimal(3)}, None, None),
    ]


def test_only_the_key_of_a_deleted_row_must_fit(spark: SparkSession, writer: AvroWriter) -> None:
    deleted, wrong, added = (
        ("1", "d", row("1", at=1), None),
        ("1", "d", row("1.00000000001"), None),
        ("2", "c", None, row("2", at=1)),
    )
    first, second, third = changes_of(spark, writer, deleted, wrong, added)
    assert first == (-1, {"id": Decimal(1)}, None, None)
    assert second[0] is None
    assert second[3] == 'column "id": 1.00000000001 is not of type NUMERIC'
    assert third[0] is None
    assert third[3] == 'column "at": 1 is not of type TIMESTAMP'
