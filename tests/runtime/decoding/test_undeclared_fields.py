"""Avro records with fields that have no column, with old values that do not fit their columns, with keys of another
type, and with logical types that Avro ignores."""

from __future__ import annotations

import json
from datetime import date
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
from tests.runtime.decoding.registry_reference import read_values
from tests.support.avro_records import AvroWriter, record_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.schema_registry import RegistryInfo

pytestmark = [pytest.mark.spark, pytest.mark.registry]

WEI = {"type": "bytes", "logicalType": "decimal", "precision": 78, "scale": 0}
NODE = record_schema("Node", {"next": ["null", "Node"]})
KEY = record_schema("Key", {"id": "long"})
DAY = {"type": "int", "logicalType": "date"}
AFTER_YEAR_9999 = 2**31 - 1
Told = tuple[int | None, dict[str, Any], str | None]


@pytest.fixture(scope="module")
def writer(schema_registry: RegistryInfo) -> AvroWriter:
    return AvroWriter(schema_registry.url)


def envelope(row: dict[str, Any]) -> dict[str, Any]:
    return record_schema("Envelope", {"before": ["null", row], "after": ["null", "Value"], "op": "string"})


def decoded(
    spark: SparkSession,
    writer: AvroWriter,
    format: str,
    columns: str,
    schemas: tuple[Any, Any],
    records: Sequence[tuple[bytes | None, bytes | None]],
) -> list[Told]:
    """Operation, values and error of each change. ``schemas`` are those of the values and of the keys, and ``records``
    the pairs (key, value)."""
    SparkSessions(spark).load((installed_jars().avro,))
    stored, stored_key = (json.dumps(avro.normal_form(json.dumps(schema))).replace("'", "''") for schema in schemas)
    statement = parse_statement(
        f"CREATE SOURCE s ({columns}, PRIMARY KEY (id)) WITH (connector = 'kafka') FORMAT {format} ENCODE AVRO "
        f"(schema.registry = '{writer.url}', _rw_schema = '{stored}', _rw_key_schema = '{stored_key}')"
    )
    assert isinstance(statement, CreateSource)
    table = pa.table(
        {
            "_rw_split": pa.array(["0"] * len(records)),
            "_rw_offset": pa.array(range(len(records)), pa.int64()),
            "key": pa.array([key for key, _ in records], pa.binary()),
            "value": pa.array([value for _, value in records], pa.binary()),
        }
    )
    options = {"schema.registry": writer.url, "topic": "undeclared"}
    made = decode(spark.createDataFrame(table), statement, options, run=1, batch=1, bucket=1)
    names = [column.name for column in statement.columns]
    rows = made.orderBy("_rw_offset").select("_rw_op", *names, "_rw_error").collect()
    return [(row["_rw_op"], {name: row[name] for name in names}, row["_rw_error"]) for row in rows]


def test_a_debezium_table_reads_only_its_columns(spark: SparkSession, writer: AvroWriter) -> None:
    value = {"id": "long", "name": ["null", "string"], "legacy": "int", "wei": WEI, "tree": ["null", NODE]}
    row, later = record_schema("Value", value), record_schema("Value", {"id": "long", "name": ["null", "string"]})
    first = {"id": 1, "name": "a", "legacy": 7, "wei": Decimal(10) ** 70, "tree": None}
    key = writer.framed("undeclared-key", KEY, {"id": 1})
    events = [
        writer.framed("undeclared-value", envelope(row), {"op": "c", "before": None, "after": first}),
        # The field legacy, which has no default, is dropped upstream.
        writer.framed("later-value", envelope(later), {"op": "c", "before": None, "after": {"id": 2, "name": "b"}}),
        writer.framed("later-value", envelope(later), {"op": "d", "before": {"id": 1, "name": None}, "after": None}),
    ]
    columns = "id BIGINT, name VARCHAR"
    found = decoded(spark, writer, "DEBEZIUM", columns, (envelope(row), KEY), [(key, event) for event in events])
    assert found == [
        (1, {"id": 1, "name": "a"}, None),
        (1, {"id": 2, "name": "b"}, None),
        (-1, {"id": 1, "name": None}, None),
    ]


def test_a_value_in_an_undeclared_field_makes_no_error(spark: SparkSession, writer: AvroWriter) -> None:
    row = record_schema("Value", {"id": "long", "text": "string", "day": DAY})
    event = {"op": "c", "before": None, "after": {"id": 1, "text": "a", "day": AFTER_YEAR_9999}}
    records = [
        (writer.framed("days-key", KEY, {"id": 1}), writer.framed("days-value", envelope(row), event)),
    ]
    found = decoded(spark, writer, "DEBEZIUM", "id BIGINT", (envelope(row), KEY), records)
    assert found == [(1, {"id": 1}, None)]


