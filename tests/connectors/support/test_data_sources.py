"""Data sources in sessions that share a Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader

from rw_sql.connectors.support.data_sources import register_source
from rw_sql.runtime.spark.sessions import activate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

pytestmark = pytest.mark.spark


def _ones() -> type[DataSource]:
    class Reader(DataSourceReader):
        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (1,)

    class Ones(DataSource):
        @classmethod
        def name(cls) -> str:
            return "rw_sql_test_ones"

        def schema(self) -> str:
            return "a INT"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    # Spark's workers cannot import this module; classes of a function are sent whole.
    return Ones


def test_a_source_is_registered_while_another_session_is_active(spark: SparkSession) -> None:
    source = _ones()
    one, other = spark.newSession(), spark.newSession()
    register_source(one, source)
    activate(one)
    register_source(other, source)
    activate(one)
    for session in (other, one):
        assert session.read.format(source.name()).load().collect()[0].a == 1
