"""Debezium as a peer: Debezium's connector for PostgreSQL in a worker of Kafka Connect, and Debezium's engine in a
program."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from bench.harness import NotRunError
from bench.maven import fetched_jars
from bench.streaming import Child, program, wait_until

DEBEZIUM = "3.6.1.Final"
KAFKA = "4.3.0"
"""The version of Kafka Connect for which this version of Debezium is made."""

JAVA = ("-Xmx2g", "-XX:+UseG1GC")
"""The JVM's options, with the heap that Kafka Connect's own script sets."""

TUNED: Mapping[str, str] = {
    "poll.interval.ms": "20",
    "max.batch.size": "8192",
    "max.queue.size": "32768",
    "tombstones.on.delete": "false",
    "decimal.handling.mode": "string",
}
"""The connector's options that differ from Debezium's defaults: shorter waits, larger batches, no tombstones, and
decimals as text."""

_PROGRAM = Path(__file__).parent / "EngineProgram.java"
_LOGGING = (
    "rootLogger.level = warn\nrootLogger.appenderRef.0.ref = out\nappender.0.type = Console\nappender.0.name = out\n"
)
_LONGEST = 120.0


def debezium_class_path() -> str:
    """The class path of the engine, of the connector and of Kafka Connect. Raises NotRunError if it cannot be had."""
    from rw_sql.cli.servers.local_server import spark_home

    jars = fetched_jars(
        f"io.debezium:debezium-embedded:{DEBEZIUM}",
        f"io.debezium:debezium-connector-postgres:{DEBEZIUM}",
        f"org.apache.kafka:connect-runtime:{KAFKA}",
    )
    # The logging libraries are Spark's: they are newer, and include a library that Kafka Connect needs in addition.
    logging = ("slf4j-api-", "log4j-api-", "log4j-core-", "log4j-slf4j2-impl-")
    ours = [jar for jar in (spark_home("Debezium") / "jars").iterdir() if jar.name.startswith(logging)]
    theirs = [jar for jar in jars if "slf4j" not in jar.name]
    return os.pathsep.join(str(jar) for jar in [*ours, *theirs])


def _java(folder: Path, class_path: str) -> list[str]:
    logging = folder / "log4j2.properties"
    logging.write_text(_LOGGING, encoding="utf-8")
    return ["java", *JAVA, f"-Dlog4j2.configurationFile={logging}", "-cp", class_path]


@dataclass(frozen=True, slots=True)
class ConnectWorker:
    """A running standalone worker of Kafka Connect. Connectors are created and deleted in the same JVM, which is
    therefore warm."""

    child: Child
    url: str

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Creates a connector, which starts at once."""
        told = {"connector.class": "io.debezium.connector.postgresql.PostgresConnector", **config}
        self._ask("PUT", f"/connectors/{name}/config", told)

    def check(self, name: str) -> None:
        """Raises NotRunError with the reason if the connector's task has failed."""
        for task in self._ask("GET", f"/connectors/{name}/status")["tasks"]:
            if task["state"] == "FAILED":
                raise NotRunError(f"Debezium's task failed: {task['trace'][:600]}")

    def delete(self, name: str) -> None:
        """Deletes a connector. Its slot is released soon after."""
        self._ask("DELETE", f"/connectors/{name}")

    def is_ready(self) -> bool:
        """True once the worker answers requests. Raises RuntimeError if the process ended."""
        if self.child.process.poll() is not None:
            raise RuntimeError(f"Kafka Connect ended: {self.child.last_words()}")
        try:
            self._send("GET", "/connectors")
        except URLError:  # Includes HTTPError: at first, the server answers every path with an error.
            return False
        return True

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        try:
            return self._send(method, path, body)
        except HTTPError as error:
            raise NotRunError(f"Kafka Connect refuses {method} {path}: {error.read().decode()[:600]}") from error

    def _send(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=_LONGEST) as answer:
            return json.loads(answer.read() or b"null")


@contextmanager
def connect_worker(class_path: str, folder: Path, bootstrap: str) -> Iterator[ConnectWorker]:
    """A worker that is ready for connectors, with its files in a folder."""
    from rw_sql.cli.servers.local_server import free_port

    folder.mkdir()
    url = f"http://127.0.0.1:{free_port()}"
    settings = {
        "bootstrap.servers": bootstrap,
        "listeners": url,
        "offset.storage.file.filename": str(folder / "offsets"),
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }
    _write_properties(folder / "worker.properties", settings)
    command = [*_java(folder, class_path), "org.apache.kafka.connect.cli.ConnectStandalone"]
    with program(*command, str(folder / "worker.properties")) as child:
        worker = ConnectWorker(child, url)
        wait_until(worker.is_ready, "Kafka Connect answers", seconds=_LONGEST, every=0.2)
        yield worker


@dataclass(frozen=True, slots=True)
class Engine:
    """A running program that contains Debezium's engine and appends the rows of its events to a file."""

    child: Child
    folder: Path

    def start(self, name: str, config: Mapping[str, str]) -> Path:
        """Starts a connector, and returns the file to which the program appends its rows."""
        settings = {
            "name": name,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(self.folder / f"{name}.offsets"),
            "converter.schemas.enable": "false",
            **config,
        }
        properties, rows = self.folder / f"{name}.properties", self.folder / f"{name}.json"
        _write_properties(properties, settings)
        self.child.write_line(f"start {properties} {rows}")
        self._hear("started")
        return rows

    def expect(self, events: int) -> None:
        """Waits until that many events were consumed since the start. Raises NotRunError if the engine fails."""
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
    """A program that is ready to start the engine, with its files in a folder."""
    folder.mkdir()
    with program(*_java(folder, class_path), str(_PROGRAM)) as child:
        made = Engine(child, folder)
        made._hear("ready")
        yield made


def _write_properties(file: Path, settings: Mapping[str, str]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
