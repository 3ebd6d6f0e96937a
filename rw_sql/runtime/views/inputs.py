"""What a view or sink reads, as streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.plan.desired import ViewInput
    from rw_sql.runtime.context import Context

BATCH_BYTES = "256m"
"""About how much of its inputs one batch reads."""


def input_frame(context: Context, spark: SparkSession, given: ViewInput, batch_bytes: str = BATCH_BYTES) -> DataFrame:
    """The stream of one input: a source's good rows, or those appended to a view."""
    reader = spark.readStream.format("delta").option("maxBytesPerTrigger", batch_bytes).option("ignoreDeletes", "true")
    frame = reader.load(context.warehouse.data(given.id, given.generation))
    if given.kind == "source":
        frame = frame.where("_rw_error IS NULL").select(*(f"`{name}`" for name in given.columns))
    return frame if given.watermark is None else frame.withWatermark(*given.watermark)
