"""Code shared by the servers of ``rw-sql dev``: finds Java, free ports, and the running server of a folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import time
from pathlib import Path
from typing import Any

from rw_sql.errors import JAVA_MISSING, SqlError
from rw_sql.runtime.support.processes import is_process_alive, process_start

STOP_SECONDS = 60.0


def java_program() -> str:
    """The path of ``java``. Raises SqlError JAVA_MISSING."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    if found := shutil.which("java"):
        return found
    raise SqlError(JAVA_MISSING, "Java was not found", hint="install Java 17 or set JAVA_HOME")


def spark_home(server: str) -> Path:
    """The folder of pyspark, with Spark's own programs and jars. Raises SqlError JAVA_MISSING."""
    from importlib.util import find_spec

    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise SqlError(
            JAVA_MISSING, f"pyspark is not installed; the {server} is fetched through it", hint="pip install pyspark"
        )
    return Path(found.origin).parent


def is_port_open(address: str) -> bool:
    """True if a process listens at ``host:port``."""
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((host, int(port))) == 0


def free_port() -> int:
    """A port of this machine on which no process is currently listening."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def remembered(file: Path) -> dict[str, Any] | None:
    """The facts about a server's last start from the file in its folder; None without a file."""
    try:
        told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return told


def running(file: Path) -> dict[str, Any] | None:
    """Like :func:`remembered`, but None if the server's process is not alive."""
    told = remembered(file)
    return told if told is not None and is_process_alive(told["pid"], told["started"]) else None


def end_process(pid: int) -> None:
    """Ends a process and waits for its end: by SIGTERM, or by SIGKILL if that takes too long."""
    os.kill(pid, signal.SIGTERM)
    if not is_gone_within(pid, STOP_SECONDS):
        os.kill(pid, signal.SIGKILL)
        is_gone_within(pid, STOP_SECONDS)


def is_gone_within(pid: int, seconds: float) -> bool:
    """Waits until a process has ended; returns False at a timeout."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            # It may be a child of this process, which remains a zombie until it is waited for.
            os.waitpid(pid, os.WNOHANG)
        if not process_start(pid):
            return True
        time.sleep(0.05)
    return False
