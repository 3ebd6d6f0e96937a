"""Divides the changed rows of a refresh into chunks of limited size, in the order of the key."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType, VarcharType

from rw_sql.syntax.lexing.identifiers import quoted_for_spark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

_RANGE = "_rw_range"
_SIZE = "_rw_size"
_VALUE_BYTES = 8
"""The approximate size in bytes of a value of fixed width. A text or a byte string needs this size in addition to its
content."""


_TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def row_sizes(rows: pa.Table) -> NDArray[np.int64]:
    """The approximate size in bytes of each row."""
    sizes = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        sizes += np.concatenate([np.zeros(0, np.int64), *(_value_sizes(part) for part in column.chunks)])
    return sizes


def _value_sizes(values: pa.Array[Any]) -> NDArray[np.int64]:
    kind = values.type
    sizes = np.full(len(values), _VALUE_BYTES, np.int64)
    if pa.types.is_struct(kind):
        for part in values.flatten():
            sizes += _value_sizes(part)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(_value_sizes(values.values))])
        sizes += np.diff(ends[values.offsets.to_numpy(zero_copy_only=False)])
    elif kind in _TEXTS:
        sizes += pc.fill_null(pc.binary_length(values).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return sizes


def chunk_numbers(sizes: NDArray[np.int64], most_rows: int, most_bytes: int) -> NDArray[np.int32]:
    """The number of each row's chunk, from 0. A chunk has at most ``most_rows`` rows. A chunk has at most
    ``most_bytes`` bytes, unless the chunk consists of a single row."""
    ends = np.cumsum(sizes)
    numbers = np.zeros(len(sizes), np.int32)
    first = number = 0
    while first < len(sizes):
        limit = most_bytes + (int(ends[first - 1]) if first else 0)
        last = min(first + most_rows, max(first + 1, int(np.searchsorted(ends, limit, side="right"))))
        numbers[first:last] = number
        first, number = last, number + 1
    return numbers


def write_by_range(
    rows: DataFrame,
    keys: Sequence[str],
    chunk: str,
    *,
    count: int,
    row_count: int,
    most_rows: int,
    most_bytes: int,
    write: Callable[[DataFrame], None],
) -> int:
    """Divides ``rows``, which must be persisted, into chunks. Calls ``write`` once with all rows and an additional
    column, named by ``chunk``, that contains the number of each row's chunk. Returns the number of chunks.

    At first, the rows are divided into ``count`` ranges of the key with about the same number of rows. A range that is
    larger than two chunks, because its rows are long, is divided again according to the sizes of its rows. Each chunk
    of a range that was divided again has at most about ``most_rows`` rows and ``most_bytes`` bytes. A chunk that
    consists of an undivided range may be twice as large.
    """
    key_columns = [f.col(quoted_for_spark(key)) for key in keys]
    # With this minimum, ``most_bytes`` is also a limit for the number of rows.
    size = f.greatest(_size_in_spark(rows), f.lit(max(1, most_bytes // most_rows)))
    ranges = rows.repartitionByRange(count, *key_columns)
    (longest,) = rows.agg(f.max(size)).collect()[0]
    if longest * -(-row_count // count) <= most_bytes:
        write(ranges.withColumn(chunk, f.spark_partition_id()))
        return count
    # A second computation of the ranges would have other bounds, because Spark samples the rows.
    ranges = ranges.withColumn(_RANGE, f.spark_partition_id()).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        sizes: dict[int, int] = dict(ranges.groupBy(_RANGE).agg(f.sum(size)).collect())
        parts = [-(-sizes[at] // most_bytes) if sizes.get(at, 0) > 2 * most_bytes else 1 for at in range(count)]
        firsts = accumulate(parts, initial=0)
        first = f.split(f.lit(",".join(map(str, firsts))), ",")[f.col(_RANGE)].cast("int")
        is_large = f.col(_RANGE).isin([at for at in range(count) if parts[at] > 1])
        divided = _divided(ranges.where(is_large), keys, size, first, chunk, most_bytes)
        write(ranges.where(~is_large).withColumn(chunk, first).drop(_RANGE).unionByName(divided))
        return sum(parts)
    finally:
        ranges.unpersist()


def _divided(
    rows: DataFrame, keys: Sequence[str], size: Column, first: Column, chunk: str, most_bytes: int
) -> DataFrame:
    """Returns the rows of ranges that are divided again, with the number of each row's chunk. This number depends on
    the total size of the rows that precede the row in its range."""
    names = [f"_rw_key_{at}" for at in range(len(keys))]
    key_columns = [f.col(quoted_for_spark(key)).alias(name) for key, name in zip(keys, names, strict=True)]
    # The sums are computed without the rows' other columns, because Spark holds thousands of a window's rows in memory.
    before = Window.partitionBy(_RANGE).orderBy(*names).rowsBetween(Window.unboundedPreceding, -1)
    sums = rows.select(_RANGE, *key_columns, size.alias(_SIZE)).withColumn(
        _SIZE, f.coalesce(f.sum(_SIZE).over(before), f.lit(0))
    )
    numbers = sums.select(*names, (first + f.floor(f.col(_SIZE) / most_bytes)).cast("int").alias(chunk))
    is_same = [f.col(quoted_for_spark(key)).eqNullSafe(f.col(name)) for key, name in zip(keys, names, strict=True)]
    return rows.drop(_RANGE).join(numbers, is_same).drop(*names).repartition(f.col(chunk))


def _size_in_spark(rows: DataFrame) -> Column:
    """The approximate size in bytes of a row of a frame."""
    size = f.lit(_VALUE_BYTES * len(rows.columns)).cast("bigint")
    for field in rows.schema.fields:
        value = f.col(quoted_for_spark(field.name))
        if isinstance(field.dataType, StructType | ArrayType | MapType):
            value = f.to_json(f.struct(value))
        elif not isinstance(field.dataType, StringType | VarcharType | BinaryType):
            continue
        size = size + f.coalesce(f.octet_length(value), f.lit(0))
    return size
