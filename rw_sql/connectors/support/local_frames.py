"""Rows of this process as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def local_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A DataFrame of a table's rows.

    PySpark's ``createDataFrame`` drops all batches after an empty batch that is neither the first nor the last (tried
    with 4.0 to 4.2). Empty batches are therefore removed first.
    """
    import pyarrow as pa

    batches = [batch for batch in table.to_batches() if batch.num_rows]
    batches = batches or [pa.RecordBatch.from_pylist([], schema=table.schema)]  # PySpark needs one for some types.
    return spark.createDataFrame(pa.Table.from_batches(batches, schema=table.schema))
