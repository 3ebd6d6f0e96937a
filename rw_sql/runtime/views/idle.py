"""Suspends the query of a view whose sources are paused, and resumes it together with them.

Suspending saves CPU time, because a waiting streaming query polls its inputs dozens of times a second. The view's
job still counts as running.
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

IDLE_AFTER_SECONDS = 60.0
"""The number of seconds without new input after which a view's query is suspended.

Moving a source takes less time, so that it does not suspend the views.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleView:
    """A suspended view: the spec of its query, and the versions up to which the query had read its inputs."""

    spec: ViewSpec
    run: int
    versions: Mapping[str, int]

    @staticmethod
    def of(context: Context, spec: ViewSpec, running: Job | None) -> IdleView | None:
        """Returns the state for suspending a view; None if the view has unread input or does not run."""
        snapshot = context.metastore.snapshot()
        record = snapshot.get(spec.view_id)
        if not isinstance(record, MaterializedViewRecord) or running is None or running.failure() is not None:
            return None
        # A backfill may read from upstream while nothing is added to the log.
        if spec.job in unfinished_backfills(context.metastore, snapshot):
            return None
        # A rebuild begins with a backfill, and a statement waits for it.
        if any(rebuild.view_id == spec.view_id for rebuild in snapshot.all("rebuild")):
            return None
        # Read first: any later commit resumes the view.
        versions = _versions(context, spec)
        checkpoint = context.warehouse.view_checkpoint(spec.view_id, spec.generation)
        if not HighWater.of(context, snapshot, record).are_reached(context, checkpoint):
            return None
        return IdleView(spec=spec, run=running.run, versions=versions)

    def is_current(self, context: Context) -> bool:
        """True if nothing was committed to any input since the view was suspended."""
        return self.versions == _versions(context, self.spec)


def _versions(context: Context, spec: ViewSpec) -> dict[str, int]:
    paths = [path_of(context.warehouse, given) for given in spec.inputs]
    return {path: latest_version(context.warehouse, path) for path in paths}
