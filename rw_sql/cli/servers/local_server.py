"""Code that the servers of ``rw-sql dev`` share. It finds Java, a free port, and the running server of a folder. It
also starts and stops the process of a server."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rw_sql.errors import JAVA_MISSING, UPSTREAM_UNREACHABLE, SqlError
from rw_sql.runtime.support.processes import is_process_alive, process_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

START_SECONDS = 300.0
"""The time limit in seconds for a server's start. The limit is high because starting a server takes long on a busy
machine."""

STOP_SECONDS = 60.0

_LOG_LINES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """A server whose files are in one folder.

    ``name`` is the server's name in messages. ``file`` is the file in the folder that stores the facts about the
    server's last start. ``console`` is the file that receives the server's output. ``logs`` are the files whose last
    lines explain a failed start.
    """

    name: str
    folder: Path
    file: str
    console: str
    logs: Sequence[str]

    @property
    def remembered(self) -> dict[str, Any] | None:
        """The facts about the server's last start; None before the first start."""
        return remembered(self.folder / self.file)

    def port(self, wanted: int) -> int:
        """The port for the next start. The result is ``wanted`` or, if ``wanted`` is 0, the port of the last start or a
        free port.

        Raises SqlError UPSTREAM_UNREACHABLE if another process listens on this port.
        """
        before = self.remembered
        port: int = wanted or (before["port"] if before else free_port())
        if is_port_open(f"127.0.0.1:{port}"):
            raise SqlError(
                UPSTREAM_UNREACHABLE, f"port {port} is taken by another process", hint="port 0 selects a free port"
            )
        return port

    def start(self, command: Sequence[str], facts: Mapping[str, object], at: str, is_ready: Callable[[], bool]) -> int:
        """Starts the server, and returns the server's process id when ``is_ready`` returns true. The server continues
        to run after this process has ended.

        ``facts`` are stored in the server's file, together with the id and the start time of the process. ``at`` is the
        server's address in messages. Raises SqlError UPSTREAM_UNREACHABLE, with the end of the server's logs, if the
        server does not start.
        """
        with (self.folder / self.console).open("ab") as console:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.folder,
            )
        known = {"pid": process.pid, "started": process_start(process.pid), **facts}
        (self.folder / self.file).write_text(json.dumps(known), encoding="utf-8")
        try:
            deadline = time.monotonic() + START_SECONDS
            while process.poll() is None and time.monotonic() < deadline:
                if is_ready():
                    return process.pid
                time.sleep(0.05)
        except BaseException:
            # Stops the server after any exception, even Ctrl-C: the caller does not have the server's process id yet,
            # so the caller could not stop the server.
            process.kill()
            process.wait()
            raise
        if process.poll() is None:
            process.kill()
            process.wait()
        raise SqlError(
            UPSTREAM_UNREACHABLE,
            f"the {self.name} at {at} did not start",
            detail="\n".join(self._last_lines()),
            hint=f"its log is in {self.folder}; to use another port: --port N",
        )

    def _last_lines(self) -> list[str]:
        logs = (self.folder / name for name in self.logs)
        text = "\n".join(log.read_text(errors="replace") for log in logs if log.exists())
        # Lines that begin with a tab belong to a Java stack trace.
        return [line for line in text.splitlines() if line.strip() and line[0] != "\t"][-_LOG_LINES:]


@contextlib.contextmanager
def starting_alone(folder: Path) -> Iterator[None]:
    """A context manager inside which no other process starts a server of the folder. If another process is starting a
    server of the folder, waits until that start has ended. Has no effect on a file system without locks."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # Some network file systems have no locks.
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def java_program() -> str:
    """The path of ``java``. Raises SqlError JAVA_MISSING if Java is not found."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    if found := shutil.which("java"):
        return found
    raise SqlError(JAVA_MISSING, "Java was not found", hint="install Java 17 or set JAVA_HOME")


def spark_home(server: str) -> Path:
    """The folder of pyspark, with Spark's own programs and jars. Raises SqlError JAVA_MISSING if pyspark is not
    installed. ``server`` is the name of the server in the error's message."""
    from importlib.util import find_spec

    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise SqlError(
            JAVA_MISSING,
            f"the {server} cannot be downloaded without pyspark, which is not installed",
            hint="pip install pyspark",
        )
    return Path(found.origin).parent


def is_port_open(address: str) -> bool:
    """True if a process listens at ``host:port``."""
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((host, int(port))) == 0


def free_port() -> int:
    """A port of the loopback interface on which no process is currently listening."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def remembered(file: Path) -> dict[str, Any] | None:
    """The facts about a server's last start from the file in its folder; None if there is no such file, or if it is not
    valid JSON."""
    try:
        told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return told


def running(file: Path) -> dict[str, Any] | None:
    """Like :func:`remembered`, but returns None if the server's process is not alive."""
    told = remembered(file)
    return told if told is not None and is_process_alive(told["pid"], told["started"]) else None


def end_process(pid: int) -> None:
    """Stops a process with SIGTERM. If the process does not end in time, stops it with SIGKILL. Waits for the end of
    the process."""
    os.kill(pid, signal.SIGTERM)
    if not is_gone_within(pid, STOP_SECONDS):
        os.kill(pid, signal.SIGKILL)
        is_gone_within(pid, STOP_SECONDS)


def is_gone_within(pid: int, seconds: float) -> bool:
    """Waits until a process has ended. Returns False if the process has not ended after ``seconds``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            # The process may be a child of this process. An ended child remains a zombie until its parent waits for it.
            os.waitpid(pid, os.WNOHANG)
        if not process_start(pid):
            return True
        time.sleep(0.05)
    return False
