"""What the cases with running streams share: a broker that tells what it sent, and measured child processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from bench.harness import NotRunError
from rw_sql.errors import SqlError

SETTINGS: Mapping[str, str] = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
}
"""Of every Spark session of the cases, ours and the peers'."""

COLUMNS = "carrier VARCHAR, flight BIGINT, origin VARCHAR, dest VARCHAR, delay INT, day VARCHAR"
SPARK_COLUMNS = COLUMNS.replace("VARCHAR", "STRING")
_VALUE = b'{"carrier":"%s","flight":%d,"origin":"%s","dest":"IAH","delay":%d,"day":"2013-01-%02d"}'
_CARRIERS = (b"UA", b"AA", b"B6", b"DL", b"EV", b"MQ", b"US", b"WN")
_ORIGINS = (b"EWR", b"JFK", b"LGA")
_TICKS = os.sysconf("SC_CLK_TCK")


def flight(number: int) -> bytes:
    """A flight as JSON; equal numbers give equal ones."""
    return _VALUE % (
        _CARRIERS[number % 8],
        number,
        _ORIGINS[number % 3],
        number * 7 % 180 - 20,
        number % 28 + 1,
    )


@dataclass(slots=True)
class MeasuredBroker:
    """A running broker, and a JVM that asks it for its metrics over JMX."""

    bootstrap: str
    folder: Path
    _connection: Any
    _gateway: Any

    def bytes_out(self, topic: str) -> int:
        """How many bytes of a topic's records consumers fetched, by the broker's own meter ``BytesOutPerSec``."""
        name = f"kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec,topic={topic}"
        asked = self._gateway.jvm.javax.management.ObjectName(name)
        if not self._connection.isRegistered(asked):
            return 0
        return int(self._connection.getAttribute(asked, "Count"))

    def topic_bytes(self, topic: str) -> int:
        """How large a topic is: the sizes of its partitions' logs, by the broker's gauge ``Log Size``."""
        pattern = self._gateway.jvm.javax.management.ObjectName(f"kafka.log:type=Log,name=Size,topic={topic},*")
        names = self._connection.queryNames(pattern, None)
        return sum(int(self._connection.getAttribute(name, "Value")) for name in names)


@contextmanager
def measured_broker() -> Iterator[MeasuredBroker]:
    """A broker with JMX, in a folder of its own. Raises NotRunError where it does not start."""
    from pyspark.java_gateway import launch_gateway

    from rw_sql.cli.kafka_broker import free_port, start_broker, stop_broker

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
    gateway = launch_gateway()
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


def fill(bootstrap: str, topic: str, records: int, partitions: int) -> None:
    """Puts flights 0 to ``records`` into a topic, in turn into its partitions."""
    from rw_sql.cli.kafka_topics import Record, produce

    step = 100_000
    for start in range(0, records, step):
        produce(
            bootstrap,
            topic,
            [
                Record(value=flight(number), partition=number % partitions)
                for number in range(start, min(start + step, records))
            ],
        )


@dataclass(slots=True)
class Child:
    """A Python process of a case's own: lines to it, lines from it, and what CPU time it and its JVM took."""

    process: subprocess.Popen[str]

    def tell(self, line: str) -> None:
        """Writes it a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Its next line that begins with ``> ``, without that; what Spark prints is passed over.

        Raises NotRunError where it ended.
        """
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("> "):
                return line[2:].rstrip("\n")
        raise NotRunError(f"the process ended with {self.process.wait()}")

    def cpu_seconds(self) -> float:
        """User and system time so far of the process and all below it that live."""
        below: dict[int, list[int]] = {}
        taken: dict[int, int] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                text = stat.read_text()
            except OSError:
                continue
            fields = text.rpartition(")")[2].split()
            pid = int(stat.parent.name)
            below.setdefault(int(fields[1]), []).append(pid)
            taken[pid] = sum(int(value) for value in fields[11:15])
        found, waiting = 0, [self.process.pid]
        while waiting:
            pid = waiting.pop()
            found += taken.get(pid, 0)
            waiting.extend(below.get(pid, ()))
        return found / _TICKS


@contextmanager
def child(module: str, *arguments: str) -> Iterator[Child]:
    """``python -m module arguments``, ended when done with."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield Child(process)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def flights_broker(records: int = 0, partitions: int = 2) -> Iterator[tuple[str, Path]]:
    """A plain broker with a topic ``flights`` of so many records: its address, and a folder to work in.

    Raises NotRunError where it does not start.
    """
    from rw_sql.cli.kafka_broker import start_broker, stop_broker
    from rw_sql.cli.kafka_topics import create_topic

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


def bare_session(folder: str) -> Any:
    """A Spark session with Delta and Spark's Kafka reader, and nothing of ours running in it."""
    import rw_sql
    from rw_sql.connectors.registry import connector
    from rw_sql.runtime.spark_sessions import SparkSessions

    spark = rw_sql.connect(f"{folder}/unused", config=SETTINGS, run_jobs=False)
    rw_sql.detach(spark)
    return SparkSessions(spark).new(connector("kafka").spark_packages())


def say(line: str) -> None:
    """A child's line to its parent."""
    print(f"> {line}", flush=True)
