"""Measures three kinds of progress: of Spark's work for a job group, of a query before its first batch, and of a thread
that works for a job.

The values about Spark's work come from Spark's status store, which includes running tasks as of their last heartbeat.
Even a single task that takes an hour therefore shows progress. Planning runs no tasks, but may take minutes on a busy
machine. During planning, the CPU time of the thread shows progress. Before a task reads its first record, it may start
a Python process, which may take seconds to import its packages. During this time, the CPU time of the task and of the
Python processes shows progress.
"""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from rw_sql.runtime.spark.jvm import (
    active_context,
    cpu_time_of,
    gateway_process,
    java_context,
    serving_thread,
    thread_infos,
    thread_of,
)
from rw_sql.runtime.support.processes import stat_fields

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql.streaming.query import StreamingQuery

_NEWEST_JOBS = 3
_TASK_THREAD = re.compile(r'"Executor task launch worker for task \S+ in stage (\d+)\.\d+ \(TID \d+\)"[^\n]*? Id=(\d+)')
"""Matches the JVM's description of a thread that runs a task. The groups are the id of the task's stage and the number
of the thread."""


def work_of(group: str) -> tuple[object, ...]:
    """Returns values that grow while Spark works for a job group: the ids of the group's latest jobs, and the numbers
    of finished tasks, records read and records written. The result is empty if Spark does not run."""
    context = active_context()
    if context is None:
        return ()
    jobs, stages = _work(context, group)
    store = java_context(context).statusStore()
    return (*jobs, *(_of_stage(store, stage) for stage in stages))


def task_seconds(group: str) -> float:
    """The CPU time in seconds of the tasks that a job group runs on this machine; 0 if the group runs no task here. The
    result is the CPU time of the JVM's threads that run these tasks, plus the CPU time of all Python processes that the
    JVM has started, even for tasks of other groups."""
    context = active_context()
    if context is None:
        return 0.0
    stages = {str(stage) for stage in _work(context, group)[1]}
    threads = [int(thread) for stage, thread in _TASK_THREAD.findall(thread_infos(context)) if stage in stages]
    if not threads:
        return 0.0
    started = gateway_process()
    python = 0.0 if started is None else _cpu_seconds_below(started.pid)
    return python + sum(max(0, cpu_time_of(context, thread)) for thread in threads) / 1e9


def planning_seconds(query: StreamingQuery) -> float | None:
    """The CPU time of a query's thread in seconds while the query starts, or plans or runs a batch; None while the
    query looks for new data or waits for it."""
    message = query.status["message"]
    if not message.startswith(("Initializing", "Processing")):
        return None
    return cpu_time_of(active_context(), thread_of(query)) / 1e9


@dataclass(slots=True)
class WorkerThread:
    """A thread of this process that works for a job, and the thread of the JVM that serves its calls.

    ``native`` is the operating system's number for the first of these threads. ``serving`` is the number of the JVM's
    thread (None if it is not known), and ``context`` is the Spark context of this JVM.
    """

    native: int
    serving: int | None = None
    context: Any = None

    @staticmethod
    def current() -> WorkerThread:
        """The calling thread. Makes no call to the JVM."""
        found: WorkerThread | None = getattr(_current, "worker", None)
        if found is None:
            found = _current.worker = WorkerThread(threading.get_native_id())
        return found

    @staticmethod
    def of_spark() -> WorkerThread:
        """Returns the calling thread, which uses Spark, together with the JVM's thread that serves its calls. For each
        thread, only the first use of this method makes a call to the JVM."""
        found, context = WorkerThread.current(), active_context()
        if found.context is not context:
            try:
                found.serving = None if context is None else serving_thread(context)
            except (Py4JError, OSError):  # The JVM is stopping.
                found.serving = None
            found.context = context
        return found

    def cpu_seconds(self) -> float | None:
        """The CPU time of both threads in seconds; None if the thread in this process has ended, or if the operating
        system does not report the CPU time. Waiting for Spark's tasks, for a store or for a broker takes almost no CPU
        time."""
        used, context, serving = _cpu_seconds(self.native), self.context, self.serving
        if used is not None and serving is not None and context is active_context():
            used += max(0, cpu_time_of(context, serving)) / 1e9
        return used


_current = threading.local()


def _cpu_seconds(native: int) -> float | None:
    """The CPU time of a thread of this process in seconds; None where the system has no ``/proc``, or if the thread has
    ended."""
    # pthread_getcpuclockid, with which Python reads the clock of another thread, may crash if that thread has ended.
    try:
        return _seconds(stat_fields(Path(f"/proc/{os.getpid()}/task/{native}/stat")))
    except OSError:
        return None


def _cpu_seconds_below(parent: int) -> float:
    """The CPU time in seconds of all processes that descend from a process; 0 where the system has no ``/proc``."""
    children, used = dict[int, list[int]](), dict[int, float]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat_fields(stat)
        except OSError:  # The process has ended.
            continue
        pid = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        used[pid] = _seconds(fields)
    found, seconds = [parent], 0.0
    while found:
        below = children.get(found.pop(), [])
        found += below
        seconds += sum(used[pid] for pid in below)
    return seconds


def _seconds(fields: list[str]) -> float:
    """The sum of user time and system time, in seconds, in the fields of a ``stat`` file."""
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _work(context: SparkContext, group: str) -> tuple[list[int], list[int]]:
    """Returns the ids of a group's latest jobs, and the ids of the stages of these jobs."""
    tracker = context.statusTracker()
    jobs = sorted(tracker.getJobIdsForGroup(group))[-_NEWEST_JOBS:]
    infos = [tracker.getJobInfo(job) for job in jobs]
    return jobs, sorted({stage for info in infos if info is not None for stage in info.stageIds})


def _of_stage(store: Any, stage: int) -> tuple[int, ...]:
    from py4j.protocol import Py4JJavaError

    try:
        told = store.lastStageAttempt(stage)
    except Py4JJavaError:  # The job is not submitted yet, or Spark has forgotten it.
        return ()
    return (
        told.numCompleteTasks(),
        told.inputRecords(),
        told.shuffleReadRecords(),
        told.shuffleWriteRecords(),
        told.outputRecords(),
        told.memoryBytesSpilled(),
    )
