"""Decides which worker runs which test file. With ``--light N``, the last N of the ``--numprocesses`` workers run only
files that do not need Spark.

A worker with Spark often waits for a server, a timeout or a batch, and leaves a core idle while it waits. A light
worker uses the idle core for files that need neither Spark nor Kafka. A light worker needs a tenth of the memory, and
does not start Spark. If two workers could run a file, the worker whose servers already run takes the file, because each
worker has servers of its own. Placement changes only the time at which a file runs, and the worker that runs it. Every
test runs once, and the tests of a file run together.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_HEAVY = frozenset({"spark", "kafka", "crash"})
"""The marks of tests that start JVMs. A light worker leaves these tests to the other workers."""

_MARKS = re.compile(r"\bmark\.(spark|kafka|crash|postgres|mysql|nats|mqtt|pulsar|rabbitmq|registry)\b")
_FIXTURES = re.compile(r"\b(second_broker|secured|kinesis_server|s3_store)\b")


_FEW_TESTS = 2
"""If a worker has at most this many tests left, xdist gives the worker more: a worker begins a test only when it has
the next test."""


def needs_of(file: Path) -> frozenset[str]:
    """The servers and programs that the tests of a file need, found by the names of marks and fixtures in the file's
    text."""
    text = file.read_text(encoding="utf-8")
    return frozenset((*_MARKS.findall(text), *_FIXTURES.findall(text)))


def next_file(
    waiting: Iterable[str],
    needs: Mapping[str, frozenset[str]],
    *,
    is_light: bool,
    own: frozenset[str],
    others: frozenset[str],
) -> str | None:
    """The file that a worker runs next; None if a light worker should end.

    ``own`` are the needs of the files that the worker has run. ``others`` are the needs of the files that the other
    workers of the same kind have run. For workers with Spark, files that need Spark come first, then files whose
    servers no other worker has. Otherwise the order is that of ``waiting``.
    """

    def place(file: str) -> tuple[bool, bool]:
        return not needs[file] & _HEAVY, bool((needs[file] - _HEAVY - own) & others)

    files = [file for file in waiting if not (is_light and needs[file] & _HEAVY)]
    return min(files, key=place, default=None)


class Placement(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Assigns whole files to workers by :func:`next_file`."""

    def __init__(self, config: pytest.Config, log: Any, light: int) -> None:
        super().__init__(config, log)
        self._first_light = self.numnodes - light
        self._have: dict[Any, frozenset[str]] = {}
        self._needs: dict[str, frozenset[str]] = {}

    def _needs_of(self, file: str) -> frozenset[str]:
        if file not in self._needs:
            self._needs[file] = needs_of(self.config.rootpath / file)
        return self._needs[file]

    def _is_light(self, node: Any) -> bool:
        """True if a worker is light. A worker that replaces a crashed worker is not light."""
        number = int(node.gateway.id.removeprefix("gw"))
        return bool(self._first_light <= number < self.numnodes)

    def _next(self, node: Any) -> str | None:
        beside = [other for other in self.nodes if other is not node and not other.shutting_down]
        is_light = self._is_light(node)
        others: frozenset[str] = frozenset().union(
            *(self._have.get(other, frozenset()) for other in beside if self._is_light(other) == is_light)
        )
        return next_file(
            self.workqueue,
            {file: self._needs_of(file) for file in self.workqueue},
            # If no other worker is left, this worker runs all the remaining files.
            is_light=is_light and any(not self._is_light(other) for other in beside),
            own=self._have.get(node, frozenset()),
            others=others,
        )

    def _assign_work_unit(self, node: Any) -> None:
        file = self._next(node)
        if file is None:
            return
        self._have[node] = self._have.get(node, frozenset()) | self._needs_of(file)
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        is_depleted = not node.shutting_down and self._pending_of(self.assigned_work[node]) <= _FEW_TESTS
        if self.workqueue and is_depleted and self._next(node) is None:
            node.shutdown()
        else:
            super()._reschedule(node)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--light N``: the last N workers run files without Spark."""
    parser.addoption("--light", type=int, default=0, metavar="N", help="the last N workers run files without Spark")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Placement | None:
    """The scheduler of ``--dist loadfile``."""
    return Placement(config, log, config.getoption("--light")) if config.getoption("dist") == "loadfile" else None
