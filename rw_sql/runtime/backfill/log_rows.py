"""Selects the rows of a chunk from a source's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as f

from rw_sql.connectors.support.local_frames import local_frame
from rw_sql.runtime.decoding.decoder import OFFSET, RUN, SPLIT, offset_bound, stored_offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.model.backfill_ranges import BackfillChunk

_MOST_IN_FILTER = 40


def rows_of_chunk(spark: SparkSession, rows: DataFrame, chunk: tuple[BackfillChunk, ...]) -> DataFrame:
    """Returns the rows of a log that belong to ``chunk``. Each part of the chunk gives a split, a range of runs and a
    range of offsets."""
    low, high = min(portion.start for portion in chunk), max(portion.end for portion in chunk)
    of_offset = rows.schema[OFFSET].dataType
    rows = rows.where((f.col(OFFSET) >= offset_bound(rows, low)) & (f.col(OFFSET) < offset_bound(rows, high)))
    if len(chunk) <= _MOST_IN_FILTER:
        wanted = f.lit(False)
        for portion in chunk:
            first, last = portion.runs or (0, 0)
            wanted = wanted | (
                (f.col(SPLIT) == portion.split)
                & f.col(RUN).between(first, last)
                & (f.col(OFFSET) >= offset_bound(rows, portion.start))
                & (f.col(OFFSET) < offset_bound(rows, portion.end))
            )
        return rows.where(wanted)
    columns = ("w_split", "w_first", "w_last", "w_start", "w_end")
    portions = [
        (one.split, *(one.runs or (0, 0)), *(stored_offset(of_offset, at) for at in (one.start, one.end)))
        for one in chunk
    ]
    listed = local_frame(spark, pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in portions]))
    listed = listed.withColumns({name: f.col(name).cast(of_offset) for name in ("w_start", "w_end")})
    is_wanted = (
        (f.col(SPLIT) == f.col("w_split"))
        & f.col(RUN).between(f.col("w_first"), f.col("w_last"))
        & (f.col(OFFSET) >= f.col("w_start"))
        & (f.col(OFFSET) < f.col("w_end"))
    )
    return rows.join(f.broadcast(listed), is_wanted, "left_semi")
