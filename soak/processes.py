"""The processes of a soak: one broker and one owner, which are killed, stopped and started again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.cli.servers.kafka_broker import is_running, start_broker, stop_broker
from rw_sql.metastore import Metastore
from tests.support.ageing import HOUR, WEEK, grow_old, wait_until_left

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_SECONDS = 1.0
_SERVE = ("--no-http", "--conf", "spark.ui.enabled=false", "--master", "local[2]", "--driver-memory", "1g")


@dataclass(slots=True)
class Processes:
    """The broker, and the owner: ``rw-sql serve``, which is started again whenever it ends, unless a fault keeps it
    stopped."""

    folder: Path
    bootstrap: str = ""
    starts: int = 0
    _owner: subprocess.Popen[bytes] | None = None
    _is_kept_down: threading.Event = field(default_factory=threading.Event)
    _is_over: threading.Event = field(default_factory=threading.Event)
    _watcher: threading.Thread | None = None

    @property
    def warehouse(self) -> Path:
        """The folder of the warehouse."""
        return self.folder / "warehouse"

    def start(self) -> None:
        """Starts the broker, and the thread that starts the owner and watches it."""
        self.bootstrap = start_broker(self.folder / "broker", port=0).bootstrap
        self._watcher = threading.Thread(target=self._watch, name="soak-watch", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """Ends the thread, the owner and the broker."""
        self._is_over.set()
        if self._watcher is not None:
            self._watcher.join()
        if self._owner is not None:
            self._owner.terminate()
            try:
                self._owner.wait(60)
            except subprocess.TimeoutExpired:
                self._owner.kill()
        stop_broker(self.folder / "broker")

    def _watch(self) -> None:
        while not self._is_over.wait(_LOOK_SECONDS):
            if self._is_kept_down.is_set() or (self._owner is not None and self._owner.poll() is None):
                continue
            self.starts += 1
            with (self.folder / "owner.log").open("ab") as log:
                self._owner = subprocess.Popen(
                    [sys.executable, "-m", "rw_sql.cli.main", "serve", "-w", str(self.warehouse), *_SERVE],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=Path(__file__).parents[1],
                )

    def owner_pids(self) -> tuple[int, int] | None:
        """The ids of the Python process and of the JVM that run the jobs; None if no owner runs them."""
        lease = Metastore.open(str(self.warehouse)).jobs.lease()
        if lease is None or lease.is_released or self._owner is None or lease.python_pid != self._owner.pid:
            return None
        return lease.python_pid, lease.jvm_pid

    def kill(self, which: str) -> bool:
        """Kills the owner's Python process, its JVM or both: ``which`` is ``python``, ``jvm`` or ``both``. Returns
        False if there is no owner now."""
        pids = self.owner_pids()
        if pids is None:
            return False
        for pid in {"python": pids[:1], "jvm": pids[1:], "both": pids}[which]:
            _signal(pid, signal.SIGKILL)
        return True

    def suspend(self, seconds: float) -> bool:
        """Suspends the owner's processes by SIGSTOP for some seconds; returns False if there is no owner now."""
        pids = self.owner_pids()
        if pids is None:
            return False
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        self._is_over.wait(seconds)
        for pid in pids:
            _signal(pid, signal.SIGCONT)
        return True

    def away(self, seconds: float, *, older: float = 0.0) -> bool:
        """Kills the owner, and lets it be started again after ``seconds``. Meanwhile, the stored data is made older by
        ``older`` seconds. Returns False if there is no owner now."""
        self._is_kept_down.set()
        try:
            if not self.kill("both"):
                return False
            if older:
                wait_until_left(self.warehouse)
                grow_old(self.warehouse, older)
            self._is_over.wait(seconds)
            return True
        finally:
            self._is_kept_down.clear()

    def lose_broker(self, seconds: float) -> bool:
        """Kills the broker and starts it again after some seconds, at the same address; returns False if it is not
        running."""
        info = is_running(self.folder / "broker")
        if info is None:
            return False
        _signal(info.pid, signal.SIGKILL)
        while is_running(self.folder / "broker") is not None:
            time.sleep(0.05)
        self._is_over.wait(seconds)
        start_broker(self.folder / "broker", port=0)
        return True


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def draw_fault(processes: Processes, draw: random.Random) -> tuple[str, Callable[[], bool]]:
    """Draws a fault: its name, and a function that causes it and ends it again."""
    short, long = draw.uniform(1, 20), draw.uniform(60, 120)
    faults: list[tuple[str, int, Callable[[], bool]]] = [
        ("Python process killed", 4, lambda: processes.kill("python")),
        ("JVM killed", 4, lambda: processes.kill("jvm")),
        ("both killed", 2, lambda: processes.kill("both")),
        ("owner stopped by SIGSTOP", 3, lambda: processes.suspend(short)),
        ("owner stopped for over a minute", 1, lambda: processes.suspend(long)),
        ("owner away for over a minute", 1, lambda: processes.away(long)),
        ("owner away for an hour", 1, lambda: processes.away(1, older=HOUR)),
        ("owner away for a week", 1, lambda: processes.away(1, older=WEEK + HOUR)),
        ("broker killed", 3, lambda: processes.lose_broker(short)),
        ("broker away for over a minute", 1, lambda: processes.lose_broker(long)),
    ]
    name, _, fault = draw.choices(faults, [weight for _, weight, _ in faults])[0]
    return name, fault
