"""Detects progress that is not visible in the tables yet: inside long batches, and during the planning of the first
batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from rw_sql.runtime.ingest.job import Ingest
from rw_sql.runtime.sinks.job import Sink
from rw_sql.runtime.spark.work_progress import planning_of, work_of
from rw_sql.runtime.views.job import View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.runtime.jobs.job import Job

BEAT_SECONDS = 2.0
"""The interval in seconds between two checks for progress, and the minimum duration of a batch that counts as long."""


class Beats:
    """Compares, for each job, Spark's progress with the progress at the last check. The owner's loop calls it."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[object, ...]] = {}
        self._next = 0.0

    def of(self, running: Mapping[str, Job], now: float) -> list[str]:
        """The jobs with a long batch that has progressed since the last check."""
        if now < self._next:
            return []
        self._next = now + BEAT_SECONDS
        found: list[str] = []
        seen: dict[str, tuple[object, ...]] = {}
        for job_id, job in running.items():
            try:
                mark = _mark(job)
            except (Py4JError, OSError):  # The JVM is stopping. The caller must write the jobs' statuses nevertheless.
                return []
            if mark:
                seen[job_id] = mark
                if job_id in self._seen and self._seen[job_id] != mark:
                    found.append(job_id)
        self._seen = seen
        return found


def _mark(job: Job) -> tuple[object, ...]:
    """Values that grow as a job's long-running work progresses; empty if the job has no such work."""
    mark: list[object] = []
    if isinstance(job, Ingest | View | Sink) and (query := job.streaming.query) is not None:
        if job.streaming.busy_seconds >= BEAT_SECONDS:
            mark.append(work_of(str(query.runId)))
        elif job.streaming.is_before_first:
            mark.extend(planning_of(query))
    if isinstance(job, View) and job.backfill is not None and job.backfill.is_running:
        mark.append(work_of(job.backfill.group))
    return tuple(mark)
