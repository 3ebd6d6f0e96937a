"""Whether every executor sees a warehouse's folder on a local path as the driver does.

With a master that is not local an executor writes to the disks of its own host. Where the warehouse's path leads to
another folder there, what it writes is lost, and so is a view's state. So executors that are new are asked before a
job starts and before each large batch: they read a file that the driver wrote and write one that it reads.
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
"""The first word of the reason of a job that does not start because an executor does not see the warehouse."""

CHECK_VARIABLE = "RW_SQL_SHARED_FOLDER_CHECK"
"""``off`` leaves the check out, to find out what a cluster does without it."""

_ROUNDS = 3
_REFUSED_SECONDS = 2.0
_SECONDS_A_TASK = 0.3
_ASK_SECONDS = 60.0
_FIRST_SECONDS, _LOOK_SECONDS = 5.0, 0.05
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one task found. ``process`` is the executor's, ``problem`` empty where it sees what the driver wrote."""

    host: str
    process: tuple[int, str]
    name: str
    problem: str


@dataclass(slots=True)
class _Known:
    """The executors that see a warehouse's folder, and the refusal that holds until the monotonic time ``until``."""

    executors: set[str] = field(default_factory=set)
    refusal: str = ""
    until: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


_known: WeakKeyDictionary[SparkContext, dict[str, _Known]] = WeakKeyDictionary()


def is_on_one_machine(master: str | None) -> bool:
    """Whether a Spark master runs its tasks in the driver's process."""
    return master is None or master == "local" or master.startswith("local[")


def require_shared(warehouse: Warehouse, spark: SparkSession) -> None:
    """Raises StalledError where an executor does not see the folder of a warehouse on a local path.

    Asks those that were not asked before; with a local master it costs microseconds.
    """
    context = spark.sparkContext
    if is_on_one_machine(context.master) or not warehouse.is_local or os.environ.get(CHECK_VARIABLE) == "off":
        return
    known = _known.setdefault(context, {}).setdefault(warehouse.uri, _Known())
    with known.lock:  # of all jobs that start at once the first asks
        before = _some_executors(context)
        if before <= known.executors:
            return
        if time.monotonic() >= known.until:
            known.refusal, known.until = _refusal(warehouse, context), time.monotonic() + _REFUSED_SECONDS
            if not known.refusal:
                known.executors |= before | _executors(context)
        if known.refusal:
            raise StalledError(known.refusal)


def _refusal(warehouse: Warehouse, context: SparkContext) -> str:
    """Why the warehouse cannot be used with these executors; empty where it can, or where they cannot be asked."""
    group = f"rw_sql asks executors for {warehouse.uri}, {uuid.uuid4().hex}"

    def ask() -> list[_Answer]:
        context.setJobGroup(group, group, interruptOnCancel=True)
        return _ask(warehouse, context)

    # On a thread of its own, which has a job group of its own.
    asking = prepare(ask, "shared-folder")
    try:
        answers = asking.result(_ASK_SECONDS)
    except (PySparkException, Py4JError, TimeoutError) as error:
        # Executors without Python, or without a free core. The rows of each batch are counted all the same.
        context.cancelJobGroup(group)
        why = cause_line(str(error)) or f"no answer within {_ASK_SECONDS:g} s"
        logger.warning("could not find out whether executors see %s: %s", warehouse.uri, why)
        return ""
    blind = [answer for answer in answers if answer.problem]
    return _said(warehouse, blind) if blind else ""


def _some_executors(context: SparkContext) -> set[str]:
    """The ids of the executors, once there is any; none after a while, for some clusters give them to tasks only."""
    deadline = time.monotonic() + _FIRST_SECONDS
    while not (found := _executors(context)) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return found


def _executors(context: SparkContext) -> set[str]:
    """The ids of the executors that there are now."""
    return set(filter(None, str(java_context(context).getExecutorIds().mkString(",")).split(",")))


def _ask(warehouse: Warehouse, context: SparkContext) -> list[_Answer]:
    """What executors find, each at least once, as far as Spark gives each a task."""
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
                    seen = _Answer(answer.host, answer.process, answer.name, "the driver does not see what it writes")
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

    # Inside of this function, so that it reaches executors by value: they need not have this package.
    def look(number: int, _: Iterable[int]) -> Iterator[tuple[str, int, str, str, str]]:
        import os
        import socket
        import time

        name, problem = f"task-{number}-{os.getpid()}", ""
        try:
            with open(f"{folder}/driver", encoding="utf-8") as file:
                if file.read() != token:
                    problem = "it sees another file than the driver wrote"
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
        # So that not one executor takes the tasks of all while another has none yet.
        time.sleep(seconds)
        yield socket.gethostname(), os.getppid(), os.getcwd(), name, problem

    told = context.parallelize(range(tasks), tasks).mapPartitionsWithIndex(look).collect()
    return [_Answer(host, (process, place), name, problem) for host, process, place, name, problem in told]


def _said(warehouse: Warehouse, blind: list[_Answer]) -> str:
    named = [f"the one on host {answer.host} in {answer.process[1]} ({answer.problem})" for answer in blind]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return (
        f"{UNSHARED} {warehouse.uri}: not every executor sees this folder as the driver on host "
        f"{socket.gethostname()} does: {', '.join(named[:_MOST_NAMED])}{more}. "
        "Mount the same folder at this path on every host, or put the warehouse on a store that all hosts reach (s3://…)"
    )
