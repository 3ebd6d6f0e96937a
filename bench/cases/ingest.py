"""The throughput from a topic into Delta: a source that writes its log, compared with a Spark query that reads, decodes
and writes the same records.

``python -m bench.cases.ingest {ours | bare} <bootstrap> <folder>`` is the process of one side. Each input line contains
a topic and its number of records. The process reads the topic, prints the seconds, and then deletes the rows that it
has written.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from bench.harness import Case, Pair
from bench.streaming import (
    BOTH,
    COLUMNS,
    SETTINGS,
    Child,
    Watched,
    bare_flights,
    bare_session,
    child,
    fill,
    flights_broker,
    wait_until,
    write_to_parent,
)

RECORDS = 5_000_000
PARTITIONS = 4
_FEWER = 500_000
_WARM_UPS = 4
"""The number of short runs of both sides before the measurement. In production, streams run for days, so the time in
which a new JVM compiles its code must not count."""


def _wait(table: Watched, records: int) -> None:
    wait_until(lambda: table.rows() >= records, f"{table.path} has all records")


def run_ours(bootstrap: str, folder: str, config: Mapping[str, str] = SETTINGS) -> None:
    """Runs rw_sql's side, with the given settings of Spark."""
    import rw_sql

    spark = rw_sql.connect(folder, config=config)
    spark.sql("SET statement_timeout = '3600s'").collect()
    write_to_parent("ready")
    for number, line in enumerate(sys.stdin):
        topic, records = line.split()
        spark.sql(
            f"CREATE SOURCE s{number} ({COLUMNS}) WITH (connector = 'kafka', topic = '{topic}', paused = 'true', "
            f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
        ).collect()
        # A source is read only if a view reads it. This view keeps no rows.
        spark.sql(f"CREATE MATERIALIZED VIEW v{number} AS SELECT flight FROM s{number} WHERE flight < 0").collect()
        source = spark.sql(f"SELECT id FROM rw_catalog.rw_sources WHERE name = 's{number}'").collect()[0][0]
        log = Watched(f"{folder}/data/{source}/1")
        started = time.perf_counter()
        spark.sql(f"RESUME SOURCE s{number}").collect()
        _wait(log, int(records))
        write_to_parent(str(time.perf_counter() - started))
        spark.sql(f"DROP SOURCE s{number} CASCADE").collect()
        write_to_parent("at rest")


def run_bare(bootstrap: str, folder: str, config: Mapping[str, str] = SETTINGS) -> None:
    """Runs the peer's side, with the given settings of Spark."""
    spark = bare_session(folder, config)
    write_to_parent("ready")
    for number, line in enumerate(sys.stdin):
        topic, records = line.split()
        table = Watched(f"{folder}/table{number}")
        started = time.perf_counter()
        query = (
            bare_flights(spark, bootstrap, topic, "partition", "offset", "timestamp")
            .writeStream.format("delta")
            .option("checkpointLocation", f"{folder}/checkpoint{number}")
            .start(table.path)
        )
        _wait(table, int(records))
        write_to_parent(str(time.perf_counter() - started))
        query.stop()
        shutil.rmtree(table.path)
        write_to_parent("at rest")


def throughput(process: Child, topic: str = "flights", records: int = RECORDS) -> float:
    """Lets a side read a topic, and returns the number of records per second."""
    process.write_line(f"{topic} {records}")
    taken = float(process.read_line())
    assert process.read_line() == "at rest"
    return records / taken


@contextmanager
def _open() -> Iterator[Pair]:
    from rw_sql.cli.servers.kafka_topics import create_topic

    with flights_broker(RECORDS, PARTITIONS) as (bootstrap, folder):
        create_topic(bootstrap, "fewer", PARTITIONS)
        fill(bootstrap, "fewer", _FEWER, PARTITIONS)
        sides = [child("bench.cases.ingest", side, bootstrap, str(folder / side)) for side in ("ours", "bare")]
        with sides[0] as ours, sides[1] as bare:
            assert (ours.read_line(), bare.read_line()) == ("ready", "ready")
            yield Pair(
                ours=lambda: throughput(ours),
                peer=lambda: throughput(bare),
                warm_up=lambda: [throughput(side, "fewer", _FEWER) for side in (ours, bare) * _WARM_UPS],
                settings={
                    "records": f"{RECORDS:,}, JSON of 80 bytes, {PARTITIONS} partitions",
                    "warm-up": f"{_WARM_UPS} runs of {_FEWER:,} records per side, since streams run for days",
                    "both": BOTH,
                    "ours": "RESUME of a source with one view, which reads the log meanwhile, until the log has every "
                    "record",
                    "peer": "readStream, from_json with partition, offset and timestamp, into Delta; all in one batch",
                },
            )


CASES = (
    Case(
        name="ingest_5000000",
        title="5,000,000 JSON records from Kafka into Delta",
        peer="readStream, from_json, Delta",
        unit="records/s",
        goal=1.4,
        is_more_better=True,
        open=_open,
    ),
)


if __name__ == "__main__":
    {"ours": run_ours, "bare": run_bare}[sys.argv[1]](sys.argv[2], sys.argv[3])
