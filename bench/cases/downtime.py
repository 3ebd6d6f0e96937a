"""Moving a running source, from the first statement to the first row of the new topic, compared with the alternatives.

``python -m bench.cases.downtime ours <bootstrap> <folder> <records>`` and ``… restart <bootstrap> <folder>`` run a
side. At each input line, the side moves its reader from one topic to the other. The side ``ours`` can also drop the
source and its view, and create them again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from subprocess import Popen
from typing import Any

from bench.flink import CONNECTOR, FLINK, Flink, flink_cluster, installed_flink
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
    go_on_group,
    halt_group,
    program,
    wait_until,
    write_to_parent,
)

TOPICS, BARE_TOPICS = ("flights", "flights2"), ("bare1", "bare2")
"""The topics of each side. The sides have separate topics, because each side writes a record for each of its moves, and
the other side must not read this record."""

HISTORY = 1_000_000
_FEW = 1_000
_REST_SECONDS = 0.5
_WARM_UPS = 4
_IN_A_RUN = 3
"""The number of moves in a run. The result of the run is the median of its moves. Single moves vary, because a move of
Flink waits for the next checkpoint."""

_OURS, _RESTART, _AGAIN = "ours", "downtime_restart", "downtime_again"
_FLINK, _FLINK_REPEATS = "downtime_flink", "downtime_flink_at_least_once"
_ONCE, _AT_LEAST_ONCE = "exactly-once", "at-least-once"
_GUARANTEES = {_FLINK: _ONCE, _FLINK_REPEATS: _AT_LEAST_ONCE}
_CHECKPOINTS = {_ONCE: "1 s", _AT_LEAST_ONCE: "10 s"}
"""The interval of Flink's checkpoints. With exactly-once delivery, a row becomes visible at the next checkpoint."""


def _wait(table: Watched, rows: int) -> None:
    wait_until(lambda: table.rows() >= rows, f"{table.path} has {rows} rows", every=0.002)


def _one_more(bootstrap: str, topic: str) -> int:
    """Writes one more record to a topic; returns its offset."""
    fill(bootstrap, topic, 1, 1)
    return _end(bootstrap, topic) - 1


def _end(bootstrap: str, topic: str) -> int:
    """The number of records in a topic."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
    finally:
        consumer.close()


def _create(spark: Any, bootstrap: str, topic: str) -> str:
    """Creates the source and its view; returns the folder of the view's table."""
    spark.sql(
        f"CREATE SOURCE flights ({COLUMNS}) WITH (connector = 'kafka', topic = '{topic}', "
        f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
    ).collect()
    spark.sql("CREATE MATERIALIZED VIEW v AS SELECT flight, delay FROM flights").collect()
    id_ = spark.sql("SELECT id FROM rw_catalog.rw_materialized_views WHERE name = 'v'").collect()[0][0]
    return str(id_)


def _ours(bootstrap: str, folder: str, records: int) -> None:
    """Creates a source and its view. Each input line then moves the source, or drops the source and the view and
    creates them again.

    A move is PAUSE, UNSAFE SET, RESET, INJECT, RESUME. Before each move, the target topic gets one more record.
    """
    import rw_sql

    spark = rw_sql.connect(folder, config=SETTINGS)
    for text in ("ALTER SYSTEM SET enable_unsafe_ops = true", "SET statement_timeout = '3600s'"):
        spark.sql(text).collect()
    table = Watched(f"{folder}/data/{_create(spark, bootstrap, TOPICS[0])}/1")
    _wait(table, records)
    write_to_parent("ready")
    at = 0
    for line in sys.stdin:
        if line.strip() == _AGAIN:
            at, records = 0, _end(bootstrap, TOPICS[0])
            started = time.perf_counter()
            spark.sql("DROP SOURCE flights CASCADE").collect()
            table = Watched(f"{folder}/data/{_create(spark, bootstrap, TOPICS[0])}/1")
            _wait(table, records)
            write_to_parent(str(time.perf_counter() - started))
            continue
        at = 1 - at
        offset = _one_more(bootstrap, TOPICS[at])
        before = table.rows()
        started = time.perf_counter()
        _move(spark, TOPICS[at], offset)
        _wait(table, before + 1)
        write_to_parent(str(time.perf_counter() - started))


def _move(spark: Any, topic: str, offset: int) -> None:
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


