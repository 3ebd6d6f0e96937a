"""Processes that run parts of one test, one after the other. Each process continues from the state that the previous
process left."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rw_sql
from tests.support.ageing import PAUSES, WEEK, Pauses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    from pyspark.sql import SparkSession

_ROOT = Path(__file__).parents[2]


@contextmanager
def replaced(module: ModuleType | type, **values: object) -> Iterator[None]:
    """A context manager that replaces some values of a module."""
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """Runs a module as several processes, one after the other. Each process gets its task as JSON on standard input.
    All processes write their output to one file.

    A process that is not killed runs the module's ``go_on`` and ends. If ``spark`` is given, this process runs
    ``go_on`` itself, because a new JVM would spend most of its time on loading classes that the JVM of this process has
    already loaded. If the module has a context manager ``around``, it makes the settings that are needed before the
    warehouse's jobs start.

    The processes' warehouse is in ``folder``. ``pauses`` draws the time between two processes. After a week, ``expire``
    removes the records that an upstream would not keep for a week.
    """

    module: str
    folder: Path
    seconds: float
    pauses: Pauses = field(default_factory=Pauses)
    expire: Callable[[], None] | None = None
    spark: SparkSession | None = None

    def live(self, task: Mapping[str, object], *, is_killed: bool) -> int:
        """Runs one process and returns its exit status. Raises TimeoutExpired if the process runs too long."""
        pause = self.pauses.pass_over(self.folder / "warehouse")
        if PAUSES[pause] >= WEEK and self.expire is not None:
            self.expire()
        with (self.folder / "said.txt").open("a", encoding="utf-8") as said:
            said.write(f"a process begins, {pause}\n")
        if self.spark is not None and not is_killed:
            self._go_on(self.spark, task)
            return os.EX_OK
        path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
        with (self.folder / "said.txt").open("ab") as said:
            child = subprocess.run(
                [sys.executable, "-m", self.module],
                input=json.dumps(task).encode(),
                stdout=said,
                stderr=said,
                cwd=_ROOT,
                env={**os.environ, "PYTHONPATH": path},
                timeout=self.seconds,
                check=False,
            )
        return child.returncode

    def _go_on(self, spark: SparkSession, task: Mapping[str, object]) -> None:
        module = importlib.import_module(self.module)
        with getattr(module, "around", lambda _: nullcontext())(task):
            rw_sql.attach(spark, str(self.folder / "warehouse")).ask = None
            try:
                module.go_on(spark, task)
            finally:
                rw_sql.detach(spark)
                # Delta has cached the state of the warehouse's tables. The next process changes the tables, and the
                # next pause changes their times.
                jvm: Any = spark._jvm
                jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def said(self) -> str:
        """The end of the processes' output."""
        return (self.folder / "said.txt").read_text(errors="replace")[-3000:]
