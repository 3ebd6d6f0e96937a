"""The values of CSV fields: what is NULL, and what is empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.files.rows import NO_VALUE
from rw_sql.model.definitions import source_definition
from rw_sql.runtime.decoding.decoder import ERROR, OFFSET, decode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RECORDS = (
    "_rw_split string, _rw_offset long, key binary, value binary, partition string, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)


def decoded(spark: SparkSession, columns: str, lines: list[str]) -> list[tuple[Any, ...]]:
    """The values of each line, or its error."""
    statement = source_definition(
        f"CREATE SOURCE s ({columns}) WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'h:1') "
        "FORMAT PLAIN ENCODE CSV (without_header = 'true', delimiter = ',')"
    )
    made = [("t:0", at, None, line.encode(), "0", None, None) for at, line in enumerate(lines)]
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
