"""Reads Kafka with Spark's own reader: exactly the given partitions, each from the given offset."""

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
"""Spark's setting for the number of consumers (one per partition) that a JVM caches; 64 by default."""

REQUEST_TIMEOUT = "kafka.request.timeout.ms"
"""The option of Spark's reader with the time limit of a request, in milliseconds."""

_TASKS_A_CORE = 4

_FETCH_BYTES, _MOST_FETCH_BYTES, _ALL_FETCH_BYTES = 1 << 20, 8 << 20, 64 << 20
_TASK_BYTES_PER_SECOND = 1 << 20
"""The assumed minimum bandwidth, in bytes per second, of each task that reads from the brokers. The number of tasks
that read at the same time is the number of cores."""

_POLL_RECORDS, _LEAST_POLL_RECORDS, _ALL_POLL_RECORDS = 5_000, 500, 40_000

KEPT_CONSUMERS = 512
"""The number of consumers in the cache if the session does not set CONSUMER_CACHE.

Creating a consumer delays a batch by 50 ms per partition; a cached consumer takes about 200 kB of memory.
"""

# The contexts for which keep_consumers has run. The function runs once per JVM, because each call to the JVM costs
# time.
_keeps: WeakSet[SparkContext] = WeakSet()
_columns: WeakKeyDictionary[SparkContext, dict[bool, tuple[Column, ...]]] = WeakKeyDictionary()


_NO_TIME = -1
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def known_time(milliseconds: int) -> int | None:
    """A record's timestamp; None if the record has no timestamp, or if the timestamp is not in the years 1 to 9999.

    A producer may write any number, such as microseconds.
    """
    is_time = milliseconds != _NO_TIME and _FIRST_MS <= milliseconds <= _LAST_MS
    return milliseconds if is_time else None


def keep_consumers(spark: SparkSession) -> None:
    """Enlarges this JVM's cache of consumers, because a topic may have many partitions. If the session sets a size,
    this function does not change the size.

    Must be called before the JVM's first read from Kafka, which creates the cache. Executors on other machines use the
    setting that the session had at its start.
    """
    session: Any = spark
    if spark.sparkContext in _keeps:
        return
    # Passes the whole name in one call. If each part of the name were passed separately, Java would look in every jar
    # for a class with the name of the part.
    settings = getattr(session._jvm, "org.apache.spark.SparkEnv").get().conf()
    if not settings.contains(CONSUMER_CACHE):
        settings.set(CONSUMER_CACHE, str(KEPT_CONSUMERS))
    _keeps.add(spark.sparkContext)


def split_id(topic: str, partition: int) -> str:
    """The id of a partition's split, such as ``orders:0``."""
    return f"{topic}:{partition}"


def split_parts(split: str) -> tuple[str, int]:
    """The topic and the partition of a split id; topic names contain no colon."""
    topic, _, number = split.rpartition(":")
    return topic, int(number)


def assignment(positions: Mapping[str, SplitState]) -> tuple[str, str]:
    """Returns Spark's options ``assign`` and ``startingOffsets`` for these positions."""
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
    """Parses the next offset of each split from JSON such as ``{"orders":{"0":5}}``. Raises ValueError for other
    text."""
    topics = json.loads(source_offset)
    if not isinstance(topics, dict):
        raise ValueError(f"not a Kafka offset: {source_offset[:80]}")
    return {
        split_id(topic, int(number)): int(offset)
        for topic, numbers in topics.items()
        for number, offset in numbers.items()
    }


def write_offsets(positions: Mapping[str, int]) -> str:
    """Returns Spark's offset entry for these splits, such as ``{"orders":{"0":5}}``."""
    topics: dict[str, dict[str, int]] = {}
    for split, offset in positions.items():
        topic, number = split_parts(split)
        topics.setdefault(topic, {})[str(number)] = offset
    return json.dumps(topics, separators=(",", ":"), ensure_ascii=False)


