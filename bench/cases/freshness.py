"""How old a record is when a view shows it, at 1,000 records a second, beside one query of Spark's own.

``python -m bench.cases.freshness {ours | bare} <bootstrap> <topic> <folder>`` keeps an aggregate of a topic until it is
ended.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from bench.harness import Case, NotRunError, Pair
from bench.streaming import (
    BOTH,
    COLUMNS,
    SETTINGS,
    Watched,
    bare_flights,
    bare_session,
    child,
    fill,
    flight,
    flights_broker,
    merge_into,
    say,
    wait_until,
)

PER_SECOND = 1_000
SECONDS = 6
_STEP = 0.005
_LONGEST = 60.0
_QUERY = "SELECT carrier, count(*) AS flights, sum(delay) AS delay FROM flights GROUP BY carrier"


def _ours(bootstrap: str, topic: str, folder: str) -> None:
    import rw_sql

    spark = rw_sql.connect(folder, config=SETTINGS)
    spark.sql(
        f"CREATE SOURCE flights ({COLUMNS}) WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
    ).collect()
    spark.sql(f"CREATE MATERIALIZED VIEW seen AS {_QUERY}").collect()
    say("ready")
    sys.stdin.read()


def _bare(bootstrap: str, topic: str, folder: str) -> None:
    spark = bare_session(folder)
    bare_flights(spark, bootstrap, topic).createOrReplaceTempView("flights")
    (
        spark.sql(_QUERY)
        .writeStream.outputMode("update")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .foreachBatch(merge_into(spark, f"{folder}/data/2/1", ["carrier"]))
        .start()
    )
    say("ready")
    sys.stdin.read()


@contextmanager
def _reading(side: str, bootstrap: str, folder: str) -> Iterator[Callable[[], list[float]]]:
    """A process that shows a topic of its own; each call produces for SECONDS, and gives every record's age, sorted."""
    from confluent_kafka import Producer

    from rw_sql.cli.kafka_topics import create_topic

    topic = f"flights-{side}"
    create_topic(bootstrap, topic, 2)
    fill(bootstrap, topic, 1_000, 2)
    place = f"{folder}/{side}"
    table = Watched(f"{place}/data/2/1")
    shown = 1_000
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})

    def ages() -> list[float]:
        nonlocal shown
        produced: list[float] = []
        found: list[float] = []
        first, started = shown, time.perf_counter()
        while shown < first + PER_SECOND * SECONDS:
            now = time.perf_counter()
            if now - started > SECONDS + _LONGEST:
                raise NotRunError(f"{side} shows {shown} records, not {first + PER_SECOND * SECONDS}")
            due = min(int((now - started) * PER_SECOND), PER_SECOND * SECONDS)
            for number in range(len(produced), due):
                producer.produce(topic, flight(number), partition=number % 2)
                produced.append(now)
            producer.poll(0)
            seen, now = table.sum_of("flights"), time.perf_counter()
            # Of two partitions either may be ahead by a batch: taken as read in the order produced.
            found.extend(now - produced[number] for number in range(shown - first, seen - first))
            shown = seen
            time.sleep(_STEP)
        return sorted(found)

    with child("bench.cases.freshness", side, bootstrap, topic, place) as process:
        assert process.hear() == "ready"
        wait_until(lambda: table.sum_of("flights") == shown, f"{side} shows nothing", seconds=_LONGEST)
        yield ages


@contextmanager
def _open() -> Iterator[Pair]:
    with (
        flights_broker() as (bootstrap, folder),
        _reading("bare", bootstrap, str(folder)) as bare,
        _reading("ours", bootstrap, str(folder)) as ours,
    ):

        def measured(ages: Callable[[], list[float]]) -> Callable[[], Mapping[str, float]]:
            def figures() -> Mapping[str, float]:
                found = ages()
                return {name: found[int((len(found) - 1) * share)] * 1e3 for name, share in _SHARES.items()}

            return figures

        yield Pair(
            ours=measured(ours),
            peer=measured(bare),
            settings={
                "records": f"{PER_SECOND:,} a second for {SECONDS} s, 2 partitions",
                "both": f"{BOTH}; no trigger interval; the other side runs too, with nothing to read",
                "ours": "a source and a view of groups",
                "peer": "one query, from_json, the same groups by MERGE into Delta",
            },
        )


_SHARES = {"freshness_p50": 0.5, "freshness_p99": 0.99}

CASES = (
    Case(
        name="freshness_p50",
        title="age of a record when a view shows it, median",
        peer="one query with MERGE",
        unit="ms",
        goal=0.5,
        open=_open,
    ),
    Case(
        name="freshness_p99",
        title="age of a record when a view shows it, 99 of 100",
        peer="one query with MERGE",
        unit="ms",
        goal=0.7,
        open=_open,
    ),
)


if __name__ == "__main__":
    {"ours": _ours, "bare": _bare}[sys.argv[1]](*sys.argv[2:])
