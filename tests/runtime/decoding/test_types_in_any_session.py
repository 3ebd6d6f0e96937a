"""The types of decoded values do not depend on the setting ``spark.sql.timestampType`` of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from rw_sql.runtime.decoding.change_formats.values import ValueRules, value_of
from rw_sql.syntax import exact_spark_type, parse_statement
from rw_sql.syntax.statements import CreateSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TYPES = {
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMP": "timestamp_ntz",
    "TIMESTAMPTZ[]": "array<timestamp>",
    "TIMESTAMP[]": "array<timestamp_ntz>",
    "STRUCT<at TIMESTAMPTZ, of TIMESTAMP[]>": "struct<at:timestamp,of:array<timestamp_ntz>>",
    "MAP(VARCHAR, STRUCT<at TIMESTAMPTZ[]>)": "map<string,struct<at:array<timestamp>>>",
}


@pytest.fixture(params=["TIMESTAMP_NTZ", "TIMESTAMP_LTZ"])
def any_session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.timestampType", request.param)
    yield spark
    spark.conf.unset("spark.sql.timestampType")


@pytest.mark.parametrize("declared", TYPES)
def test_a_time_with_a_zone_has_a_zone_in_any_session(any_session: SparkSession, declared: str) -> None:
    statement = parse_statement(f"CREATE SOURCE s (c {declared}) WITH (connector = 'datagen') FORMAT PLAIN ENCODE JSON")
    assert isinstance(statement, CreateSource)
    kind = statement.columns[0].data_type
    frame = any_session.createDataFrame([("",)], "text string")
    read = frame.select(
        value_of(f.col("text"), kind, ValueRules()).alias("c"), f.lit(None).cast(exact_spark_type(kind))
    )
    assert [column.dataType.simpleString() for column in read.schema.fields] == [TYPES[declared]] * 2
