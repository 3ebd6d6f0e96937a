"""Hides Spark's start-up messages (a dozen lines or more that require no action) from a terminal or notebook."""

from __future__ import annotations

import os
import re
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_UP = re.compile(
    rb"WARNING: Using incubator modules"
    rb"|Using Spark's default log4j profile"
    rb"|Setting (?:default|Spark) log level to"
    rb"|To adjust logging level use"
    rb"|\S+ \S+ WARN (?:Utils|NativeCodeLoader|SparkSession):"
    # Ivy, which fetches the jars.
    rb"|::|\t(?:confs:|found |\[|-{9}|\|)|Ivy Default Cache set to|The jars for the packages stored in"
    rb"|[\w.-]+#[\w.-]+ added as a dependency|downloading https?:|\d+ artifacts copied|\s*$"
)


@contextmanager
def without_start_messages() -> Iterator[None]:
    """A context manager that filters the standard error of a process started inside the ``with`` block. The filter
    stays in place until that process ends.

    Known start-up lines are hidden, and all other lines are passed on. If the block raises an error, the hidden lines
    are written too, because one of these lines may explain the error.
    """
    try:
        ours = os.dup(2)
    except OSError:  # Standard error is closed.
        yield
        return
    read_end, write_end = os.pipe()
    messages = _Filter(read_end, ours)
    sys.stderr.flush()
    os.dup2(write_end, 2)
    os.close(write_end)
    try:
        yield
    except BaseException:
        os.dup2(ours, 2)
        messages.show_all()
        raise
    else:
        os.dup2(ours, 2)
        messages.forget()


class _Filter:
    """Copies lines from one file descriptor to another, except Spark's start-up lines. The filter ends when every
    writer has closed the descriptor from which it reads."""

    def __init__(self, read_end: int, target: int) -> None:
        self._target = target
        self._left_out: list[bytes] = []
        self._shows_all = False
        self._keeps = True
        self._lock = threading.Lock()
        threading.Thread(target=self._copy, args=(read_end,), name="spark-messages", daemon=True).start()

    def _copy(self, read_end: int) -> None:
        with open(read_end, "rb") as lines:
            for line in lines:
                with self._lock:
                    if self._shows_all or not _START_UP.match(line):
                        self._write(line)
                    elif self._keeps:
                        self._left_out.append(line)

    def show_all(self) -> None:
        """Writes the lines hidden so far, and hides no further lines."""
        with self._lock:
            self._shows_all = True
            for line in self._left_out:
                self._write(line)
            self._left_out.clear()

    def forget(self) -> None:
        """Drops the hidden lines and stops storing further ones, because they would fill the memory of a process that
        runs for months."""
        with self._lock:
            self._keeps = False
            self._left_out.clear()

    def _write(self, line: bytes) -> None:
        # If the terminal no longer exists, lines are dropped, so that the process that writes them does not block.
        with suppress(OSError):
            os.write(self._target, line)