def _restart(bootstrap: str, folder: str) -> None:
    """At each input line, stops a bare query and starts another one at the last record of the other topic. The queries
    have the settings that a careful user would choose."""
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

    query = start(BARE_TOPICS[0], 0, 0)
    _wait(table, _FEW)
    write_to_parent("ready")
    for number, _ in enumerate(sys.stdin, start=1):
        topic = BARE_TOPICS[number % 2]
        offset = _one_more(bootstrap, topic)
        before = table.rows()
        started = time.perf_counter()
        query.stop()
        query = start(topic, number, offset)
        _wait(table, before + 1)
        write_to_parent(str(time.perf_counter() - started))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One of the sides that are measured alternately. ``move`` makes one move and returns its duration in seconds;
    ``processes`` are suspended while another side moves."""

    move: Callable[[], float]
    processes: tuple[Popen[Any], ...]


def _side_of(process: Child, what: str = "move") -> _Side:
    """A side that is one of this module's processes. ``what`` is the input line for a move."""

    def move() -> float:
        process.write_line(what)
        return float(process.read_line())

    return _Side(move=move, processes=(process.process,))


def _measured(sides: Mapping[str, _Side], name: str) -> float:
    """Measures the move of a side while the other sides are suspended, so that the measured side has the machine for
    itself.

    Before the move, all sides run for a moment. No side is therefore suspended for longer than one move takes, and no
    lease, heartbeat or transaction expires. During the long move (drop and create again), only the bare query is
    suspended, because it has no leases, heartbeats or transactions.
    """
    # After its last move or suspension, a side may still be compacting, writing checkpoints or compiling.
    time.sleep(_REST_SECONDS)
    halted = [
        process
        for other, side in sides.items()
        if other != name and (name != _AGAIN or other == _RESTART)
        for process in side.processes
        if process not in sides[name].processes
    ]
    for process in halted:
        halt_group(process)
    try:
        return sides[name].move()
    finally:
        for process in halted:
            go_on_group(process)


@contextmanager
def _flink_side(flink: Flink, bootstrap: str, folder: Path, guarantee: str) -> Iterator[_Side]:
    """A side with a running Flink cluster and a job that reads its own two topics. A move ends when the job's row is in
    the topic to which it writes.

    Raises NotRunError if the job writes nothing.
    """
    from confluent_kafka import Consumer, TopicPartition

    from rw_sql.cli.servers.kafka_topics import create_topic

    topics, into = (f"{guarantee}-1", f"{guarantee}-2"), f"{guarantee}-into"
    for topic in (*topics, into):
        create_topic(bootstrap, topic, 1)
    for topic in topics:
        fill(bootstrap, topic, _FEW, 1)
    place = folder / f"flink-{guarantee}"
    place.mkdir()
    script = str(Path(__file__).parents[1] / "flink_moves.py")
    with ExitStack() as opened:
        cluster = opened.enter_context(flink_cluster(flink, place))
        arguments = (str(cluster.port), str(flink.connector), bootstrap, str(place), topics[0], into)
        job = opened.enter_context(program(str(flink.python), script, *arguments, guarantee, _CHECKPOINTS[guarantee]))
        assert job.read_line() == "ready"
        rows = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench",
                "fetch.wait.max.ms": 20,
                "isolation.level": "read_committed" if guarantee == _ONCE else "read_uncommitted",
            }
        )
        opened.callback(rows.close)
        rows.assign([TopicPartition(into, 0, 0)])
        _take(rows, _FEW, job)
        moves = 0

        def move() -> float:
            nonlocal moves
            moves += 1
            topic = topics[moves % 2]
            offset = _one_more(bootstrap, topic)
            started = time.perf_counter()
            job.write_line(f"{topic} {offset}")
            _take(rows, 1, job)
            took = time.perf_counter() - started
            assert job.read_line() == "moved"
            return took

        yield _Side(move=move, processes=(job.process, *cluster.processes))


def _flink_sides(opened: ExitStack, bootstrap: str, folder: Path, not_run: dict[str, str]) -> dict[str, _Side]:
    """Starts the Flink sides at the same time, and returns them by the names of their cases. If a side cannot be
    started, its reason is added to ``not_run``."""
    flinks: dict[str, _Side] = {}
    try:
        flink = installed_flink()
    except NotRunError as error:
        not_run.update(dict.fromkeys(_GUARANTEES, str(error)))
        return flinks
    with ThreadPoolExecutor() as pool:
        made = {
            name: pool.submit(opened.enter_context, _flink_side(flink, bootstrap, folder, guarantee))
            for name, guarantee in _GUARANTEES.items()
        }
    for name, side in made.items():
        try:
            flinks[name] = side.result()
        except NotRunError as error:
            not_run[name] = str(error)
    return flinks


def _take(rows: Any, count: int, job: Child) -> None:
    """Consumes ``count`` further records of a Flink job. Raises NotRunError if these records do not arrive."""
    deadline = time.perf_counter() + 120
    while count > 0:
        if time.perf_counter() > deadline or job.process.poll() is not None:
            raise NotRunError(f"{count} rows of Flink did not arrive: {job.last_words()}")
        found = rows.poll(0.05)
        if found is not None and found.error() is None:
            count -= 1


