"""Pulsar brokers for tests marked ``pulsar``. Import it by ``pytest_plugins``.

Java's resolver in Spark's jars fetches the broker with its BookKeeper: ``python -m tests.support.pulsar_server``. If
the broker was not fetched, or if the client is not installed, those tests are left out, and the summary names them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from rw_sql.cli.servers.local_server import java_program, spark_home
from tests.support.missing_servers import register
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VERSION = "4.0.0"
MAX_MESSAGE = 102_400
"""The maximum size in bytes of a message that the broker accepts. Larger messages are sent in chunks."""

_SETTINGS = """<ivysettings>
  <settings defaultResolver="all"/>
  <resolvers>
    <chain name="all" returnFirst="true">
      <ibiblio name="local" m2compatible="true" root="file://${user.home}/.m2/repository/" checkmodified="false"/>
      <ibiblio name="central" m2compatible="true"/>
    </chain>
  </resolvers>
</ivysettings>
"""
# Only etcd uses the excluded module, which Maven Central lacks.
_MODULE = f"""<ivy-module version="2.0">
  <info organisation="rw_sql" module="tests"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.pulsar" name="pulsar-broker" rev="{VERSION}" conf="default->runtime(*),master(*)"/>
    <exclude org="org.apache.pulsar" module="jetcd-core-shaded" conf="default"/>
  </dependencies>
</ivy-module>
"""
_OPENED = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/java.util.zip",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.nio.ch",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
_LOGGING = """<Configuration status="WARN">
  <Appenders><Console name="C"><PatternLayout pattern="%d{HH:mm:ss} %-5p %c{1} - %m%n"/></Console></Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="C"/></Root></Loggers>
</Configuration>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarServer:
    """A running broker: the ports of its protocol and of its administration."""

    port: int
    web_port: int
    processes: list[int] = field(default_factory=list)
    """The id of the broker's process."""

    @contextmanager
    def suspended(self, seconds: float) -> Iterator[None]:
        """A context manager that suspends the broker for this number of seconds, or until the end of the block if that
        is earlier."""
        (pid,) = self.processes
        os.kill(pid, signal.SIGSTOP)
        resume = threading.Timer(seconds, os.kill, (pid, signal.SIGCONT))
        resume.start()
        try:
            yield
        finally:
            resume.cancel()
            os.kill(pid, signal.SIGCONT)

    @property
    def url(self) -> str:
        """The broker's address as a value of ``service.url``."""
        return f"pulsar://127.0.0.1:{self.port}"

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """A request to the administration. Raises urllib's HTTPError."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.web_port}/admin/v2/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def create(self, topic: str, partitions: int) -> None:
        """Creates a partitioned topic."""
        self.admin("PUT", f"persistent/public/default/{topic}/partitions", partitions)

    def grow(self, topic: str, partitions: int) -> None:
        """Adds partitions to a topic."""
        self.admin("POST", f"persistent/public/default/{topic}/partitions", partitions)

    def delete(self, topic: str) -> None:
        """Deletes a topic without partitions and its subscriptions."""
        self.admin("DELETE", f"persistent/public/default/{topic}?force=true")

    def internal(self, topic: str) -> Any:
        """The topic's ledgers and cursors."""
        return self.admin("GET", f"persistent/public/default/{topic}/internalStats")

    def roll_over(self, topic: str) -> None:
        """Begins a new ledger and deletes the ledgers that no subscription needs, as the broker does after some
        time."""
        before = self.internal(topic)["ledgers"][-1]["ledgerId"]
        self.admin("PUT", f"persistent/public/default/{topic}/unload")
        never, deadline = threading.Event(), time.monotonic() + LAST_RESORT_SECONDS
        while True:
            with suppress(urllib.error.HTTPError):
                self.admin("POST", f"persistent/public/default/{topic}/trim")
                if self.internal(topic)["ledgers"][-1]["ledgerId"] != before:
                    return
            assert time.monotonic() < deadline
            never.wait(0.05)

    def compact(self, topic: str) -> None:
        """Compacts a topic, and waits until that is done."""
        self.admin("PUT", f"persistent/public/default/{topic}/compaction")
        never, deadline = threading.Event(), time.monotonic() + LAST_RESORT_SECONDS
        while (status := self.admin("GET", f"persistent/public/default/{topic}/compaction"))["status"] != "SUCCESS":
            assert status["status"] in ("RUNNING", "NOT_RUN"), status
            assert time.monotonic() < deadline, status
            never.wait(0.05)

    def send(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        key: str | None = None,
        batch: int = 0,
        properties: dict[str, str] | None = None,
    ) -> list[str]:
        """Sends messages in order, and returns their ids. If ``batch`` is not 0, it is the number of messages in a
        batch. Messages that are too large for the broker are sent in chunks."""
        import pulsar

        client = pulsar.Client(self.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
        try:
            how: dict[str, Any] = {"batching_enabled": False, "chunking_enabled": True}
            if batch:
                how = {
                    "batching_enabled": True,
                    "batching_max_messages": batch,
                    "batching_max_publish_delay_ms": 60_000,
                    "batching_max_allowed_size_in_bytes": MAX_MESSAGE // 2,
                }
            producer = client.create_producer(
                topic, message_routing_mode=pulsar.PartitionsRoutingMode.UseSinglePartition, block_if_queue_full=True,
                **how,
            )  # fmt: skip
            ids: list[Any] = []
            results: list[Any] = []

            def note(result: Any, id_: Any) -> None:
                results.append(result)
                ids.append(id_)

            more = {} if key is None else {"partition_key": key}
            for value in values:
                producer.send_async(value, note, properties=properties, **more)
            producer.flush()
            assert set(results) <= {pulsar.Result.Ok}, results
            return [f"{id_.ledger_id()}:{id_.entry_id()}:{id_.partition()}:{id_.batch_index()}" for id_ in ids]
        finally:
            client.close()


def cached_jars() -> list[str] | None:
    """The broker's jars; None if they were not fetched."""
    try:
        jars = _list().read_text(encoding="utf-8").strip().split(os.pathsep)
    except FileNotFoundError:
        return None
    return jars if all(Path(jar).is_file() for jar in jars) else None


def _list() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rw_sql"
    return cache / f"pulsar-broker-{VERSION}.classpath"


def fetch() -> None:
    """Fetches the broker's jars, some 200 MB, into the user's cache folder."""
    if cached_jars() is not None:
        return
    found = _list()
    found.parent.mkdir(parents=True, exist_ok=True)
    ivy = next((spark_home("pulsar") / "jars").glob("ivy-*.jar"))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "ivysettings.xml").write_text(_SETTINGS, encoding="utf-8")
        (work / "ivy.xml").write_text(_MODULE, encoding="utf-8")
        command = [
            *(java_program(), "-Xmx512m", *os.environ.get("SPARK_SUBMIT_OPTS", "").split(), "-jar", str(ivy)),
            *("-settings", str(work / "ivysettings.xml"), "-ivy", str(work / "ivy.xml"), "-confs", "default"),
            *("-cache", str(found.parent / f"pulsar-broker-{VERSION}"), "-cachepath", str(work / "found")),
        ]
        subprocess.run(command, check=True, stdout=sys.stderr)
        found.write_text((work / "found").read_text(encoding="utf-8"), encoding="utf-8")


