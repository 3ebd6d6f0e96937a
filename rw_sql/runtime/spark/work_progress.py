"""Progress of Spark's work for a job group, and of a query before its first batch.

The values come from Spark's status store, which includes running tasks as of their last heartbeat. Even a single task
that takes an hour therefore shows progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.runtime.spark.jvm import active_context, cpu_time_of, java_context

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


def planning_of(query: StreamingQuery) -> tuple[int, ...]:
    """The CPU time of a query's thread while the query starts or plans a batch; empty while it waits for data.

    Planning runs no tasks, but may take minutes on a busy machine.
    """
    message = query.status["message"]
    return (cpu_time_of(query),) if message.startswith(("Initializing", "Processing")) else ()


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
