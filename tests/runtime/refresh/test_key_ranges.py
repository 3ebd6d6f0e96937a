"""The division of changed rows into chunks by Spark: ranges of the key, whose sizes are limited."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from rw_sql.runtime.refresh.chunk_sizes import row_sizes, write_by_range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

MOST = 100_000


def chunks_of(rows: DataFrame, count: int) -> list[pa.Table]:
    """The chunks of rows with the key ``a b``, ``id``; some may be empty."""
    written: list[pa.Table] = []
    held = rows.persist()
    try:
        given: Any = {"count": count, "row_count": held.count(), "most_rows": 1_000, "most_bytes": MOST}
        number = write_by_range(held, ("a b", "id"), "chunk", write=lambda of: written.append(of.toArrow()), **given)
    finally:
        held.unpersist()
    (table,) = written
    assert table.num_rows == given["row_count"]
    assert set(table["chunk"].to_pylist()) <= set(range(number))
    return [table.filter(pa.compute.equal(table["chunk"], at)).drop_columns(["chunk"]) for at in range(number)]


def keys_of(chunk: pa.Table) -> list[tuple[bool, Any, int]]:
    """The keys of a chunk in Spark's order, where NULL comes first."""
    return sorted(
        (a is not None, a or "", n) for a, n in zip(*(chunk[name].to_pylist() for name in ("a b", "id")), strict=True)
    )


@pytest.mark.parametrize("long", [0, 40])
def test_a_range_with_long_rows_is_divided_by_their_sizes(spark: SparkSession, long: int) -> None:
    key = f.when(f.col("id") % 3 == 0, None).when(f.col("id") % 3 == 1, "x").otherwise("y")
    text = f.when((f.col("id") >= 600) & (f.col("id") < 600 + long), f.repeat(f.lit("ä"), 10_000)).otherwise("short")
    rows = spark.range(3_000).select(key.alias("a b"), "id", text.alias("t"), f.array(text, text).alias("l"))
    chunks = chunks_of(rows, 3)
    assert len(chunks) == 3 if not long else 3 < len(chunks) <= 3 + 30
    ranges = [keys_of(chunk) for chunk in chunks if chunk.num_rows]
    assert all(before[-1] < after[0] for before, after in pairwise(ranges))
    assert sum(map(len, ranges)) == len({key for each in ranges for key in each}) == 3_000
    assert all(row_sizes(chunk).sum() < 2 * MOST + 60_000 + 3_000 * 64 for chunk in chunks)
    assert all(chunk.num_rows <= 2_000 for chunk in chunks)


def test_a_range_with_many_rows_is_divided_too(spark: SparkSession) -> None:
    rows = spark.range(5_000).select(f.lit("x").alias("a b"), "id", f.repeat(f.lit("y"), 200).alias("t"))
    chunks = chunks_of(rows, 1)
    assert 5 <= len(chunks) <= 15
    assert all(0 < chunk.num_rows <= 1_000 for chunk in chunks)
