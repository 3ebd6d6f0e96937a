"""Moving a running source: from the first statement to the first row of the new topic, beside what one does without.

``python -m bench.cases.downtime {move | restart | again} <bootstrap> <folder> <records>``: each line it gets moves the
reader from the topic it is on to the other one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.flink import CONNECTOR, FLINK, flink_cluster
from bench.harness import Case, NotRunError, Pair
from bench.streaming import (
    BOTH,
    COLUMNS,
    SETTINGS,
    SPARK_COLUMNS,
    Child,
    Watched,
    bare_session,
    child,
    fill,
    flights_broker,
    program,
    say,
    wait_until,
)

TOPICS = ("flights", "flights2")
HISTORY = 2_000_000
_FEW = 1_000
_REST_SECONDS = 2.0
_INTO = "into"


def _wait(table: Watched, rows: int) -> None:
    wait_until(lambda: table.rows() >= rows, f"{table.path} has {rows} rows", every=0.002)


def _one_more(bootstrap: str, topic: str) -> int:
    """Puts one more record into a topic; its offset."""
    from confluent_kafka import Consumer, TopicPartition

    fill(bootstrap, topic, 1, 1)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]) - 1
    finally:
        consumer.close()


def _create(spark: Any, bootstrap: str, topic: str) -> str:
    """The source and its view; gives the folder of the view's table."""
    spark.sql(
        f"CREATE SOURCE flights ({COLUMNS}) WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
    ).collect()
    spark.sql("CREATE MATERIALIZED VIEW v AS SELECT flight, delay FROM flights").collect()
    id_ = spark.sql("SELECT id FROM rw_catalog.rw_materialized_views WHERE name = 'v'").collect()[0][0]
    return str(id_)


def _move(bootstrap: str, folder: str, records: int) -> None:
    """PAUSE, UNSAFE SET, RESET, INJECT, RESUME; the other topic has one record more each time it is come to."""
    import rw_sql

    spark = rw_sql.connect(folder, config=SETTINGS)
    spark.sql("ALTER SYSTEM SET enable_unsafe_ops = true").collect()
    table = Watched(f"{folder}/data/{_create(spark, bootstrap, TOPICS[0])}/1")
    _wait(table, records)
    say("ready")
    for number, _ in enumerate(sys.stdin, start=1):
        topic = TOPICS[number % 2]
        offset = _one_more(bootstrap, topic)
        before = table.rows()
        started = time.perf_counter()
        times = []
        for text in (
            "PAUSE SOURCE flights",
            f"ALTER SOURCE flights UNSAFE SET (topic = '{topic}') ALLOW GAPS, DUPLICATES",
            "RESET SOURCE SPLITS flights ALLOW GAPS, DUPLICATES",
            f"INJECT SOURCE OFFSETS flights VALUES ('{topic}:0' = {offset}) ALLOW GAPS, DUPLICATES",
            "RESUME SOURCE flights",
        ):
            if "ALLOW" in text:
                spark.sql("SET unsafe_confirmation = 'yes'").collect()
            spark.sql(text).collect()
            times.append(time.perf_counter() - started)
        _wait(table, before + 1)
        took = time.perf_counter() - started
        print("after each statement:", *(f"{at:.3f}" for at in times), f"row: {took:.3f}", file=sys.stderr, flush=True)
        say(str(took))


def _restart(bootstrap: str, folder: str, records: int) -> None:
    """Stops a bare query, well set, and starts another at the new topic's last record."""
    spark = bare_session(folder)
    table = Watched(f"{folder}/table")

    def start(topic: str, number: int, offset: int) -> Any:
        return (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("assign", f'{{"{topic}":[0]}}')
            .option("startingOffsets", f'{{"{topic}":{{"0":{offset}}}}}')
            .option("kafka.fetch.max.wait.ms", "20")
            .load()
            .selectExpr(f"from_json(cast(value as string), '{SPARK_COLUMNS}') AS row")
            .select("row.flight", "row.delay")
            .writeStream.format("delta")
            .option("checkpointLocation", f"{folder}/checkpoint{number}")
            .start(table.path)
        )

    query = start(TOPICS[0], 0, 0)
    _wait(table, records)
    say("ready")
    for number, _ in enumerate(sys.stdin, start=1):
        topic = TOPICS[number % 2]
        offset = _one_more(bootstrap, topic)
        before = table.rows()
        started = time.perf_counter()
        query.stop()
        query = start(topic, number, offset)
        _wait(table, before + 1)
        say(str(time.perf_counter() - started))


def _again(bootstrap: str, folder: str, records: int) -> None:
    """Drops source and view and makes them again, with the old topic's history read once more."""
    import rw_sql

    spark = rw_sql.connect(folder, config=SETTINGS)
    spark.sql("SET statement_timeout = '3600s'").collect()
    _wait(Watched(f"{folder}/data/{_create(spark, bootstrap, TOPICS[0])}/1"), records)
    say("ready")
    for _ in sys.stdin:
        started = time.perf_counter()
        spark.sql("DROP SOURCE flights CASCADE").collect()
        _wait(Watched(f"{folder}/data/{_create(spark, bootstrap, TOPICS[0])}/1"), records)
        say(str(time.perf_counter() - started))


