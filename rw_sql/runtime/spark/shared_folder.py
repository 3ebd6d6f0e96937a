"""Checks that every executor shares a warehouse's folder on a local path with the driver.

If Spark's master is not local, an executor writes to the disks of its own host. If the warehouse's path is a different
folder there, the rows and state that the executor writes are lost. New executors are therefore checked before a job
starts and before each large batch: each executor reads a file that the driver wrote, and writes a file that the driver
reads.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rw_sql.errors import first_names
from rw_sql.runtime.spark.jvm import java_context
from rw_sql.runtime.support.background import prepare
from rw_sql.runtime.support.failures import StalledError, cause_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from rw_sql.runtime.support.warehouse import Warehouse

logger = logging.getLogger(__name__)

UNSHARED = "UNSHARED"
"""The first word of the stall reason of a job that does not start because an executor does not share the warehouse's
folder."""

CHECK_VARIABLE = "RW_SQL_SHARED_FOLDER_CHECK"
"""If this environment variable is ``off``, the check is disabled. This serves to test how a cluster behaves without the
check."""

_ROUNDS = 3
_REFUSED_SECONDS = 2.0
_SECONDS_A_TASK = 0.3
_ASK_SECONDS = 60.0
_FIRST_SECONDS, _LOOK_SECONDS = 5.0, 0.05
_NONE_SECONDS = 60.0
"""If a wait for executors was in vain, no other wait begins for this time in seconds. Without this rule, each start of
a job would wait, one after the other."""
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of one task that checks the folder. ``host`` is the executor's host, and ``name`` is the name of the
    file that the executor wrote.

    ``process`` identifies the executor's process; ``problem`` is empty if the executor shares the folder.
    """

    host: str
    process: tuple[int, str]
    name: str
    problem: str


@dataclass(slots=True)
class _Known:
    """The executors that share a warehouse's folder, and a refusal that is valid until the monotonic time ``until``.

    Until the monotonic time ``none_until``, a call does not wait for executors, because an earlier call has waited in
    vain.
    """

    executors: set[str] = field(default_factory=set)
    refusal: str = ""
    until: float = 0.0
    none_until: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


_known: WeakKeyDictionary[SparkContext, dict[str, _Known]] = WeakKeyDictionary()


def is_on_one_machine(master: str | None) -> bool:
    """True if a Spark master runs its tasks in the driver's process."""
    return master is None or master == "local" or master.startswith("local[")


def require_shared(warehouse: Warehouse, spark: SparkSession) -> None:
    """Raises StalledError if an executor does not share the folder of a warehouse on a local path.

    Checks only new executors. With a local master, the call takes microseconds.
    """
    context = spark.sparkContext
    if is_on_one_machine(context.master) or not warehouse.is_local or os.environ.get(CHECK_VARIABLE) == "off":
        return
    known = _known.setdefault(context, {}).setdefault(warehouse.uri, _Known())
    with known.lock:  # If many jobs start at once, only the first job makes the check.
        before = _some_executors(context, known)
        if before <= known.executors:
            return
        if time.monotonic() >= known.until:
            known.refusal, known.until = _refusal(warehouse, context), time.monotonic() + _REFUSED_SECONDS
            if not known.refusal:
                known.executors |= before | _executors(context)
        if known.refusal:
            raise StalledError(known.refusal)


def _refusal(warehouse: Warehouse, context: SparkContext) -> str:
    """The reason why the warehouse cannot be used with the current executors; empty if the warehouse can be used, or if
    the executors could not be checked."""
    group = f"rw_sql asks executors for {warehouse.uri}, {uuid.uuid4().hex}"

    def ask() -> list[_Answer]:
        context.setJobGroup(group, group, interruptOnCancel=True)
        return _ask(warehouse, context)

    # A separate thread has its own job group.
    asking = prepare(ask, "shared-folder")
    try:
        answers = asking.result(_ASK_SECONDS)
    except (PySparkException, Py4JError, TimeoutError) as error:
        # The executors may have no Python or no free core. The rows of each batch are counted in any case.
        context.cancelJobGroup(group)
        why = cause_line(str(error)) or f"no answer within {_ASK_SECONDS:g} s"
        logger.warning("could not find out whether executors see %s: %s", warehouse.uri, why)
        return ""
    blind = [answer for answer in answers if answer.problem]
    return _said(warehouse, blind) if blind else ""


