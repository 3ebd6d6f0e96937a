"""Eight views on one topic, compared with eight plain Spark queries: CPU time, and bytes that the broker sent.

``python -m bench.cases.eight_views {ours | bare | batch} <bootstrap> <topic> <folder>`` is the process of one side.
Each input line contains the number of records in the topic; the process then reads to the topic's end (``batch`` reads
the whole topic each time). At an empty line, the process prints the contents of its tables.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.harness import Case, Pair
from bench.streaming import (
    BOTH,
    COLUMNS,
    SETTINGS,
    SPARK_COLUMNS,
    Child,
    bare_flights,
    bare_session,
    child,
    fill,
    fingerprint,
    measured_broker,
    merge_into,
    write_to_parent,
)

if TYPE_CHECKING:
    from bench.streaming import MeasuredBroker

PARTITIONS = 4
RECORDS = 200_000
_FEWER = 100_000
CPU, BYTES, SECONDS = "eight_views_cpu", "eight_views_bytes", "eight_views_seconds"

ROWS = {
    "late": "SELECT flight, carrier, delay FROM {0} WHERE delay > 60",
    "from_jfk": "SELECT flight, dest, day FROM {0} WHERE origin = 'JFK'",
    "early": "SELECT flight, upper(carrier) AS carrier, -delay AS ahead FROM {0} WHERE delay < 0",
    "long_numbers": "SELECT flight, concat(carrier, '-', flight) AS code FROM {0} WHERE flight % 10 = 0",
}
GROUPS = {
    "by_carrier": ("SELECT carrier, count(*) AS flights, sum(delay) AS delay FROM {0} GROUP BY carrier", ["carrier"]),
    "by_origin": ("SELECT origin, max(delay) AS worst FROM {0} GROUP BY origin", ["origin"]),
    "by_day": ("SELECT day, origin, count(*) AS flights FROM {0} GROUP BY day, origin", ["day", "origin"]),
    "by_hour": ("SELECT delay DIV 60 AS hours, count(*) AS flights FROM {0} GROUP BY delay DIV 60", ["hours"]),
}
QUERIES = {**ROWS, **{name: query for name, (query, _) in GROUPS.items()}}


def _ours(bootstrap: str, topic: str, folder: str) -> None:
    import rw_sql

    spark = rw_sql.connect(folder, config=SETTINGS)
    spark.sql("SET statement_timeout = '3600s'").collect()
    spark.sql(
        f"CREATE SOURCE flights ({COLUMNS}) WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
    ).collect()
    for name, query in QUERIES.items():
        spark.sql(f"CREATE MATERIALIZED VIEW {name} AS {query.format('flights')}").collect()
    spark.sql("PAUSE SOURCE flights").collect()
    write_to_parent("ready")
    for line in sys.stdin:
        if not line.strip():
            write_to_parent(" ".join(fingerprint(spark.sql(f"SELECT * FROM {name}")) for name in QUERIES))
            continue
        spark.sql("RESUME SOURCE flights").collect()
        spark.sql("FLUSH").collect()
        assert spark.sql("SELECT sum(flights) FROM by_carrier").collect()[0][0] == int(line)
        write_to_parent("done")
        spark.sql("PAUSE SOURCE flights").collect()
        write_to_parent("at rest")


def _bare(bootstrap: str, topic: str, folder: str) -> None:
    spark = bare_session(folder)
    write_to_parent("ready")
    for line in sys.stdin:
        if not line.strip():
            write_to_parent(
                " ".join(fingerprint(spark.read.format("delta").load(f"{folder}/{name}")) for name in QUERIES)
            )
            continue
        running = []
        for name, query in QUERIES.items():
            bare_flights(spark, bootstrap, topic).createOrReplaceTempView("flights")
            writer = spark.sql(query.format("flights")).writeStream.trigger(availableNow=True)
            writer = writer.option("checkpointLocation", f"{folder}/{name}.checkpoint")
            if name in ROWS:
                running.append(writer.format("delta").start(f"{folder}/{name}"))
            else:
                merge = merge_into(spark, f"{folder}/{name}", GROUPS[name][1])
                running.append(writer.outputMode("update").foreachBatch(merge).start())
        for streaming in running:
            streaming.awaitTermination()
        counted = spark.read.format("delta").load(f"{folder}/by_carrier").selectExpr("sum(flights)").collect()[0][0]
        assert counted == int(line)
        write_to_parent("done")
        write_to_parent("at rest")


def _batch(bootstrap: str, topic: str, folder: str) -> None:
    """At each input line, runs each query in one batch over the records that the topic has at that moment."""
    spark = bare_session(folder)
    write_to_parent("ready")
    for line in sys.stdin:
        if not line.strip():
            write_to_parent(" ".join(fingerprint(spark.sql(query.format("flights"))) for query in QUERIES.values()))
            continue
        records = (
            spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()
        )
        rows = records.selectExpr(f"from_json(cast(value as string), '{SPARK_COLUMNS}') AS row").select("row.*").cache()
        assert rows.count() == int(line)
        rows.createOrReplaceTempView("flights")
        write_to_parent("done")
        write_to_parent("at rest")


def run_side(broker: MeasuredBroker, process: Child, topic: str, records: int) -> Mapping[str, float]:
    """Makes one side read to the end of the topic. Returns the CPU seconds, the bytes that the broker sent, and the
    seconds."""
    cpu, sent, started = process.cpu_seconds(), broker.bytes_out(topic), time.perf_counter()
    process.write_line(str(records))
    assert process.read_line() == "done"
    took = time.perf_counter() - started
    cpu, sent = process.cpu_seconds() - cpu, broker.bytes_out(topic) - sent
    assert process.read_line() == "at rest"
    return {CPU: cpu, BYTES: float(sent), SECONDS: took}


def held_by(process: Child) -> str:
    """The contents of a side's tables, as a text that is equal for equal rows."""
    process.write_line("")
    return process.read_line()


