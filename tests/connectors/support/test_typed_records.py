"""Rows of a table whose columns have other types than those of the source."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from rw_sql.connectors.support.typed_records import cast_columns, typed_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BIG = 3_000_000_000
LAST_DAY, LAST_TIME = "DATE '9999-12-31'", "TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'"


@pytest.mark.parametrize(
    ("has", "wanted", "value", "row", "is_fault"),
    [
        ("INT", "INT", "7", 7, False),
        ("BIGINT", "INT", str(BIG), None, True),
        # Fields of a struct that were moved, added, dropped, or are written in another case.
        (
            "STRUCT<last: STRING, first: STRING>",
            "STRUCT<first: STRING, last: STRING>",
            "named_struct('last', 'b', 'first', 'a')",
            {"first": "a", "last": "b"},
            False,
        ),
        (
            "STRUCT<a: INT, new: STRING, B: INT>",
            "STRUCT<a: INT, b: INT>",
            "named_struct('a', 1, 'new', 'x', 'B', 2)",
            {"a": 1, "b": 2},
            False,
        ),
        ("STRUCT<a: INT>", "STRUCT<a: INT, b: INT>", "named_struct('a', 1)", {"a": 1, "b": None}, False),
        ("STRUCT<a: BIGINT>", "STRUCT<a: INT>", "CAST(NULL AS STRUCT<a: BIGINT>)", None, False),
        # A part that no longer fits.
        ("STRUCT<a: BIGINT>", "STRUCT<a: INT>", "named_struct('a', 5L)", {"a": 5}, False),
        ("STRUCT<a: BIGINT>", "STRUCT<a: INT>", f"named_struct('a', {BIG}L)", {"a": None}, True),
        ("ARRAY<BIGINT>", "ARRAY<INT>", "array(1L, NULL)", [1, None], False),
        ("ARRAY<BIGINT>", "ARRAY<INT>", f"array(1L, {BIG}L)", [1, None], True),
        ("MAP<STRING, BIGINT>", "MAP<STRING, INT>", f"map('a', 1L, 'b', {BIG}L)", {"a": 1, "b": None}, True),
        (
            "ARRAY<STRUCT<y: BIGINT, x: BIGINT>>",
            "ARRAY<STRUCT<x: BIGINT, y: INT>>",
            f"array(named_struct('y', 1L, 'x', 2L), NULL, named_struct('y', {BIG}L, 'x', 2L))",
            [{"x": 2, "y": 1}, None, {"x": 2, "y": None}],
            True,
        ),
        # Spark's casts would round, cut off or guess.
        ("DOUBLE", "DECIMAL(10, 2)", "1.5", Decimal("1.50"), False),
        ("DOUBLE", "DECIMAL(10, 2)", "1.239", None, True),
        ("DECIMAL(10, 3)", "DECIMAL(10, 2)", "1.230", Decimal("1.23"), False),
        ("DECIMAL(10, 3)", "DECIMAL(10, 2)", "1.239", None, True),
        ("DECIMAL(10, 3)", "INT", "1.500", None, True),
        ("DOUBLE", "INT", "2.5D", None, True),
        ("DOUBLE", "FLOAT", "1e300D", None, True),
        ("BIGINT", "BOOLEAN", "2", None, True),
        ("BIGINT", "DECIMAL(10, 2)", "7", Decimal("7.00"), False),
        ("BIGINT", "DOUBLE", str(2**53 + 1), None, True),
        ("STRING", "DECIMAL(10, 2)", "'1.239'", None, True),
        ("STRING", "DOUBLE", "'1d'", None, True),
        ("STRING", "DATE", "'2024-04-11 12:00:00'", None, True),
        ("STRING", "TIMESTAMP_NTZ", "'2024-04-11 12:00:00'", datetime.datetime(2024, 4, 11, 12), False),
        ("STRING", "TIMESTAMP_NTZ", "'2024-04-11 12:00:00.123456789'", None, True),
        ("STRING", "TIMESTAMP_NTZ", "'2024-04-11 12:00:00+02:00'", None, True),
        ("TIMESTAMP_NTZ", "DATE", "TIMESTAMP_NTZ '2024-04-11 12:00:00'", None, True),
        ("BIGINT", "TIMESTAMP_NTZ", "1712836800000", datetime.datetime(2024, 4, 11, 12), False),
        ("BINARY", "STRING", "X'FF'", None, True),
        ("BINARY", "STRING", "X'41'", "A", False),
        # A table cannot have a text that is not UTF-8, as Spark itself writes it.
        ("STRING", "STRING", "CAST(X'FF' AS STRING)", None, True),
        ("STRING", "INT", "CAST(X'FF' AS STRING)", None, True),
        ("STRING", "BINARY", "CAST(X'FF' AS STRING)", b"\xff", False),
        ("ARRAY<STRING>", "ARRAY<STRING>", "array(NULL, 'a', CAST(X'FF' AS STRING))", None, True),
        (
            "STRUCT<a: STRING, b: INT>",
            "STRUCT<a: STRING>",
            "named_struct('a', CAST(X'FF' AS STRING), 'b', 1)",
            None,
            True,
        ),
        (
            "STRUCT<a: STRING, b: INT>",
            "STRUCT<b: INT>",
            "named_struct('a', CAST(X'FF' AS STRING), 'b', 1)",
            {"b": 1},
            False,
        ),
        ("MAP<STRING, INT>", "MAP<STRING, INT>", "map(CAST(X'FF' AS STRING), 1)", None, True),
        (
            "MAP<STRING, STRING>",
            "MAP<STRING, STRING>",
            "map('a', NULL, 'b', '\u00e4')",
            {"a": None, "b": "\u00e4"},
            False,
        ),
        # Spark's text of these, such as {1, x}, is no JSON.
        ("STRUCT<a: INT, b: STRING>", "STRING", "named_struct('a', 1, 'b', 'x')", None, True),
        ("MAP<STRING, INT>", "STRING", "map('a', 1)", None, True),
        ("ARRAY<STRING>", "STRING", "array('a')", None, True),
        ("ARRAY<STRING>", "STRING", "NULL", None, False),
        ("ARRAY<VARIANT>", "STRING", "array(parse_json('1'))", None, True),
        ("ARRAY<ARRAY<INT>>", "ARRAY<STRING>", "array(array(1), NULL)", [None, None], True),
        ("MAP<INT, DOUBLE>", "MAP<STRING, DECIMAL(10, 2)>", "map(1, 1.5D)", {"1": Decimal("1.50")}, False),
        ("ARRAY<DOUBLE>", "ARRAY<DECIMAL(10, 2)>", "array(1.5D, 1.239D)", [Decimal("1.50"), None], True),
    ],
)
def test_parts_of_values_are_matched_by_name_and_checked(
    spark: SparkSession, has: str, wanted: str, value: str, row: Any, is_fault: bool
) -> None:
    frame = spark.sql(f"SELECT CAST({value} AS {has}) AS v")
    (made,) = typed_records(frame, "t", f"`v` {wanted}", f.lit(1)).collect()
    assert (made["_rw_fault"] is not None) == is_fault
    assert made["_rw_row"].asDict(recursive=True) == {"v": row}
    # REFRESH TABLE reads the same, and fails at the first value that does not fit.
    snapshot = cast_columns(frame, {"v": wanted.lower()})
    if is_fault:
        with pytest.raises(Exception, match=r"column v: the value (is not UTF-8|does not fit the column's type)"):
            snapshot.collect()
    else:
        assert snapshot.collect()[0].asDict(recursive=True) == {"v": row}


YEARS: list[tuple[str, str, str, Any, bool]] = [
    ("DATE", "DATE", f"{LAST_DAY}", "9999-12-31", False),
    ("DATE", "DATE", f"{LAST_DAY} + 1", None, True),
    ("DATE", "DATE", "DATE '0001-01-01' - 1", None, True),
    ("DATE", "TIMESTAMP", "DATE '+5881580-07-11'", None, True),
    ("DATE", "STRING", f"{LAST_DAY} + 1", "+10000-01-01", False),
    ("TIMESTAMP", "TIMESTAMP", "timestamp_micros(253402300800000000)", None, True),
    ("TIMESTAMP", "TIMESTAMP", "timestamp_micros(-62135596800000001)", None, True),
    ("TIMESTAMP", "DATE", "timestamp_micros(253402300800000000)", None, True),
    ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ", f"{LAST_TIME} + INTERVAL '1' SECOND", None, True),
    ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ", LAST_TIME, "9999-12-31T23:59:59.999", False),
    ("ARRAY<DATE>", "ARRAY<DATE>", "array(DATE '2024-04-11', NULL)", ["2024-04-11", None], False),
    ("ARRAY<DATE>", "ARRAY<DATE>", f"array(NULL, {LAST_DAY} + 1)", None, True),
    ("ARRAY<DATE>", "ARRAY<DATE>", "NULL", None, False),
    ("STRUCT<a: DATE, b: INT>", "STRUCT<b: INT>", f"named_struct('a', {LAST_DAY} + 1, 'b', 1)", {"b": 1}, False),
    ("STRUCT<a: DATE>", "STRUCT<a: DATE, b: INT>", f"named_struct('a', {LAST_DAY} + 1)", None, True),
    ("STRUCT<a: DATE>", "STRUCT<a: DATE>", "named_struct('a', NULL)", {}, False),
    ("MAP<STRING, DATE>", "MAP<STRING, DATE>", f"map('a', {LAST_DAY} + 1)", None, True),
    ("MAP<DATE, INT>", "MAP<DATE, INT>", f"map({LAST_DAY} + 1, 1)", None, True),
    ("MAP<DATE, INT>", "MAP<DATE, INT>", "map(DATE '2024-04-11', 1)", {"19824": 1}, False),
]
"""What the table has, the column, the value, the row, and whether it is an error."""


def test_years_are_1_to_9999(spark: SparkSession) -> None:
    made = None
    for at, (has, wanted, value, _, _) in enumerate(YEARS):
        frame = spark.sql(f"SELECT CAST({value} AS {has}) AS v")
        # As text, so that one query returns all. Such text has milliseconds, and dates as keys are days since 1970.
        found = typed_records(frame, "t", f"`v` {wanted}", f.lit(at)).selectExpr(
            "_rw_offset AS at", "_rw_fault AS fault", "to_json(_rw_row) AS row"
        )
        made = found if made is None else made.unionByName(found)
    assert made is not None
    rows = {row["at"]: row for row in made.collect()}
    for at, (has, wanted, value, row, is_fault) in enumerate(YEARS):
        assert (rows[at]["fault"] is not None) == is_fault, (has, wanted, value)
        known = {} if row is None else {"v": row}
        assert json.loads(rows[at]["row"]) == known, (has, wanted, value)
