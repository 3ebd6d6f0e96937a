"""A restart with 20 sources and 20 views until all have caught up, compared with 20 bare queries.

``python -m bench.cases.restart {make | ours | bare} <bootstrap> <folder> <rows>`` is one process of a side. With
``make``, the process creates the sources and views. Otherwise the process starts the existing jobs or queries, and
prints the number of seconds after which each table has ``rows`` rows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import Case, Pair
from bench.streaming import (
    BOTH,
    COLUMNS,
    SETTINGS,
    Watched,
    bare_flights,
    bare_session,
    child,
    fill,
    flights_broker,
    wait_until,
    write_to_parent,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

COUNT = 20
_RECORDS = 1_000
_NAME = "restart_20"


def _topic(number: int) -> str:
    return f"r{number}"


def _make(bootstrap: str, folder: str) -> None:
    import rw_sql

    spark = rw_sql.connect(f"{folder}/warehouse", config=SETTINGS)
    spark.sql("SET statement_timeout = '3600s'").collect()
    spark.sql("PAUSE ALL SOURCES").collect()
    spark.sql("SET background_ddl = true").collect()
    for number in range(COUNT):
        spark.sql(
            f"CREATE SOURCE s{number} ({COLUMNS}) WITH (connector = 'kafka', topic = '{_topic(number)}', "
            f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
        ).collect()
        spark.sql(f"CREATE MATERIALIZED VIEW v{number} AS SELECT flight, delay FROM s{number}").collect()
    spark.sql("RESUME ALL SOURCES").collect()
    spark.sql("FLUSH").collect()
    rw_sql.detach(spark)
    bare = bare_session(folder)
    queries = _start_bare(bare, bootstrap, folder)
    for query in queries:
        query.processAllAvailable()
        query.stop()
    write_to_parent("made")


def _start_bare(spark: Any, bootstrap: str, folder: str) -> list[StreamingQuery]:
    return [
        bare_flights(spark, bootstrap, _topic(number))
        .select("flight", "delay")
        .writeStream.format("delta")
        .option("checkpointLocation", f"{folder}/checkpoint{number}")
        .start(f"{folder}/table{number}")
        for number in range(COUNT)
    ]


def _seconds_until(tables: Sequence[Watched], rows: int, began: float) -> float:
    wait_until(lambda: all(table.rows() >= rows for table in tables), "all have caught up", seconds=600.0, every=0.05)
    return time.perf_counter() - began


def _ours(folder: str, rows: int) -> None:
    import rw_sql
    from rw_sql.metastore import Metastore

    warehouse = f"{folder}/warehouse"
    spark = rw_sql.connect(f"{folder}/unused", config=SETTINGS, run_jobs=False)
    rw_sql.detach(spark)
    views = Metastore.open(warehouse).snapshot().all("materialized_view")
    tables = [Watched(f"{warehouse}/data/{view.id}/{view.generation}") for view in views]
    began = time.perf_counter()
    rw_sql.attach(spark, warehouse)
    taken = _seconds_until(tables, rows, began)
    rw_sql.detach(spark)
    write_to_parent(str(taken))


def _bare(bootstrap: str, folder: str, rows: int) -> None:
    spark = bare_session(folder)
    tables = [Watched(f"{folder}/table{number}") for number in range(COUNT)]
    began = time.perf_counter()
    queries = _start_bare(spark, bootstrap, folder)
    taken = _seconds_until(tables, rows, began)
    for query in queries:
        query.stop()
    write_to_parent(str(taken))


@contextmanager
def _open() -> Iterator[Pair]:
    from rw_sql.cli.servers.kafka_topics import create_topic

    with flights_broker() as (bootstrap, folder):
        written = 0
        for number in range(COUNT):
            create_topic(bootstrap, _topic(number), 1)

        def produce() -> int:
            nonlocal written
            for number in range(COUNT):
                fill(bootstrap, _topic(number), _RECORDS, 1, first=written)
            written += _RECORDS
            return written

        def run(side: str, place: Path, rows: int) -> float:
            with child("bench.cases.restart", side, bootstrap, str(place), str(rows)) as process:
                return float(process.read_line())

        produce()
        with child("bench.cases.restart", "make", bootstrap, str(folder), "0") as process:
            process.read_line()
        yield Pair(
            ours=lambda: run("ours", folder, produce()),
            peer=lambda: run("bare", folder, written),
            settings={
                "both": f"{BOTH}; {_RECORDS:,} new records in each of {COUNT} topics; from attach, or the start of "
                "the first query, until all tables have them",
                "ours": f"{COUNT} sources with a view each",
                "peer": f"{COUNT} queries from Kafka, from_json, into Delta",
            },
        )


CASES = (
    Case(
        name=_NAME,
        title=f"restart with {COUNT} sources and {COUNT} views until all have caught up",
        peer=f"{COUNT} bare queries",
        unit="s",
        goal=0.5,
        open=_open,
        runs=3,
        warm_ups=0,
    ),
)


if __name__ == "__main__":
    side, bootstrap, folder, rows = sys.argv[1:]
    if side == "make":
        _make(bootstrap, folder)
    elif side == "ours":
        _ours(folder, int(rows))
    else:
        _bare(bootstrap, folder, int(rows))
