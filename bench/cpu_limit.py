"""Limits the CPU time of a process and of the processes that it starts afterwards, with a control group of Linux."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 20_000
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class CpuLimit:
    """A control group, of version 1 or 2 of Linux's interface."""

    folder: Path

    @staticmethod
    @contextmanager
    def made(name: str) -> Iterator[CpuLimit | None]:
        """A context manager that yields a new group without a limit, or None if this process may not create a group."""
        above = _ROOT / "cpu" if (_ROOT / "cpu" / "cpu.cfs_quota_us").exists() else _ROOT
        limit = CpuLimit(above / f"rw_sql_bench-{os.getpid()}-{name}")
        try:
            limit.folder.mkdir()
            limit.set(None)
        except OSError:
            limit._remove()
            yield None
            return
        try:
            yield limit
        finally:
            limit._remove()

    def add(self, pid: int) -> None:
        """Puts a process into the group. Processes that this process starts from now on belong to the group too."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def set(self, cores: float | None) -> None:
        """Sets the CPU time per second of all processes in the group together, in seconds; None for no limit."""
        if (self.folder / "cpu.max").exists():
            quota = "max" if cores is None else str(int(cores * _PERIOD_US))
            (self.folder / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
            return
        (self.folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (self.folder / "cpu.cfs_quota_us").write_text("-1" if cores is None else str(int(cores * _PERIOD_US)))

    def _remove(self) -> None:
        deadline = time.monotonic() + _END_SECONDS
        while self.folder.exists() and time.monotonic() < deadline:
            with suppress(OSError):  # a process of the group has not ended yet
                self.folder.rmdir()
            time.sleep(0.05)
