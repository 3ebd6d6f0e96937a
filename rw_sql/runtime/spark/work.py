"""What shows that Spark gets on with the work of a group of jobs.

The figures are those of its status store, which has a running task's from its newest heartbeat: one task that takes an
hour moves too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.runtime.spark.jvm import active_context, java_context

if TYPE_CHECKING:
    from collections.abc import Iterable

_NEWEST_JOBS = 3


def work_of(group: str) -> tuple[object, ...]:
    """What grows while Spark works for a group: its newest jobs, their tasks done, records read and written."""
    context = active_context()
    if context is None:
        return ()
    tracker, store = context.statusTracker(), java_context(context).statusStore()
    jobs = sorted(tracker.getJobIdsForGroup(group))[-_NEWEST_JOBS:]
    infos = [info for job in jobs if (info := tracker.getJobInfo(job)) is not None]
    return (*jobs, *(_of_stage(store, stage) for stage in _stages(info.stageIds for info in infos)))


def _stages(ids: Iterable[Iterable[int]]) -> list[int]:
    return sorted({stage for of_job in ids for stage in of_job})


def _of_stage(store: Any, stage: int) -> tuple[int, ...]:
    from py4j.protocol import Py4JJavaError

    try:
        told = store.lastStageAttempt(stage)
    except Py4JJavaError:  # it has not been submitted yet, or was forgotten
        return ()
    return (
        told.numCompleteTasks(),
        told.inputRecords(),
        told.shuffleReadRecords(),
        told.shuffleWriteRecords(),
        told.outputRecords(),
        told.memoryBytesSpilled(),
    )
