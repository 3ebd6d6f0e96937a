"""A view that is made over a topic that is there already, beside Spark reading that topic and writing it to a table."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter

from bench.harness import Case, Pair

PARTITIONS = 2
_VALUE = b'{"carrier":"UA","flight":%d,"origin":"EWR","dest":"IAH","delay":%d,"day":"2013-01-%02d"}'
_COLUMNS = "carrier STRING, flight BIGINT, origin STRING, dest STRING, delay INT, day STRING"
_SETTINGS = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.driver.memory": "2g"}


def _backfill(records: int) -> Callable[[], AbstractContextManager[Pair]]:
    @contextmanager
    def opened() -> Iterator[Pair]:
        import rw_sql
        from rw_sql.cli.kafka_broker import start_broker, stop_broker
        from rw_sql.cli.kafka_topics import create_topic

        folder = Path(mkdtemp(prefix="rw_sql_bench_"))
        broker = start_broker(folder / "broker", port=0)
        try:
            create_topic(broker.bootstrap, "flights", PARTITIONS)
            _fill(broker.bootstrap, records)
            spark = rw_sql.connect(str(folder / "warehouse"), config=_SETTINGS)
            try:
                spark.sql("SET statement_timeout = '3600s'")
                spark.sql(
                    f"CREATE SOURCE flights ({_COLUMNS.replace('STRING', 'VARCHAR')}) WITH (connector = 'kafka', "
                    f"topic = 'flights', properties.bootstrap.server = '{broker.bootstrap}', "
                    "scan.startup.mode = 'latest') FORMAT PLAIN ENCODE JSON"
                )
                # The reader runs before anything is timed, and its jars are loaded.
                spark.sql("CREATE MATERIALIZED VIEW live AS SELECT flight FROM flights").collect()
                numbers = count()

                def ours() -> float:
                    name = f"v{next(numbers)}"
                    started = perf_counter()
                    spark.sql(
                        f"CREATE MATERIALIZED VIEW {name} WITH (scan.startup.mode = 'earliest') "
                        "AS SELECT * FROM flights"
                    ).collect()
                    took = perf_counter() - started
                    assert spark.sql(f"SELECT count(*) FROM {name}").collect()[0][0] == records
                    spark.sql(f"DROP MATERIALIZED VIEW {name}").collect()
                    return took

                def peer() -> float:
                    path = folder / f"bare{next(numbers)}"
                    started = perf_counter()
                    (
                        spark.read.format("kafka")
                        .option("kafka.bootstrap.servers", broker.bootstrap)
                        .option("subscribe", "flights")
                        .option("startingOffsets", "earliest")
                        .option("endingOffsets", "latest")
                        .option("minPartitions", "2")
                        .load()
                        .selectExpr(f"from_json(cast(value as string), '{_COLUMNS}') AS row")
                        .select("row.*")
                        .write.format("delta")
                        .save(str(path))
                    )
                    took = perf_counter() - started
                    assert spark.read.format("delta").load(str(path)).count() == records
                    shutil.rmtree(path)
                    return took

                yield Pair(
                    ours=ours,
                    peer=peer,
                    settings={
                        "records": f"{records:,}, JSON of 80 bytes, {PARTITIONS} partitions",
                        "ours": "CREATE MATERIALIZED VIEW … WITH (scan.startup.mode = 'earliest'), until it is made",
                        "peer": "spark.read of the topic, from_json, written to a Delta table in one job",
                    },
                )
            finally:
                rw_sql.detach(spark)
                spark.stop()
        finally:
            stop_broker(folder / "broker")
            shutil.rmtree(folder, ignore_errors=True)

    return opened


def _fill(bootstrap: str, records: int) -> None:
    from rw_sql.cli.kafka_topics import Record, produce

    step = 100_000
    for start in range(0, records, step):
        produce(
            bootstrap,
            "flights",
            [
                Record(value=_VALUE % (number, number % 90, number % 28 + 1), partition=number % PARTITIONS)
                for number in range(start, min(start + step, records))
            ],
        )


CASES = (
    Case(
        name="backfill_5000000",
        title="a view over a topic of 5,000,000 records that no log has",
        peer="spark.read of the topic, written to Delta",
        unit="s",
        goal=1.2,
        open=_backfill(5_000_000),
        warm_ups=1,
    ),
)
