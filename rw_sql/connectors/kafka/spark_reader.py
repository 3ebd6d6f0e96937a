"""Reads Kafka by Spark's own reader: exactly the given partitions, each from the given offset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession

    from rw_sql.connectors.base import SplitState


CONSUMER_CACHE = "spark.kafka.consumer.cache.capacity"
"""Spark's setting of how many consumers a JVM keeps for the next batch, one a partition: 64 by default."""

_TASKS_A_CORE = 4

_FETCH_BYTES, _MOST_FETCH_BYTES, _ALL_FETCH_BYTES = 1 << 20, 8 << 20, 64 << 20
_POLL_RECORDS, _LEAST_POLL_RECORDS, _ALL_POLL_RECORDS = 5_000, 500, 40_000

KEPT_CONSUMERS = 512
"""How many are kept where the session does not say. One that is not costs a batch 50 ms for each partition it has to
make one for; one that is kept, some 200 kB."""

# What was said to a JVM once need not be said again: each word of it is a question.
_keeps: WeakSet[SparkContext] = WeakSet()
_columns: WeakKeyDictionary[SparkContext, dict[bool, tuple[Column, ...]]] = WeakKeyDictionary()


def keep_consumers(spark: SparkSession) -> None:
    """Lets this JVM keep the consumers of widely partitioned topics. Heeded until its first read of Kafka.

    Executors on other machines have the setting of the session's start.
    """
    session: Any = spark
    if spark.sparkContext in _keeps:
        return
    settings = session._jvm.org.apache.spark.SparkEnv.get().conf()
    if not settings.contains(CONSUMER_CACHE):
        settings.set(CONSUMER_CACHE, str(KEPT_CONSUMERS))
    _keeps.add(spark.sparkContext)


def split_id(topic: str, partition: int) -> str:
    """``orders:0``."""
    return f"{topic}:{partition}"


def split_parts(split: str) -> tuple[str, int]:
    """The topic and the partition of a split id; a topic's name holds no colon."""
    topic, _, number = split.rpartition(":")
    return topic, int(number)


def assignment(positions: Mapping[str, SplitState]) -> tuple[str, str]:
    """Spark's ``assign`` and ``startingOffsets`` for these positions."""
    return _assigned(positions), _offsets({split: state.offset for split, state in positions.items()})


def _assigned(splits: Iterable[str]) -> str:
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(map(split_parts, splits)):
        numbers.setdefault(topic, []).append(number)
    return json.dumps(numbers)


def _offsets(positions: Mapping[str, int]) -> str:
    offsets: dict[str, dict[str, int]] = {}
    for split, offset in positions.items():
        topic, number = split_parts(split)
        offsets.setdefault(topic, {})[str(number)] = offset
    return json.dumps(offsets)


def read_offsets(source_offset: str) -> dict[str, int]:
    """Next offset per split out of ``{"orders":{"0":5}}``. Raises ValueError for anything else."""
    topics = json.loads(source_offset)
    if not isinstance(topics, dict):
        raise ValueError(f"not a Kafka offset: {source_offset[:80]}")
    return {
        split_id(topic, int(number)): int(offset)
        for topic, numbers in topics.items()
        for number, offset in numbers.items()
    }


def write_offsets(positions: Mapping[str, int]) -> str:
    """Spark's entry of these splits: ``{"orders":{"0":5}}``."""
    topics: dict[str, dict[str, int]] = {}
    for split, offset in positions.items():
        topic, number = split_parts(split)
        topics.setdefault(topic, {})[str(number)] = offset
    return json.dumps(topics, separators=(",", ":"), ensure_ascii=False)


def fetching(partitions: int) -> dict[str, str]:
    """Spark's options of how much is fetched at a time, where the source's own say nothing.

    A broker cuts off what goes into an answer wherever that is full, and what is left of a record batch is sent again:
    of batches of 350 kB, a sixth of all bytes in answers of 1 MB. Spark asks for a partition's two ends after each
    poll, which gives 500 records by default: with batches of less than some thousand the asking takes longer than the
    records. What a query's consumers hold of all partitions together stays within 64 MiB of fetched bytes, as far as
    1 MiB for each allows, and 40,000 records unpacked: each keeps those of its last poll until the next.
    """
    fetch = min(max(_ALL_FETCH_BYTES // partitions, _FETCH_BYTES), _MOST_FETCH_BYTES)
    polled = min(max(_ALL_POLL_RECORDS // partitions, _LEAST_POLL_RECORDS), _POLL_RECORDS)
    return {"kafka.max.partition.fetch.bytes": str(fetch), "kafka.max.poll.records": str(polled)}


def read_stream(
    spark: SparkSession,
    options: Mapping[str, str],
    positions: Mapping[str, SplitState],
    *,
    max_records: int | None,
    with_headers: bool,
) -> DataFrame:
    """The stream, in the columns that every connector's reader has. ``options`` are Spark's."""
    if not positions:
        raise ValueError("a reader needs at least one split")
    keep_consumers(spark)
    assign, starting = assignment(positions)
    reader = (
        spark.readStream.format("kafka")
        .options(**fetching(len(positions)))
        .options(**options)
        .option("assign", assign)
        .option("startingOffsets", starting)
        .option("failOnDataLoss", "true")
        .option("includeHeaders", str(with_headers).lower())
    )
    if max_records is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(max_records))
    found = reader.load()
    tasks = _TASKS_A_CORE * spark.sparkContext.defaultParallelism
    if len(positions) > tasks:
        # Spark reads each partition by a task of its own, which takes longer than the few records of a small batch.
        found = found.coalesce(tasks)
    return _records(found, with_headers=with_headers)


def read_batch(
    spark: SparkSession, options: Mapping[str, str], ranges: Mapping[str, tuple[int, int]], *, with_headers: bool
) -> DataFrame:
    """The records ``[start, end)`` of each partition, in the same columns. ``options`` are Spark's."""
    if not ranges:
        raise ValueError("a batch needs at least one split")
    return _records(
        spark.read.format("kafka")
        .options(**fetching(len(ranges)))
        .options(**options)
        .option("assign", _assigned(ranges))
        .option("startingOffsets", _offsets({split: start for split, (start, _) in ranges.items()}))
        .option("endingOffsets", _offsets({split: end for split, (_, end) in ranges.items()}))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", str(with_headers).lower())
        # A partition is read by more than one task where there are fewer partitions than tasks at a time.
        .option("minPartitions", str(spark.sparkContext.defaultParallelism))
        .load(),
        with_headers=with_headers,
    )


def _records(frame: DataFrame, *, with_headers: bool) -> DataFrame:
    known = _columns.setdefault(frame.sparkSession.sparkContext, {})
    if with_headers not in known:
        known[with_headers] = _columns_of_records(with_headers=with_headers)
    return frame.select(*known[with_headers])


def _columns_of_records(*, with_headers: bool) -> tuple[Column, ...]:
    from pyspark.sql import functions as f

    headers = f.col("headers") if with_headers else f.lit(None).cast("array<struct<key:string,value:binary>>")
    return (
        f.concat_ws(":", f.col("topic"), f.col("partition").cast("string")).alias("_rw_split"),
        f.col("offset").alias("_rw_offset"),
        f.col("key"),
        f.col("value"),
        f.col("partition").cast("string").alias("partition"),
        f.col("timestamp"),
        headers.alias("headers"),
    )