@contextmanager
def _open() -> Iterator[Pair]:
    from rw_sql.cli.servers.kafka_topics import create_topic

    with measured_broker() as broker:
        create_topic(broker.bootstrap, "flights", PARTITIONS)
        fill(broker.bootstrap, "flights", 1_000, PARTITIONS)
        places = {side: str(broker.folder / side) for side in ("ours", "bare")}
        with (
            child("bench.cases.eight_views", "ours", broker.bootstrap, "flights", places["ours"]) as ours,
            child("bench.cases.eight_views", "bare", broker.bootstrap, "flights", places["bare"]) as bare,
        ):
            assert (ours.read_line(), bare.read_line()) == ("ready", "ready")
            records = 1_000

            def measure(process: Child, *, is_first: bool, more: int = RECORDS) -> Callable[[], Mapping[str, float]]:
                def figures() -> Mapping[str, float]:
                    nonlocal records
                    if is_first:
                        fill(broker.bootstrap, "flights", more, PARTITIONS, first=records)
                        records += more
                    return run_side(broker, process, "flights", records)

                return figures

            yield Pair(
                ours=measure(ours, is_first=True),
                peer=measure(bare, is_first=False),
                warm_up=lambda: (measure(ours, is_first=True, more=_FEWER)(), measure(bare, is_first=False)()),
                settings={
                    "records": f"{RECORDS:,} more in each run, JSON of 80 bytes, {PARTITIONS} partitions",
                    "both": f"{BOTH}; the tables are compared at the end",
                    "ours": "one source, eight views: four of rows, four of groups; from RESUME until all have read "
                    "everything",
                    "peer": "eight queries, availableNow on their checkpoints, no limit to a batch, groups by MERGE",
                },
            )
            assert held_by(ours) == held_by(bare), "the two sides do not hold the same rows"


def _case(name: str, what: str, unit: str, goal: float) -> Case:
    return Case(
        name=name, title=f"eight views on one topic, {what}", peer="eight queries", unit=unit, goal=goal, open=_open
    )


CASES = (
    _case(CPU, "CPU time", "s of CPU", 0.2),
    _case(BYTES, "bytes that the broker sent", "bytes", 0.13),
    _case(SECONDS, "time", "s", 1.0),
)


if __name__ == "__main__":
    {"ours": _ours, "bare": _bare, "batch": _batch}[sys.argv[1]](*sys.argv[2:])
