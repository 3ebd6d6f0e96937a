"""The creation of a view over an existing topic, compared with a Spark job that reads the topic and writes a table."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from time import perf_counter

from bench.harness import Case, Pair
from bench.streaming import COLUMNS, SETTINGS, SPARK_COLUMNS, fill, flights_broker

PARTITIONS = 2
_FEWER_TOPIC, _FEWER = "fewer", 500_000


def _backfill(records: int) -> Callable[[], AbstractContextManager[Pair]]:
    @contextmanager
    def opened() -> Iterator[Pair]:
        import rw_sql
        from rw_sql.cli.servers.kafka_topics import create_topic

        with flights_broker(records, PARTITIONS) as (bootstrap, folder):
            create_topic(bootstrap, _FEWER_TOPIC, PARTITIONS)
            fill(bootstrap, _FEWER_TOPIC, _FEWER, PARTITIONS)
            spark = rw_sql.connect(str(folder / "warehouse"), config=SETTINGS)
            try:
                spark.sql("SET statement_timeout = '3600s'")
                for topic in ("flights", _FEWER_TOPIC):
                    spark.sql(
                        f"CREATE SOURCE {topic} ({COLUMNS}) WITH (connector = 'kafka', "
                        f"topic = '{topic}', properties.bootstrap.server = '{bootstrap}', "
                        "scan.startup.mode = 'latest') FORMAT PLAIN ENCODE JSON"
                    )
                # The source's reader starts and loads its jars before anything is measured.
                spark.sql("CREATE MATERIALIZED VIEW live AS SELECT flight FROM flights").collect()
                numbers = count()

                def ours(source: str = "flights", expected: int = records) -> float:
                    name = f"v{next(numbers)}"
                    started = perf_counter()
                    spark.sql(
                        f"CREATE MATERIALIZED VIEW {name} WITH (scan.startup.mode = 'earliest') "
                        f"AS SELECT * FROM {source}"
                    ).collect()
                    took = perf_counter() - started
                    assert spark.sql(f"SELECT count(*) FROM {name}").collect()[0][0] == expected
                    spark.sql(f"DROP MATERIALIZED VIEW {name}").collect()
                    return took

                def peer(topic: str = "flights", expected: int = records) -> float:
                    path = folder / f"bare{next(numbers)}"
                    started = perf_counter()
                    (
                        spark.read.format("kafka")
                        .option("kafka.bootstrap.servers", bootstrap)
                        .option("subscribe", topic)
                        .option("startingOffsets", "earliest")
                        .option("endingOffsets", "latest")
                        .option("minPartitions", "2")
                        .load()
                        .selectExpr(f"from_json(cast(value as string), '{SPARK_COLUMNS}') AS row")
                        .select("row.*")
                        .write.format("delta")
                        .save(str(path))
                    )
                    took = perf_counter() - started
                    assert spark.read.format("delta").load(str(path)).count() == expected
                    shutil.rmtree(path)
                    return took

                yield Pair(
                    ours=ours,
                    peer=peer,
                    warm_up=lambda: (ours(_FEWER_TOPIC, _FEWER), peer(_FEWER_TOPIC, _FEWER)),
                    settings={
                        "records": f"{records:,}, JSON of 80 bytes, {PARTITIONS} partitions",
                        "both": "one session, local[2], 2 GB, 2 shuffle partitions",
                        "ours": "CREATE MATERIALIZED VIEW … WITH (scan.startup.mode = 'earliest'), until it returns",
                        "peer": "spark.read of the topic, from_json, written to a Delta table in one job",
                    },
                )
            finally:
                rw_sql.detach(spark)
                spark.stop()

    return opened


CASES = (
    Case(
        name="backfill_5000000",
        title="creating a view over 5,000,000 records that are in no log yet",
        peer="spark.read of the topic, written to Delta",
        unit="s",
        goal=0.65,
        open=_backfill(5_000_000),
    ),
)
