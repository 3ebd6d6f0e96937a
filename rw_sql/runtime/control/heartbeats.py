"""Detects progress inside long batches, which their tables show only after the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from rw_sql.runtime.ingest.job import Ingest
from rw_sql.runtime.sinks.job import Sink
from rw_sql.runtime.spark.work import work_of
from rw_sql.runtime.views.job import View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.runtime.jobs.job import Job

BEAT_SECONDS = 2.0
"""The interval of these checks in seconds, and the minimum duration of a long batch."""


class Beats:
    """Checks Spark's progress for each job; called by the owner's loop."""

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
            groups = _groups(job)
            if groups:
                try:
                    mark = tuple(work_of(group) for group in groups)
                except (Py4JError, OSError):  # The JVM is stopping: the statuses of jobs must be written nevertheless.
                    return []
                seen[job_id] = mark
                if job_id in self._seen and self._seen[job_id] != mark:
                    found.append(job_id)
        self._seen = seen
        return found


def _groups(job: Job) -> list[str]:
    """The Spark job groups of a job's long-running work."""
    groups = []
    if isinstance(job, Ingest | View | Sink) and job.query is not None and job.gate.busy_seconds >= BEAT_SECONDS:
        groups.append(str(job.query.runId))
    if isinstance(job, View) and job.backfill is not None and job.backfill.is_running:
        groups.append(job.backfill.group)
    return groups
