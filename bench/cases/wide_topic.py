"""A topic of 100 partitions, all with new records: the time until a batch of these records is in Delta.

``python -m bench.cases.wide_topic {ours | bare} <bootstrap> <topic> <folder>`` is the process of one side, which reads
the topic until the process is ended.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from bench.harness import Case, NotRunError, Pair
from bench.streaming import Watched
from rw_sql.errors import SqlError

PARTITIONS = 100
_SECONDS = 120.0
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
}


def _read_bare(bootstrap: str, topic: str, folder: str) -> None:
    """Reads with Spark's reader into Delta, with the settings of a careful user: a short fetch wait and small
    snapshots."""
    import rw_sql
    from rw_sql.connectors.registry import connector
    from rw_sql.runtime.spark.sessions import SparkSessions

    spark = rw_sql.connect(f"{folder}/unused", config=_SETTINGS, run_jobs=False)
    rw_sql.detach(spark)
    session = SparkSessions(spark).new(connector("kafka").spark_packages())
    query = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("kafka.fetch.max.wait.ms", "20")
        .load()
        .selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
        .writeStream.format("delta")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start(_table("bare", folder))
    )
    query.awaitTermination()


def _read_ours(bootstrap: str, topic: str, folder: str) -> None:
    import rw_sql

    spark = rw_sql.connect(f"{folder}/warehouse", config=_SETTINGS)
    spark.sql(
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
    ).collect()
    spark.sql("CREATE MATERIALIZED VIEW v AS SELECT 1 AS one, count(*) AS n FROM s GROUP BY 1").collect()
    sys.stdin.read()


def _table(which: str, folder: str) -> str:
    return f"{folder}/table" if which == "bare" else f"{folder}/warehouse/data/1/1"


@contextmanager
def _reading(which: str, bootstrap: str, folder: Path) -> Iterator[Callable[[], float]]:
    """Starts a process that reads its own topic. Each call of the yielded function writes a record to every partition,
    and returns the seconds until all these records are in Delta."""
    from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce

    topic = f"wide-{which}"
    create_topic(bootstrap, topic, PARTITIONS)
    records = [Record(value=b'{"id": 1}', partition=number) for number in range(PARTITIONS)]
    place = folder / which
    place.mkdir()
    command = [sys.executable, "-m", "bench.cases.wide_topic", which, bootstrap, topic, str(place)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    table = Watched(_table(which, str(place)))
    read = 0

    def arrive() -> float:
        nonlocal read
        started = time.perf_counter()
        produce(bootstrap, topic, records)
        read += PARTITIONS
        while table.rows() < read:
            if process.poll() is not None or time.perf_counter() - started > _SECONDS:
                raise NotRunError(f"the reader ({which}) has not read {read} records in {_SECONDS:g} s")
            time.sleep(0.005)
        return time.perf_counter() - started

    try:
        yield arrive
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def _open() -> Iterator[Pair]:
    from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker

    folder = Path(mkdtemp(prefix="rw_sql_bench_wide_"))
    try:
        broker = start_broker(folder / "broker", port=0)
    except SqlError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise NotRunError(str(error.message)) from error
    try:
        with (
            _reading("bare", broker.bootstrap, folder) as bare,
            _reading("ours", broker.bootstrap, folder) as ours,
        ):
            yield Pair(
                ours=ours,
                peer=bare,
                settings={
                    "partitions": f"{PARTITIONS}, one record each",
                    "peer": "Spark's reader with its defaults, into Delta; fetch wait 20 ms, 2 snapshot partitions",
                    "ours": "a source and its log; consumers are kept for the next batch",
                },
            )
    finally:
        stop_broker(folder / "broker")
        shutil.rmtree(folder, ignore_errors=True)


CASES = (
    Case(
        name="wide_topic_100",
        title="one record in each of 100 partitions, from producing it until it is in Delta",
        peer="Spark's Kafka reader into Delta",
        unit="s",
        goal=0.25,
        open=_open,
    ),
)


if __name__ == "__main__":
    {"ours": _read_ours, "bare": _read_bare}[sys.argv[1]](*sys.argv[2:])
