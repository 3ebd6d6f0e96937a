"""Prepares the executors of a cluster for the jobs, and refuses executors on which jobs would fail or lose rows.

Before a job starts and before each large batch, each executor that is not prepared yet runs a task. The task checks
that the executor shares the warehouse's folder (:mod:`rw_sql.runtime.spark.shared_folder`), and that the executor has
the Python packages that the job's reader needs. The task also writes the driver's private files, which contain values
of secrets, to the same paths on the executor's host. The files are sent as rows of the task, because a task's rows
appear in no plan, option, log or status page. If a secret changes, the driver writes its value to a new file, and each
executor therefore runs another task.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import math
import os
import socket
import struct
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from rw_sql.connectors.support import private_files
from rw_sql.connectors.support.private_files import files_for_executors, temporary_private_file
from rw_sql.errors import first_names
from rw_sql.runtime.spark import executor_task
from rw_sql.runtime.spark.executor_pythons import Answer, missing_packages, unusable_pythons
from rw_sql.runtime.spark.jvm import bytes_of_file, collect_within, is_stopped, java_context
from rw_sql.runtime.spark.shared_folder import (
    MOST_NAMED,
    UNSHARED,
    SharedFolder,
    is_on_one_machine,
    must_share,
    unshared,
)
from rw_sql.runtime.support.background import prepare
from rw_sql.runtime.support.failures import StalledError, cause_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

    from rw_sql.runtime.support.warehouse import Warehouse

logger = logging.getLogger(__name__)

_ROUNDS = 3
_REFUSED_SECONDS = 2.0
_SECONDS_A_TASK = 0.3
_ASK_SECONDS = 60.0
_REMOVE_SECONDS = 5.0
_FIRST_SECONDS, _LOOK_SECONDS = 5.0, 0.05
_NONE_SECONDS = 60.0
"""After a call has waited for executors without success, no call waits for executors for this time in seconds. Without
this rule, every start of a job would wait again."""
_FRESH_SECONDS, _PARTLY_SECONDS, _BUSY_SECONDS = 3600.0, 60.0, 600.0
"""The times in seconds for which executors count as prepared. The first time applies if all executors have answered and
the job needs files, because the host may delete these private files. The second time applies if some executors have not
answered. The third time applies if the check has timed out because no cores were free.

