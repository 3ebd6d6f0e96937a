"""``rw-sql serve`` as a separate process, and programs at a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rw_sql.metastore import Metastore
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

PROGRAM = [sys.executable, "-c", "from rw_sql.cli.main import app; app(prog_name='rw-sql')"]


class Server:
    """A running ``rw-sql serve``. The JVM of the process ends a moment after the process."""

    def __init__(self, warehouse: str, folder: Path, *options: str) -> None:
        self._log = (folder / f"serve-{time.monotonic_ns()}.log").open("w+b")
        self.process = subprocess.Popen(
            [*PROGRAM, "serve", "--warehouse", warehouse, *options],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "MASTER": "local[2]"},
        )

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self.process.pid

    def is_serving(self) -> bool:
        """True if the server has reported that it serves or stands by. Fails if the server has ended."""
        said = self.said()
        assert self.process.poll() is None, said
        return "serving" in said or "standing by" in said

    def said(self) -> str:
        """The server's output so far."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def kill(self) -> None:
        """Kills the server with SIGKILL, like a power failure of the machine."""
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait(LAST_RESORT_SECONDS) == -signal.SIGKILL

    def terminate(self) -> int:
        """Ends the server with SIGTERM, and returns its exit status."""
        self.process.terminate()
        return self.process.wait(LAST_RESORT_SECONDS)

    def close(self) -> None:
        """Ends the server if it is still running."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LAST_RESORT_SECONDS)
        self._log.close()


def owner_pid(warehouse: str) -> int | None:
    """The process id of a warehouse's owner."""
    lease = Metastore.open(warehouse).jobs.lease()
    return None if lease is None or lease.is_released else lease.python_pid


class Terminal:
    """A program at a terminal of its own. The methods type input and read the output."""

    def __init__(self, end: int, process: subprocess.Popen[bytes]) -> None:
        self._end = end
        self._more = ""
        self.process = process
        self.longest_silence = 0.0
        """The longest time in seconds, over all waits so far, in which the program printed nothing."""

    def type_line(self, text: str) -> None:
        """Types a line and Enter."""
        os.write(self._end, text.encode() + b"\n")

    def type_text(self, text: str) -> None:
        """Types a text without Enter."""
        os.write(self._end, text.encode())

    def interrupt(self) -> None:
        """Types Ctrl-C."""
        os.write(self._end, b"\x03")

    def read_until(self, wanted: str, seconds: float = LAST_RESORT_SECONDS) -> str:
        """Waits for a text in the program's output; returns the output since the last call, up to and including this
        text."""
        shown, self._more = self._more, ""
        deadline = time.monotonic() + seconds
        while wanted not in shown:
            began = time.monotonic()
            ready, _, _ = select.select([self._end], [], [], max(0.0, deadline - began))
            self.longest_silence = max(self.longest_silence, time.monotonic() - began)
            assert ready, f"{wanted!r} did not come; the terminal shows:\n{shown}"
            try:
                shown += os.read(self._end, 65536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"the program ended before {wanted!r}:\n{shown}") from None
        end = shown.index(wanted) + len(wanted)
        self._more = shown[end:]
        return shown[:end]


def _take_terminal() -> None:
    """Runs in the child process. Makes the terminal the controlling terminal of this process. Otherwise, Ctrl-C would
    be an ordinary character."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def at_a_terminal(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Terminal]:
    """Runs a program at a terminal, and ends it and its children afterwards."""
    end, inner = pty.openpty()
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env={**os.environ, "TERM": "dumb", "COLUMNS": "200", **environment},
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(inner)
    termios.tcsetwinsize(end, (50, 1000))
    try:
        yield Terminal(end, process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(LAST_RESORT_SECONDS)
        os.close(end)
