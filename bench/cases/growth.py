"""Costs that may grow: the time of a batch after thousands of batches, and the times of ``attach`` and of a statement
in a warehouse with thousands of sources.

``python -m bench.cases.growth <bootstrap> <folder>`` creates a source and a view of each topic that an input line
names, and maintains them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import TYPE_CHECKING

from bench.cases.metastore import metastore_of
from bench.cases.statements import create_source
from bench.harness import Case, Pair
from bench.streaming import (
    BOTH,
    COLUMNS,
    SETTINGS,
    Child,
    Watched,
    child,
    flight,
    flights_broker,
    wait_until,
    write_to_parent,
)

if TYPE_CHECKING:
    from confluent_kafka import Producer

FEW, MANY = 10, 10_000
SIZES = (FEW, 1_000, MANY)
BATCHES = 2_000
_FIRST_BATCHES = 10
_BATCH, _SINGLE = "batch_2000", "single_record"
_IN_A_RUN = 8
_PAUSE_SECONDS = 0.05


@contextmanager
def _open_sources() -> Iterator[Pair]:
    """Measures attaching to warehouses with this many sources, and creating one more source in each warehouse."""
    import rw_sql

    with TemporaryDirectory(prefix="rw_sql_bench_") as unused, ExitStack() as made:
        warehouses = {size: str(Path(made.enter_context(metastore_of(size)).directory).parent) for size in SIZES}
        spark = rw_sql.connect(unused, config=SETTINGS, run_jobs=False)
        rw_sql.detach(spark)
        numbers = {size: iter(range(size + 1, 2 * MANY)) for size in SIZES}

        def figures(size: int) -> tuple[float, float]:
            started = perf_counter()
            rw_sql.attach(spark, warehouses[size], run_jobs=False)
            attached = (perf_counter() - started) * 1e3
            took = []
            for _ in range(_IN_A_RUN):
                started = perf_counter()
                spark.sql(create_source(next(numbers[size]))).collect()
                took.append((perf_counter() - started) * 1e3)
            rw_sql.detach(spark)
            return attached, median(took)

        def ours() -> Mapping[str, float]:
            found: dict[str, float] = {}
            for size in SIZES[1:]:
                found[f"attach_{size}"], found[f"create_source_{size}"] = figures(size)
            return found

        def peer() -> Mapping[str, float]:
            attached, created = figures(FEW)
            of_attaching = {f"attach_{size}": attached for size in SIZES[1:]}
            return of_attaching | {f"create_source_{size}": created for size in SIZES[1:]}

        try:
            yield Pair(
                ours=ours,
                peer=peer,
                settings={
                    "ours": "a warehouse of that many sources, without running jobs",
                    "peer": f"one of {FEW} sources",
                },
            )
        finally:
            spark.stop()


def _keep(bootstrap: str, folder: str) -> None:
    import rw_sql

    spark = rw_sql.connect(folder, config=SETTINGS)
    write_to_parent("ready")
    for line in sys.stdin:
        name = line.strip()
        spark.sql(
            f"CREATE SOURCE {name} ({COLUMNS}) WITH (connector = 'kafka', topic = '{name}', "
            f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
        ).collect()
        spark.sql(f"CREATE MATERIALIZED VIEW of_{name} AS SELECT flight, carrier, delay FROM {name}").collect()
        ids = spark.sql("SELECT max(id) FROM rw_catalog.rw_sources").collect()[0][0]
        write_to_parent(f"{ids} {spark.sql('SELECT max(id) FROM rw_catalog.rw_materialized_views').collect()[0][0]}")


@dataclass(slots=True)
class _Kept:
    """A source and a view of its rows. The source gets single records. Each record becomes a batch with one commit and
    one file in the log, and one commit and one file in the view's table."""

    topic: str
    log: Watched
    view: Watched
    producer: Producer
    sent: int = 0

    @staticmethod
    def made(process: Child, bootstrap: str, folder: Path, topic: str) -> _Kept:
        from confluent_kafka import Producer

        from rw_sql.cli.servers.kafka_topics import create_topic

        create_topic(bootstrap, topic, 1)
        process.write_line(topic)
        log, view = (Watched(f"{folder}/data/{id_}/1") for id_ in process.read_line().split())
        return _Kept(topic, log, view, Producer({"bootstrap.servers": bootstrap, "linger.ms": 0}))

    def send(self) -> None:
        self.producer.produce(self.topic, flight(self.sent), partition=0)
        self.producer.poll(0)
        self.sent += 1

    def bring_to(self, batches: int) -> None:
        """Sends records, faster than the source reads them, until the source has written ``batches`` batches and the
        view has read these batches."""
        # A log's table has a few commits that are not batches: the commits for its creation, for its settings and for
        # the fence of each run.
        while self.log.version() < batches:
            self.send()
            sleep(_PAUSE_SECONDS)
        wait_until(lambda: self.view.rows() >= self.sent, "the view shows what was sent")

    def age(self) -> float:
        """The median age of single records at the moment when the view shows them, in milliseconds."""
        found = []
        for _ in range(_IN_A_RUN):
            started = perf_counter()
            self.send()
            wait_until(lambda: self.view.rows() >= self.sent, "a record is shown", every=0.001)
            found.append((perf_counter() - started) * 1e3)
        return median(found)


@contextmanager
def _open_batches() -> Iterator[Pair]:
    with flights_broker() as (bootstrap, folder):
        place = folder / "warehouse"
        with child("bench.cases.growth", bootstrap, str(place)) as process:
            assert process.read_line() == "ready"
            old = _Kept.made(process, bootstrap, place, "old")
            old.bring_to(BATCHES)
            # Both measurements are in the same process, so that the JVM is equally warm for both.
            young = _Kept.made(process, bootstrap, place, "young")
            young.bring_to(_FIRST_BATCHES)
            yield Pair(
                ours=lambda: {_BATCH: old.age(), _SINGLE: young.age()},
                peer=lambda: {_BATCH: young.age()},
                settings={
                    "both": f"{BOTH}; in one process; a source and a view of its rows; {_IN_A_RUN} single records, "
                    "each until a view shows it",
                    "ours": f"after {BATCHES:,} batches of the source, each of a few records",
                    "peer, single record": f"after {_FIRST_BATCHES}",
                },
            )


def _sources(name: str, title: str, goal: float) -> Case:
    return Case(name=name, title=title, peer=f"one of {FEW} sources", unit="ms", goal=goal, open=_open_sources, runs=15)


CASES = (
    *(_sources(f"attach_{size}", f"attach to a warehouse of {size:,} sources", 20.0) for size in SIZES[1:]),
    *(
        _sources(f"create_source_{size}", f"CREATE SOURCE in a warehouse of {size:,} sources", 1.5)
        for size in SIZES[1:]
    ),
    Case(
        name=_BATCH,
        title=f"a batch after {BATCHES:,} batches, from producing a record until a view shows it",
        peer=f"after {_FIRST_BATCHES}",
        unit="ms",
        goal=1.2,
        open=_open_batches,
    ),
    Case(
        name=_SINGLE,
        title="a single record, from producing it until a view shows it",
        peer="",
        unit="ms",
        goal=80.0,
        open=_open_batches,
    ),
)


if __name__ == "__main__":
    _keep(*sys.argv[1:])
