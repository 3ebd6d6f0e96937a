"""Sources of thousands of splits: the time of an operator's statements, compared with Kafka's own tool."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter

from bench.harness import Case, NotRunError, Pair
from rw_sql.cli.servers.kafka_broker import KAFKA_PACKAGE
from rw_sql.errors import SqlError

SPLITS = 10_000
READ = 50
PARTITIONS = 1_000
KAFKA_TOOLS = f"{KAFKA_PACKAGE},org.apache.kafka:kafka-tools:4.1.0"
_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_SETTINGS = {"spark.master": "local[2]", "spark.ui.enabled": "false"}


_STATEMENTS = {
    "show_splits_10000": ("SHOW SOURCE SPLITS of 10,000 splits", "SHOW SOURCE SPLITS s"),
    "inject_10000": (
        "INJECT into 10,000 splits, counted and committed",
        "INJECT SOURCE OFFSETS s TO OFFSET 10",
        "INJECT SOURCE OFFSETS s TO OFFSET 20",
    ),
    "explain_10000": ("EXPLAIN of an INJECT into 10,000 splits", "EXPLAIN INJECT SOURCE OFFSETS s TO OFFSET 10"),
    "reset_10000": (
        "RESET of 10,000 splits, positions discarded",
        "RESET SOURCE SPLITS s WITH (FORGET_OFFSETS = true)",
    ),
}
"""For each case, its title and its statements."""


@contextmanager
def _session() -> Iterator[tuple[Callable[[str], float], str]]:
    """Yields two values: a function that runs a statement in a session on a new warehouse and returns the time in
    milliseconds until its last row is received, and the warehouse."""
    import rw_sql

    warehouse = mkdtemp(prefix="rw_sql_bench_")
    spark = rw_sql.connect(warehouse, config=_SETTINGS, run_jobs=False)
    rw_sql.attach(spark, warehouse, run_jobs=False).ask = lambda question: True

    def timed(text: str) -> float:
        started = perf_counter()
        spark.sql(text).collect()
        return (perf_counter() - started) * 1e3

    try:
        yield timed, warehouse
    finally:
        rw_sql.detach(spark)
        spark.stop()
        shutil.rmtree(warehouse, ignore_errors=True)


def _read_all(warehouse: str) -> None:
    """Writes the log of a source as if its reader had read every split up to READ."""
    from rw_sql.metastore import Metastore
    from rw_sql.model.definitions import source_definition
    from rw_sql.runtime.decoding.decoder import log_schema
    from rw_sql.runtime.delta.job_output import JobOutput
    from rw_sql.runtime.support.warehouse import Warehouse

    snapshot = Metastore.open(warehouse).snapshot()
    source = snapshot.find("source", "s")
    assert source is not None
    place = Warehouse.at(warehouse)
    splits = [f"{SPLITS}-{number}" for number in range(SPLITS)]
    log = JobOutput.open(
        place,
        place.data(source.id, source.generation),
        log_schema(source_definition(source.definition)).json(),
        job=f"ingest-{source.id}",
        run=1,
        epoch=snapshot.epoch,
        partition_by=("_rw_bucket",),
    )
    log.lives = dict.fromkeys(splits, ("datagen", "seed 0"))
    import pyarrow as pa

    empty = pa.schema(log.table.schema().to_arrow()).empty_table()
    for batch in range(5):
        step = READ // 5
        log.append_rows(empty, batch, dict.fromkeys(splits, (batch * step, batch * step + step)))


@contextmanager
def _open_many() -> Iterator[Pair]:
    """Measures statements on a paused source with SPLITS splits, all of which have been read. The figure of a case is
    the time of its slowest statement."""
    with _session() as (timed, warehouse):
        timed(
            f"CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.split.num = '{SPLITS}', "
            f"datagen.rows.total = '{SPLITS * 100}', paused = 'true')"
        )
        timed("ALTER SYSTEM SET enable_unsafe_ops = true")
        _read_all(warehouse)
        yield Pair(
            ours=lambda: {name: max(timed(text) for text in texts) for name, (_, *texts) in _STATEMENTS.items()},
            settings={"splits": str(SPLITS), "ours": "the statements one after the other, in this order"},
        )


def _kafka_tool_class_path() -> str:
    """The class path of Kafka's command line tools, which is downloaded like the broker's."""
    from rw_sql.cli.servers import kafka_broker

    found = kafka_broker.kafka_class_path(KAFKA_TOOLS)
    if "kafka-tools" not in found:
        raise NotRunError(f"{KAFKA_TOOLS} cannot be downloaded")
    return found


@contextmanager
def _open_consumer_groups() -> Iterator[Pair]:
    """Compares INJECT into a source of a topic with PARTITIONS partitions with kafka-consumer-groups --reset-offsets
    for a group that reads this topic."""
    from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker
    from rw_sql.cli.servers.kafka_topics import create_topic, produce

    try:
        class_path = _kafka_tool_class_path()
    except SqlError as error:
        raise NotRunError(str(error.message)) from error
    folder = Path(mkdtemp(prefix="rw_sql_bench_broker_"))
    broker = start_broker(folder, port=0)
    try:
        create_topic(broker.bootstrap, "wide", PARTITIONS)
        produce(broker.bootstrap, "wide", [b"{}"] * (PARTITIONS * 20))
        command = ["java", "-cp", class_path, _COMMAND, "--bootstrap-server", broker.bootstrap]
        reset = ["--group", "g", "--topic", "wide", "--reset-offsets", "--execute"]
        environment = {**os.environ, "JAVA_TOOL_OPTIONS": ""}

        settings = {
            "partitions": str(PARTITIONS),
            "ours": "a statement in an open session, with its preview, every offset checked",
            "peer": "the command line, minus the start of its JVM (the time of --version)",
        }

        def peer(target: str) -> float:
            started = perf_counter()
            subprocess.run([*command, "--version"], capture_output=True, check=True, env=environment)
            start = perf_counter() - started
            settings["start of its JVM"] = f"{start * 1e3:.0f} ms"
            started = perf_counter()
            told = subprocess.run([*command, *reset, target], capture_output=True, text=True, env=environment)
            if told.returncode != 0 or "Error" in told.stdout:
                raise NotRunError(f"kafka-consumer-groups failed: {(told.stderr or told.stdout)[-300:]}")
            return (perf_counter() - started - start) * 1e3

        with _session() as (timed, _):
            timed(
                "CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = 'wide', paused = 'true', "
                f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON"
            )
            timed("ALTER SYSTEM SET enable_unsafe_ops = true")
            targets = _alternating("LATEST", "EARLIEST")
            kafkas = _alternating("--to-latest", "--to-earliest")
            yield Pair(
                ours=lambda: timed(f"INJECT SOURCE OFFSETS s TO {next(targets)}"),
                peer=lambda: peer(next(kafkas)),
                settings=settings,
            )
    finally:
        stop_broker(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _alternating(one: str, other: str) -> Iterator[str]:
    while True:
        yield one
        yield other


CASES = (
    *(
        Case(name=name, title=title, peer="", unit="ms", goal=1_000, open=_open_many, runs=11)
        for name, (title, *_) in _STATEMENTS.items()
    ),
    Case(
        name="inject_kafka_1000",
        title="INJECT into 1,000 partitions of Kafka",
        peer="kafka-consumer-groups --reset-offsets",
        unit="ms",
        goal=0.5,
        open=_open_consumer_groups,
    ),
)
