"""A statement's rows as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.plan.plan import Table

_ARROW: dict[str, Any] = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}


def frame_of(spark: SparkSession, table: Table) -> DataFrame:
    """The rows as a local DataFrame: nothing runs when it is shown again."""
    columns = [pa.array([row[i] for row in table.rows], type=_ARROW[kind]) for i, (_, kind) in enumerate(table.columns)]
    return spark.createDataFrame(pa.table(columns, names=[name for name, _ in table.columns]))
