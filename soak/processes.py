"""The processes of a soak: one broker, one owner, and the executors of a cluster, which are killed, stopped and started
again."""

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
from soak.places import WORKERS, Place
from soak.shifted_clock import write_shift
from tests.support.ageing import grow_old, wait_until_left

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

_LOOK_SECONDS = 1.0
_SERVE = ("--no-http", "--conf", "spark.ui.enabled=false", "--driver-memory", "1g")


@dataclass(slots=True)
class Processes:
    """The broker, and the owner: ``rw-sql serve``, which is started again whenever it ends, unless a fault keeps it
    stopped."""

    folder: Path
    place: Place
    why_no_registry: str = ""
    bootstrap: str = ""
    starts: int = 0
    _owner: subprocess.Popen[bytes] | None = None
    _is_kept_down: threading.Event = field(default_factory=threading.Event)
    is_over: threading.Event = field(default_factory=threading.Event)
    _watcher: threading.Thread | None = None

    @property
    def warehouse(self) -> str:
        """The folder or URI of the warehouse."""
        return self.place.warehouse

    @property
    def _clock(self) -> Path:
        return self.folder / "clock"

    def metastore(self) -> Metastore:
        """The catalog of the warehouse, which is only read."""
        return Metastore.open(self.warehouse, only_reads=True)

    def start(self) -> None:
        """Starts the broker, and the thread that starts the owner and watches it."""
        self.bootstrap = start_broker(self.folder / "broker", port=0).bootstrap
        self._watcher = threading.Thread(target=self._watch, name="soak-watch", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """Ends the thread, the owner and the broker."""
        self.is_over.set()
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
        while not self.is_over.wait(_LOOK_SECONDS):
            if self._is_kept_down.is_set() or (self._owner is not None and self._owner.poll() is None):
                continue
            self.starts += 1
            with (self.folder / "owner.log").open("ab") as log:
                program = (sys.executable, "-m", "soak.shifted_clock", str(self._clock))
                self._owner = subprocess.Popen(
                    [*program, "serve", "-w", self.warehouse, *_SERVE, *self.place.serve_words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=Path(__file__).parents[1],
                )

    def owner_pids(self) -> tuple[int, int] | None:
        """The ids of the Python process and of the JVM that run the jobs; None if no owner runs them."""
        lease = self.metastore().jobs.lease()
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
        self.is_over.wait(seconds)
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
                wait_until_left(Path(self.warehouse))
                grow_old(Path(self.warehouse), older)
            self.is_over.wait(seconds)
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
        self.is_over.wait(seconds)
        start_broker(self.folder / "broker", port=0)
        return True

    def shift_clock(self, by: float, seconds: float) -> bool:
        """Shifts the clock of the owner's Python process by some seconds, and back again after ``seconds``; returns
        False if there is no owner now."""
        if self.owner_pids() is None:
            return False
        write_shift(self._clock, by)
        try:
            self.is_over.wait(seconds)
        finally:
            write_shift(self._clock, 0)
        return True

    def kill_executor(self, draw: random.Random) -> bool:
        """Kills an executor; returns False if no worker has one."""
        assert self.place.cluster is not None
        return any(self.place.cluster.kill_executor(name) for name in draw.sample(WORKERS, len(WORKERS)))

    def lose_worker(self, draw: random.Random, seconds: float) -> bool:
        """Kills a worker with its executors, and starts it again after some seconds."""
        assert self.place.cluster is not None
        name = draw.choice(WORKERS)
        self.place.cluster.kill_worker(name)
        self.is_over.wait(seconds)
        self.place.cluster.start_worker(name)
        return True

    def obstruct(self, how: str, seconds: float) -> bool:
        """Makes the disk full or read-only for some seconds."""
        assert self.place.disk is not None
        try:
            self.place.disk.obstruct(how)
            self.is_over.wait(seconds)
        finally:
            self.place.disk.free()
        return True

    def during(self, trouble: Callable[[], AbstractContextManager[None]], seconds: float) -> bool:
        """Keeps up a trouble of the object store for some seconds."""
        with trouble():
            self.is_over.wait(seconds)
        return True


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
