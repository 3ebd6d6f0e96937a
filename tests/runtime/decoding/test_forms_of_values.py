"""The forms of a text that a column's type accepts, from the first character to the last."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from rw_sql.runtime.decoding.cdc_rows import RULES
from rw_sql.runtime.decoding.change_formats import numbers
from rw_sql.runtime.decoding.change_formats.values import ValueRules, value_of
from rw_sql.runtime.decoding.registry.connect_values import time_text
from rw_sql.syntax.statements import DataType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")


def read(spark: SparkSession, texts: Sequence[str], *types: DataType) -> dict[str, tuple[str | None, ...]]:
    """The value of each text as each type; None if the type does not accept it."""
    frame = spark.createDataFrame([(text,) for text in texts], "text string")
    values = [value_of(f.col("text"), kind, ValueRules()).cast("string") for kind in types]
    return {row[0]: tuple(row[1:]) for row in frame.select("text", *values).collect()}


def test_nothing_stands_around_a_time(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    times = [DataType(name=name) for name in TIMES]
    accepted = ["2024-04-11", "2024-04-11 00:00", "2024-04-11T00:00:00Z", "2024-04-11T00:00:00+00[UTC]"]
    around = [form % text for text in accepted for form in ("%s\n", "%s\r\n", "%s\u2028", "%s ", " %s", "\n%s")]
    found = read(spark, [*accepted, *around], *times)
    assert {found[text] for text in accepted} == {("2024-04-11", "2024-04-11 00:00:00", "2024-04-11 00:00:00")}
    assert {text: values for text, values in found.items() if text in around and any(values)} == {}


def test_numbers_have_ascii_digits_and_no_control_characters(spark: SparkSession) -> None:
    types = [DataType(name="INT"), DataType(name="NUMERIC", arguments=(10, 2)), DataType(name="DOUBLE")]
    numbers = {"3": ("3", "3.00", "3.0"), " +3\n": ("3", "3.00", "3.0"), ".5e1": (None, "5.00", "5.0")}
    others = ["٣", "１", "٥e-3", "5e-٣", "1.٥", "\x001", "1\x1f", "1\x7f", "1\x85", "1\u2028", "1’000", "\u22121"]
    others.append("1" * 300_000 + "x")
    found = read(spark, [*numbers, *others], *types)
    assert {text: found[text] for text in numbers} == numbers
    assert {text[:20]: found[text] for text in others if any(found[text])} == {}


def test_an_exponent_may_have_a_line_end_behind_it(spark: SparkSession) -> None:
    kind = DataType(name="NUMERIC", arguments=(10, 1))
    ends = ("", "\n", "\r\n", " ", "\t\n")
    found = read(spark, [f"{text}{end}" for text in ("1.5e0", "15e-1", "1.50") for end in ends], kind)
    assert set(found.values()) == {("1.5",)}
    found = read(spark, [f"{text}{end}" for text in ("1.55e0", "1.55") for end in ends], kind)
    assert set(found.values()) == {(None,)}


def test_a_decimal_with_any_scale_of_its_own_has_a_value_or_none(spark: SparkSession) -> None:
    scales: list[int | None] = [0, 2, -3, 38, -50, 1000, 16_383, -16_383, 16_384, 2**31 - 1, -(2**31), None]
    unscaled = [b"\x7b", b"\x85", b"\0"]
    made = [(scale, number) for scale in scales for number in unscaled]
    frame = spark.createDataFrame(made, "scale int, number binary")
    texts = [row[0] for row in frame.select(numbers.decimal_of_bytes(f.col("number"), f.col("scale"))).collect()]
    assert [None if text is None else Decimal(text) for text in texts] == [
        None if scale is None or abs(scale) > 16_383 else Decimal(int.from_bytes(number, signed=True)).scaleb(-scale)
        for scale, number in made
    ]


def test_a_time_of_day_is_exact_for_every_number(spark: SparkSession) -> None:
    counts = {
        0: "00:00:00",
        86_399_999_999: "23:59:59.999999",
        86_400_000_000: "24:00:00",
        3_723_004_000: "01:02:03.004",
        2**63 - 1: "2562047788:00:54.775807",
    }
    frame = spark.createDataFrame([(count,) for count in (*counts, -1, -(2**63))], "count long")
    micros, seconds = (time_text(f.col("count"), units) for units in (1_000_000, 1_000))
    found = frame.select(micros, seconds).collect()
    assert [row[0] for row in found[: len(counts)]] == list(counts.values())
    # A time before midnight has no usual form, but does not end the task.
    assert all(row[0].endswith(end) for row, end in zip(found[-2:], (".999999", ".224192"), strict=True))
    assert [row[1] for row in found[-3:]] == [None, f"{found[-2][0].partition('.')[0]}.999", None]


def test_in_a_captured_table_an_array_fits_only_a_type_of_as_many_dimensions(spark: SparkSession) -> None:
    line = DataType(name="ARRAY", element=DataType(name="CHARACTER VARYING"))
    types = [line, DataType(name="ARRAY", element=line)]
    texts = ["[]", '["a",null]', '[["a"],[null]]', '["[[x]]"]', '["[\\"x\\"]"]', '[null, "[\\"x\\"]"]']
    frame = spark.createDataFrame([(text,) for text in texts], "text string")
    rows = frame.select("text", *(value_of(f.col("text"), kind, RULES) for kind in types)).collect()
    assert {row[0]: tuple(row[1:]) for row in rows} == {
        "[]": ([], []),
        '["a",null]': (["a", None], None),
        '[["a"],[null]]': (None, [["a"], [None]]),
        '["[[x]]"]': (["[[x]]"], None),
        '["[\\"x\\"]"]': (['["x"]'], None),
        '[null, "[\\"x\\"]"]': ([None, '["x"]'], None),
    }
    documents = DataType(name="ARRAY", element=DataType(name="JSONB"))
    found = frame.select(value_of(f.lit("[[1], [2, 3]]"), documents, RULES).alias("value")).first()
    assert found is not None
    assert found["value"] == ["[1]", "[2,3]"]
