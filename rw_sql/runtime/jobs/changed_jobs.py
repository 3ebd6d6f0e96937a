"""Determines the jobs that a catalog requires. The module reuses the known jobs of an earlier snapshot. It derives
again only the jobs that a later change may affect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.records import MaterializedViewRecord, PauseRecord, SinkRecord, TableRecord
from rw_sql.model.job_ids import fragment_object, fragment_source
from rw_sql.model.job_specs import desired_jobs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.metastore import Snapshot
    from rw_sql.model.job_specs import JobSpec

_LOCAL_KINDS = frozenset({"source", "table", "materialized_view", "sink", "pause", "parameter"})
"""If an object of one of these kinds changes, the change affects only the jobs of the objects that read or use this
object."""


def desired_jobs_of_group(
    before: Snapshot | None, jobs: dict[str, JobSpec], now: Snapshot, group: str
) -> dict[str, JobSpec]:
    """The jobs that the owner of a resource group must run according to the catalog ``now``.

    ``jobs`` are the jobs of the same group in the snapshot ``before``. If ``before`` is None, all jobs are derived.
    """
    if before is not None and before.epoch == now.epoch:
        return jobs
    # A move changes the record of the moved object, so that its jobs are derived again.
    found = desired_jobs(now) if before is None else desired_jobs_since(before, jobs, now)
    return {job: spec for job, spec in found.items() if spec.group == group}


def desired_jobs_since(before: Snapshot, jobs: Mapping[str, JobSpec], now: Snapshot) -> dict[str, JobSpec]:
    """The result of :func:`desired_jobs` for ``now``, computed from the jobs of an earlier snapshot.

    ``jobs`` are the jobs of the snapshot ``before``. Only the jobs that a change may affect are derived again. A
    statement on one of a thousand sources therefore does not cause two thousand jobs to be derived.
    """
    affected = _affected(before, now)
    if affected is None:
        return desired_jobs(now)
    kept = {job: spec for job, spec in jobs.items() if spec.object_id not in affected}
    return kept | desired_jobs(now, [id_ for id_ in affected if now.get(id_) is not None])


def _affected(before: Snapshot, now: Snapshot) -> set[int] | None:
    """The ids of the objects whose jobs may differ between two snapshots; None if the jobs of all objects may
    differ."""
    if any(snapshot.all("rebuild") or snapshot.all("refresh") for snapshot in (before, now)):
        return None
    changed: set[int] = set()
    for id_, epoch in now.object_epochs.items():
        if epoch <= before.epoch:
            continue
        for record in (before.get(id_), now.get(id_)):
            if record is not None and record.kind not in _LOCAL_KINDS:
                return None
            if isinstance(record, PauseRecord):
                if record.source_id is None:
                    return None
                changed.add(record.source_id)
        changed.add(id_)
    for fragment, epoch in now.fragment_epochs.items():
        if epoch > before.epoch:
            changed |= {fragment_source(fragment), fragment_object(fragment)}
    affected = set(changed)
    for snapshot in (before, now):
        for id_ in changed:
            affected.update(record.id for record in snapshot.dependents_of(id_))
        for id_ in tuple(affected):
            # A source's reader depends on the objects that read the source.
            record = snapshot.get(id_)
            if isinstance(record, MaterializedViewRecord | SinkRecord):
                affected.update(record.inputs)
            if isinstance(record, TableRecord) and record.source_id is not None:
                affected.add(record.source_id)
    return affected
