"""What a view or sink reads, as streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from rw_sql.plan.history import History

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.plan.desired import ViewInput
    from rw_sql.plan.history import SplitHistory
    from rw_sql.runtime.context import Context

BATCH_BYTES = "256m"
"""About how much of its inputs one batch reads."""

UNLIMITED = f"{2**40}b"
"""What a batch may read that must hold all there is."""

_MOST_IN_FILTER = 40


def input_frame(
    context: Context,
    spark: SparkSession,
    given: ViewInput,
    batch_bytes: str = BATCH_BYTES,
    *,
    table: str | None = None,
) -> DataFrame:
    """The stream of one input: a source's good rows, or those appended to a view. ``table`` is read in its place."""
    reader = spark.readStream.format("delta").option("maxBytesPerTrigger", batch_bytes).option("ignoreDeletes", "true")
    frame = reader.load(table or context.warehouse.data(given.id, given.generation))
    if given.kind == "source":
        frame = frame.where("_rw_error IS NULL")
        if given.history and table is None:
            frame = _live_rows(spark, frame, History.from_text(given.history).guarded)
        frame = frame.select(*(f"`{name}`" for name in given.columns))
    return frame if given.watermark is None else frame.withWatermark(*given.watermark)


def _live_rows(spark: SparkSession, frame: DataFrame, guarded: tuple[SplitHistory, ...]) -> DataFrame:
    """The rows that are a view's own after its history: see :class:`rw_sql.plan.history.SplitHistory`."""
    if not guarded:
        return frame
    if len(guarded) <= _MOST_IN_FILTER:
        for split in guarded:
            frame = frame.where(
                (f.col("_rw_split") != split.split)
                | (f.col("_rw_since") > split.since)
                | ((f.col("_rw_since") == split.since) & (f.col("_rw_offset") >= split.start))
            )
        return frame
    listed = f.broadcast(
        spark.createDataFrame(
            [(split.split, split.since, split.start) for split in guarded], "g_split string, g_since long, g_start long"
        )
    )
    joined = frame.join(listed, f.col("_rw_split") == f.col("g_split"), "left")
    return joined.where(
        f.col("g_split").isNull()
        | (f.col("_rw_since") > f.col("g_since"))
        | ((f.col("_rw_since") == f.col("g_since")) & (f.col("_rw_offset") >= f.col("g_start")))
    ).drop("g_split", "g_since", "g_start")
