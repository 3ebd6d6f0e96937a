"""Spark reads a good record's value exactly once, whatever columns a query uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.model.definitions import source_definition
from rw_sql.runtime.decoding.decoder import ERROR, decode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RECORDS = (
    "_rw_split string, _rw_offset long, key binary, value binary, partition string, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)


@pytest.mark.parametrize(
    ("encode", "parser"),
    [("JSON", "from_json("), ("CSV (without_header = 'true', delimiter = ',')", "from_csv(")],
    ids=["json", "csv"],
)
@pytest.mark.parametrize(
    "columns",
    ["id INT, name VARCHAR", "id INT, at TIMESTAMP", "id INT, n NUMERIC(10, 2)"],
    ids=["plain", "temporal", "decimal"],
)
def test_good_rows_are_read_once(spark: SparkSession, encode: str, parser: str, columns: str) -> None:
    statement = source_definition(
        f"CREATE SOURCE s ({columns}) WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'h:1') "
        f"FORMAT PLAIN ENCODE {encode}"
    )
    records = spark.createDataFrame([("t:0", 1, None, b"1,a", "0", None, None)], RECORDS)
    rows = decode(records, statement, run=0, batch=0, bucket=0).where(f"{ERROR} IS NULL")
    found: Any = rows.select("id", rows.columns[1])
    plan = cast("str", found._jdf.queryExecution().executedPlan().toString())
    # If the first reading may have missed something, the record is read again by one expression after ELSE.
    steps = [line.split("ELSE transform(array(_rw_text")[0] for line in plan.splitlines()]
    assert sum(step.count(parser) for step in steps) == 1, plan
