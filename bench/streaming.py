"""Code shared by the cases with running streams: a broker that reports the number of bytes sent, and child processes
whose CPU time is measured."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from bench.harness import NotRunError
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TELL_ERRORS = "RW_SQL_BENCH_ERRORS"
"""If this environment variable is set, the output of child processes is printed after they have ended."""

SETTINGS: Mapping[str, str] = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
}
"""The settings of every Spark session in the cases, for both sides."""

BOTH = (
    "local[2], 2 GB, the JVM's own defaults; the peer's queries have the settings of rw_sql's jobs: 2 shuffle and "
    "2 snapshot partitions, polling delay 20 ms; Kafka's fetch wait 20 ms; Spark's default state store"
)
"""The settings that both sides share, as text for the printed settings of a case."""

COLUMNS = "carrier VARCHAR, flight BIGINT, origin VARCHAR, dest VARCHAR, delay INT, day VARCHAR"
SPARK_COLUMNS = COLUMNS.replace("VARCHAR", "STRING")
_VALUE = b'{"carrier":"%s","flight":%d,"origin":"%s","dest":"IAH","delay":%d,"day":"2013-01-%02d"}'
_CARRIERS = (b"UA", b"AA", b"B6", b"DL", b"EV", b"MQ", b"US", b"WN")
_ORIGINS = (b"EWR", b"JFK", b"LGA")
_TICKS = os.sysconf("SC_CLK_TCK")
_MANY = 500_000


def flight(number: int) -> bytes:
    """A flight as JSON; equal numbers give equal flights."""
    return _VALUE % (
        _CARRIERS[number % 8],
        number,
        _ORIGINS[number % 3],
        number * 7 % 180 - 20,
        number % 28 + 1,
    )


@dataclass(slots=True)
class MeasuredBroker:
    """A running broker, and a JVM that reads its metrics over JMX."""

    bootstrap: str
    folder: Path
    _connection: Any
    _gateway: Any

    def bytes_out(self, topic: str) -> int:
        """The bytes of a topic's records that consumers fetched, by the broker's meter ``BytesOutPerSec``."""
        name = f"kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec,topic={topic}"
        asked = self._gateway.jvm.javax.management.ObjectName(name)
        if not self._connection.isRegistered(asked):
            return 0
        return int(self._connection.getAttribute(asked, "Count"))

    def topic_bytes(self, topic: str) -> int:
        """The size of a topic: the sizes of its partitions' logs, by the broker's gauge ``Log Size``."""
        pattern = self._gateway.jvm.javax.management.ObjectName(f"kafka.log:type=Log,name=Size,topic={topic},*")
        names = self._connection.queryNames(pattern, None)
        return sum(int(self._connection.getAttribute(name, "Value")) for name in names)


@contextmanager
def measured_broker() -> Iterator[MeasuredBroker]:
    """A context manager that starts a broker with JMX in a new folder. Raises NotRunError if it does not start."""
    from pyspark.java_gateway import launch_gateway

    from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker
    from rw_sql.cli.servers.local_server import free_port

    folder = Path(mkdtemp(prefix="rw_sql_bench_"))
    port = free_port()
    before = os.environ.get("JAVA_TOOL_OPTIONS")
    os.environ["JAVA_TOOL_OPTIONS"] = " ".join(
        [
            f"-Dcom.sun.management.jmxremote.port={port}",
            f"-Dcom.sun.management.jmxremote.rmi.port={port}",
            "-Dcom.sun.management.jmxremote.authenticate=false",
            "-Dcom.sun.management.jmxremote.ssl=false",
            "-Djava.rmi.server.hostname=127.0.0.1",
        ]
    )
    try:
        broker = start_broker(folder / "broker", port=0)
    except SqlError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise NotRunError(str(error.message)) from error
    finally:
        if before is None:
            del os.environ["JAVA_TOOL_OPTIONS"]
        else:
            os.environ["JAVA_TOOL_OPTIONS"] = before
    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        jvm = gateway.jvm
        url = jvm.javax.management.remote.JMXServiceURL(f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi")
        connector = jvm.javax.management.remote.JMXConnectorFactory.connect(url, None)
        yield MeasuredBroker(
            bootstrap=broker.bootstrap,
            folder=folder,
            _connection=connector.getMBeanServerConnection(),
            _gateway=gateway,
        )
        connector.close()
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        stop_broker(folder / "broker")
        shutil.rmtree(folder, ignore_errors=True)


def fill(
    bootstrap: str,
    topic: str,
    records: int,
    partitions: int,
    *,
    first: int = 0,
    value: Callable[[int], bytes] = flight,
) -> None:
    """Writes records, from number ``first`` on, to the partitions of a topic in turn. Returns when all records are
    acknowledged.

    ``value``, a function of a module, makes a record from its number. Many records are written by two processes, each
    of which writes to half of the partitions.
    """
    workers = 2 if records >= _MANY and partitions % 2 == 0 else 1
    parts = [
        (bootstrap, topic, range(first + at, first + records, workers), partitions, value) for at in range(workers)
    ]
    if workers == 1:
        _produce(*parts[0])
        return
    with get_context("spawn").Pool(workers) as pool:
        pool.starmap(_produce, parts)


def _produce(
    bootstrap: str, topic: str, numbers: range, partitions: int, value: Callable[[int], bytes] = flight
) -> None:
    from confluent_kafka import KafkaError, Message, Producer

    faults: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            faults.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "max.in.flight.requests.per.connection": 1,
            "on_delivery": delivered,
            "delivery.report.only.error": True,
        }
    )
    for number in numbers:
        while True:
            try:
                producer.produce(topic, value(number), partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(60) or faults:
        raise NotRunError(f"the broker did not take the records: {faults[:1]}")


@dataclass(slots=True)
class Watched:
    """A Delta table that is polled often. A poll that finds no new commit costs one call to the file system."""

    path: str
    _table: DeltaTable | None = None
    _rows: int = 0

    def _is_newer(self) -> bool:
        log = Path(f"{self.path}/_delta_log")
        if self._table is None:
            return log.exists()
        version = self._table.version()
        # Clean-up removes old commits. If the newest known commit no longer exists, there are newer commits.
        return (log / f"{version + 1:020d}.json").exists() or not (log / f"{version:020d}.json").exists()

    def rows(self) -> int:
        """The number of rows in the table's files, from their statistics; 0 if the table does not exist yet."""
        if self._refresh() and self._table is not None:
            counts: Any = pa.table(self._table.get_add_actions(flatten=True)).column("num_records").to_pylist()
            self._rows = sum(counts)
        return self._rows

    def greatest(self, column: str) -> int:
        """The greatest value of a column in the table's files, from their statistics, including deleted rows; 0 if it
        is unknown."""
        if self._refresh() and self._table is not None:
            found: Any = pa.table(self._table.get_add_actions(flatten=True)).column(f"max.{column}").to_pylist()
            self._rows = max((value for value in found if value is not None), default=0)
        return self._rows

    def version(self) -> int:
        """The table's newest version, from the names of the files in its log, without opening a file; -1 if the table
        does not exist yet."""
        names = os.listdir(f"{self.path}/_delta_log") if os.path.exists(f"{self.path}/_delta_log") else []
        return max((int(name[:20]) for name in names if name.endswith(".json")), default=-1)

    def sum_of(self, column: str) -> int:
        """The sum of a column; 0 if the table does not exist yet."""
        if self._refresh() and self._table is not None:
            found: Any = self._table.to_pyarrow_table(columns=[column]).column(column).to_pylist()
            self._rows = sum(found)
        return self._rows

    def _refresh(self) -> bool:
        if not self._is_newer():
            return False
        try:
            if self._table is None:
                self._table = DeltaTable(self.path)
            else:
                self._table.update_incremental()
        except TableNotFoundError:
            return False
        return True


