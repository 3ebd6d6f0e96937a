"""Detects the progress of a job before the job's next commit. This progress occurs during the start of a job, during
the planning of its first batch, and inside long batches, chunks of a backfill and refreshes.

Finished tasks of Spark count as progress. On a busy machine, a single task that takes seconds on idle cores may take
minutes. Therefore, the CPU time of the thread that plans, decodes or merges, and the CPU time of Spark's tasks on this
machine, count as progress too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from rw_sql.runtime.ingest.job import Ingest
from rw_sql.runtime.refresh.job import RefreshJob
from rw_sql.runtime.sinks.job import Sink
from rw_sql.runtime.spark.work_progress import planning_seconds, task_seconds, work_of
from rw_sql.runtime.views.job import View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.runtime.jobs.job import Job
    from rw_sql.runtime.spark.work_progress import WorkerThread

BEAT_SECONDS = 2.0
"""The interval in seconds between two checks for progress, and the minimum duration of a batch that counts as long."""

LEAST_CPU_SECONDS, _WITHIN_SECONDS = 0.2, 10.0
"""CPU time counts as progress if a job's threads use at least ``LEAST_CPU_SECONDS`` of CPU time within
``_WITHIN_SECONDS``. In this period, a thread that waits in a loop uses a third of this CPU time. A thread that plans
while thirty other threads share two cores with it uses six times this CPU time."""


class Beats:
    """Compares the progress of each job's long-running work with the progress at the last check. The owner's loop calls
    :meth:`of`."""

    def __init__(self) -> None:
        self._marks: dict[str, tuple[object, ...]] = {}
        self._cpu: dict[str, tuple[float, float]] = {}
        """Maps each job to the time at which the period for its CPU time began, and to the CPU time at that moment."""
        self._next = 0.0

    def of(self, running: Mapping[str, Job], starting: Mapping[str, WorkerThread], now: float) -> list[str]:
        """Returns the jobs whose start or long-running work has made progress since the last check. ``running`` are the
        running jobs. ``starting`` maps the jobs that are being started to the threads that start them. If the last
        check was less than BEAT_SECONDS before ``now``, the result is empty."""
        if now < self._next:
            return []
        self._next = now + BEAT_SECONDS
        try:
            marks = {job_id: mark for job_id, job in running.items() if any(mark := _mark(job))}
            used = {job_id: _cpu_seconds(job) for job_id, job in running.items()}
            used |= {job_id: worker.cpu_seconds() for job_id, worker in starting.items()}
        except (Py4JError, OSError):  # The JVM is stopping. The caller must write the jobs' statuses nevertheless.
            return []
        found = [job_id for job_id, mark in marks.items() if self._marks.get(job_id, mark) != mark]
        found += [job_id for job_id in self._computed(used, now) if job_id not in found]
        self._marks = marks
        return found

    def _computed(self, used: Mapping[str, float | None], now: float) -> list[str]:
        """The jobs whose threads have used at least ``LEAST_CPU_SECONDS`` of CPU time since their period began.
        ``used`` maps each job to its CPU time."""
        found, kept = [], dict[str, tuple[float, float]]()
        for job_id, seconds in used.items():
            if seconds is None:
                continue
            at, before = self._cpu.get(job_id, (now, seconds))
            is_enough = seconds - before >= LEAST_CPU_SECONDS
            if is_enough:
                found.append(job_id)
            is_over = is_enough or seconds < before or now - at >= _WITHIN_SECONDS
            kept[job_id] = (now, seconds) if is_over else (at, before)
        self._cpu = kept
        return found


def _mark(job: Job) -> tuple[object, ...]:
    """Returns values that change when Spark finishes tasks for a job's long-running work. The result is empty if the
    job has no such work."""
    mark: list[object] = []
    if isinstance(job, Ingest | View | Sink) and job.streaming.busy_seconds >= BEAT_SECONDS:
        query = job.streaming.query
        mark.append(() if query is None else work_of(str(query.runId)))
    if isinstance(job, View) and job.backfill is not None and job.backfill.is_running:
        mark.append(work_of(job.backfill.group))
    if isinstance(job, RefreshJob) and (group := job.group) is not None:
        mark.append(work_of(group))
    return tuple(mark)


def _cpu_seconds(job: Job) -> float | None:
    """Returns the CPU time in seconds of the threads and Spark tasks that do a job's long-running work; None if the job
    has no such work."""
    found: list[float | None] = []
    if isinstance(job, Ingest | View | Sink):
        streaming, query = job.streaming, job.streaming.query
        if streaming.busy_seconds >= BEAT_SECONDS:
            found.append(_of_worker(streaming.worker))
            found.append(None if query is None else task_seconds(str(query.runId)))
        elif query is not None and streaming.is_before_first:
            found.append(planning_seconds(query))
    if isinstance(job, View) and job.backfill is not None and job.backfill.is_running:
        found += [_of_worker(job.backfill.worker), task_seconds(job.backfill.group)]
    if isinstance(job, RefreshJob):
        group = job.group
        found += [_of_worker(job.worker), None if group is None else task_seconds(group)]
    known = [seconds for seconds in found if seconds is not None]
    return sum(known) if known else None


def _of_worker(worker: WorkerThread | None) -> float | None:
    return None if worker is None else worker.cpu_seconds()
