"""Flink SQL as a peer: PyFlink in a separate virtual environment, and a cluster that runs jobs."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.harness import NotRunError
from bench.maven import fetched_jars
from bench.streaming import end_group

FLINK = "apache-flink==1.19.3"
CONNECTOR = "org.apache.flink:flink-sql-connector-kafka:3.2.0-1.19"
"""The release of Flink's Kafka connector that fits the release of Flink in ``FLINK``. One jar contains the connector
and its dependencies."""

_HOME = Path(__file__).parent / ".work"
_SLOTS = 4
_TOLD = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Flink:
    """An installed PyFlink: its Python, the folder that Flink calls FLINK_HOME, and the jar of the Kafka connector."""

    python: Path
    home: Path
    connector: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class FlinkCluster:
    """A running session cluster. One process manages jobs, and one process runs them."""

    port: int
    processes: tuple[subprocess.Popen[bytes], ...]


def installed_flink() -> Flink:
    """PyFlink, installed if necessary. Raises NotRunError if it cannot be installed, with the end of pip's output."""
    folder = _HOME / FLINK.replace("==", "-")
    python = folder / "bin" / "python"
    is_whole = folder / "installed"
    if not is_whole.exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", FLINK]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotRunError(f"{FLINK} cannot be installed: {done.stderr.strip()[-_TOLD:]}")
        is_whole.touch()
    found = subprocess.run(
        [str(python), "-c", "import pyflink; print(pyflink.__path__[0])"], capture_output=True, text=True, check=False
    )
    if found.returncode:
        raise NotRunError(f"PyFlink does not start: {found.stderr.strip()[-_TOLD:]}")
    (jar,) = fetched_jars(CONNECTOR, is_transitive=False)
    return Flink(python=python, home=Path(found.stdout.strip()), connector=jar)


@contextmanager
def flink_cluster(flink: Flink, folder: Path) -> Iterator[FlinkCluster]:
    """A cluster on this machine that is ready for jobs, with its configuration and logs in a folder."""
    from rw_sql.cli.servers.local_server import free_port

    port = free_port()
    settings = {
        "jobmanager.rpc.address": "127.0.0.1",
        "jobmanager.rpc.port": str(free_port()),
        "jobmanager.bind-host": "127.0.0.1",
        "jobmanager.memory.process.size": "1024m",
        "taskmanager.host": "127.0.0.1",
        "taskmanager.bind-host": "127.0.0.1",
        "taskmanager.memory.process.size": "2048m",
        "taskmanager.numberOfTaskSlots": str(_SLOTS),
        "rest.address": "127.0.0.1",
        "rest.port": str(port),
        "rest.bind-address": "127.0.0.1",
    }
    conf = folder / "conf"
    shutil.copytree(flink.home / "conf", conf)
    before = (conf / "config.yaml").read_text(encoding="utf-8")
    options = next(line for line in before.splitlines() if line.strip().startswith("all: --add-exports"))
    lines = [f"{name}: {value}" for name, value in settings.items()]
    lines.append(f"env.java.opts.all: {options.split('all: ', 1)[1]}")
    (conf / "config.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    environment = {
        **os.environ,
        "FLINK_HOME": str(flink.home),
        "FLINK_CONF_DIR": str(conf),
        "FLINK_LOG_DIR": str(folder),
    }
    with ExitStack() as running:
        kinds = ("jobmanager", "taskmanager")
        processes = tuple(running.enter_context(_service(flink, kind, folder, environment)) for kind in kinds)
        yield FlinkCluster(port=port, processes=processes)


@contextmanager
def _service(flink: Flink, kind: str, folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{kind}.out").open("w") as out:
        process = subprocess.Popen(
            ["/bin/bash", str(flink.home / "bin" / f"{kind}.sh"), "start-foreground"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            end_group(process)
