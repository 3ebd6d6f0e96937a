"""Ingest on a standalone Spark cluster of two workers: compared with a bare query on the same cluster, and with rw_sql
on one worker.

``python -m bench.cases.cluster {ours | bare} <master> <cores> <bootstrap> <folder>`` is the process of one side; see
:mod:`bench.cases.ingest`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from bench.cases.ingest import run_bare, run_ours, throughput
from bench.harness import Case, Pair
from bench.streaming import SETTINGS, Child, child, flights_broker

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


def _throughput(side: Child) -> float:
    side.resume()
    found = throughput(side, records=RECORDS)
    side.halt()
    return found


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


def _run(side: str, master: str, cores: str, bootstrap: str, folder: str) -> None:
    {"ours": run_ours, "bare": run_bare}[side](bootstrap, folder, _settings(master, cores))


if __name__ == "__main__":
    _run(*sys.argv[1:])