def _is_there() -> bool:
    return cached_jars() is not None and find_spec("pulsar") is not None


def pytest_configure(config: pytest.Config) -> None:
    """Omits the tests of this server if it is not installed."""
    register(
        config,
        "pulsar",
        "no Pulsar broker (python -m tests.support.pulsar_server) or pulsar-client",
        lambda item: item.get_closest_marker("pulsar") is not None and not _is_there(),
    )


def _free_ports(count: int) -> list[int]:
    free = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in free]
    for each in free:
        each.close()
    return ports


@contextmanager
def pulsar_running(*, port: int = 0, **settings: str) -> Iterator[PulsarServer]:
    """A broker with its own BookKeeper on free ports, with its data in a temporary folder."""
    jars = cached_jars()
    assert jars is not None, "tests that use it are marked pulsar"
    home = Path(tempfile.mkdtemp(prefix="rw_sql-pulsar-"))
    free = _free_ports(3)
    server = PulsarServer(port=port or free[0], web_port=free[1])
    given = {
        "clusterName": "standalone",
        "brokerServicePort": str(server.port),
        "webServicePort": str(server.web_port),
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "managedLedgerDefaultEnsembleSize": "1",
        "managedLedgerDefaultWriteQuorum": "1",
        "managedLedgerDefaultAckQuorum": "1",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "managedLedgerMaxEntriesPerLedger": "50",
        "loadBalancerEnabled": "false",
        "brokerDeleteInactiveTopicsEnabled": "false",
        "maxMessageSize": str(MAX_MESSAGE),
        "journalSyncData": "false",
        # By default, BookKeeper refuses to write if less than 5 % of the disk is free, even if 5 % of the disk is a
        # large amount.
        "diskUsageThreshold": "0.9999",
        "diskUsageWarnThreshold": "0.9999",
        "diskUsageLwmThreshold": "0.9999",
        **settings,
    }
    (home / "standalone.conf").write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    (home / "log4j2.xml").write_text(_LOGGING)
    command = [
        *(java_program(), "-Xmx700m", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *(f"--add-opens={opened}=ALL-UNNAMED" for opened in _OPENED),
        *("-Dio.netty.tryReflectionSetAccessible=true", f"-Dlog4j.configurationFile={home / 'log4j2.xml'}"),
        *("-cp", os.pathsep.join(jars), "org.apache.pulsar.PulsarStandaloneStarter"),
        *("--config", str(home / "standalone.conf"), "-nfw", "-nss"),
        *("--bookkeeper-dir", str(home / "bookkeeper"), "--metadata-dir", str(home / "metadata")),
        *("--bookkeeper-port", str(free[2])),
    ]
    try:
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=home)
            server.processes.append(process.pid)
            try:
                _wait_until_it_answers(server, process, home / "log")
                yield server
            finally:
                # The broker's data is deleted afterwards, so no orderly shutdown is needed.
                process.kill()
                process.wait()
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def pulsar_server() -> Iterator[PulsarServer]:
    """A running broker without authentication."""
    with pulsar_running() as running:
        yield running


def _wait_until_it_answers(server: PulsarServer, process: subprocess.Popen[bytes], log: Path) -> None:
    never, deadline = threading.Event(), time.monotonic() + LAST_RESORT_SECONDS
    while True:
        try:
            server.admin("GET", "namespaces/public/default")
        except (OSError, ValueError):
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            never.wait(0.1)
        else:
            return


def new_name() -> str:
    """The name of a topic that no other test uses."""
    return f"t-{uuid4().hex[:10]}"


if __name__ == "__main__":
    fetch()