def _decimal(digits: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": 2}


def _wrong_text(framed: bytes) -> bytes:
    """The record with a string that is not UTF-8 in the place of the string ``wrong``."""
    return framed.replace(b"wrong", b"wr\xffng")


def test_of_the_row_before_only_the_key_must_fit(spark: SparkSession, writer: AvroWriter) -> None:
    # Upstream, the decimal was widened after the table was created.
    row, wide = (
        record_schema("Value", {"id": "long", "amount": _decimal(digits), "day": DAY, "name": "string"})
        for digits in (5, 8)
    )
    key = writer.framed("old-rows-key", KEY, {"id": 1})
    good = {"id": 1, "amount": Decimal("123.00"), "day": date(2024, 2, 3), "name": "a"}
    misfits = [
        {**good, "amount": Decimal("12345.00")},
        {**good, "day": AFTER_YEAR_9999},
        {**good, "name": "wrong"},
    ]
    events: list[dict[str, Any]] = [{"op": "u", "before": bad, "after": good} for bad in misfits]
    events += [{"op": "d", "before": bad, "after": None} for bad in misfits]
    events.append({"op": "u", "before": {**misfits[0], "id": 2}, "after": good})
    events += [{"op": "u", "before": good, "after": bad} for bad in misfits]
    records = [(key, _wrong_text(writer.framed("old-rows-value", envelope(wide), event))) for event in events]
    columns = "id BIGINT, amount NUMERIC(5, 2), day DATE, name VARCHAR"
    found = decoded(spark, writer, "DEBEZIUM", columns, (envelope(row), KEY), records)
    none = dict.fromkeys(good)
    assert found[:3] == [(1, good, None)] * 3
    assert found[3:6] == [(-1, {**none, "id": 1}, None)] * 3
    moved = [(-1, {**none, "id": 2}, None), (1, good, None)]
    assert sorted(found[6:8], key=lambda each: each[0] or 0) == moved
    assert [(op, values) for op, values, _ in found[8:]] == [(None, none)] * 3
    assert all((error or "").startswith("the bytes are not a record of schema ") for *_, error in found[8:])


def test_a_value_of_the_row_before_that_spark_has_no_type_for_makes_no_error(
    spark: SparkSession, writer: AvroWriter
) -> None:
    # The key is a named type, which both rows use. The status is a named type, which only the row after uses.
    id_ = {"type": "fixed", "name": "Id", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 0}
    status = {"type": "enum", "name": "Status", "symbols": ["NEW", "OLD"]}
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    row, wide = (
        record_schema("Value", {"id": id_, "amount": _decimal(digits), "until": ["null", millis], "status": status})
        for digits in (20, 25)
    )
    of_key = record_schema("Key", {"id": id_})
    key = writer.framed("infinite-key", of_key, {"id": Decimal(1)})
    good: dict[str, Any] = {"id": Decimal(1), "amount": Decimal("123.00"), "until": None, "status": "NEW"}
    bad = [{**good, "amount": Decimal("1234567890123456789012.00")}, {**good, "until": 2**62}]
    events: list[dict[str, Any]] = [{"op": "u", "before": each, "after": good} for each in bad]
    events += [{"op": "d", "before": each, "after": None} for each in bad]
    events.append({"op": "u", "before": {**bad[1], "id": Decimal(2)}, "after": good})
    events += [{"op": "u", "before": good, "after": each} for each in bad]
    records = [(key, writer.framed("infinite-value", envelope(wide), event)) for event in events]
    columns = "id NUMERIC(20, 0), amount NUMERIC(20, 2), until TIMESTAMPTZ, status VARCHAR"
    found = decoded(spark, writer, "DEBEZIUM", columns, (envelope(row), of_key), records)
    none = dict.fromkeys(good)
    assert found[:2] == [(1, good, None)] * 2
    assert found[2:4] == [(-1, {**none, "id": Decimal(1)}, None)] * 2
    moved = [(-1, {**none, "id": Decimal(2)}, None), (1, good, None)]
    assert sorted(found[4:6], key=lambda each: each[0] or 0) == moved
    assert [(op, values) for op, values, _ in found[6:]] == [(None, none)] * 2


def test_a_key_in_the_row_before_must_fit(spark: SparkSession, writer: AvroWriter) -> None:
    row, wide = (record_schema("Value", {"id": _decimal(digits), "name": "string"}) for digits in (5, 8))
    key_schema = record_schema("Key", {"id": _decimal(5)})
    key = writer.framed("old-keys-key", key_schema, {"id": Decimal("1.00")})
    deleted: list[dict[str, Any]] = [
        {"op": "d", "before": {"id": Decimal(id_), "name": "wrong"}, "after": None} for id_ in ("1.00", "12345.00")
    ]
    records = [(key, _wrong_text(writer.framed("old-keys-value", envelope(wide), event))) for event in deleted]
    columns = "id NUMERIC(5, 2), name VARCHAR"
    first, second = decoded(spark, writer, "DEBEZIUM", columns, (envelope(row), key_schema), records)
    assert first == (-1, {"id": Decimal("1.00"), "name": None}, None)
    assert second[:2] == (None, {"id": None, "name": None})
    assert (second[2] or "").startswith("the bytes are not a record of schema ")


@pytest.mark.parametrize("key_fields", [{"id": "string"}, {"id": "string", "wei": WEI}])
def test_a_key_that_does_not_fit_its_column_is_an_error(
    spark: SparkSession, writer: AvroWriter, key_fields: dict[str, Any]
) -> None:
    key = record_schema("Key", key_fields)
    row = record_schema("Value", {"id": "string", "n": "int"})

    def record(id_: str, value: dict[str, Any] | None) -> tuple[bytes, bytes | None]:
        more = {"wei": Decimal(1)} if "wei" in key_fields else {}
        framed = None if value is None else writer.framed("orders-value", row, value)
        return writer.framed(f"orders-{len(key_fields)}-key", key, {"id": id_, **more}), framed

    # The id in the value is not read.
    records = [record("42", {"id": "x", "n": 1}), record("A-42", {"id": "x", "n": 2}), record("43", None)]
    found = decoded(spark, writer, "UPSERT", "id BIGINT, n INT", (row, key), records)
    assert [op for op, _, _ in found] == [1, None, -1]
    assert found[0][1] == {"id": 42, "n": 1}
    assert found[1][2] == 'the key: column "id": A-42 is not of type BIGINT'
    assert found[2][1] == {"id": 43, "n": None}


def test_a_table_may_consist_of_its_key(spark: SparkSession, writer: AvroWriter) -> None:
    row = record_schema("Value", {"n": "int"})
    records = [(writer.framed("keys-key", KEY, {"id": 1}), writer.framed("keys-value", row, {"n": 1}))]
    assert decoded(spark, writer, "UPSERT", "id BIGINT", (row, KEY), records) == [(1, {"id": 1}, None)]


def test_values_with_an_ignored_logical_type_are_plain_values(spark: SparkSession, writer: AvroWriter) -> None:
    decimal = {"logicalType": "decimal", "precision": 10, "scale": 2}
    fields: dict[str, tuple[Any, Any]] = {
        "text": ({"type": "string", **decimal}, "N/A"),
        "number": ({"type": "double", **decimal}, 12.345),
        "millis": ({"type": "long", "logicalType": "time-millis"}, 3_723_004),
        "micros": ({"type": "int", "logicalType": "time-micros"}, 5),
        "clock": ({"type": "string", "logicalType": "time-millis"}, "noon"),
        "at": ({"type": "int", "logicalType": "timestamp-millis"}, 7),
        "day": ({"type": "long", "logicalType": "date"}, 8),
        "raw": (
            {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 20},
            b"\x00\x00\x00\x01",
        ),
        "odd": ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, b"\x01"),
        "either": (["int", {"type": "long", "connect.type": "int64"}], 9),
    }
    schema = record_schema("Row", {name: kind for name, (kind, _) in fields.items()})
    # fastavro, unlike Avro's Java library, writes some of these values by their logical types.
    plain = record_schema("Row", {name: _without_logical_type(kind) for name, (kind, _) in fields.items()})
    id_ = writer.register("ignored-value", schema)
    framed = writer.framed("plain-value", plain, {name: value for name, (_, value) in fields.items()})
    ((row, fault),) = read_values(spark, writer.url, "ignored", schema, [b"\0" + id_.to_bytes(4, "big") + framed[5:]])
    assert fault is None
    assert row == {name: value for name, (_, value) in fields.items()}


def _without_logical_type(kind: Any) -> Any:
    if isinstance(kind, list):
        return [_without_logical_type(each) for each in kind]
    if isinstance(kind, dict):
        return {key: value for key, value in kind.items() if key not in ("logicalType", "precision", "scale")}
    return kind