If all executors have answered and the job needs only packages, the time is unlimited. If the job needs neither files
nor packages, the time is always unlimited: even if an executor was not checked, the row count of each batch would
reveal rows that this executor lost.
"""


@dataclass(slots=True)
class _Prepared:
    """The files and packages that an executor has. The information is valid until the monotonic time ``until``."""

    until: float
    packages: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Known:
    """The prepared executors by id, and the stall reasons by the packages and files for which executors were refused.
    Each entry contains the monotonic time until which it is valid.

    Until the monotonic time ``none_until``, a call does not wait for executors, because an earlier call has waited
    without success.
    """

    executors: dict[str, _Prepared] = field(default_factory=dict)
    refusals: dict[tuple[str, ...], tuple[str, float]] = field(default_factory=dict)
    none_until: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def is_prepared(self, executor: str, packages: Iterable[str], files: Iterable[str]) -> bool:
        found = self.executors.get(executor)
        return (
            found is not None
            and found.until > time.monotonic()
            and found.packages.issuperset(packages)
            and found.files.issuperset(files)
        )

    def note(self, executor: str, until: float, packages: Iterable[str], files: Iterable[str]) -> None:
        had = self.executors.get(executor)
        if had is None or had.until <= time.monotonic():
            had = _Prepared(until)
        elif not (had.packages.issubset(packages) and had.files.issubset(files)):
            until = min(until, had.until)  # Other items must not expire later than before.
        self.executors[executor] = _Prepared(until, had.packages.union(packages), had.files.union(files))


_known: WeakKeyDictionary[SparkContext, dict[str, _Known]] = WeakKeyDictionary()
_has_files: WeakKeyDictionary[SparkContext, str] = WeakKeyDictionary()
"""Maps each Spark context to the folder of the private files that its executors may have received."""


def require_executors(warehouse: Warehouse, spark: SparkSession, packages: tuple[str, ...] | None = None) -> None:
    """Checks and prepares the executors that are not prepared yet. Raises StalledError if an executor does not share
    the folder of a warehouse on a local path.

    ``packages`` are the Python packages that the reader of an upstream needs; None for a job whose executors read no
    upstream. If ``packages`` is not None, the executors also receive the private files. StalledError is then also
    raised if an executor cannot use these files, or lacks a package.

    With a local master, the call does nothing and takes microseconds.
    """
    context = spark.sparkContext
    if is_on_one_machine(context.master):
        return
    files = {} if packages is None else files_for_executors()
    packages = packages or ()
    if not (must_share(warehouse) or files or packages):
        return
    known = _known.setdefault(context, {}).setdefault(warehouse.uri, _Known())
    with known.lock:  # If many jobs start at once, only the first job asks the executors.
        before = _some_executors(context, known)
        if all(known.is_prepared(executor, packages, files) for executor in before):
            return
        asked = (*packages, *sorted(files))
        refusal, until = known.refusals.get(asked, ("", 0.0))
        if time.monotonic() >= until:
            refusal, seconds = _asked(warehouse, context, packages, files)
            if refusal:
                known.refusals[asked] = refusal, time.monotonic() + _REFUSED_SECONDS
            else:
                known.refusals.pop(asked, None)
                until = time.monotonic() + seconds
                for executor in before | _executors(context):
                    known.note(executor, until, packages, files)
        if refusal:
            raise StalledError(refusal)


def remove_files(spark: SparkSession) -> None:
    """Deletes the private files that executors have received from this process. Only executors that still run and have
    free cores delete their files. Waits at most five seconds, and raises no error."""
    context = spark.sparkContext
    folder = _has_files.pop(context, "")
    _known.pop(context, None)
    if not folder:
        return
    remove, seconds = executor_task.remove, _SECONDS_A_TASK
    try:
        _send_by_value()
        tasks = max(context.defaultParallelism, len(_executors(context)), 1)
        removed = context.parallelize(range(tasks), tasks).mapPartitions(lambda _: remove(folder, seconds))
        # Java waits, because this function may run at the interpreter's exit, when no more threads can be started.
        collect_within(spark, removed, _REMOVE_SECONDS)
    except (PySparkException, Py4JError, OSError) as error:
        logger.warning("could not remove private files from executors: %s", cause_line(str(error)))


def _asked(
    warehouse: Warehouse, context: SparkContext, packages: tuple[str, ...], files: Mapping[str, str]
) -> tuple[str, float]:
    """Checks and prepares the executors. Returns the reason why the current executors cannot be used (empty if they can
    be used), and the time in seconds for which they then count as prepared."""
    group = f"rw_sql asks executors for {warehouse.uri}, {uuid.uuid4().hex}"

    def ask() -> list[Answer]:
        context.setJobGroup(group, group, interruptOnCancel=True)
        return _ask(warehouse, context, packages, files)

    if files:  # Some executors have files even if others do not answer or lack a package.
        _has_files[context] = os.path.dirname(next(iter(files)))
    # A separate thread has its own job group.
    asking = prepare(ask, "executors")
    try:
        answers = asking.result(_ASK_SECONDS)
    except TimeoutError:
        # The executors may have no free core. The rows of each batch are counted in any case.
        context.cancelJobGroup(group)
        logger.warning("executors did not answer within %g s whether they see %s", _ASK_SECONDS, warehouse.uri)
        return "", _BUSY_SECONDS if files or packages else math.inf
    except (PySparkException, Py4JError) as error:
        if isinstance(error, Py4JNetworkError) or is_stopped(context):
            raise  # Spark has ended, which says nothing about the executors.
        why = cause_line(str(error))
        if packages or files:
            return unusable_pythons(context, str(error)), 0.0
        logger.warning("could not find out whether executors see %s: %s", warehouse.uri, why)
        return "", math.inf
    blind = [f"{answer.place} ({answer.unshared})" for answer in answers if answer.unshared]
    if blind:
        return unshared(warehouse, blind), 0.0
    without = [f"{answer.place} ({answer.unwritten})" for answer in answers if answer.unwritten]
    if without:
        return _unwritten(files, without), 0.0
    poor = [answer for answer in answers if answer.missing or answer.version]
    if poor:
        return missing_packages(poor, own_version()), 0.0
    if len(answers) >= len(_executors(context)):
        return "", _FRESH_SECONDS if files else math.inf
    if not (packages or files):
        return "", math.inf
    # Spark may have run the failed tasks of an executor on another executor.
    return unusable_pythons(context, ""), _PARTLY_SECONDS


def _some_executors(context: SparkContext, known: _Known) -> set[str]:
    """Returns the ids of the current executors. If there are no executors, waits at most _FIRST_SECONDS for some. The
    result may still be empty, because some clusters start executors only for tasks, and small batches need no tasks."""
    deadline = time.monotonic() + _FIRST_SECONDS
    while not (found := _executors(context)) and known.none_until <= time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    if not found and time.monotonic() >= deadline:
        known.none_until = time.monotonic() + _NONE_SECONDS
    return found


def _executors(context: SparkContext) -> set[str]:
    """The ids of the current executors."""
    return set(filter(None, str(java_context(context).getExecutorIds().mkString(",")).split(",")))


def _ask(
    warehouse: Warehouse, context: SparkContext, packages: tuple[str, ...], files: Mapping[str, str]
) -> list[Answer]:
    """Returns the reports of the executors. Each executor to which Spark assigns a task sends at least one report."""
    found: dict[tuple[str, tuple[int, str]], Answer] = {}
    with SharedFolder.made(warehouse) as folder:
        for _ in range(_ROUNDS):
            tasks = max(context.defaultParallelism, len(_executors(context)), 1)
            for answer in _look(context, folder, packages, files, tasks):
                seen = answer
                if answer.is_prepared and not folder.is_seen(answer.name):
                    seen = Answer(
                        answer.host, answer.process, unshared="the driver does not see what this executor writes"
                    )
                known = found.get((answer.host, answer.process))
                if known is None or known.is_prepared:
                    found[answer.host, answer.process] = seen
            if not all(answer.is_prepared for answer in found.values()) or len(found) >= len(_executors(context)):
                break
    return list(found.values())


def _look(
    context: SparkContext, folder: SharedFolder, packages: tuple[str, ...], files: Mapping[str, str], tasks: int
) -> list[Answer]:
    _send_by_value()
    given: dict[str, Any] = {
        "folder": folder.path,
        "token": folder.token,
        "packages": packages,
        "version": own_version(),
        "seconds": _SECONDS_A_TASK,
    }
    ask = executor_task.answer
    told = _rows(context, files, tasks).mapPartitionsWithIndex(lambda at, rows: [ask(at, rows, **given)]).collect()
    return [
        Answer(
            host=each["host"],
            process=(each["process"], each["place"]),
            name=each["name"],
            python=each["python"],
            executable=each["executable"],
            unshared=each["unshared"],
            unwritten=each["unwritten"],
            missing=tuple(each["missing"]),
            version=each["version"],
        )
        for each in told
    ]


def _rows(context: SparkContext, files: Mapping[str, str], tasks: int) -> RDD[Any]:
    """An RDD with one task per row. If there are files, each row contains the files. The function of the tasks does not
    contain the files, because py4j logs its commands, and these commands contain the function."""
    if not files:
        return context.parallelize(range(tasks), tasks)
    row = json.dumps(dict(files)).encode()
    with temporary_private_file((struct.pack(">i", len(row)) + row) * tasks) as file:
        return bytes_of_file(context, str(file), tasks)


def own_version() -> str:
    """The version of the installed rw_sql; empty if rw_sql is not installed as a package."""
    try:
        return importlib.metadata.version(executor_task.OWN_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _send_by_value() -> None:
    from pyspark import cloudpickle

    by_value: Any = cloudpickle.register_pickle_by_value
    by_value(sys.modules[executor_task.__name__])
    by_value(sys.modules[private_files.__name__])


def _unwritten(files: Mapping[str, str], without: list[str]) -> str:
    folder = os.path.dirname(next(iter(files)))
    return (
        f"{UNSHARED} {folder}: not every executor can use the files of secrets and certificates that the driver on "
        f"host {socket.gethostname()} sends: {first_names(without, MOST_NAMED)}. Set TMPDIR of the driver to a "
        "folder that executors can create and write on every host, such as /tmp, and run executors on the driver's "
        "host as the driver's user"
    )
