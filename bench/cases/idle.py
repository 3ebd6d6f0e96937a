"""The cost of sources that are paused or have nothing to read, compared with the same number of idle queries: CPU time
per minute, and memory.

``python -m bench.cases.idle {idle | paused | bare} <bootstrap> <folder>`` is the process of one side. The process runs
the sources or queries until it is ended, and prints the memory per source or query in bytes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from bench.harness import Case, Pair
from bench.streaming import (
    BOTH,
    COLUMNS,
    SETTINGS,
    Child,
    bare_flights,
    bare_session,
    child,
    flights_broker,
    heap_bytes,
    own_bytes,
    write_to_parent,
)
from rw_sql.model.parameters import IDLE_SECONDS

COUNT = 20
_SECONDS = 6.0
_IDLE_SECONDS = IDLE_SECONDS + 15
"""The time in seconds after which the views of the paused sources rest."""

_SETTLE_SECONDS = 10.0
"""The time in seconds after which the last side has finished compiling and collecting garbage after its start."""

IDLE, PAUSED, MEMORY = "idle_20", "paused_20", "idle_memory"


def _ours(bootstrap: str, folder: str, *, is_paused: bool) -> None:
    import rw_sql

    spark = rw_sql.connect(folder, config=SETTINGS)
    spark.sql("SET statement_timeout = '3600s'").collect()
    before = heap_bytes(spark) + own_bytes()
    # All sources are paused while they are created, and start together. Otherwise, running sources would delay the
    # creation of the next sources.
    spark.sql("PAUSE ALL SOURCES").collect()
    spark.sql("SET background_ddl = true").collect()
    for number in range(COUNT):
        spark.sql(
            f"CREATE SOURCE s{number} ({COLUMNS}) WITH (connector = 'kafka', topic = 'flights', "
            f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
        ).collect()
        spark.sql(f"CREATE MATERIALIZED VIEW v{number} AS SELECT flight, delay FROM s{number}").collect()
    spark.sql("RESUME ALL SOURCES").collect()
    spark.sql("FLUSH").collect()
    if is_paused:
        spark.sql("PAUSE ALL SOURCES").collect()
    write_to_parent(str((heap_bytes(spark) + own_bytes() - before) / COUNT))
    sys.stdin.read()


def _bare(bootstrap: str, folder: str) -> None:
    spark = bare_session(folder)
    before = heap_bytes(spark) + own_bytes()
    for number in range(COUNT):
        (
            bare_flights(spark, bootstrap, "flights")
            .select("flight", "delay")
            .writeStream.format("delta")
            .option("checkpointLocation", f"{folder}/checkpoint{number}")
            .start(f"{folder}/table{number}")
        )
    for query in spark.streams.active:
        query.processAllAvailable()
    write_to_parent(str((heap_bytes(spark) + own_bytes() - before) / COUNT))
    sys.stdin.read()


def _per_minute(processes: Sequence[Child]) -> list[float]:
    """The CPU time of each process per minute, measured during the same seconds."""
    before, started = [process.cpu_seconds() for process in processes], time.perf_counter()
    time.sleep(_SECONDS)
    taken = [process.cpu_seconds() for process in processes]
    minutes = (time.perf_counter() - started) / 60
    return [(after - at) / minutes for at, after in zip(before, taken, strict=True)]


@contextmanager
def _open() -> Iterator[Pair]:
    with flights_broker(1_000) as (bootstrap, folder), ExitStack() as open_:
        sides: dict[str, Child] = {}
        held: dict[str, float] = {}
        made: dict[str, float] = {}
        # The sides start one after the other, because they would slow each other down. The paused sources start first,
        # because their views must rest before the measurement. The bare queries start last, because their compilers
        # finish soonest.
        for side in ("paused", "idle", "bare"):
            sides[side] = open_.enter_context(child("bench.cases.idle", side, bootstrap, str(folder / side)))
            held[side] = float(sides[side].read_line()) / 1e6
            made[side] = time.monotonic()
        rests_at = max(made["paused"] + _IDLE_SECONDS, made["bare"] + _SETTLE_SECONDS)
        time.sleep(max(rests_at - time.monotonic(), 0.0))

        beside = 0.0

        def ours() -> Mapping[str, float]:
            """Measures the CPU time of all three sides during the same seconds."""
            nonlocal beside
            idle, paused, beside = _per_minute([sides["idle"], sides["paused"], sides["bare"]])
            return {IDLE: idle, PAUSED: paused, MEMORY: held["idle"]}

        yield Pair(
            ours=ours,
            peer=lambda: {IDLE: beside, PAUSED: beside, MEMORY: held["bare"]},
            settings={
                "both": f"{BOTH}; no trigger interval, so that a new record is read at once; 1,000 records, all read; "
                "measured in the same seconds",
                "ours": f"{COUNT} sources with a view each, running, and in another process paused",
                "peer": f"{COUNT} queries from Kafka, from_json, into Delta",
                "memory": "what the sources add to the Python process and to the JVM's heap after a garbage collection",
            },
        )


def _case(name: str, title: str, unit: str, goal: float | None) -> Case:
    peer = f"{COUNT} idle queries"
    return Case(name=name, title=f"{COUNT} {title}", peer=peer, unit=unit, goal=goal, open=_open, warm_ups=0)


CASES = (
    _case(IDLE, "sources with nothing to read, CPU time per minute", "s", 1.0),
    _case(PAUSED, "paused sources, CPU time per minute", "s", 0.1),
    _case(MEMORY, "running sources that do not rest yet, memory of one with its view", "MB", None),
)


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        _bare(*sys.argv[2:])
    else:
        _ours(*sys.argv[2:], is_paused=sys.argv[1] == "paused")
