"""Handles the jobs that were moved from another resource group to the group of this process. The owner of their former
group may still run them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.records import SinkRecord, SourceRecord
from rw_sql.model.job_ids import ingest_fragment, rebuild_job, sink_job, view_job
from rw_sql.model.resource_groups import grouped
from rw_sql.runtime.jobs.groups import holding

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.jobs.context import Context

MOVING = "waits until the owner of its former resource group has stopped it"
"""The reason that SHOW JOBS shows for a job that does not start yet because another owner may still run it."""


class Arrivals:
    """Tracks the jobs that were moved to the group of this process. Decides for each of them whether it may start in
    this process, or must still wait.

    A moved job waits until every other owner has stopped the job or has ended. Without this wait, the fences of the
    job's table would still keep the rows correct. But the runs of the two owners could end each other through these
    fences, and a pause could count as applied although the former owner still runs the job.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._arrived: dict[str, int] = {}
        self._coming: dict[str, int] = {}
        self._epoch = -1
        self.elsewhere: frozenset[int] = frozenset()
        """The ids of the objects that belong to other resource groups."""
        self.waiting: frozenset[str] = frozenset()
        """The moved jobs that must still wait. This set also contains paused jobs, which the catalog does not require
        to run."""

    def look(self, snapshot: Snapshot) -> frozenset[str]:
        """Determines, for the latest catalog, which moved jobs may run. Returns the moved jobs that still wait."""
        if snapshot.epoch != self._epoch:
            self._epoch = snapshot.epoch
            records = grouped(snapshot)
            self.elsewhere = frozenset(r.id for r in records if r.resource_group != self._context.group)
            came = _moved_jobs(snapshot, self._context.group)
            self._coming = {job: since for job, since in came.items() if self._arrived.get(job) != since}
            self._arrived = {job: since for job, since in self._arrived.items() if came.get(job) == since}
        if self._coming:
            held = holding(self._context, max(self._coming.values()))
            least = min((lease.let_go for lease in held.values()), default=None)
            for job, since in list(self._coming.items()):
                if least is None or since <= least:
                    self._arrived[job] = since
                    del self._coming[job]
                    # The former owner may have written since the last look, so the next reads must look for new
                    # commits.
                    self._context.metastore.looks.forget()
        self.waiting = frozenset(self._coming)
        return self.waiting


def _moved_jobs(snapshot: Snapshot, group: str) -> dict[str, int]:
    """The jobs of the objects that were moved to the group ``group``, each with the epoch of the move. The result
    includes paused jobs.
    """
    found: dict[str, int] = {}
    for record in grouped(snapshot):
        if not record.group_since or record.resource_group != group:
            continue
        if isinstance(record, SourceRecord):
            job = ingest_fragment(record.id)
        else:
            job = sink_job(record.id) if isinstance(record, SinkRecord) else view_job(record.id)
        found[job] = record.group_since
    for rebuild in snapshot.all("rebuild"):
        if (since := found.get(view_job(rebuild.view_id))) is not None:
            found[rebuild_job(rebuild)] = since
    return found
