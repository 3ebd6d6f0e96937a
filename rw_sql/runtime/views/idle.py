"""A view whose sources are paused has nothing to wait for: its query ends after a while, and begins with them.

A streaming query that waits asks its inputs for news dozens of times a second. The job counts as running meanwhile, as
it does where it waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.metastore.records import MaterializedViewRecord
from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.jobs.inputs import path_of
from rw_sql.runtime.jobs.unfinished import unfinished_backfills
from rw_sql.runtime.positions.high_water import HighWater

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.model.job_specs import ViewSpec
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.jobs.job import Job

REST_AFTER_SECONDS = 60.0
"""How long nothing may come to a view before its query ends: moving a source takes less, and shall not wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleView:
    """What a view's query was when it ended with all its inputs read, and which versions these had."""

    spec: ViewSpec
    run: int
    versions: Mapping[str, int]

    @staticmethod
    def of(context: Context, spec: ViewSpec, running: Job | None) -> IdleView | None:
        """What is known of a view that may rest; None of one that has something to do, or does not run."""
        snapshot = context.metastore.snapshot()
        record = snapshot.get(spec.view_id)
        if not isinstance(record, MaterializedViewRecord) or running is None or running.failure() is not None:
            return None
        # History may come from upstream while nothing comes to the log.
        if spec.job in unfinished_backfills(context.metastore, snapshot):
            return None
        # One that is being made anew has its history before it, and somebody who waits for it.
        if any(rebuild.view_id == spec.view_id for rebuild in snapshot.all("rebuild")):
            return None
        # Before it is asked whether they are read: what is committed from here on wakes it.
        versions = _versions(context, spec)
        checkpoint = context.warehouse.view_checkpoint(spec.view_id, spec.generation)
        if not HighWater.of(context, snapshot, record).are_reached(context, checkpoint):
            return None
        return IdleView(spec=spec, run=running.run, versions=versions)

    def holds(self, context: Context) -> bool:
        """Whether nothing was committed to any input since."""
        return self.versions == _versions(context, self.spec)


def _versions(context: Context, spec: ViewSpec) -> dict[str, int]:
    paths = [path_of(context.warehouse, given) for given in spec.inputs]
    return {path: latest_version(context.warehouse, path) for path in paths}
