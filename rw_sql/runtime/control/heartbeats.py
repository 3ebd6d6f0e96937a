"""Detects progress that is not visible in the tables yet: during the start of a job, during the planning of its first
batch, and inside long batches and chunks of a backfill.

Finished tasks of Spark are progress, and so is the CPU time of the thread that plans, decodes or merges: on a busy
machine, work that takes seconds on idle cores takes minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from rw_sql.runtime.ingest.job import Ingest
from rw_sql.runtime.refresh.job import RefreshJob
from rw_sql.runtime.sinks.job import Sink
from rw_sql.runtime.spark.work_progress import planning_of, work_of
from rw_sql.runtime.views.job import View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.runtime.jobs.job import Job
    from rw_sql.runtime.spark.work_progress import WorkerThread

BEAT_SECONDS = 2.0
"""The interval in seconds between two checks for progress, and the minimum duration of a batch that counts as long."""


class Beats:
    """Compares, for each job, the progress of its work with the progress at the last check. The owner's loop calls
    it."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[object, ...]] = {}
        self._next = 0.0

    def of(self, running: Mapping[str, Job], starting: Mapping[str, WorkerThread], now: float) -> list[str]:
        """The jobs whose start, or whose long batch, has progressed since the last check. ``starting`` are the threads
        that start jobs."""
        if now < self._next:
            return []
        self._next = now + BEAT_SECONDS
        seen: dict[str, tuple[object, ...]] = {}
        try:
            seen.update((job_id, mark) for job_id, job in running.items() if (mark := _mark(job)))
            seen.update((job_id, worker.cpu_times()) for job_id, worker in starting.items())
        except (Py4JError, OSError):  # The JVM is stopping. The caller must write the jobs' statuses nevertheless.
            return []
        found = [job_id for job_id, mark in seen.items() if self._seen.get(job_id, mark) != mark]
        self._seen = seen
        return found


def _mark(job: Job) -> tuple[object, ...]:
    """Values that grow as a job's long-running work progresses; empty if the job has no such work."""
    mark: list[object] = []
    if isinstance(job, Ingest | View | Sink):
        streaming, query = job.streaming, job.streaming.query
        if streaming.busy_seconds >= BEAT_SECONDS:
            mark.append(() if query is None else work_of(str(query.runId)))
            mark.append(() if streaming.worker is None else streaming.worker.cpu_times())
        elif query is not None and streaming.is_before_first:
            mark.extend(planning_of(query))
    if isinstance(job, View) and job.backfill is not None and job.backfill.is_running:
        mark.append(work_of(job.backfill.group))
        mark.append(() if job.backfill.worker is None else job.backfill.worker.cpu_times())
    if isinstance(job, RefreshJob) and (worker := job.worker) is not None:
        mark.append(worker.cpu_times())
    return tuple(mark)
