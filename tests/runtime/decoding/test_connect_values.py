"""Values of Kafka Connect's and Debezium's types in Avro records have the declared types of their columns."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.runtime.decoding.registry_reference import read_values
from tests.support.avro_records import AvroWriter, record_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.schema_registry import RegistryInfo

pytestmark = [pytest.mark.spark, pytest.mark.registry]

VARIABLE = {
    "type": "record",
    "namespace": "io.debezium.data",
    "name": "VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}
DECIMAL = {
    "type": "bytes",
    "logicalType": "decimal",
    "precision": 64,
    "scale": 2,
    "connect.parameters": {"scale": "2"},
    "connect.name": "org.apache.kafka.connect.data.Decimal",
}
MILLIS = {
    "type": "long",
    "logicalType": "timestamp-millis",
    "connect.version": 1,
    "connect.name": "org.apache.kafka.connect.data.Timestamp",
}


@pytest.fixture(scope="module")
def writer(schema_registry: RegistryInfo) -> AvroWriter:
    return AvroWriter(schema_registry.url)


def named(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": f"io.debezium.{name}"}


def variable(number: str) -> dict[str, Any]:
    """Debezium's form of a decimal with a scale of its own."""
    sign, digits, exponent = Decimal(number).as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    return {"scale": -exponent, "value": unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)}


FIELDS: dict[str, tuple[Any, Any, Any]] = {
    "day": (named("int", "time.Date"), -25567, datetime.date(1900, 1, 1)),
    "milli": (named("long", "time.Timestamp"), -1, datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)),
    "micro": (named("long", "time.MicroTimestamp"), 1, datetime.datetime(1970, 1, 1, 0, 0, 0, 1)),
    "nano": (named("long", "time.NanoTimestamp"), -1000, datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)),
    "clock": (named("int", "time.Time"), 3723004, "01:02:03.004"),
    "micro_clock": (named("long", "time.MicroTime"), 86_400_000_000, "24:00:00"),
    "nano_clock": (named("long", "time.NanoTime"), 1000, "00:00:00.000001"),
    "iso_day": (named("string", "time.IsoDate"), "2024-02-29Z", datetime.date(2024, 2, 29)),
    "iso_clock": (named("string", "time.IsoTime"), "01:02:03.004Z", "01:02:03.004"),
    "iso": (named("string", "time.IsoTimestamp"), "2024-02-29T12:34:56Z", datetime.datetime(2024, 2, 29, 12, 34, 56)),
    "zoned": (
        named("string", "time.ZonedTimestamp"),
        "2024-02-29T12:34:56.123456Z",
        datetime.datetime(2024, 2, 29, 12, 34, 56, 123456, datetime.UTC),
    ),
    "json": (named("string", "data.Json"), '{"a": 1.0}', '{"a": 1.0}'),
    "small": ({"type": "int", "connect.type": "int16"}, -7, -7),
    "free": (VARIABLE, variable("-12.345"), Decimal("-12.3450000000")),
    "money": (DECIMAL, Decimal("12.34"), Decimal("12.34")),
}  # fmt: skip


def test_a_column_has_the_type_that_the_name_stands_for(spark: SparkSession, writer: AvroWriter) -> None:
    schema = record_schema("Named", {name: ["null", kind] for name, (kind, _, _) in FIELDS.items()})
    values = [{name: written for name, (_, written, _) in FIELDS.items()}, dict.fromkeys(FIELDS)]
    read = read_values(spark, writer.url, "named", schema, [writer.framed("named", schema, each) for each in values])
    assert read == [({name: wanted for name, (_, _, wanted) in FIELDS.items()}, None), (dict.fromkeys(FIELDS), None)]


def test_arrays_have_the_type_of_their_items(spark: SparkSession, writer: AvroWriter) -> None:
    schema = record_schema(
        "Arrays", {name: {"type": "array", "items": ["null", kind]} for name, (kind, _, _) in FIELDS.items()}
    )
    value = {name: [written, None] for name, (_, written, _) in FIELDS.items()}
    ((row, fault),) = read_values(spark, writer.url, "arrays", schema, [writer.framed("arrays", schema, value)])
    assert fault is None
    assert row == {name: [wanted, None] for name, (_, _, wanted) in FIELDS.items()}


