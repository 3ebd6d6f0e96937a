"""Which jobs get on with a batch that takes long: nothing of it is seen in their tables until it is committed."""

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
"""How often a long batch is looked at, and how long one takes at least that is."""


class Beats:
    """Looks at what Spark does for each job; the owner's loop asks."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[object, ...]] = {}
        self._next = 0.0

    def of(self, running: Mapping[str, Job], now: float) -> list[str]:
        """The jobs that have a long batch under way and got on with it since the last look."""
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
                except (Py4JError, OSError):  # the JVM is going: what is told of the jobs must be written all the same
                    return []
                seen[job_id] = mark
                if job_id in self._seen and self._seen[job_id] != mark:
                    found.append(job_id)
        self._seen = seen
        return found


def _groups(job: Job) -> list[str]:
    """The groups of Spark jobs that a job's work is in, where it is at something that takes long."""
    groups = []
    if isinstance(job, Ingest | View | Sink) and job.query is not None and job.gate.busy_seconds >= BEAT_SECONDS:
        groups.append(str(job.query.runId))
    if isinstance(job, View) and job.backfill is not None and job.backfill.is_running:
        groups.append(job.backfill.group)
    return groups
