"""A topic with a backlog: into a source's log, and into a view that is made over it, beside Spark doing the same.

``python -m bench.cases.backlog {ours | bare} <bootstrap> <folder>`` reads a topic at each line that it gets:
``ingest`` or ``backfill``, the topic, and how many records it has.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bench.harness import Case, Pair
from bench.streaming import (
    BOTH,
    COLUMNS,
    SETTINGS,
    SPARK_COLUMNS,
    Child,
    Watched,
    bare_flights,
    bare_session,
    child,
    fill,
    flights_broker,
    say,
    wait_until,
)

RECORDS = 5_000_000
PARTITIONS = 4
_FEWER_TOPIC, _FEWER = "fewer", 500_000
INGEST, BACKFILL = "ingest_5000000", "backfill_5000000"


def _wait(table: Watched, records: int) -> None:
    wait_until(lambda: table.rows() >= records, f"{table.path} has all records")


def _ours(bootstrap: str, folder: str) -> None:
    import rw_sql

    spark = rw_sql.connect(folder, config=SETTINGS)
    spark.sql("SET statement_timeout = '3600s'").collect()
    say("ready")
    for number, line in enumerate(sys.stdin):
        what, topic, records = line.split()
        options = f"connector = 'kafka', topic = '{topic}', properties.bootstrap.server = '{bootstrap}'"
        if what == "ingest":
            took = _ingest(spark, folder, f"s{number}", options, int(records))
        else:
            took = _backfill(spark, f"s{number}", options, int(records))
        say(str(took))
        spark.sql(f"DROP SOURCE s{number} CASCADE").collect()


def _ingest(spark: Any, folder: str, source: str, options: str, records: int) -> float:
    spark.sql(
        f"CREATE SOURCE {source} ({COLUMNS}) WITH ({options}, paused = 'true') FORMAT PLAIN ENCODE JSON"
    ).collect()
    # A reader, so that the log is filled; it keeps nothing.
    spark.sql(f"CREATE MATERIALIZED VIEW of_{source} AS SELECT flight FROM {source} WHERE flight < 0").collect()
    id_ = spark.sql(f"SELECT id FROM rw_catalog.rw_sources WHERE name = '{source}'").collect()[0][0]
    log = Watched(f"{folder}/data/{id_}/1")
    started = time.perf_counter()
    spark.sql(f"RESUME SOURCE {source}").collect()
    _wait(log, records)
    return time.perf_counter() - started


def _backfill(spark: Any, source: str, options: str, records: int) -> float:
    spark.sql(
        f"CREATE SOURCE {source} ({COLUMNS}) WITH ({options}, scan.startup.mode = 'latest') FORMAT PLAIN ENCODE JSON"
    ).collect()
    # The reader runs before anything is timed.
    spark.sql(f"CREATE MATERIALIZED VIEW live_{source} AS SELECT flight FROM {source}").collect()
    started = time.perf_counter()
    spark.sql(
        f"CREATE MATERIALIZED VIEW all_{source} WITH (scan.startup.mode = 'earliest') AS SELECT * FROM {source}"
    ).collect()
    took = time.perf_counter() - started
    assert spark.sql(f"SELECT count(*) FROM all_{source}").collect()[0][0] == records
    return took


def _bare(bootstrap: str, folder: str) -> None:
    spark = bare_session(folder)
    say("ready")
    for number, line in enumerate(sys.stdin):
        what, topic, records = line.split()
        path = f"{folder}/table{number}"
        if what == "ingest":
            took = _bare_ingest(spark, bootstrap, topic, path, f"{folder}/checkpoint{number}", int(records))
        else:
            took = _bare_backfill(spark, bootstrap, topic, path, int(records))
        say(str(took))
        shutil.rmtree(path)


def _bare_ingest(spark: Any, bootstrap: str, topic: str, path: str, checkpoint: str, records: int) -> float:
    table = Watched(path)
    started = time.perf_counter()
    query = (
        bare_flights(spark, bootstrap, topic, "partition", "offset", "timestamp")
        .writeStream.format("delta")
        .option("checkpointLocation", checkpoint)
        .start(path)
    )
    _wait(table, records)
    took = time.perf_counter() - started
    query.stop()
    return took


def _bare_backfill(spark: Any, bootstrap: str, topic: str, path: str, records: int) -> float:
    started = time.perf_counter()
    (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
        .selectExpr(f"from_json(cast(value as string), '{SPARK_COLUMNS}') AS row")
        .select("row.*")
        .write.format("delta")
        .save(path)
    )
    took = time.perf_counter() - started
    assert spark.read.format("delta").load(path).count() == records
    return took


def _read(process: Child, what: str, topic: str = "flights", records: int = RECORDS) -> float:
    """How many seconds it takes."""
    process.tell(f"{what} {topic} {records}")
    return float(process.hear())


@contextmanager
def _open() -> Iterator[Pair]:
    from rw_sql.cli.kafka_topics import create_topic

    with flights_broker(RECORDS, PARTITIONS) as (bootstrap, folder):
        create_topic(bootstrap, _FEWER_TOPIC, PARTITIONS)
        fill(bootstrap, _FEWER_TOPIC, _FEWER, PARTITIONS)
        sides = [child("bench.cases.backlog", side, bootstrap, str(folder / side)) for side in ("ours", "bare")]
        with sides[0] as ours, sides[1] as bare:
            assert (ours.hear(), bare.hear()) == ("ready", "ready")

            def figures(side: Child) -> Mapping[str, float]:
                return {INGEST: RECORDS / _read(side, "ingest"), BACKFILL: _read(side, "backfill")}

            yield Pair(
                ours=lambda: figures(ours),
                peer=lambda: figures(bare),
                warm_up=lambda: [
                    _read(side, what, _FEWER_TOPIC, _FEWER) for what in ("ingest", "backfill") for side in (ours, bare)
                ],
                settings={
                    "records": f"{RECORDS:,}, JSON of 80 bytes, {PARTITIONS} partitions",
                    "both": BOTH,
                    "ours, ingest": "RESUME of a source with one view, which reads the log meanwhile, until the log "
                    "has all",
                    "peer, ingest": "readStream, from_json with partition, offset and timestamp, into Delta; all in "
                    "one batch",
                    "ours, backfill": "CREATE MATERIALIZED VIEW … WITH (scan.startup.mode = 'earliest'), until it is "
                    "made",
                    "peer, backfill": "spark.read of the topic, from_json, written to a Delta table in one job",
                },
            )


CASES = (
    Case(
        name=INGEST,
        title="5,000,000 JSON records from Kafka into Delta",
        peer="readStream, from_json, Delta",
        unit="records/s",
        goal=0.95,
        is_more_better=True,
        open=_open,
    ),
    Case(
        name=BACKFILL,
        title="a view over a topic of 5,000,000 records that no log has",
        peer="spark.read of the topic, written to Delta",
        unit="s",
        goal=1.2,
        open=_open,
    ),
)


if __name__ == "__main__":
    {"ours": _ours, "bare": _bare}[sys.argv[1]](sys.argv[2], sys.argv[3])