def _some_executors(context: SparkContext, known: _Known) -> set[str]:
    """Waits until there are executors, and returns their ids. The wait is limited and the result may be empty, because
    some clusters start executors only for tasks, which small batches do not need."""
    deadline = time.monotonic() + _FIRST_SECONDS
    while not (found := _executors(context)) and known.none_until <= time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    if not found and time.monotonic() >= deadline:
        known.none_until = time.monotonic() + _NONE_SECONDS
    return found


def _executors(context: SparkContext) -> set[str]:
    """The ids of the current executors."""
    return set(filter(None, str(java_context(context).getExecutorIds().mkString(",")).split(",")))


def _ask(warehouse: Warehouse, context: SparkContext) -> list[_Answer]:
    """The results of the checks. Each executor is checked at least once, provided that Spark assigns it a task."""
    folder = f"{warehouse.uri.removeprefix('file://')}/_rw_shared-{uuid.uuid4().hex}"
    token = uuid.uuid4().hex
    found: dict[tuple[str, tuple[int, str]], _Answer] = {}
    try:
        warehouse.write_text(f"{folder}/driver", token)
        for _ in range(_ROUNDS):
            tasks = max(context.defaultParallelism, len(_executors(context)), 1)
            for answer in _look(context, folder, token, tasks):
                seen = answer
                if not answer.problem and not _is_there(warehouse, f"{folder}/{answer.name}", token):
                    seen = _Answer(
                        answer.host, answer.process, answer.name, "the driver does not see what this executor writes"
                    )
                known = found.get((answer.host, answer.process))
                if known is None or not known.problem:
                    found[answer.host, answer.process] = seen
            if any(answer.problem for answer in found.values()) or len(found) >= len(_executors(context)):
                break
    finally:
        warehouse.remove(folder)
    return list(found.values())


def _is_there(warehouse: Warehouse, path: str, token: str) -> bool:
    try:
        return warehouse.read_text(path) == token
    except OSError:
        return False


def _look(context: SparkContext, folder: str, token: str, tasks: int) -> list[_Answer]:
    seconds = _SECONDS_A_TASK

    # The function is nested, so that executors receive it by value. This is necessary because executors may not have
    # this package.
    def look(number: int, _: Iterable[int]) -> Iterator[tuple[str, int, str, str, str]]:
        import os
        import socket
        import time

        name, problem = f"task-{number}-{os.getpid()}", ""
        try:
            with open(f"{folder}/driver", encoding="utf-8") as file:
                if file.read() != token:
                    problem = "the file that it sees is not the one that the driver wrote"
        except OSError as error:
            problem = f"it does not see what the driver wrote: {(error.strerror or str(error)).lower()}"
        if not problem:
            try:
                with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                    file.write(token)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                problem = f"it cannot write there: {(error.strerror or str(error)).lower()}"
        try:
            place = os.getcwd()
        except OSError:
            place = "a folder that was deleted"
        # Prevents one executor from taking all tasks.
        time.sleep(seconds)
        yield socket.gethostname(), os.getppid(), place, name, problem

    told = context.parallelize(range(tasks), tasks).mapPartitionsWithIndex(look).collect()
    return [_Answer(host, (process, place), name, problem) for host, process, place, name, problem in told]


def _said(warehouse: Warehouse, blind: list[_Answer]) -> str:
    named = [f"the one on host {answer.host} in {answer.process[1]} ({answer.problem})" for answer in blind]
    return (
        f"{UNSHARED} {warehouse.uri}: not every executor sees this folder as the driver on host "
        f"{socket.gethostname()} does: {first_names(named, _MOST_NAMED)}. "
        "Mount the same folder at this path on every host, or put the warehouse on a store that all hosts reach (s3://…)"
    )
