"""Values written in tests as values of columns, and the column types that are taken from them."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from rw_sql.cli.testing.unit_run import type_of_ours
from rw_sql.cli.testing.values import MisfitError, Written, arrow_of, collected, fitted, json_of, text_of
from rw_sql.syntax import parse_statement, spark_type
from rw_sql.syntax.statements import CreateSource

POINT = StructType([StructField("x", IntegerType()), StructField("tags", ArrayType(StringType()))])
AT = dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("written", "kind", "value", "text"),
    [
        (1, IntegerType(), 1, "1"),
        ("-7", LongType(), -7, "-7"),
        (2.0, ShortType(), 2, "2"),
        (1.1, DecimalType(10, 2), Decimal("1.10"), "1.10"),
        ("1e2", DecimalType(10, 2), Decimal("100.00"), "100.00"),
        ("1" * 28 + ".5", DecimalType(38, 10), Decimal("1" * 28 + ".5000000000"), "1" * 28 + ".5000000000"),
        (1, DoubleType(), 1.0, "1"),
        (0.1 + 0.2, DoubleType(), 0.1 + 0.2, "0.3"),
        ("nan", DoubleType(), float("nan"), "nan"),
        ("TRUE", BooleanType(), True, "true"),
        (5, StringType(), "5", "5"),
        ("", StringType(), "", "(empty)"),
        (dt.date(2024, 1, 2), StringType(), "2024-01-02", "2024-01-02"),
        ("\\x00ff", BinaryType(), b"\x00\xff", "\\x00ff"),
        ("ab", BinaryType(), b"ab", "\\x6162"),
        ("2024-01-02", DateType(), dt.date(2024, 1, 2), "2024-01-02"),
        ("2024-01-02 05:04:05+02:00", TimestampType(), AT, "2024-01-02 03:04:05Z"),
        ("2024-01-02T03:04:05", TimestampType(), AT, "2024-01-02 03:04:05Z"),
        (dt.datetime(2024, 1, 2, 3, 4, 5), TimestampNTZType(), dt.datetime(2024, 1, 2, 3, 4, 5), "2024-01-02 03:04:05"),
        ({"x": "1"}, POINT, {"x": 1, "tags": None}, "{x: 1, tags: NULL}"),
        (
            [{"x": 1, "tags": ["a"]}, None],
            ArrayType(POINT),
            [{"x": 1, "tags": ["a"]}, None],
            "[{x: 1, tags: [a]}, NULL]",
        ),
        ({"a": 1}, MapType(StringType(), LongType()), {"a": 1}, "{a: 1}"),
        (None, IntegerType(), None, "NULL"),
    ],
)
def test_what_a_value_becomes(written: Any, kind: DataType, value: Any, text: str) -> None:
    made = fitted(written, kind)
    assert repr(made) == repr(value)
    assert text_of(made) == text


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        (1.5, IntegerType()),
        (True, IntegerType()),
        (2**31, IntegerType()),
        ("x", LongType()),
        ("\u0663", LongType()),
        ("1_000", LongType()),
        ("\u0663", DoubleType()),
        ("1_000", DoubleType()),
        ("1_000", DecimalType(10, 2)),
        ("\u0663", DecimalType(10, 2)),
        (1.005, DecimalType(10, 2)),
        (12345, DecimalType(4, 1)),
        (1, BooleanType()),
        ([1], StringType()),
        (5, DateType()),
        ("2024-13-01", DateType()),
        (AT, TimestampNTZType()),
        ({"z": 1}, POINT),
        (1, ArrayType(IntegerType())),
        (["x"], ArrayType(IntegerType())),
    ],
)
def test_what_a_column_cannot_hold(written: Any, kind: DataType) -> None:
    with pytest.raises(MisfitError, match="is no"):
        fitted(written, kind)


@pytest.mark.parametrize(
    ("yamls", "text", "kind", "value"),
    [
        (False, "NO", StringType(), "NO"),
        (7, "007", StringType(), "007"),
        (1.1, "1.10", StringType(), "1.10"),
        (45000, "12:30:00", StringType(), "12:30:00"),
        (8, "010", IntegerType(), 10),
        (dt.datetime(2024, 1, 2, 3, 4, 5), "2024-01-02 03:04:05", StringType(), "2024-01-02 03:04:05"),
        (1.2345678901234568e16, "12345678901234567.89", DecimalType(38, 2), Decimal("12345678901234567.89")),
        (1.5, "1.5", DoubleType(), 1.5),
        (True, "yes", BooleanType(), True),
    ],
)
def test_the_column_decides_how_yaml_is_read(yamls: Any, text: str, kind: DataType, value: Any) -> None:
    assert repr(fitted(Written(yamls, text), kind)) == repr(value)
    assert repr(fitted([Written(yamls, text)], ArrayType(kind))) == repr([value])


def test_numbers_of_single_precision_are_what_was_written() -> None:
    found = struct.unpack("f", struct.pack("f", 0.1))[0]
    assert text_of(collected(found, FloatType())) == text_of(fitted(0.1, FloatType())) == "0.1"
    assert text_of(fitted("16777217", FloatType())) == "16777216"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (None, "NULL"),
        ("", "(empty)"),
        ("'NULL'", "NULL"),
        (["a, b"], ["a", "b"]),
        (["NULL"], [None]),
        ({"a": "1, b: 2"}, {"a": "1", "b": "2"}),
        (["'a'"], ["a"]),
    ],
)
def test_different_values_have_different_texts(one: Any, other: Any) -> None:
    assert text_of(one) != text_of(other)


def test_equal_values_have_equal_texts() -> None:
    kind = MapType(StringType(), LongType())
    assert text_of(fitted({"a": 1, "b": 2}, kind)) == text_of(collected({"b": 2, "a": 1}, kind))
    assert text_of(-0.0) == text_of(0.0)


def test_values_for_arrow_and_json() -> None:
    kind = StructType([StructField("m", MapType(StringType(), POINT)), StructField("at", TimestampType())])
    value = fitted({"m": {"a": {"x": 1}}, "at": AT}, kind)
    assert arrow_of(value, kind) == {"m": [("a", {"x": 1, "tags": None})], "at": AT}
    assert json_of({**value, "d": Decimal("1.10")})["at"] == "2024-01-02T03:04:05+00:00"


@pytest.mark.parametrize(
    "kind",
    [
        DecimalType(12, 3),
        ArrayType(MapType(StringType(), POINT)),
        TimestampNTZType(),
        TimestampType(),
        BinaryType(),
        BooleanType(),
    ],
    ids=str,
)
def test_a_type_of_spark_is_a_type_of_a_source(kind: DataType) -> None:
    made = parse_statement(f"CREATE SOURCE s (c {type_of_ours(kind)}) WITH (connector = 'datagen')")
    assert isinstance(made, CreateSource)
    written = spark_type(made.columns[0].data_type).replace("`", "").replace(" ", "").replace(":", "")
    assert written.lower() == kind.simpleString().replace(":", "").lower()
