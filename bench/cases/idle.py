"""What sources cost that have nothing to read, or must not: CPU time a minute, beside as many idle queries.

``python -m bench.cases.idle {idle | paused | bare} <bootstrap> <folder>`` has them until it is ended.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from bench.harness import Case, Pair
from bench.streaming import COLUMNS, SETTINGS, Child, bare_session, child, flights_broker, say

COUNT = 20
_SECONDS = 20.0


def _ours(bootstrap: str, folder: str, *, is_paused: bool) -> None:
    import rw_sql

    spark = rw_sql.connect(folder, config=SETTINGS)
    for number in range(COUNT):
        spark.sql(
            f"CREATE SOURCE s{number} ({COLUMNS}) WITH (connector = 'kafka', topic = 'flights', "
            f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
        ).collect()
        spark.sql(f"CREATE MATERIALIZED VIEW v{number} AS SELECT flight, delay FROM s{number}").collect()
    spark.sql("FLUSH").collect()
    if is_paused:
        spark.sql("PAUSE ALL SOURCES").collect()
    time.sleep(5)
    say("ready")
    sys.stdin.read()


def _bare(bootstrap: str, folder: str) -> None:
    spark = bare_session(folder)
    for number in range(COUNT):
        (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", "flights")
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("value", "offset")
            .writeStream.format("delta")
            .option("checkpointLocation", f"{folder}/checkpoint{number}")
            .trigger(processingTime="1 second")
            .start(f"{folder}/table{number}")
        )
    for query in spark.streams.active:
        query.processAllAvailable()
    time.sleep(5)
    say("ready")
    sys.stdin.read()


def _per_minute(process: Child) -> Callable[[], float]:
    def used() -> float:
        before, started = process.cpu_seconds(), time.perf_counter()
        time.sleep(_SECONDS)
        return (process.cpu_seconds() - before) * 60 / (time.perf_counter() - started)

    return used


def _pair(side: str) -> Callable[[], AbstractContextManager[Pair]]:
    @contextmanager
    def opened() -> Iterator[Pair]:
        with (
            flights_broker(1_000) as (bootstrap, folder),
            child("bench.cases.idle", side, bootstrap, str(folder / side)) as ours,
            child("bench.cases.idle", "bare", bootstrap, str(folder / "bare")) as bare,
        ):
            assert (ours.hear(), bare.hear()) == ("ready", "ready")
            yield Pair(
                ours=_per_minute(ours),
                peer=_per_minute(bare),
                settings={
                    "ours": f"{COUNT} sources with a view each, " + ("paused" if side == "paused" else "all read"),
                    "peer": f"{COUNT} queries from Kafka into Delta, a trigger a second, all read",
                },
            )

    return opened


CASES = (
    Case(
        name="idle_20",
        title=f"{COUNT} sources that have nothing to read, CPU time a minute",
        peer=f"{COUNT} idle queries",
        unit="s",
        goal=1.0,
        open=_pair("idle"),
        warm_ups=0,
    ),
    Case(
        name="paused_20",
        title=f"{COUNT} paused sources, CPU time a minute",
        peer=f"{COUNT} idle queries",
        unit="s",
        goal=0.1,
        open=_pair("paused"),
        warm_ups=0,
    ),
)


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        _bare(*sys.argv[2:])
    else:
        _ours(*sys.argv[2:], is_paused=sys.argv[1] == "paused")