def fetching(partitions: int, *, timeout_ms: int) -> dict[str, str]:
    """Returns defaults for those of Spark's fetch size options that the source does not set.

    ``timeout_ms`` is the time limit of a request in milliseconds.

    A broker cuts a response at the size limit, even inside a record batch, and sends that record batch again in the
    next response. With record batches of 350 kB and responses of 1 MB, a sixth of all bytes is sent twice. Spark also
    requests a partition's first and last offset after each poll, which returns 500 records by default. If a poll
    returns fewer than several thousand records, these requests take longer than reading the records. However, each
    consumer keeps the records of its last poll in memory until the next poll. The limits therefore depend on the number
    of partitions. All consumers of a query together keep at most 64 MiB of fetched bytes, or 1 MiB per partition if
    that is more. They keep at most 40,000 unpacked records, or 500 per partition if that is more.

    If the whole response does not arrive within the time limit, Kafka's client requests the same bytes again, so
    reading over a slow connection would never progress. The size of a response is therefore limited to the bytes that
    arrive within the time limit at 1 MiB per second for each concurrent task. The only exception is a time limit of
    less than a second, because a response is never limited to less than 1 MiB. The size does not depend on the number
    of cores: machines with more cores usually have a faster connection, and small responses would slow down all reading
    from Kafka.
    """
    in_time = _TASK_BYTES_PER_SECOND * timeout_ms // 1000
    fetch = min(max(min(_ALL_FETCH_BYTES // partitions, in_time), _FETCH_BYTES), _MOST_FETCH_BYTES)
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
    """The stream of records, with the columns of ``Connector.read_stream``. ``options`` are the options of Spark's
    reader. ``max_records`` is the maximum number of records per batch; None sets no limit. If ``with_headers`` is
    false, the column of headers is NULL."""
    if not positions:
        raise ValueError("a reader needs at least one split")
    keep_consumers(spark)
    cores = spark.sparkContext.defaultParallelism
    assign, starting = assignment(positions)
    reader = (
        spark.readStream.format("kafka")
        .options(**fetching(len(positions), timeout_ms=int(options[REQUEST_TIMEOUT])))
        .options(**options)
        .option("assign", assign)
        .option("startingOffsets", starting)
        .option("failOnDataLoss", "true")
        .option("includeHeaders", str(with_headers).lower())
    )
    if max_records is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(max_records))
    found = reader.load()
    tasks = _TASKS_A_CORE * cores
    if len(positions) > tasks:
        # Spark reads each partition in a separate task, which takes longer than reading the few records of a small
        # batch.
        found = found.coalesce(tasks)
    return _records(found, with_headers=with_headers)


def read_batch(
    spark: SparkSession, options: Mapping[str, str], ranges: Mapping[str, tuple[int, int]], *, with_headers: bool
) -> DataFrame:
    """The records ``[start, end)`` of each partition, with the columns of ``Connector.read_stream``. ``options`` are
    the options of Spark's reader."""
    if not ranges:
        raise ValueError("a batch needs at least one split")
    cores = spark.sparkContext.defaultParallelism
    # If there are fewer partitions than cores, several tasks read each partition.
    parts = max(len(ranges), cores)
    return _records(
        spark.read.format("kafka")
        .options(**fetching(parts, timeout_ms=int(options[REQUEST_TIMEOUT])))
        .options(**options)
        .option("assign", _assigned(ranges))
        .option("startingOffsets", _offsets({split: start for split, (start, _) in ranges.items()}))
        .option("endingOffsets", _offsets({split: end for split, (_, end) in ranges.items()}))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", str(with_headers).lower())
        .option("minPartitions", str(cores))
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

    # The same rule as known_time. The condition compares milliseconds and not the column itself, because
    # rw_sql.plan.queries.scan_bounds would treat a comparison of the column as a condition of the user's query.
    at = f.unix_millis("timestamp")
    time = f.when((at != _NO_TIME) & at.between(_FIRST_MS, _LAST_MS), f.col("timestamp"))
    headers = f.col("headers") if with_headers else f.lit(None).cast("array<struct<key:string,value:binary>>")
    return (
        f.concat_ws(":", f.col("topic"), f.col("partition").cast("string")).alias("_rw_split"),
        f.col("offset").alias("_rw_offset"),
        f.col("key"),
        f.col("value"),
        f.col("partition").cast("string").alias("partition"),
        time.alias("timestamp"),
        headers.alias("headers"),
    )
