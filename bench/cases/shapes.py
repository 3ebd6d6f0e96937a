"""Topics whose records are not small and flat with few groups: wide records, many groups, a skewed key, late records,
and more groups than fit into a heap. A source with one view reads each topic, and so does one plain Spark query.

``python -m bench.cases.shapes {ours | bare} <shape> <bootstrap> <folder>`` is the process of one side. Each input line
contains the number of records in the topic; the process then reads to the topic's end. At an empty line, the process
prints the number and a fingerprint of the rows of its table.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.harness import Case, Pair
from bench.streaming import (
    BOTH,
    SETTINGS,
    Child,
    bare_session,
    child,
    fill,
    fingerprint,
    flights_broker,
    merge_into,
    write_to_parent,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 4
_FIRST = 1_000
_GROUPS, _MANY_GROUPS = 10_000, 10_000_000
_PRIME = 7_919
"""Consecutive numbers, multiplied by this prime, are scattered over the groups."""

_NOW = datetime(2026, 1, 8)
_LATE = timedelta(days=7)
_NUMBERS, _TEXTS, _NESTED = 180, 80, 40


def _wide(number: int) -> bytes:
    record: dict[str, Any] = {f"n{at}": number * at for at in range(_NUMBERS)}
    record |= {f"t{at}": f"text {number % 1000} of column {at}" for at in range(_TEXTS)}
    record |= {f"s{at}": {"code": f"c{number % 100}", "tags": [at, number % 7]} for at in range(_NESTED)}
    return json.dumps(record).encode()


def _even(number: int) -> bytes:
    return b'{"k":%d,"amount":%d}' % (number * _PRIME % _GROUPS, number % 1000)


def _skewed(number: int) -> bytes:
    return b'{"k":%d,"amount":%d}' % (0 if number % 10 else number * _PRIME % _GROUPS, number % 1000)


def _scattered(number: int) -> bytes:
    return b'{"k":%d,"amount":%d}' % (number * _PRIME % _MANY_GROUPS, number % 1000)


def _late(number: int) -> bytes:
    # The first record has the newest time, so that all others are late.
    at = _NOW - _LATE * (number * _PRIME % 100_000 / 100_000)
    return b'{"k":%d,"at":"%sZ"}' % (number % 8, at.isoformat(timespec="seconds").encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A topic and the query that reads it.

    ``columns`` are the columns in RisingWave's types, ``spark_columns`` in Spark's. ``keys`` are the columns of the
    groups; empty if the query returns one row per record. ``records`` are the records of one run, and ``first`` are the
    records that both sides read before the runs. ``settings`` are further settings of the peer's session.
    """

    title: str
    columns: str
    spark_columns: str
    value: Callable[[int], bytes]
    query: str
    keys: tuple[str, ...]
    records: int
    first: int = _FIRST
    watermark: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


_BY_KEY = "SELECT k, count(*) AS records, sum(amount) AS amount, max(amount) AS greatest FROM given GROUP BY k"
_KEYED = {"columns": "k BIGINT, amount BIGINT", "spark_columns": "k BIGINT, amount BIGINT", "query": _BY_KEY}


def _wide_columns(text: str, nested: str) -> str:
    """The columns of the wide records, with the types of texts and of nested columns."""
    kinds = (("n", "BIGINT", _NUMBERS), ("t", text, _TEXTS), ("s", nested, _NESTED))
    return ", ".join(f"{name}{at} {kind}" for name, kind, count in kinds for at in range(count))


SHAPES: Mapping[str, Shape] = {
    "wide_record": Shape(
        title=f"records of {_NUMBERS + _TEXTS + _NESTED} fields, {_NESTED} of them nested",
        columns=_wide_columns("VARCHAR", "STRUCT<code VARCHAR, tags BIGINT[]>"),
        spark_columns=_wide_columns("STRING", "STRUCT<code: STRING, tags: ARRAY<BIGINT>>"),
        value=_wide,
        query="SELECT * FROM given",
        keys=(),
        records=20_000,
        first=100,
    ),
    "groups_10000": Shape(
        title=f"{_GROUPS:,} groups", **_KEYED, value=_even, keys=("k",), records=200_000, first=_GROUPS
    ),
    "skewed_key": Shape(
        title=f"{_GROUPS:,} groups, nine of ten records in one of them",
        **_KEYED,
        value=_skewed,
        keys=("k",),
        records=200_000,
        first=_GROUPS,
    ),
    "late_burst": Shape(
        title="a burst of records that are up to 7 days late, in windows of 10 minutes",
        columns="k BIGINT, at TIMESTAMPTZ",
        spark_columns="k BIGINT, at TIMESTAMP",
        value=_late,
        query="SELECT window.start AS begins, k, count(*) AS records FROM given GROUP BY window(at, '10 minutes'), k",
        keys=("begins", "k"),
        records=200_000,
        watermark="8 DAYS",
    ),
    "groups_10000000": Shape(
        title=f"{_MANY_GROUPS:,} groups",
        **_KEYED,
        value=_scattered,
        keys=("k",),
        records=200_000,
        first=_MANY_GROUPS,
        settings={
            "spark.sql.streaming.stateStore.providerClass": (
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            ),
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        },
    ),
}


