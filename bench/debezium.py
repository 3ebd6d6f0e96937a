"""Debezium as a peer: a worker of Kafka Connect with its connector for PostgreSQL, and its engine in a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.harness import NotRunError
from bench.streaming import Child, program, wait_until
from tests.support.kafka_connect import (
    DEBEZIUM,
    ConnectApi,
    connect_class_path,
    java_command,
    worker_command,
    write_properties,
)
from tests.support.maven import MissingJarsError

__all__ = ["DEBEZIUM", "ConnectWorker", "Engine", "connect_worker", "debezium_class_path", "engine"]

JAVA = ("-Xmx2g", "-XX:+UseG1GC")
"""The JVM's options, with the heap that Kafka Connect's own script sets."""

TUNED: Mapping[str, str] = {
    "poll.interval.ms": "20",
    "max.batch.size": "8192",
    "max.queue.size": "32768",
    "tombstones.on.delete": "false",
    "decimal.handling.mode": "string",
}
"""The connector's options that differ from the defaults: shorter waits, larger batches, fewer and plainer events."""

_PROGRAM = Path(__file__).parent / "EngineProgram.java"
_LONGEST = 120.0


def debezium_class_path() -> str:
    """The class path of engine, connector and Kafka Connect. Raises NotRunError if a jar cannot be fetched."""
    try:
        return connect_class_path()
    except MissingJarsError as error:
        raise NotRunError(str(error)) from error


@dataclass(frozen=True, slots=True)
class ConnectWorker(ConnectApi):
    """A running standalone worker of Kafka Connect. The worker stays warm from one connector to the next."""

    failure = NotRunError
    child: Child

    def is_ready(self) -> bool:
        """True once the worker answers requests. Raises RuntimeError if its process has ended."""
        if self.child.process.poll() is not None:
            raise RuntimeError(f"Kafka Connect ended: {self.child.last_words()}")
        return self.is_answering()


@contextmanager
def connect_worker(class_path: str, folder: Path, bootstrap: str) -> Iterator[ConnectWorker]:
    """A worker that is ready for connectors and has its files in a folder."""
    folder.mkdir()
    command, url = worker_command(folder, class_path, bootstrap, *JAVA)
    with program(*command) as child:
        worker = ConnectWorker(url, child)
        wait_until(worker.is_ready, "Kafka Connect answers", seconds=_LONGEST, every=0.2)
        yield worker


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that runs Debezium's engine and appends the rows of its events to a file."""

    child: Child
    folder: Path

    def start(self, name: str, config: Mapping[str, str]) -> Path:
        """Starts a connector; returns the file to which the engine appends the rows."""
        settings = {
            "name": name,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(self.folder / f"{name}.offsets"),
            "converter.schemas.enable": "false",
            **config,
        }
        properties, rows = self.folder / f"{name}.properties", self.folder / f"{name}.json"
        write_properties(properties, settings)
        self.child.write_line(f"start {properties} {rows}")
        self._hear("started")
        return rows

    def expect(self, events: int) -> None:
        """Waits until the engine has consumed ``events`` events since its start. Raises NotRunError if the engine
        fails."""
        self.child.write_line(f"expect {events}")
        self._hear("reached")

    def stop(self) -> None:
        """Stops the connector and closes the file."""
        self.child.write_line("stop")
        self._hear("stopped")

    def _hear(self, wanted: str) -> None:
        heard = self.child.read_line()
        if heard != wanted:
            raise NotRunError(f"Debezium's engine: {heard[:600]}")


@contextmanager
def engine(class_path: str, folder: Path) -> Iterator[Engine]:
    """A program that is ready to start the engine and has its files in a folder."""
    folder.mkdir()
    with program(*java_command(folder, class_path, *JAVA), str(_PROGRAM)) as child:
        made = Engine(child, folder)
        made._hear("ready")
        yield made
