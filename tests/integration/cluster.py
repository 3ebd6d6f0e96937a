"""A standalone Spark cluster on the loopback interface. A worker can be made *blind* to a folder: at the path of this
folder, the worker sees another folder than the other workers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from tests.integration.attached import wait_until

if TYPE_CHECKING:
    from types import TracebackType

_HOME = Path(pyspark.__file__).parent
_MASTER = re.compile(r"Starting Spark master at (spark://[\d.]+:\d+)")
_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")


def why_no_blind_worker() -> str:
    """The reason why workers on this machine cannot be made blind to a folder; empty if they can be made blind."""
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt"], check=False, capture_output=True, text=True
    )
    return "" if done.returncode == 0 else f"unshare -m is not permitted here: {done.stderr.strip()}"


@dataclass(slots=True)
class Cluster:
    """A master and its workers. Each worker has a folder of its own for the code that it runs."""

    folder: Path
    master: str = ""
    _workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _words: dict[str, list[str]] = field(default_factory=dict)

    def __enter__(self) -> Cluster:
        log = self._run("master", "master.Master", ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"])
        wait_until(lambda: _MASTER.search(log.read_text(errors="replace")) is not None, "the master is up")
        found = _MASTER.search(log.read_text(errors="replace"))
        assert found is not None
        self.master = found[1]
        return self

    def add_worker(self, name: str, *, blind_to: Path | None = None, cores: int = 1) -> None:
        """Starts a worker with 1 GB of memory for each of its ``cores``. If ``blind_to`` is given, the worker and its
        executors see an empty folder in place of this folder."""
        place = self.folder / name
        place.mkdir()
        words = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", str(cores), "--memory", f"{cores}g"]
        self._words[name] = [*words, "--work-dir", str(place), self.master]
        self._run(name, "worker.Worker", self._words[name], blind_to)

    def executors(self, name: str) -> list[int]:
        """The process ids of a worker's executors."""
        return [pid for pid in _children(self._workers[name].pid) if b"ExecutorBackend" in _command(pid)]

    def kill_executor(self, name: str) -> bool:
        """Kills one executor of a worker; returns False if the worker has none."""
        for pid in self.executors(name):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            return True
        return False

    def kill_worker(self, name: str) -> None:
        """Kills a worker and its executors, as when its host loses power."""
        os.killpg(self._workers[name].pid, signal.SIGKILL)
        self._workers[name].wait()

    def start_worker(self, name: str) -> None:
        """Starts a killed worker again. Returns once the worker is registered with the master."""
        self._run(name, "worker.Worker", self._words[name])
        self.wait_for_workers(name)

    def wait_for_workers(self, *names: str) -> None:
        """Returns once all workers are registered with the master."""
        for name in names:
            wait_until(partial(self._is_known, name), f"worker {name} is up")

    def _is_known(self, name: str) -> bool:
        return "Successfully registered" in (self.folder / f"{name}.log").read_text(errors="replace")

    def pid(self, name: str) -> int:
        """The process id of the master or of a worker."""
        return self._workers[name].pid

    def give_sight(self, name: str, folder: Path) -> None:
        """Makes a worker that was blind to a folder see the same folder as all other workers."""
        self._on(name, f'while umount "{folder}" 2> /dev/null; do :; done')

    def give_own_copy(self, name: str, folder: Path) -> None:
        """Makes a blind worker see the files that other processes write to a folder. The other processes still do not
        see the files that this worker writes."""
        above = self.folder / f"{name}-writes"
        above.mkdir()
        layers = f"lowerdir={self._real(name)},upperdir={above}/upper,workdir={above}/work"
        make = f'mount -t tmpfs tmpfs "{above}" && mkdir "{above}/upper" "{above}/work"'
        self._on(name, f'{make} && mount -t overlay overlay -o "{layers}" "{folder}"')

    def _real(self, name: str) -> Path:
        """The path at which a blind worker sees the folder that all other processes see."""
        return self.folder / f"{name}-real"

    def _on(self, name: str, script: str) -> None:
        """Runs a script in the mount namespace of a worker and its executors."""
        subprocess.run(["nsenter", "-m", "-t", str(self._workers[name].pid), "sh", "-c", script], check=True)

    def _run(self, name: str, cls: str, words: list[str], blind_to: Path | None = None) -> Path:
        java = f"{os.environ['JAVA_HOME']}/bin/java" if "JAVA_HOME" in os.environ else "java"
        # Runs the same command as spark-class, which would need another JVM to determine this command.
        command = [java, "-cp", str(_HOME / "jars" / "*"), *_JAVA, f"org.apache.spark.deploy.{cls}", *words]
        if blind_to is not None:
            real = self._real(name)
            real.mkdir()
            hide = f'mount --bind "{blind_to}" "{real}" && mount -t tmpfs tmpfs "{blind_to}"'
            command = ["unshare", "-m", "sh", "-c", f'{hide} && exec "$@"', "sh", *command]
        environment = {
            **os.environ,
            "SPARK_HOME": str(_HOME),
            "SPARK_SCALA_VERSION": "2.13",
            "PYSPARK_PYTHON": sys.executable,
        }
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            # A separate process group, so that ending it also ends its executors.
            started = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        self._workers[name] = started
        return log

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._workers.values()):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._workers.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(20)


def _children(parent: int) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            # The name of the program is in parentheses and may contain spaces. The parent's id is the second field
            # after the name.
            fields = Path("/proc", name, "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(name))
    return found


def _command(pid: int) -> bytes:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return b""
