"""Runs a real Kafka broker for development and tests. The broker is one KRaft node with its data in a folder.

At the first start, Spark's resolver downloads Kafka's jars. The user's cache folder stores the class path and the file
that a new data folder needs. Later starts therefore take only about three seconds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.cli.servers.local_server import (
    LocalServer,
    end_process,
    free_port,
    is_port_open,
    java_program,
    running,
    spark_home,
    starting_alone,
)
from rw_sql.errors import UPSTREAM_UNREACHABLE, SqlError
from rw_sql.runtime.spark.jar_cache import cache_folder, keep_file, remember_jars, remembered_jars

if TYPE_CHECKING:
    from collections.abc import Mapping

KAFKA_PACKAGE = "org.apache.kafka:kafka_2.13:4.1.0"
_RESOLVE_ATTEMPTS = 3
_HEAP = "512m"
_FILE = "broker.json"
_SETTINGS, _LOG_SETTINGS = "server.properties", "log4j2.properties"
_NODE = "1"
_CHECKPOINT = "bootstrap.checkpoint"
_FORMAT_SETTINGS = ("node.id", "log.dir", "metadata.log.dir", "process.roles", "controller.quorum", "unstable.")
"""The settings that determine the files of a new data folder."""

# The class path contains Spark's jars of loggers instead of Kafka's, because two bindings of one logger would conflict.
_NOT_FROM_KAFKA = ("slf4j", "org.apache.logging.log4j")
_FROM_SPARK = ("scala-library-", "slf4j-api-", "log4j-api-", "log4j-core-", "log4j-slf4j2-impl-")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """A running broker. The fields are the broker's process, its address, its cluster id, and the folder with its
    data."""

    pid: int
    bootstrap: str
    cluster_id: str
    folder: str


def start_broker(
    folder: str | Path, port: int = 9092, controller_port: int | None = None, extra: Mapping[str, str] | None = None
) -> BrokerInfo:
    """Starts a broker with its data in ``folder`` and returns when it responds.

    If the folder's broker is already running, or another process is starting this broker, returns the running broker.

    ``port`` 0 selects a free port, which is stored in the folder so that a restarted broker has the same address.
    ``controller_port`` is the broker's second port; None selects a free port. ``extra`` are additional lines of
    server.properties. The broker continues to run after this process has ended. If the broker does not start, raises
    SqlError UPSTREAM_UNREACHABLE with the last lines of the broker's log.
    """
    home = Path(folder).absolute()
    home.mkdir(parents=True, exist_ok=True)
    with starting_alone(home):
        return is_running(home) or _start(home, port, controller_port, extra or {})


def _start(home: Path, port: int, controller_port: int | None, extra: Mapping[str, str]) -> BrokerInfo:
    class_path = kafka_class_path()
    server = LocalServer(
        name="broker", folder=home, file=_FILE, console="console.log", logs=("broker.log", "console.log")
    )
    before, at = server.remembered, server.port(port)
    controller_at = controller_port or free_port()
    # The broker uses the id in its data. A start that was killed may have stored only this id.
    cluster_id = _formatted_cluster(home) or (before["cluster_id"] if before else _new_cluster_id())
    _write_settings(home, at, controller_at, extra)
    java = [*_java(), "-cp", class_path]
    if not (home / "data" / "meta.properties").exists():
        _format(java, home, cluster_id, extra)
    bootstrap = f"127.0.0.1:{at}"
    pid = server.start(
        [*java, "kafka.Kafka", _SETTINGS],
        {"bootstrap": bootstrap, "cluster_id": cluster_id, "folder": str(home), "port": at},
        bootstrap,
        lambda: _is_answering(bootstrap, cluster_id),
    )
    return BrokerInfo(pid=pid, bootstrap=bootstrap, cluster_id=cluster_id, folder=str(home))


def _formatted_cluster(home: Path) -> str | None:
    """The cluster id of a folder's data; None if the folder has no data yet."""
    try:
        lines = (home / "data" / "meta.properties").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    return next((line.partition("=")[2].strip() for line in lines if line.startswith("cluster.id=")), None)


def stop_broker(folder: str | Path) -> bool:
    """Stops the broker of a folder and waits until the broker has ended. Returns False if no broker was running."""
    home = Path(folder).absolute()
    info = is_running(home)
    if info is None:
        return False
    end_process(info.pid)
    return True


def is_running(folder: str | Path) -> BrokerInfo | None:
    """The broker of a folder, if its process is alive; otherwise None."""
    told = running(Path(folder).absolute() / _FILE)
    if told is None:
        return None
    return BrokerInfo(**{name: told[name] for name in ("pid", "bootstrap", "cluster_id", "folder")})


def kafka_class_path(package: str = KAFKA_PACKAGE) -> str:
    """The Java class path of the broker, or of another package of Kafka.

    At the first call, Spark's resolver downloads the jars. Afterwards, the class path is cached until one of the jars
    is deleted.
    """
    jars = remembered_jars(package)
    if jars is None:
        jars = _resolve(package)
        remember_jars(package, jars)
    return os.pathsep.join([*jars, *_spark_jars()])


def _spark_jars() -> list[str]:
    return sorted(str(jar) for jar in (spark_home("broker") / "jars").iterdir() if jar.name.startswith(_FROM_SPARK))