def wait_until(is_so: Callable[[], bool], what: str, *, seconds: float = 300.0, every: float = 0.005) -> None:
    """Waits until a condition holds. Raises NotRunError if it does not hold within ``seconds``."""
    deadline = time.perf_counter() + seconds
    while not is_so():
        if time.perf_counter() > deadline:
            raise NotRunError(f"{what}: not within {seconds:g} s")
        time.sleep(every)


def bare_flights(spark: SparkSession, bootstrap: str, topic: str, *more: str) -> DataFrame:
    """The stream of a topic's flights as a user of plain Spark would write it; ``more`` are additional columns of
    Spark's Kafka reader."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("kafka.fetch.max.wait.ms", "20")
        .load()
        .selectExpr(f"from_json(cast(value as string), '{SPARK_COLUMNS}') AS row", *more)
        .select("row.*", *more)
    )


def merge_into(spark: SparkSession, path: str, keys: list[str]) -> Callable[[DataFrame, int], None]:
    """Returns a foreachBatch function that maintains groups in a Delta table as Delta's documentation advises: with one
    MERGE per batch."""
    from delta.tables import DeltaTable as SparkDeltaTable

    matched = " AND ".join(f"t.{key} <=> s.{key}" for key in keys)

    def write(rows: DataFrame, batch: int) -> None:
        if batch == 0:
            rows.write.format("delta").save(path)
            return
        merge = SparkDeltaTable.forPath(spark, path).alias("t").merge(rows.alias("s"), matched)
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    return write


def fingerprint(rows: DataFrame) -> str:
    """The number of rows and the sum of their 64-bit hashes, which do not depend on the order of rows and columns."""
    names = ", ".join(f"`{name}`" for name in sorted(rows.columns))
    found = rows.selectExpr("count(*)", f"sum(CAST(xxhash64({names}) AS DECIMAL(38)))").collect()[0]
    return f"{found[0]}/{found[1]}"


@dataclass(slots=True)
class Child:
    """A child process of a case that communicates by lines, and whose CPU time is measured together with its JVM's."""

    process: subprocess.Popen[str]
    errors: IO[str]

    def write_line(self, line: str) -> None:
        """Writes a line to the process's standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def read_line(self) -> str:
        """The next output line of the process that begins with ``> ``, without that prefix. Other lines, such as
        Spark's output, are skipped.

        Raises RuntimeError if the process ended, with the end of its output.
        """
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("> "):
                return line[2:].rstrip("\n")
        ended = self.process.wait()
        raise RuntimeError(f"the process ended with {ended}: {self.last_words()}")

    def last_words(self) -> str:
        """The end of the process's standard error so far."""
        self.errors.seek(0)
        return self.errors.read()[-2000:]

    def halt(self) -> None:
        """Suspends the process and its JVM until :meth:`resume`."""
        halt_group(self.process)

    def resume(self) -> None:
        """Resumes the process and its JVM after :meth:`halt`."""
        go_on_group(self.process)

    def cpu_seconds(self) -> float:
        """The user and system time that the process and all its living descendants have used so far."""
        return cpu_seconds(self.process.pid)


