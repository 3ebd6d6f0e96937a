"""``rw-sql`` with a clock that jumps: ``python -m soak.shifted_clock FILE serve …``.

The file contains the number of seconds by which ``time.time`` differs from the clock of the machine. It may change at
any time. The JVM, delta-rs and the object store's client keep the clock of the machine.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

_LOOK_SECONDS = 0.2

_time, _time_ns = time.time, time.time_ns


class ShiftedClock:
    """The clock of the machine, and a shift in seconds that a file contains."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds = 0.0
        self._read()
        threading.Thread(target=self._watch, name="soak-clock", daemon=True).start()

    def time(self) -> float:
        """As ``time.time``."""
        return _time() + self._seconds

    def time_ns(self) -> int:
        """As ``time.time_ns``."""
        return _time_ns() + int(self._seconds * 1e9)

    def _read(self) -> None:
        self._seconds = read_shift(self._file)

    def _watch(self) -> None:
        while True:
            threading.Event().wait(_LOOK_SECONDS)
            self._read()


def read_shift(file: Path) -> float:
    """The shift in seconds; 0 without a file."""
    try:
        return float(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0.0


def write_shift(file: Path, seconds: float) -> None:
    """Changes the shift of the processes that read this file. They see it after a fifth of a second."""
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(str(seconds), encoding="utf-8")
    unfinished.replace(file)


def shift_clock(file: Path) -> None:
    """Replaces the clock of this process. Modules that import the functions of ``time`` must be imported later."""
    clock = ShiftedClock(file)
    time.time, time.time_ns = clock.time, clock.time_ns


if __name__ == "__main__":
    shift_clock(Path(sys.argv.pop(1)))
    from rw_sql.cli.main import app

    app(prog_name="rw-sql")