def _resolve(package: str) -> list[str]:
    java_program()
    home = spark_home("broker")
    command = [
        str(home / "bin" / "spark-submit"),
        *("--verbose", "--master", "local[1]", "--packages", package, "--driver-memory", _HEAP),
        *("--class", "kafka.tools.StorageTool", "spark-internal", "random-uuid"),
    ]
    done: subprocess.CompletedProcess[str] | None = None
    for _ in range(_RESOLVE_ATTEMPTS):
        done = subprocess.run(
            command,
            env={**os.environ, "SPARK_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        jars = _class_path_elements(done.stdout + "\n" + done.stderr)
        if done.returncode == 0 and jars:
            return jars
    tail = "\n".join((done.stderr if done else "").strip().splitlines()[-8:])
    raise SqlError(
        UPSTREAM_UNREACHABLE,
        f"Kafka could not be downloaded (package {package})",
        detail=tail,
        hint="behind a proxy: export SPARK_SUBMIT_OPTS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'",
    )


def _class_path_elements(printed: str) -> list[str]:
    _, _, after = printed.partition("Classpath elements:\n")
    jars = []
    for line in after.splitlines():
        if not line.startswith("file:"):
            break
        jar = line.removeprefix("file://").removeprefix("file:")
        if not Path(jar).name.startswith(_NOT_FROM_KAFKA) and not Path(jar).name.startswith("org.slf4j"):
            jars.append(jar)
    return jars


def _java() -> list[str]:
    return [
        java_program(),
        f"-Xmx{_HEAP}",
        # The broker is short-lived: it should start quickly and leave the cores to its clients.
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Djava.awt.headless=true",
        # The path is relative to the folder in which the broker runs. An absolute path might cause errors, because Java
        # and Kafka read commas, % and non-ASCII characters of a path differently in properties, in lists and in URIs.
        f"-Dlog4j2.configurationFile={_LOG_SETTINGS}",
    ]


def _format(java: list[str], home: Path, cluster_id: str, extra: Mapping[str, str]) -> None:
    """Prepares a folder for a broker's data. Kafka's program for this purpose needs a JVM, which takes seconds to
    start. Therefore, rw_sql runs the program only once per machine and version of Kafka. The program writes a file with
    the initial features, which are the same for each cluster. For later data folders, rw_sql copies this file."""
    kept = _kept_checkpoint()
    is_plain = not any(key.startswith(_FORMAT_SETTINGS) for key in extra)
    data = home / "data"
    if is_plain and kept is not None and kept.is_file():
        data.mkdir(exist_ok=True)
        shutil.copyfile(kept, data / _CHECKPOINT)
        made = data / "meta.properties.new"
        made.write_text(f"version=1\ncluster.id={cluster_id}\nnode.id={_NODE}\n", encoding="utf-8")
        made.replace(data / "meta.properties")  # A folder with this file counts as formatted.
        return
    done = subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", _SETTINGS],
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SqlError(
            UPSTREAM_UNREACHABLE,
            f"the folder {home} cannot be used for a broker",
            detail=done.stderr.strip()[-800:],
            hint="choose an empty folder in which you can write",
        )
    if is_plain and kept is not None:
        with contextlib.suppress(OSError):
            keep_file(kept, (data / _CHECKPOINT).read_bytes())


def _kept_checkpoint() -> Path | None:
    try:
        return cache_folder() / (KAFKA_PACKAGE.replace(":", "-") + f".{_CHECKPOINT}")
    except FileNotFoundError:
        return None


def _write_settings(home: Path, port: int, controller_port: int, extra: Mapping[str, str]) -> None:
    settings = {
        "process.roles": "broker,controller",
        "node.id": _NODE,
        "controller.quorum.voters": f"{_NODE}@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": "data",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # Records with old timestamps, as in the examples, must not expire.
        "log.retention.ms": "-1",
        # Deleted topics and truncated records must disappear within the time that a test waits.
        "file.delete.delay.ms": "1000",
        "log.retention.check.interval.ms": "1000",
        "log.initial.task.delay.ms": "1000",
        **extra,
    }
    (home / _SETTINGS).write_text(
        "".join(f"{key}={_escaped(value)}\n" for key, value in settings.items()), encoding="utf-8"
    )
    (home / _LOG_SETTINGS).write_text(
        "status = error\n"
        "appender.file.type = File\n"
        "appender.file.name = file\n"
        "appender.file.fileName = broker.log\n"
        "appender.file.layout.type = PatternLayout\n"
        "appender.file.layout.pattern = %d %p %c{1}: %m%n\n"
        "rootLogger.level = warn\n"
        "rootLogger.appenderRef.file.ref = file\n",
        encoding="utf-8",
    )


def _escaped(value: str) -> str:
    """Returns a value in the syntax of a Java properties file. Java reads such a file as Latin-1."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n")
    units = text.encode("utf-16-be").hex()
    return text if text.isascii() else "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _is_answering(bootstrap: str, cluster_id: str) -> bool:
    from rw_sql.cli.servers.kafka_topics import answering_cluster

    # Another broker may use the port, so a response counts only if it comes from this folder's cluster.
    return is_port_open(bootstrap) and answering_cluster(bootstrap, seconds=5) == cluster_id


def _new_cluster_id() -> str:
    import base64
    import uuid

    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):  # the process has the name as an argument on its command line
            return made