def test_other_types_of_a_column(spark: SparkSession, writer: AvroWriter) -> None:
    fields = {
        "micro": FIELDS["micro"][0],
        "at": MILLIS,
        "free": VARIABLE,
        "free_text": VARIABLE,
        "small": FIELDS["small"][0],
    }
    schema = record_schema("Other", {**fields, "free_text": "io.debezium.data.VariableScaleDecimal"})
    when = datetime.datetime(2024, 1, 2, 3, 4, 5, 6000, datetime.UTC)
    digits = "1234567890123456789.0123456789012345678"
    value = {"micro": 5, "at": when, "free": variable("1.5"), "free_text": variable(digits), "small": 3}
    columns = "micro BIGINT, at TIMESTAMP, free NUMERIC(4, 1), free_text VARCHAR, small INT"
    data = [writer.framed("other", schema, value)]
    wanted = {"micro": 5, "at": when.replace(tzinfo=None), "free": Decimal("1.5"), "free_text": digits, "small": 3}
    assert read_values(spark, writer.url, "other", schema, data, columns=columns) == [(wanted, None)]


@pytest.mark.parametrize(
    ("kind", "written", "column", "reason"),
    [
        (named("long", "time.MicroTimestamp"), 253_402_300_800_000_000, "TIMESTAMP", "253402300800000000"),
        (named("long", "time.NanoTimestamp"), 1, "TIMESTAMP", "1"),
        (named("string", "time.ZonedTimestamp"), "0043-03-15T12:00:00Z BC", "TIMESTAMPTZ", "0043-03-15T12:00:00Z BC"),
        (named("int", "time.Date"), 2_932_897, "DATE", "2932897"),
        (VARIABLE, variable("1.25"), "NUMERIC(4, 1)", "1.25"),
        ({"type": "int", "connect.type": "int16"}, 32768, "SMALLINT", "32768"),
        ({"type": "array", "items": named("long", "time.NanoTimestamp")}, [1], "TIMESTAMP[]", "[1]"),
        (
            {"type": "map", "values": named("long", "time.NanoTimestamp")},
            {"k": 1},
            "MAP(VARCHAR, TIMESTAMP)",
            '{"k":1}',
        ),
        (record_schema("In", {"n": named("long", "time.NanoTime")}), {"n": 1}, "STRUCT<n VARCHAR>", '{"n":1}'),
    ],
)
def test_a_value_that_does_not_fit_is_an_error(
    spark: SparkSession, writer: AvroWriter, kind: Any, written: Any, column: str, reason: str
) -> None:
    schema, topic = record_schema("Misfit", {"v": kind}), f"misfit-{random.getrandbits(32)}"
    data = [writer.framed(topic, schema, {"v": written})]
    ((_, fault),) = read_values(spark, writer.url, topic, schema, data, columns=f"v {column}")
    assert fault is not None
    assert fault.startswith(f'column "v": {reason} is not of type ')


def test_decimals_of_up_to_38_digits_are_exact(spark: SparkSession, writer: AvroWriter) -> None:
    chance = random.Random(7)
    numbers = ["0", "-1", "1e5", "-128", "255", "9" * 38, "-" + "9" * 38, str(2**64), str(-(2**63))]
    numbers += [str(chance.randint(-(10**size), 10**size)) for size in range(1, 39)]
    numbers += [f"{chance.choice(('', '-'))}{chance.randint(0, 10**30)}.{chance.randint(0, 999):03d}" for _ in range(9)]
    schema = record_schema("Digits", {"v": VARIABLE})
    data = [writer.framed("digits", schema, {"v": variable(number)}) for number in numbers]
    read = read_values(spark, writer.url, "digits", schema, data, columns="v VARCHAR")
    assert [(Decimal(row["v"]), fault) for row, fault in read] == [(Decimal(number), None) for number in numbers]


def test_a_writer_with_another_unit_is_an_error(spark: SparkSession, writer: AvroWriter) -> None:
    reader = record_schema("Unit", {"at": named("long", "time.MicroTimestamp")})
    others = [named("long", "time.Timestamp"), named("long", "time.MicroTime"), "long", MILLIS]
    data = [
        writer.framed(f"debezium-unit-{at}", record_schema("Unit", {"at": kind}), {"at": 7 if kind != MILLIS else 0})
        for at, kind in enumerate((reader["fields"][0]["type"], *others))
    ]
    (first, *rest) = read_values(spark, writer.url, "debezium-unit", reader, data)
    assert first == ({"at": datetime.datetime(1970, 1, 1, 0, 0, 0, 7)}, None)
    told = (
        "io.debezium.time.Timestamp",
        "io.debezium.time.MicroTime",
        "long",
        "org.apache.kafka.connect.data.Timestamp",
    )
    for name, (_, fault) in zip(told, rest, strict=True):
        assert fault is not None
        assert fault.endswith(f"cannot be read: at is {name}, which does not fit io.debezium.time.MicroTimestamp")
