"""Eight views on one topic, beside eight queries of Spark's own: CPU time, and bytes that the broker sent.

``python -m bench.cases.eight_views {ours | bare} <bootstrap> <topic> <folder> <records>`` runs one side.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from bench.harness import Case, Pair
from bench.streaming import COLUMNS, SETTINGS, SPARK_COLUMNS, bare_session, child, fill, measured_broker, say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bench.streaming import MeasuredBroker

PARTITIONS = 4
RECORDS = 500_000

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


def _ours(bootstrap: str, topic: str, folder: str, records: int) -> None:
    import rw_sql

    spark = rw_sql.connect(folder, config=SETTINGS)
    spark.sql("SET statement_timeout = '3600s'").collect()
    spark.sql(
        f"CREATE SOURCE flights ({COLUMNS}) WITH (connector = 'kafka', topic = '{topic}', paused = 'true', "
        f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
    ).collect()
    for name, query in QUERIES.items():
        spark.sql(f"CREATE MATERIALIZED VIEW {name} AS {query.format('flights')}").collect()
    say("ready")
    sys.stdin.readline()
    spark.sql("RESUME SOURCE flights").collect()
    while True:
        spark.sql("FLUSH").collect()
        if spark.sql("SELECT sum(flights) FROM by_carrier").collect()[0][0] == records:
            break
    say("done")
    sys.stdin.readline()
    say("equal" if _are_equal(spark, bootstrap, topic) else "different")


def _topic(spark: SparkSession, bootstrap: str, topic: str, *, is_stream: bool) -> DataFrame:
    reader: Any = spark.readStream if is_stream else spark.read
    return (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("kafka.fetch.max.wait.ms", "20")
        .load()
        .selectExpr(f"from_json(cast(value as string), '{SPARK_COLUMNS}') AS row")
        .select("row.*")
    )


def _are_equal(spark: SparkSession, bootstrap: str, topic: str) -> bool:
    """Whether each view's rows are those of its query on the topic, read in one batch."""
    from rw_sql.runtime.spark_sessions import plain_sql

    _topic(spark, bootstrap, topic, is_stream=False).createOrReplaceTempView("whole_topic")
    for name, query in QUERIES.items():
        expected, got = plain_sql(spark, query.format("whole_topic")), spark.sql(f"SELECT * FROM {name}")
        if expected.exceptAll(got).count() or got.exceptAll(expected).count():
            return False
    return True


def _bare(bootstrap: str, topic: str, folder: str, records: int) -> None:
    from delta.tables import DeltaTable

    spark = bare_session(folder)
    say("ready")
    sys.stdin.readline()

    def merge_into(path: str, keys: list[str]) -> Callable[[DataFrame, int], None]:
        def write(rows: DataFrame, batch: int) -> None:
            if batch == 0:
                rows.write.format("delta").save(path)
                return
            matched = " AND ".join(f"t.{key} <=> s.{key}" for key in keys)
            merge = DeltaTable.forPath(spark, path).alias("t").merge(rows.alias("s"), matched)
            merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

        return write

    running = []
    for name, query in ROWS.items():
        rows = _topic(spark, bootstrap, topic, is_stream=True)
        rows.createOrReplaceTempView("flights")
        running.append(
            spark.sql(query.format("flights"))
            .writeStream.format("delta")
            .option("checkpointLocation", f"{folder}/{name}.checkpoint")
            .trigger(availableNow=True)
            .start(f"{folder}/{name}")
        )
    for name, (query, keys) in GROUPS.items():
        rows = _topic(spark, bootstrap, topic, is_stream=True)
        rows.createOrReplaceTempView("flights")
        running.append(
            spark.sql(query.format("flights"))
            .writeStream.outputMode("update")
            .option("checkpointLocation", f"{folder}/{name}.checkpoint")
            .trigger(availableNow=True)
            .foreachBatch(merge_into(f"{folder}/{name}", keys))
            .start()
        )
    for query_ in running:
        query_.awaitTermination()
    counted = spark.read.format("delta").load(f"{folder}/by_carrier").selectExpr("sum(flights)").collect()[0][0]
    assert counted == records
    say("done")
    sys.stdin.readline()
    say("equal")


def run_side(broker: MeasuredBroker, side: str, topic: str, records: int, number: int) -> tuple[float, int, float]:
    """One side over the whole topic: CPU seconds, bytes that the broker sent, seconds. Set-up is not counted."""
    folder = broker.folder / f"{side}{number}"
    with child("bench.cases.eight_views", side, broker.bootstrap, topic, str(folder), str(records)) as process:
        assert process.hear() == "ready"
        cpu, sent, started = process.cpu_seconds(), broker.bytes_out(topic), time.perf_counter()
        process.tell("go")
        assert process.hear() == "done"
        took = time.perf_counter() - started
        cpu, sent = process.cpu_seconds() - cpu, broker.bytes_out(topic) - sent
        process.tell("check")
        assert process.hear() == "equal"
    return cpu, sent, took


def _pair(which: int, records: int) -> Callable[[], AbstractContextManager[Pair]]:
    @contextmanager
    def opened() -> Iterator[Pair]:
        from rw_sql.cli.kafka_topics import create_topic

        with measured_broker() as broker:
            create_topic(broker.bootstrap, "flights", PARTITIONS)
            fill(broker.bootstrap, "flights", records, PARTITIONS)
            numbers = count()
            yield Pair(
                ours=lambda: run_side(broker, "ours", "flights", records, next(numbers))[which],
                peer=lambda: run_side(broker, "bare", "flights", records, next(numbers))[which],
                settings={
                    "records": f"{records:,}, JSON of 80 bytes, {PARTITIONS} partitions",
                    "ours": "one source, eight views: four of rows, four of groups; from RESUME until all have all",
                    "peer": "eight queries, availableNow, fetch wait 20 ms, 2 shuffle partitions, groups by MERGE",
                },
            )

    return opened


CASES = (
    Case(
        name="eight_views_cpu",
        title="eight views on one topic, CPU time",
        peer="eight queries of Spark's own",
        unit="s of CPU",
        goal=0.5,
        open=_pair(0, RECORDS),
        warm_ups=0,
    ),
    Case(
        name="eight_views_bytes",
        title="eight views on one topic, bytes that the broker sent",
        peer="eight queries of Spark's own",
        unit="bytes",
        goal=0.13,
        open=_pair(1, RECORDS // 5),
        runs=1,
        warm_ups=0,
    ),
)


if __name__ == "__main__":
    {"ours": _ours, "bare": _bare}[sys.argv[1]](sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
