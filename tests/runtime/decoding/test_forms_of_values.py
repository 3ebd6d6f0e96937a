"""The forms of a text that a column's type accepts, from the first character to the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from rw_sql.runtime.decoding.change_formats.values import ValueRules, value_of
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
