"""The values of CSV fields: what is NULL, and what is empty."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.files.rows import NO_VALUE
from rw_sql.model.definitions import source_definition
from rw_sql.runtime.decoding.decoder import ERROR, OFFSET, decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RECORDS = (
    "_rw_split string, _rw_offset long, key binary, value binary, partition string, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)


def decoded(spark: SparkSession, columns: str, lines: Sequence[str | bytes]) -> list[tuple[Any, ...]]:
    """The values of each line, or its error."""
    statement = source_definition(
        f"CREATE SOURCE s ({columns}) WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'h:1') "
        "FORMAT PLAIN ENCODE CSV (without_header = 'true', delimiter = ',')"
    )
    values = [line.encode() if isinstance(line, str) else line for line in lines]
    made = [("t:0", at, None, value, "0", None, None) for at, value in enumerate(values)]
    rows = decode(spark.createDataFrame(made, RECORDS), statement, run=0, batch=0, bucket=0).orderBy(OFFSET).collect()
    names = [column.name for column in statement.columns]
    return [(row[ERROR],) if row[ERROR] else tuple(row[name] for name in names) for row in rows]


def test_a_field_of_two_quotes_is_an_empty_text_and_an_empty_field_is_null(spark: SparkSession) -> None:
    lines = ["1,a,b", '2,"",""', "3,,", '4," "," "', '"","",', ',"",""""', '5,"x",""']
    assert decoded(spark, "id INT, word VARCHAR, raw BYTEA", lines) == [
        (1, "a", b"b"),
        (2, "", b""),
        (3, None, None),
        (4, " ", b" "),
        (None, "", None),
        (None, "", b'"'),
        (5, "x", b""),
    ]
    assert decoded(spark, "word VARCHAR", ["a", '""', NO_VALUE]) == [("a",), ("",), (None,)]


def test_types_without_an_empty_value_read_two_quotes_as_null(spark: SparkSession) -> None:
    kinds = ("INT", "DOUBLE PRECISION", "NUMERIC(10, 2)", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "JSONB")
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(kinds))
    nulls = (None,) * len(kinds)
    lines = [",".join(['""'] * len(kinds)), "," * (len(kinds) - 1)]
    assert decoded(spark, columns, lines) == [nulls, nulls]


def test_a_line_that_is_not_utf_8_is_an_error(spark: SparkSession) -> None:
    lines: list[str | bytes] = ["1,Zürich,x", "2,Zürich,x".encode("latin-1"), b"3,a,\xff", '"4","é",""']
    told = ("the value is not UTF-8",)
    assert decoded(spark, "id INT, word VARCHAR, raw BYTEA", lines) == [
        (1, "Zürich", b"x"), told, told, (4, "é", b""),
    ]  # fmt: skip


def test_a_decimal_is_exact_however_long_it_is(spark: SparkSession) -> None:
    zeros = "0" * 60
    lines = [f"1.5{zeros}", f'"1.50{zeros}"', "15e-1", f"1.{zeros}1", "1e-600000000", "0e600000000", "1e99999999999"]
    found = [row[0] for row in decoded(spark, "n NUMERIC(10, 2)", lines)]
    assert found[:3] == [Decimal("1.50")] * 3
    assert all("is not of type NUMERIC(10, 2)" in str(told) for told in found[3:])