@contextmanager
def _open() -> Iterator[Pair]:
    """Compares a move of rw_sql with each of the alternatives."""
    from rw_sql.cli.servers.kafka_topics import create_topic

    with ExitStack() as opened:
        bootstrap, folder = opened.enter_context(flights_broker(HISTORY, 1))
        for topic in (TOPICS[1], *BARE_TOPICS):
            create_topic(bootstrap, topic, 1)
            fill(bootstrap, topic, _FEW, 1)
        module = "bench.cases.downtime"
        process = opened.enter_context(child(module, "ours", bootstrap, str(folder / "ours"), str(HISTORY)))
        bare = opened.enter_context(child(module, "restart", bootstrap, str(folder / "restart")))
        not_run: dict[str, str] = {}
        flinks = _flink_sides(opened, bootstrap, folder, not_run)
        # Both processes have read the history while Flink's jobs were created.
        assert (process.read_line(), bare.read_line()) == ("ready", "ready")
        sides = {
            _OURS: _side_of(process),
            _RESTART: _side_of(bare),
            _AGAIN: _side_of(process, _AGAIN),
        } | flinks

        def moved(moves: int) -> Mapping[str, float]:
            """Makes ``moves`` moves of each side alternately, except the long move. Returns the median of each side. A
            failure of a Flink side ends only that side."""
            took: dict[str, list[float]] = {name: [] for name in sides if name != _AGAIN}
            for _ in range(moves):
                for name, found in took.items():
                    if name not in sides:
                        continue
                    try:
                        found.append(_measured(sides, name))
                    except NotRunError as error:
                        if name not in flinks:
                            raise
                        not_run[name] = str(error)
                        del sides[name]
            return {name: median(found) for name, found in took.items() if name in sides}

        beside: Mapping[str, float] = {}

        def ours() -> Mapping[str, float]:
            nonlocal beside
            beside = moved(_IN_A_RUN)
            return dict.fromkeys((name for name in sides if name != _OURS), beside[_OURS])

        yield Pair(
            ours=ours,
            peer=lambda: {**beside, _AGAIN: _measured(sides, _AGAIN)},
            # The long move needs no warm-up, because its process has already read the whole history.
            warm_up=lambda: moved(_WARM_UPS),
            not_run=not_run,
            settings={
                "records": f"each side has two topics of one partition with {_FEW:,}; ours starts with {HISTORY:,}",
                "both": f"{BOTH}; no trigger interval; all sides run and pause for {_REST_SECONDS:g} s, and are "
                f"suspended while another is measured (beside the long move only the bare query is); {_WARM_UPS} moves "
                f"beforehand; a run is the median of {_IN_A_RUN} moves, all sides in turn (one of the long move)",
                "ours": "PAUSE, UNSAFE SET topic, RESET, INJECT the last record, RESUME; until the view's Delta "
                "table contains the row exactly once",
                "peer, restart": "stop the query and start one at the other topic's last record; until its row",
                "peer, again": "DROP SOURCE … CASCADE and both CREATEs in the process of the moves, until the "
                "view has its history again",
                "peer, flink": f"{FLINK}, {CONNECTOR.rsplit(':', 1)[1]} connector, a running session cluster of "
                "2 GB, parallelism 1, fetch wait 20 ms: stop with savepoint, ALTER TABLE to the other topic's last "
                "record, INSERT without the savepoint (with it the old topic would be read); until its row is in a "
                "topic",
                "peer, flink exactly once": f"sink.delivery-guarantee = 'exactly-once', a checkpoint each "
                f"{_CHECKPOINTS[_ONCE]}; a consumer of committed records (read_committed) sees the row",
                "peer, flink at least once": "sink.delivery-guarantee = 'at-least-once', a checkpoint each "
                f"{_CHECKPOINTS[_AT_LEAST_ONCE]}; any consumer sees the row, before any checkpoint",
            },
        )


def _case(name: str, peer: str, goal: float) -> Case:
    title = "moving a running source to another topic, until the first new row"
    return Case(name=name, title=title, peer=peer, unit="s", goal=goal, open=_open)


CASES = (
    _case(_RESTART, "stop and start of a bare query", 0.4),
    _case(_AGAIN, "drop and create again", 0.1),
    _case(_FLINK, "Flink SQL, stop with savepoint and start, exactly once, as rw_sql", 0.5),
    _case(_FLINK_REPEATS, "Flink SQL, stop with savepoint and start, at least once", 0.5),
)


if __name__ == "__main__":
    if sys.argv[1] == "ours":
        _ours(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        _restart(*sys.argv[2:])
