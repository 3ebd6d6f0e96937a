"""What grows: a batch after thousands of batches, attaching to thousands of sources, a statement among them.

``python -m bench.cases.growth <bootstrap> <topic> <folder>`` keeps an aggregate of a topic until it is ended.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.cases.metastore import metastore_of
from bench.cases.statements import create_source
from bench.harness import Case, Pair
from bench.streaming import BOTH, COLUMNS, SETTINGS, Watched, child, flight, flights_broker, say, wait_until

FEW, MANY = 10, 10_000
SIZES = (FEW, 1_000, MANY)
BATCHES = 2_000
_FIRST_BATCHES = 10
_IN_A_RUN = 8


@contextmanager
def _open_sources() -> Iterator[Pair]:
    """Attaching to warehouses of so many sources, and making one more in each."""
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
                settings={"ours": "a warehouse of so many sources, no job runs", "peer": f"one of {FEW} sources"},
            )
        finally:
            spark.stop()


def _keep(bootstrap: str, topic: str, folder: str) -> None:
    import rw_sql

    spark = rw_sql.connect(folder, config=SETTINGS)
    spark.sql(
        f"CREATE SOURCE flights ({COLUMNS}) WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
    ).collect()
    spark.sql(
        "CREATE MATERIALIZED VIEW seen AS SELECT carrier, count(*) AS flights FROM flights GROUP BY carrier"
    ).collect()
    say("ready")
    sys.stdin.read()


@contextmanager
def _kept(bootstrap: str, folder: Path, batches: int) -> Iterator[tuple[Callable[[], float], Callable[[], int]]]:
    """A source and a view that have had so many batches: a call sends single records, each when the last is shown.

    It gives the median age at which one was shown. The other call tells how many batches the source has had.
    """
    from confluent_kafka import Producer

    from rw_sql.cli.kafka_topics import create_topic

    topic = f"growth-{batches}"
    create_topic(bootstrap, topic, 1)
    place = folder / topic
    log, view = Watched(f"{place}/data/1/1"), Watched(f"{place}/data/2/1")
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    sent = 0

    def send() -> None:
        nonlocal sent
        producer.produce(topic, flight(sent), partition=0)
        producer.poll(0)
        sent += 1

    def had() -> int:
        # A log's table has a few commits that are no batches: its making, its settings, a fence a run.
        return log.version()

    def ages() -> float:
        found = []
        for _ in range(_IN_A_RUN):
            started = perf_counter()
            send()
            wait_until(lambda: view.sum_of("flights") >= sent, "a record is shown", every=0.001)
            found.append((perf_counter() - started) * 1e3)
        return median(found)

    with child("bench.cases.growth", bootstrap, topic, str(place)) as process:
        assert process.hear() == "ready"
        while had() < batches:
            send()
            wait_until(lambda: log.rows() >= sent, "a record is in the log", every=0.001)
        wait_until(lambda: view.sum_of("flights") >= sent, "the view shows what was sent")
        yield ages, had


@contextmanager
def _open_batches() -> Iterator[Pair]:
    with (
        flights_broker() as (bootstrap, folder),
        _kept(bootstrap, folder, BATCHES) as (old, had),
        _kept(bootstrap, folder, _FIRST_BATCHES) as (young, _),
    ):
        assert had() >= BATCHES
        yield Pair(
            ours=old,
            peer=young,
            settings={
                "both": f"{BOTH}; a source and a view of groups; {_IN_A_RUN} single records, each until it is shown",
                "ours": f"after {BATCHES:,} batches of the source, each of one record",
                "peer": f"after {_FIRST_BATCHES}",
            },
        )


def _sources(name: str, title: str, goal: float) -> Case:
    return Case(name=name, title=title, peer=f"one of {FEW} sources", unit="ms", goal=goal, open=_open_sources)


CASES = (
    *(_sources(f"attach_{size}", f"attach to a warehouse of {size:,} sources", 20.0) for size in SIZES[1:]),
    *(
        _sources(f"create_source_{size}", f"CREATE SOURCE in a warehouse of {size:,} sources", 1.5)
        for size in SIZES[1:]
    ),
    Case(
        name="batch_2000",
        title=f"a batch after {BATCHES:,} batches, record produced until shown",
        peer=f"after {_FIRST_BATCHES}",
        unit="ms",
        goal=1.2,
        open=_open_batches,
    ),
)


if __name__ == "__main__":
    _keep(*sys.argv[1:])
