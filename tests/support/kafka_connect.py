"""A worker of Kafka Connect with Debezium's connector for PostgreSQL, and with a converter that writes Avro.

Apicurio's converter writes the Avro records, because Confluent's converter is not in Maven's central repository.
Apicurio's converter is derived from Confluent's converter: it makes the same schemas and, with these settings, writes
the same five bytes before each record.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.error import HTTPError, URLError

from rw_sql.cli.servers.local_server import free_port, spark_home
from rw_sql.cli.servers.schema_registry import API, VERSION
from tests.support.maven import fetched_jars, has_jars
from tests.support.missing_servers import register
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pytest

DEBEZIUM = "3.6.1.Final"
KAFKA = "4.3.0"
"""The version of Kafka Connect for which this version of Debezium is made."""

CONNECTOR = (
    f"io.debezium:debezium-embedded:{DEBEZIUM}",
    f"io.debezium:debezium-connector-postgres:{DEBEZIUM}",
    f"org.apache.kafka:connect-runtime:{KAFKA}",
)
CONVERTER = f"io.apicurio:apicurio-registry-utils-converter:{VERSION}"

_LOGGING = (
    "rootLogger.level = warn\nrootLogger.appenderRef.0.ref = out\nappender.0.type = Console\nappender.0.name = out\n"
)
_TOLD = 600
_SECONDS = 120.0


def pytest_configure(config: pytest.Config) -> None:
    """Omits the tests of Debezium if its jars were not fetched."""
    register(
        config,
        "debezium",
        "the jars of Debezium and Kafka Connect were not fetched (python -m tests.support.jars)",
        lambda item: item.get_closest_marker("debezium") is not None and not has_jars(*CONNECTOR, CONVERTER),
    )


class ConnectError(Exception):
    """Raised if Kafka Connect refuses a request, or if a task fails. The message contains the reason."""


def connect_class_path(*more: str) -> str:
    """The class path of Kafka Connect, of Debezium's engine and connector, and of ``more`` coordinates. Raises
    MissingJarsError if a jar cannot be fetched."""
    jars = fetched_jars(*CONNECTOR, *more)
    # Spark contains newer versions of the logging libraries, and a further logging library that Kafka Connect needs.
    logging = ("slf4j-api-", "log4j-api-", "log4j-core-", "log4j-slf4j2-impl-")
    ours = [jar for jar in (spark_home("Debezium") / "jars").iterdir() if jar.name.startswith(logging)]
    theirs = [jar for jar in jars if "slf4j" not in jar.name]
    return os.pathsep.join(str(jar) for jar in [*ours, *theirs])


def avro_converter(part: str, registry: str) -> dict[str, str]:
    """The settings with which a connector writes the keys or values (``part``) of its records as Avro.

    ``registry`` is the address of Apicurio's registry, as in ``schema.registry``.
    """
    settings = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        ".apicurio.registry.url": registry.removesuffix(API) + "/apis/registry/v2",
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.headers.enabled": "false",
        # Confluent's API of this registry identifies a schema by the id of the schema's content.
        ".apicurio.registry.use-id": "contentId",
        ".apicurio.registry.check-period-ms": "1000",
    }
    return {f"{part}.converter{name}": value for name, value in settings.items()}


def write_properties(file: Path, settings: Mapping[str, str]) -> None:
    """Writes a file of Java properties."""
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")


def java_command(folder: Path, class_path: str, *options: str) -> list[str]:
    """The beginning of the command of a Java program that writes warnings to its standard output."""
    logging = folder / "log4j2.properties"
    logging.write_text(_LOGGING, encoding="utf-8")
    return ["java", *options, f"-Dlog4j2.configurationFile={logging}", "-cp", class_path]


def worker_command(
    folder: Path, class_path: str, bootstrap: str, *options: str, more: Mapping[str, str] | None = None
) -> tuple[list[str], str]:
    """The command of a standalone worker whose connectors write JSON without schemas by default, and its address.

    ``options`` are Java's, ``more`` further settings of the worker.
    """
    url = f"http://127.0.0.1:{free_port()}"
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    settings = {
        "bootstrap.servers": bootstrap,
        "listeners": url,
        "offset.storage.file.filename": str(folder / "offsets"),
        "key.converter": json_converter,
        "value.converter": json_converter,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        **(more or {}),
    }
    write_properties(folder / "worker.properties", settings)
    command = [*java_command(folder, class_path, *options), "org.apache.kafka.connect.cli.ConnectStandalone"]
    return [*command, str(folder / "worker.properties")], url


@dataclass(frozen=True, slots=True)
class ConnectApi:
    """The REST interface of a worker of Kafka Connect. ``failure`` is the class of the errors that it raises."""

    failure: ClassVar[type[Exception]] = ConnectError
    url: str

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Creates a connector, which starts at once."""
        told = {"connector.class": "io.debezium.connector.postgresql.PostgresConnector", **config}
        self._ask("PUT", f"/connectors/{name}/config", told)

    def check(self, name: str) -> None:
        """Raises an error with the reason if the connector or its task has failed."""
        status = self._ask("GET", f"/connectors/{name}/status")
        for part in (status["connector"], *status["tasks"]):
            if part["state"] == "FAILED":
                raise self.failure(f"Debezium's task failed: {part['trace'][:_TOLD]}")

    def delete(self, name: str) -> None:
        """Deletes a connector. The connector's slot is released soon afterwards."""
        self._ask("DELETE", f"/connectors/{name}")

    def is_answering(self) -> bool:
        """True once the worker answers requests."""
        try:
            self._send("GET", "/connectors")
        except URLError:  # This also covers HTTPError: the worker's server answers before the paths of its API exist.
            return False
        return True

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        try:
            return self._send(method, path, body)
        except HTTPError as error:
            raise self.failure(f"Kafka Connect refuses {method} {path}: {error.read().decode()[:_TOLD]}") from error

    def _send(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return json.loads(answer.read() or b"null")


@contextmanager
def running_connect(folder: Path, bootstrap: str, *more: str) -> Iterator[ConnectApi]:
    """A worker that is ready for connectors, with its files and its log in a folder. ``more`` are coordinates of
    converters. Raises MissingJarsError if a jar cannot be fetched."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    # With every flush, the connector acknowledges to the database the changes that Kafka has stored.
    flush = {"offset.flush.interval.ms": "200"}
    command, url = worker_command(folder, connect_class_path(*more), bootstrap, *options, more=flush)
    worker = ConnectApi(url)
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:

            def is_ready() -> bool:
                assert process.poll() is None, log.read_text(errors="replace")[-2000:]
                return worker.is_answering()

            wait_until(is_ready, "Kafka Connect answers", look_seconds=0.2)
            yield worker
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
