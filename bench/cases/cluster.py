"""Ingest on a standalone Spark cluster of two workers: compared with a bare query on the same cluster, and with rw_sql
on one worker.

``python -m bench.cases.cluster {ours | bare} <master> <cores> <bootstrap> <folder>`` is the process of one side. At
each input line, which contains a number of records, it reads the topic ``flights`` from the beginning.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from bench.harness import Case, Pair
from bench.streaming import (
    COLUMNS,
    SETTINGS,
    Child,
    Watched,
    bare_flights,
    bare_session,
    child,
    flights_broker,
    wait_until,
    write_to_parent,
)

RECORDS = 2_000_000
PARTITIONS = 4
_WORKERS = ("first", "second")
_SIDES = (("ours", "2"), ("bare", "2"), ("ours", "1"))
_PEER, _ONE = "cluster_ingest", "cluster_two_workers"


def _settings(master: str, cores: str) -> dict[str, str]:
    return {
        **SETTINGS,
        "spark.master": master,
        "spark.cores.max": cores,
        "spark.executor.cores": "1",
        "spark.executor.memory": "900m",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
    }


def _ours(master: str, cores: str, bootstrap: str, folder: str) -> None:
    import rw_sql

    spark = rw_sql.connect(folder, config=_settings(master, cores))
    spark.sql("SET statement_timeout = '3600s'").collect()
    write_to_parent("ready")
    for number, line in enumerate(sys.stdin):
        spark.sql(
            f"CREATE SOURCE s{number} ({COLUMNS}) WITH (connector = 'kafka', topic = 'flights', paused = 'true', "
            f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
        ).collect()
        spark.sql(f"CREATE MATERIALIZED VIEW v{number} AS SELECT flight FROM s{number} WHERE flight < 0").collect()
        source = spark.sql(f"SELECT id FROM rw_catalog.rw_sources WHERE name = 's{number}'").collect()[0][0]
        started = time.perf_counter()
        spark.sql(f"RESUME SOURCE s{number}").collect()
        _wait(Watched(f"{folder}/data/{source}/1"), int(line))
        write_to_parent(str(time.perf_counter() - started))
        spark.sql(f"DROP SOURCE s{number} CASCADE").collect()
        write_to_parent("at rest")


def _bare(master: str, cores: str, bootstrap: str, folder: str) -> None:
    spark = bare_session(folder, _settings(master, cores))
    write_to_parent("ready")
    for number, line in enumerate(sys.stdin):
        table = Watched(f"{folder}/table{number}")
        started = time.perf_counter()
        query = (
            bare_flights(spark, bootstrap, "flights", "partition", "offset", "timestamp")
            .writeStream.format("delta")
            .option("checkpointLocation", f"{folder}/checkpoint{number}")
            .start(table.path)
        )
        _wait(table, int(line))
        write_to_parent(str(time.perf_counter() - started))
        query.stop()
        shutil.rmtree(table.path)
        write_to_parent("at rest")


def _wait(table: Watched, records: int) -> None:
    wait_until(lambda: table.rows() >= records, f"{table.path} has all records")


def _throughput(side: Child) -> float:
    side.resume()
    side.write_line(str(RECORDS))
    taken = float(side.read_line())
    assert side.read_line() == "at rest"
    side.halt()
    return RECORDS / taken


@contextmanager
def _open() -> Iterator[Pair]:
    from tests.integration.cluster import Cluster

    with flights_broker(RECORDS, PARTITIONS) as (bootstrap, folder):
        (folder / "cluster").mkdir()
        with Cluster(folder / "cluster") as cluster:
            for name in _WORKERS:
                cluster.add_worker(name, cores=len(_SIDES))
            cluster.wait_for_workers(*_WORKERS)
            names = [
                ("bench.cases.cluster", side, cluster.master, cores, bootstrap, str(folder / f"{side}{cores}"))
                for side, cores in _SIDES
            ]
            with child(*names[0]) as two, child(*names[1]) as bare, child(*names[2]) as one:
                for side in (two, bare, one):
                    assert side.read_line() == "ready"
                    side.halt()

                def peers() -> Mapping[str, float]:
                    return {_PEER: _throughput(bare), _ONE: _throughput(one)}

                yield Pair(
                    ours=lambda: dict.fromkeys((_PEER, _ONE), _throughput(two)),
                    peer=peers,
                    settings={
                        "records": f"{RECORDS:,}, JSON of 80 bytes, {PARTITIONS} partitions",
                        "cluster": "a standalone master and two workers on this machine; an executor has one core and "
                        "900 MB; the driver has 1 GB, and broker and drivers use the same two cores",
                        "two": "one executor on each worker",
                        "one": "rw_sql with one executor",
                        "ours": "RESUME of a source with one view, until the log has every record",
                        "peer": "readStream, from_json with partition, offset and timestamp, into Delta; two executors",
                    },
                )


def _case(name: str, title: str, peer: str, goal: float) -> Case:
    return Case(
        name=name, title=title, peer=peer, unit="records/s", goal=goal, is_more_better=True, open=_open, is_manual=True
    )


CASES = (
    _case(_PEER, "2,000,000 JSON records from Kafka into Delta, on two workers", "readStream, from_json, Delta", 1.0),
    _case(_ONE, "2,000,000 JSON records from Kafka into Delta, on two workers with a core each", "one worker", 1.5),
)


if __name__ == "__main__":
    {"ours": _ours, "bare": _bare}[sys.argv[1]](*sys.argv[2:])
