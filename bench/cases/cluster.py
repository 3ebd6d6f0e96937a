"""Ingest on a standalone Spark cluster of two workers: compared with a bare query on the same cluster, and with rw_sql
on one worker.

All processes run on one machine, and a single worker can already use all cores of this machine. When two workers are
compared with one worker, a control group therefore limits each worker and its executors to a part of a core, so that
each worker behaves like a small machine.

``python -m bench.cases.cluster {ours | bare} <master> <cores> <bootstrap> <folder>`` is the process of one side; see
:mod:`bench.cases.ingest`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from bench.cases.ingest import run_bare, run_ours, throughput
from bench.cpu_limit import CpuLimit
from bench.harness import Case, Pair
from bench.streaming import SETTINGS, Child, child, flights_broker

RECORDS = 2_000_000
PARTITIONS = 4
_WORKERS = ("first", "second")
_SIDES = (("ours", "2"), ("bare", "2"), ("ours", "1"))
_CORES = 0.3
"""The CPU time in seconds per second that a worker has when two workers are compared with one worker."""

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
        with ExitStack() as stack:
            limits = {name: stack.enter_context(CpuLimit.made(name)) for name in _WORKERS}
            made = [limit for limit in limits.values() if limit is not None]
            cluster = stack.enter_context(Cluster(folder / "cluster"))
            for name, limit in limits.items():
                cluster.add_worker(name, cores=len(_SIDES))
                if limit is not None:
                    limit.add(cluster.pid(name))
            cluster.wait_for_workers(*_WORKERS)

            def limited(side: Child) -> float:
                try:
                    for limit in made:
                        limit.set(_CORES)
                    return _throughput(side)
                finally:
                    for limit in made:
                        limit.set(None)

            names = [
                ("bench.cases.cluster", side, cluster.master, cores, bootstrap, str(folder / f"{side}{cores}"))
                for side, cores in _SIDES
            ]
            with child(*names[0]) as two, child(*names[1]) as bare, child(*names[2]) as one:
                for side in (two, bare, one):
                    assert side.read_line() == "ready"
                    side.halt()

                def ours() -> Mapping[str, float]:
                    return {_PEER: _throughput(two), _ONE: limited(two)}

                def peers() -> Mapping[str, float]:
                    return {_PEER: _throughput(bare), _ONE: limited(one)}

                limit_told = f"for the comparison with one worker, a worker and its executors have {_CORES:g} of a core"
                if len(made) < len(_WORKERS):
                    limit_told = "control groups are not permitted here, so no worker is limited"
                yield Pair(
                    ours=ours,
                    peer=peers,
                    settings={
                        "records": f"{RECORDS:,}, JSON of 80 bytes, {PARTITIONS} partitions",
                        "cluster": "a standalone master and two workers on this machine; an executor has one core and "
                        "900 MB; the driver has 1 GB, and broker and drivers use the same two cores",
                        "two": "one executor on each worker",
                        "one": "rw_sql with one executor",
                        "limit": limit_told,
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
    _case(_ONE, "2,000,000 JSON records from Kafka into Delta, on two workers with 0.3 cores each", "one worker", 1.5),
)


def _run(side: str, master: str, cores: str, bootstrap: str, folder: str) -> None:
    {"ours": run_ours, "bare": run_bare}[side](bootstrap, folder, _settings(master, cores))


if __name__ == "__main__":
    _run(*sys.argv[1:])