def _seconds(process: Child) -> Callable[[], float]:
    def moved() -> float:
        # What the other side did last (compaction, a checkpoint) shall be over.
        time.sleep(_REST_SECONDS)
        process.tell("go")
        return float(process.hear())

    return moved


def _pair(peer: str, records: int) -> Callable[[], AbstractContextManager[Pair]]:
    @contextmanager
    def opened() -> Iterator[Pair]:
        from rw_sql.cli.kafka_topics import create_topic

        with flights_broker(records, 1) as (bootstrap, folder):
            create_topic(bootstrap, TOPICS[1], 1)
            fill(bootstrap, TOPICS[1], _FEW, 1)
            sides = [
                child("bench.cases.downtime", side, bootstrap, str(folder / side), str(records))
                for side in ("move", peer)
            ]
            with sides[0] as ours, sides[1] as theirs:
                assert (ours.hear(), theirs.hear()) == ("ready", "ready")
                yield Pair(
                    ours=_seconds(ours),
                    peer=_seconds(theirs),
                    settings={
                        "records": f"{records:,} in a topic of one partition, {_FEW:,} in the other",
                        "both": f"{BOTH}; no trigger interval",
                        "ours": "PAUSE, UNSAFE SET topic, RESET, INJECT the last record, RESUME; to the view's row",
                        "peer": {
                            "restart": "stop the query and start one at the other topic's last record; to its row",
                            "again": "DROP SOURCE … CASCADE and both CREATEs, until the view has its history again",
                        }[peer],
                    },
                )

    return opened


@contextmanager
def _flink() -> Iterator[Pair]:
    """Both sides see their row in what they write: ours in the view's Delta table, Flink's in a topic."""
    from confluent_kafka import Consumer, TopicPartition

    from rw_sql.cli.kafka_topics import create_topic

    with ExitStack() as opened:
        bootstrap, folder = opened.enter_context(flights_broker(_FEW, 1))
        for topic in (TOPICS[1], _INTO):
            create_topic(bootstrap, topic, 1)
        fill(bootstrap, TOPICS[1], _FEW, 1)
        flink_folder = folder / "flink"
        flink_folder.mkdir()
        cluster = opened.enter_context(flink_cluster(flink_folder))
        ours = opened.enter_context(child("bench.cases.downtime", "move", bootstrap, str(folder / "move"), str(_FEW)))
        script = str(Path(__file__).parents[1] / "flink_moves.py")
        flink = cluster.flink
        arguments = (str(cluster.port), str(flink.connector), bootstrap, str(flink_folder), TOPICS[0], _INTO)
        theirs = opened.enter_context(program(str(flink.python), script, *arguments))
        assert (ours.hear(), theirs.hear()) == ("ready", "ready")
        rows = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.wait.max.ms": 20})
        opened.callback(rows.close)
        rows.assign([TopicPartition(_INTO, 0, 0)])
        _take(rows, _FEW)
        moves = 0

        def moved() -> float:
            nonlocal moves
            moves += 1
            topic = TOPICS[moves % 2]
            offset = _one_more(bootstrap, topic)
            time.sleep(_REST_SECONDS)
            started = time.perf_counter()
            theirs.tell(f"{topic} {offset}")
            _take(rows, 1)
            took = time.perf_counter() - started
            assert theirs.hear() == "moved"
            return took

        yield Pair(
            ours=_seconds(ours),
            peer=moved,
            settings={
                "records": f"{_FEW:,} in each of two topics of one partition",
                "ours": f"{BOTH}; PAUSE, UNSAFE SET topic, RESET, INJECT the last record, RESUME; to the view's row "
                "in its Delta table",
                "peer": f"{FLINK}, {CONNECTOR.rsplit(':', 1)[1]} connector, a session cluster of 2 GB that runs "
                "already, parallelism 1, checkpoints every 10 s, fetch wait 20 ms: stop with savepoint, ALTER TABLE to "
                "the other topic's last record, INSERT, without the savepoint (with it the old topic would be read "
                "on); to its row in a topic, written at least once, without waiting for a checkpoint",
            },
        )


def _take(rows: Any, count: int) -> None:
    """Waits for so many records more. Raises NotRunError where they do not come."""
    deadline = time.perf_counter() + 120
    while count > 0:
        if time.perf_counter() > deadline:
            raise NotRunError(f"{count} rows of Flink's did not come")
        found = rows.poll(0.05)
        if found is not None and found.error() is None:
            count -= 1


CASES = (
    Case(
        name="downtime_restart",
        title="a running source moved to another topic, to the first new row",
        peer="stop and start of a bare query",
        unit="s",
        goal=0.7,
        open=_pair("restart", _FEW),
        warm_ups=2,
    ),
    Case(
        name="downtime_again",
        title="a running source moved to another topic, to the first new row",
        peer="drop and create again",
        unit="s",
        goal=0.1,
        open=_pair("again", HISTORY),
    ),
    Case(
        name="downtime_flink",
        title="a running source moved to another topic, to the first new row",
        peer="Flink SQL, stop with savepoint and start",
        unit="s",
        goal=0.5,
        open=_flink,
        warm_ups=2,
    ),
)


if __name__ == "__main__":
    {"move": _move, "restart": _restart, "again": _again}[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
