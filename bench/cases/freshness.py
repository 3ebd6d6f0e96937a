"""The age of a record when a view shows it, at 1,000 records a second, compared with one plain Spark query.

``python -m bench.cases.freshness {ours | bare} <bootstrap> <topic> <folder>`` is the process of one side, which
maintains an aggregate of a topic until the process is ended.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness import Case, NotRunError, Pair
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
    flight,
    flights_broker,
    merge_into,
    wait_until,
    write_to_parent,
)

if TYPE_CHECKING:
    from confluent_kafka import Producer

PER_SECOND = 1_000
SECONDS = 6.0
_WARM_UP_SECONDS = 3.0
_FIRST = 1_000
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
    write_to_parent("ready")
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
    write_to_parent("ready")
    sys.stdin.read()


@dataclass(slots=True)
class _Side:
    """One side: a process that reads its own topic."""

    name: str
    topic: str
    table: Watched
    producer: Producer
    shown: int = 0

    def shows_its_first(self, records: int) -> None:
        """Waits until the side shows ``records`` records, which exist already. Raises NotRunError if the side does not
        show them in time."""
        wait_until(lambda: self.table.sum_of("flights") == records, f"{self.name} shows nothing", seconds=_LONGEST)
        self.shown = records

    def ages(self, seconds: float) -> list[float]:
        """Produces records for ``seconds`` seconds, and returns the age of every record, sorted."""
        produced: list[float] = []
        found: list[float] = []
        count = int(PER_SECOND * seconds)
        first, started = self.shown, time.perf_counter()
        while self.shown < first + count:
            now = time.perf_counter()
            if now - started > seconds + _LONGEST:
                raise NotRunError(f"{self.name} shows {self.shown} records, not {first + count}")
            for number in range(len(produced), min(int((now - started) * PER_SECOND), count)):
                self.producer.produce(self.topic, flight(number), partition=number % 2)
                produced.append(now)
            self.producer.poll(0)
            seen, now = self.table.sum_of("flights"), time.perf_counter()
            # One partition may be a batch ahead of the other. Therefore, records count as read in the order in which
            # they were produced.
            found.extend(now - produced[number] for number in range(self.shown - first, seen - first))
            self.shown = seen
            time.sleep(_STEP)
        return sorted(found)


@contextmanager
def _open() -> Iterator[Pair]:
    from confluent_kafka import Producer

    from rw_sql.cli.servers.kafka_topics import create_topic

    with flights_broker() as (bootstrap, folder), ExitStack() as opened:
        sides: dict[str, _Side] = {}
        processes: list[Child] = []
        for name in ("bare", "ours"):
            topic, place = f"flights-{name}", str(folder / name)
            create_topic(bootstrap, topic, 2)
            fill(bootstrap, topic, _FIRST, 2)
            processes.append(opened.enter_context(child("bench.cases.freshness", name, bootstrap, topic, place)))
            producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
            sides[name] = _Side(name, topic, Watched(f"{place}/data/2/1"), producer)
        assert [process.read_line() for process in processes] == ["ready", "ready"]
        for side in sides.values():
            side.shows_its_first(_FIRST)

        def measured(name: str) -> Mapping[str, float]:
            found = sides[name].ages(SECONDS)
            return {case: found[int((len(found) - 1) * share)] * 1e3 for case, share in _SHARES.items()}

        yield Pair(
            ours=lambda: measured("ours"),
            peer=lambda: measured("bare"),
            warm_up=lambda: [side.ages(_WARM_UP_SECONDS) for side in sides.values()],
            settings={
                "records": f"{PER_SECOND:,} a second for {SECONDS:g} s, 2 partitions",
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
        goal=0.2,
        open=_open,
    ),
    Case(
        name="freshness_p99",
        title="age of a record when a view shows it, 99th percentile",
        peer="one query with MERGE",
        unit="ms",
        goal=0.25,
        open=_open,
    ),
)


if __name__ == "__main__":
    {"ours": _ours, "bare": _bare}[sys.argv[1]](*sys.argv[2:])
