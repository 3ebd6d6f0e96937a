"""Records of a topic into Delta: the log of a source beside Spark reading, decoding and writing the same.

``python -m bench.cases.ingest {ours | bare} <bootstrap> <folder> <records>`` reads the topic ``flights`` again at each
line it gets.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.harness import Case, Pair
from bench.streaming import COLUMNS, SETTINGS, SPARK_COLUMNS, Child, bare_session, child, flights_broker, say

RECORDS = 5_000_000
PARTITIONS = 4


def _ours(bootstrap: str, folder: str, records: int) -> None:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    import rw_sql

    spark = rw_sql.connect(folder, config=SETTINGS)
    spark.sql("SET statement_timeout = '3600s'").collect()

    def rows(path: str) -> int:
        try:
            counts = pa.table(DeltaTable(path).get_add_actions(flatten=True)).column("num_records").to_pylist()
        except TableNotFoundError:
            return 0
        return sum(counts)

    say("ready")
    for number, _ in enumerate(sys.stdin):
        spark.sql(
            f"CREATE SOURCE s{number} ({COLUMNS}) WITH (connector = 'kafka', topic = 'flights', paused = 'true', "
            f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
        ).collect()
        # A reader, so that the log is filled; it keeps next to nothing.
        spark.sql(f"CREATE MATERIALIZED VIEW v{number} AS SELECT flight FROM s{number} WHERE flight < 0").collect()
        source = spark.sql(f"SELECT id FROM rw_catalog.rw_sources WHERE name = 's{number}'").collect()[0][0]
        log = f"{folder}/data/{source}/1"
        started = time.perf_counter()
        spark.sql(f"RESUME SOURCE s{number}").collect()
        while rows(log) < records:
            time.sleep(0.02)
        say(str(time.perf_counter() - started))
        spark.sql(f"DROP SOURCE s{number} CASCADE").collect()


def _bare(bootstrap: str, folder: str, records: int) -> None:
    from pyspark.sql.functions import expr

    spark = bare_session(folder)
    say("ready")
    for number, _ in enumerate(sys.stdin):
        started = time.perf_counter()
        (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", "flights")
            .option("startingOffsets", "earliest")
            .option("kafka.fetch.max.wait.ms", "20")
            .load()
            .withColumn("row", expr(f"from_json(cast(value as string), '{SPARK_COLUMNS}')"))
            .select("row.*", "partition", "offset", "timestamp")
            .writeStream.format("delta")
            .option("checkpointLocation", f"{folder}/checkpoint{number}")
            .trigger(availableNow=True)
            .start(f"{folder}/table{number}")
            .awaitTermination()
        )
        took = time.perf_counter() - started
        assert spark.read.format("delta").load(f"{folder}/table{number}").count() == records
        say(str(took))


def _throughput(process: Child) -> Callable[[], float]:
    def records_per_second() -> float:
        process.tell("again")
        return RECORDS / float(process.hear())

    return records_per_second


@contextmanager
def _open() -> Iterator[Pair]:
    with flights_broker(RECORDS, PARTITIONS) as (bootstrap, folder):
        sides = [
            child("bench.cases.ingest", side, bootstrap, str(folder / side), str(RECORDS)) for side in ("ours", "bare")
        ]
        with sides[0] as ours, sides[1] as bare:
            assert (ours.hear(), bare.hear()) == ("ready", "ready")
            yield Pair(
                ours=_throughput(ours),
                peer=_throughput(bare),
                settings={
                    "records": f"{RECORDS:,}, JSON of 80 bytes, {PARTITIONS} partitions",
                    "ours": "RESUME of a source with one view, until its log has all",
                    "peer": "readStream, from_json with partition, offset and timestamp, into Delta, availableNow",
                },
            )


CASES = (
    Case(
        name="ingest_5000000",
        title="5,000,000 JSON records from Kafka into Delta",
        peer="readStream, from_json, Delta",
        unit="records/s",
        goal=0.95,
        is_more_better=True,
        open=_open,
    ),
)


if __name__ == "__main__":
    {"ours": _ours, "bare": _bare}[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