def _ours(name: str, bootstrap: str, folder: str) -> None:
    import rw_sql

    shape = SHAPES[name]
    spark = rw_sql.connect(folder, config=SETTINGS)
    spark.sql("SET statement_timeout = '3600s'").collect()
    number, _, unit = shape.watermark.partition(" ")
    watermark = f", WATERMARK FOR at AS at - INTERVAL '{number}' {unit.removesuffix('S')}" if number else ""
    spark.sql(
        f"CREATE SOURCE given ({shape.columns}{watermark}) WITH (connector = 'kafka', topic = '{name}', "
        f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
    ).collect()
    spark.sql(f"CREATE MATERIALIZED VIEW seen AS {shape.query}").collect()
    _answer(lambda: spark.sql("FLUSH").collect(), lambda: spark.sql("SELECT * FROM seen"))


def _bare(name: str, bootstrap: str, folder: str) -> None:
    shape = SHAPES[name]
    spark = bare_session(folder)
    for key, value in shape.settings.items():
        spark.conf.set(key, value)
    path = f"{folder}/seen"
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", name)
        .option("startingOffsets", "earliest")
        .option("kafka.fetch.max.wait.ms", "20")
        .load()
        .selectExpr(f"from_json(cast(value as string), '{shape.spark_columns}') AS row")
        .select("row.*")
    )
    (records.withWatermark("at", shape.watermark) if shape.watermark else records).createOrReplaceTempView("given")
    writer = spark.sql(shape.query).writeStream.option("checkpointLocation", f"{folder}/checkpoint")
    if shape.keys:
        query = writer.outputMode("update").foreachBatch(merge_into(spark, path, list(shape.keys))).start()
    else:
        query = writer.format("delta").start(path)
    _answer(query.processAllAvailable, lambda: spark.read.format("delta").load(path))


def _answer(read: Callable[[], object], rows: Callable[[], DataFrame]) -> None:
    """Reads the topic to its end once, and then again at each input line."""
    read()
    write_to_parent("ready")
    for line in sys.stdin:
        if line.strip():
            read()
            write_to_parent("done")
        else:
            write_to_parent(fingerprint(rows()))


@contextmanager
def _open(name: str) -> Iterator[Pair]:
    from rw_sql.cli.servers.kafka_topics import create_topic

    shape = SHAPES[name]
    with flights_broker() as (bootstrap, folder):
        create_topic(bootstrap, name, PARTITIONS)
        fill(bootstrap, name, shape.first, PARTITIONS, value=shape.value)
        written = shape.first
        # The sides read one after the other, because reading many records at the same time would need the memory of
        # both sides at once.
        with child("bench.cases.shapes", "ours", name, bootstrap, str(folder / "ours")) as ours:
            assert ours.read_line() == "ready"
            ours.halt()
            with child("bench.cases.shapes", "bare", name, bootstrap, str(folder / "bare")) as bare:
                assert bare.read_line() == "ready"
                bare.halt()

                def seconds(side: Child, *, is_first: bool) -> float:
                    nonlocal written
                    if is_first:
                        fill(bootstrap, name, shape.records, PARTITIONS, first=written, value=shape.value)
                        written += shape.records
                    started = time.perf_counter()
                    side.resume()
                    side.write_line(str(written))
                    assert side.read_line() == "done"
                    took = time.perf_counter() - started
                    side.halt()
                    return took

                yield Pair(
                    ours=partial(seconds, ours, is_first=True),
                    peer=partial(seconds, bare, is_first=False),
                    settings={
                        "records": f"{shape.records:,} more in each run, after the first {shape.first:,}; JSON of "
                        f"{len(shape.value(12_345)):,} bytes, {PARTITIONS} partitions",
                        "both": f"{BOTH}; one side runs while the other is suspended; both have the same rows at the "
                        "end",
                        "ours": f"a source and a view that were suspended, until FLUSH returns: {shape.query}",
                        "peer": "one query that was suspended, until processAllAvailable returns"
                        + ("; groups by MERGE into Delta" if shape.keys else "; into Delta")
                        + ("; RocksDB with changelog checkpoints" if shape.settings else "")
                        + (f"; watermark of {shape.watermark.lower()}" if shape.watermark else ""),
                    },
                )
                assert _held_by(ours) == _held_by(bare), "the two sides do not have the same rows"


def _held_by(side: Child) -> str:
    side.resume()
    side.write_line("")
    found = side.read_line()
    side.halt()
    return found


CASES = tuple(
    Case(
        name=name,
        title=f"{shape.records:,} records: {shape.title}",
        peer="one query" + (" with MERGE" if shape.keys else ""),
        unit="s",
        goal=1.0,
        open=partial(_open, name),
        is_manual=shape.first > 1_000_000,
        runs=3 if shape.first > 1_000_000 else 5,
    )
    for name, shape in SHAPES.items()
)


if __name__ == "__main__":
    {"ours": _ours, "bare": _bare}[sys.argv[1]](*sys.argv[2:])
