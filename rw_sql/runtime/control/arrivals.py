"""Handles jobs that were moved from another resource group to the group of this process. The owner of the other group
may still run these jobs."""

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
    """Tracks the jobs that were moved to the group of this process. Decides for each of these jobs whether the job may
    run in this process or must still wait.

    A moved job waits until every other owner has stopped the job or has ended. Without this wait, fences would still
    keep the rows of the job correct. But the runs of the two owners could fence each other, and a pause could count as
    applied while the other owner still reads.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._arrived: dict[str, int] = {}
        self._coming: dict[str, int] = {}
        self._epoch = -1
        self.elsewhere: frozenset[int] = frozenset()
        """The ids of the objects that belong to other resource groups."""
        self.waiting: frozenset[str] = frozenset()
        """The jobs that wait, including those that the catalog no longer requires."""

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
    """The jobs of a group's objects that were moved from another group, each with the epoch of the move. The result
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