def family(pid: int) -> dict[int, list[str]]:
    """A process and all its living descendants, each with the fields of its ``/proc/<pid>/stat`` after the name."""
    below: dict[int, list[int]] = {}
    told: dict[int, list[str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        fields = text.rpartition(")")[2].split()
        at = int(stat.parent.name)
        below.setdefault(int(fields[1]), []).append(at)
        told[at] = fields
    found, waiting = {}, [pid]
    while waiting:
        at = waiting.pop()
        if at in told:
            found[at] = told[at]
        waiting.extend(below.get(at, ()))
    return found


def cpu_seconds(pid: int) -> float:
    """The user and system time that a process and all its living descendants have used so far."""
    return sum(sum(int(value) for value in fields[11:15]) for fields in family(pid).values()) / _TICKS


def resident_bytes(pid: int) -> int:
    """The resident memory of a process and all its living descendants. A page that several of these processes share
    counts once for each of them."""
    return sum(int(fields[21]) for fields in family(pid).values()) * os.sysconf("SC_PAGE_SIZE")


def heap_bytes(spark: SparkSession) -> int:
    """The size of a session's JVM heap after a garbage collection."""
    runtime: Any = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
    for _ in range(3):
        runtime.gc()
    return int(runtime.totalMemory() - runtime.freeMemory())


def own_bytes() -> int:
    """The memory of this Python process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def child(module: str, *arguments: str) -> AbstractContextManager[Child]:
    """A context manager that runs ``python -m module arguments`` and ends the process afterwards."""
    return program(sys.executable, "-m", module, *arguments)


@contextmanager
def program(*command: str) -> Iterator[Child]:
    """A context manager that runs a program that communicates by lines. At the end, the program and its JVM are killed,
    because nothing needs their orderly shutdown."""
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        try:
            yield Child(process, errors)
        finally:
            end_group(process)
            if TELL_ERRORS in os.environ:
                errors.seek(0)
                sys.stderr.write(errors.read())


def halt_group(process: subprocess.Popen[Any]) -> None:
    """Suspends the processes of a process group; ``process`` is its leader."""
    os.killpg(process.pid, signal.SIGSTOP)


def go_on_group(process: subprocess.Popen[Any]) -> None:
    """Resumes the processes of a process group; ``process`` is its leader."""
    os.killpg(process.pid, signal.SIGCONT)


def end_group(process: subprocess.Popen[Any]) -> None:
    """Kills the processes of a process group; ``process`` is its leader."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@contextmanager
def flights_broker(records: int = 0, partitions: int = 2) -> Iterator[tuple[str, Path]]:
    """A context manager that starts a broker with a topic ``flights`` of this many records, and yields the broker's
    address and an empty folder.

    Raises NotRunError if the broker does not start.
    """
    from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker
    from rw_sql.cli.servers.kafka_topics import create_topic

    folder = Path(mkdtemp(prefix="rw_sql_bench_"))
    try:
        broker = start_broker(folder / "broker", port=0)
    except SqlError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise NotRunError(str(error.message)) from error
    try:
        create_topic(broker.bootstrap, "flights", partitions)
        fill(broker.bootstrap, "flights", records, partitions)
        yield broker.bootstrap, folder
    finally:
        stop_broker(folder / "broker")
        shutil.rmtree(folder, ignore_errors=True)


def bare_session(folder: str, config: Mapping[str, str] = SETTINGS) -> Any:
    """A Spark session with Delta and Spark's Kafka reader, and without rw_sql. If ``folder`` is in an object store, the
    session can use that store."""
    import rw_sql
    from rw_sql.connectors.registry import connector
    from rw_sql.runtime.spark.sessions import SparkSessions

    spark = rw_sql.connect(f"{folder}/unused", config=config, run_jobs=False)
    rw_sql.detach(spark)
    return SparkSessions(spark).new(connector("kafka").spark_packages())


def write_to_parent(line: str) -> None:
    """Writes a child's line to its parent."""
    print(f"> {line}", flush=True)
