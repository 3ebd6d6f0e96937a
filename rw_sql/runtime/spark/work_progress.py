"""Progress of Spark's work for a job group, of a query before its first batch, and of a thread that works for a job.

The values of Spark's work come from its status store, which includes running tasks as of their last heartbeat. Even a
single task that takes an hour therefore shows progress. Planning runs no tasks, but may take minutes on a busy machine;
there, the CPU time of the thread shows progress.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from rw_sql.runtime.spark.jvm import active_context, cpu_time_of, java_context, serving_thread, thread_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.streaming.query import StreamingQuery

_NEWEST_JOBS = 3


def work_of(group: str) -> tuple[object, ...]:
    """Values that grow while Spark works for a group: the ids of its latest jobs, and the numbers of finished tasks and
    of records read and written."""
    context = active_context()
    if context is None:
        return ()
    tracker, store = context.statusTracker(), java_context(context).statusStore()
    jobs = sorted(tracker.getJobIdsForGroup(group))[-_NEWEST_JOBS:]
    infos = [info for job in jobs if (info := tracker.getJobInfo(job)) is not None]
    return (*jobs, *(_of_stage(store, stage) for stage in _stages(info.stageIds for info in infos)))


def planning_seconds(query: StreamingQuery) -> float | None:
    """The CPU time of a query's thread in seconds while the query starts or plans a batch; None while it waits for
    data."""
    message = query.status["message"]
    if not message.startswith(("Initializing", "Processing")):
        return None
    return cpu_time_of(active_context(), thread_of(query)) / 1e9


@dataclass(slots=True)
class WorkerThread:
    """A thread of this process that works for a job, and the JVM's thread that serves its calls.

    ``native`` is the thread's number in the operating system, ``serving`` that of the JVM's thread (None if it is not
    known), and ``context`` the Spark context of this JVM.
    """

    native: int
    serving: int | None = None
    context: Any = None

    @staticmethod
    def current() -> WorkerThread:
        """The calling thread. Calls no JVM."""
        found: WorkerThread | None = getattr(_current, "worker", None)
        if found is None:
            found = _current.worker = WorkerThread(threading.get_native_id())
        return found

    @staticmethod
    def of_spark() -> WorkerThread:
        """The calling thread, which uses Spark, with the JVM's thread; the first call of each thread asks the JVM."""
        found, context = WorkerThread.current(), active_context()
        if found.context is not context:
            try:
                found.serving = None if context is None else serving_thread(context)
            except (Py4JError, OSError):  # The JVM is stopping.
                found.serving = None
            found.context = context
        return found

    def cpu_seconds(self) -> float | None:
        """The CPU time of both threads in seconds; None if the thread has ended, or if the system does not report it.
        Waiting for Spark's tasks, for a store or for a broker takes almost none."""
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
        text = Path(f"/proc/{os.getpid()}/task/{native}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _stages(ids: Iterable[Iterable[int]]) -> list[int]:
    return sorted({stage for of_job in ids for stage in of_job})


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
