"""Moving a running source: from the first statement to the first row of the new topic, beside what one does without.

``python -m bench.cases.downtime {move | restart | again} <bootstrap> <folder> <records>``: each line it gets moves the
reader from the topic it is on to the other one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
_FLINK_TOPICS, _INTO = ("flink1", "flink2"), "into"
_FEW = 1_000
_REST_SECONDS = 2.0
_WARM_UPS = 5
_RESTART, _AGAIN, _FLINK = "downtime_restart", "downtime_again", "downtime_flink"


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

    query = start(TOPICS[0], 0, records - _FEW)
    _wait(table, _FEW)
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


Move = Callable[[], float]
"""A move of one of those who are measured in turn: its seconds."""


def _measured(move: Move) -> float:
    # What whoever came before does when it is through (compaction, a checkpoint, its compilers' work) shall be over.
    time.sleep(_REST_SECONDS)
    return move()


def _move_of(process: Child) -> Move:
    """Moves one of this module's processes."""

    def move() -> float:
        process.tell("go")
        return float(process.hear())

    return move


@contextmanager
def _flink_side(bootstrap: str, folder: Path) -> Iterator[Move]:
    """A cluster with a job of its own topics, whose row is seen in the topic that it writes; ready.

    Raises NotRunError where Flink does not install.
    """
    from confluent_kafka import Consumer, TopicPartition

    from rw_sql.cli.kafka_topics import create_topic

    for topic in (*_FLINK_TOPICS, _INTO):
        create_topic(bootstrap, topic, 1)
    for topic in _FLINK_TOPICS:
        fill(bootstrap, topic, _FEW, 1)
    folder = folder / "flink"
    folder.mkdir()
    with ExitStack() as opened:
        cluster = opened.enter_context(flink_cluster(folder))
        script = str(Path(__file__).parents[1] / "flink_moves.py")
        flink = cluster.flink
        arguments = (str(cluster.port), str(flink.connector), bootstrap, str(folder), _FLINK_TOPICS[0], _INTO)
        job = opened.enter_context(program(str(flink.python), script, *arguments))
        assert job.hear() == "ready"
        rows = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.wait.max.ms": 20})
        opened.callback(rows.close)
        rows.assign([TopicPartition(_INTO, 0, 0)])
        _take(rows, _FEW)
        moves = 0

        def move() -> float:
            nonlocal moves
            moves += 1
            topic = _FLINK_TOPICS[moves % 2]
            offset = _one_more(bootstrap, topic)
            started = time.perf_counter()
            job.tell(f"{topic} {offset}")
            _take(rows, 1)
            took = time.perf_counter() - started
            assert job.hear() == "moved"
            return took

        yield move


def _take(rows: Any, count: int) -> None:
    """Waits for so many records more. Raises NotRunError where they do not come."""
    deadline = time.perf_counter() + 120
    while count > 0:
        if time.perf_counter() > deadline:
            raise NotRunError(f"{count} rows of Flink's did not come")
        found = rows.poll(0.05)
        if found is not None and found.error() is None:
            count -= 1


@contextmanager
def _open() -> Iterator[Pair]:
    """One move of ours, beside what each of the three others does instead."""
    from rw_sql.cli.kafka_topics import create_topic

    with ExitStack() as opened:
        bootstrap, folder = opened.enter_context(flights_broker(HISTORY, 1))
        create_topic(bootstrap, TOPICS[1], 1)
        fill(bootstrap, TOPICS[1], _FEW, 1)
        processes = {
            side: opened.enter_context(child("bench.cases.downtime", side, bootstrap, str(folder / side), str(HISTORY)))
            for side in ("move", "restart", "again")
        }
        # They read the history at the same time.
        for process in processes.values():
            assert process.hear() == "ready"
        ours = _move_of(processes["move"])
        peers = {_RESTART: _move_of(processes["restart"]), _AGAIN: _move_of(processes["again"])}
        not_run = {}
        try:
            peers[_FLINK] = opened.enter_context(_flink_side(bootstrap, folder))
        except NotRunError as error:
            not_run[_FLINK] = str(error)

        def warm_up() -> None:
            for _ in range(_WARM_UPS):
                for name, move in (("", ours), *peers.items()):
                    # This one has read all of the history already, and reads it again each time.
                    if name != _AGAIN:
                        _measured(move)

        def moved() -> Mapping[str, float]:
            return dict.fromkeys(peers, _measured(ours))

        yield Pair(
            ours=moved,
            peer=lambda: {name: _measured(move) for name, move in peers.items()},
            warm_up=warm_up,
            not_run=not_run,
            settings={
                "records": f"{HISTORY:,} in a topic of one partition, {_FEW:,} in the other; Flink's have "
                f"{_FEW:,} each",
                "both": f"{BOTH}; no trigger interval; all are there, and rest before each is measured; "
                f"{_WARM_UPS} moves beforehand",
                "ours": "PAUSE, UNSAFE SET topic, RESET, INJECT the last record, RESUME; to the view's row in its "
                "Delta table",
                "peer, restart": "stop the query and start one at the other topic's last record; to its row",
                "peer, again": "DROP SOURCE … CASCADE and both CREATEs, until the view has its history again",
                "peer, flink": f"{FLINK}, {CONNECTOR.rsplit(':', 1)[1]} connector, a session cluster of 2 GB that runs "
                "already, parallelism 1, checkpoints every 10 s, fetch wait 20 ms: stop with savepoint, ALTER TABLE to "
                "the other topic's last record, INSERT, without the savepoint (with it the old topic would be read "
                "on); to its row in a topic, written at least once, without waiting for a checkpoint",
            },
        )


def _case(name: str, peer: str, goal: float) -> Case:
    title = "a running source moved to another topic, to the first new row"
    return Case(name=name, title=title, peer=peer, unit="s", goal=goal, open=_open)


CASES = (
    _case(_RESTART, "stop and start of a bare query", 0.7),
    _case(_AGAIN, "drop and create again", 0.1),
    _case(_FLINK, "Flink SQL, stop with savepoint and start", 0.5),
)


if __name__ == "__main__":
    {"move": _move, "restart": _restart, "again": _again}[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
