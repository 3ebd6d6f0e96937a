"""Makes rewind points, carries out REWINDs, and removes old rewind points. Decides which jobs must be stopped while a
rewind point is made or a REWIND is carried out.

The reconciler calls this module in each pass. A source's reader waits while a rewind point for an unsafe operation is
made. All jobs affected by a REWIND wait until the REWIND is carried out. Pending work is derived from the catalog and
the recorded job facts, so the next owner can continue the work.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from rw_sql.errors import SqlError
from rw_sql.metastore.facts import JobStatus
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.job_ids import ingest_fragment, job_object
from rw_sql.model.job_specs import ingest_spec
from rw_sql.model.resource_groups import group_of
from rw_sql.model.source_readers import newest_change
from rw_sql.object_stores import delta_errors
from rw_sql.runtime.delta.job_output import FencedError
from rw_sql.runtime.rewind.points import make_points, wanted_points
from rw_sql.runtime.rewind.pruning import PointPruning
from rw_sql.runtime.rewind.restore import CannotRewindError, carry_out, rewind_jobs
from rw_sql.runtime.support.background import run_in_background
from rw_sql.runtime.support.event_log import log_event
from rw_sql.runtime.support.failures import cause_line
from rw_sql.runtime.support.processes import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import OperationRecord, RewindRecord
    from rw_sql.model.job_specs import JobSpec
    from rw_sql.runtime.jobs.context import Context

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 2.0
_STORE_LOOK_SECONDS = 10.0


@dataclass(slots=True)
class _Work:
    """The work on one source. ``aim`` contains the epochs of the operations for which the work is done, and ``future``
    is the running attempt. After a failed attempt, ``retry_at`` is the time of the next attempt, and ``problem`` is the
    reason of the failure."""

    aim: tuple[int, ...]
    future: Future[None] | None = None
    retry_at: float = 0.0
    problem: str | None = None

    @property
    def is_working(self) -> bool:
        return self.future is not None and not self.future.done()


class Rewinding:
    """Makes the rewind points and carries out the REWINDs of one resource group, in the process that owns the group's
    jobs."""

    def __init__(self, context: Context, wake: Callable[[], None]) -> None:
        self._context = context
        self._wake = wake
        self._stopping = threading.Event()
        self._works: dict[int, _Work] = {}
        self.owed: frozenset[str] = frozenset()
        """The jobs that must wait until a REWIND is carried out. Until then, these jobs do not match the catalog."""
        self._stamp: tuple[object, ...] = ()
        self._found: tuple[tuple[SourceRecord, tuple[OperationRecord, ...]], ...] = ()
        self._pruning = PointPruning(context, wake)

    def withheld(self, snapshot: Snapshot, busy: Mapping[str, JobSpec | None]) -> frozenset[str]:
        """Returns the jobs that must not run at present. ``busy`` contains the jobs that run, or that are being started
        or stopped. Such a job runs in this process or, if the job was moved from another resource group, in the process
        of that group's owner.

        As soon as all returned jobs are stopped, starts the work for which these jobs wait.
        """
        found: set[str] = set()
        owed: set[str] = set()
        # Only owners write these facts, and this process has read the facts of earlier owners when it took over.
        with self._context.metastore.looks.at_most_every(_STORE_LOOK_SECONDS):
            done = self._context.metastore.jobs.rewound()
            waiting = self._points(snapshot)
        group = self._context.group
        pending = [
            rewind
            for rewind in snapshot.all("rewind")
            if rewind.epoch not in done and group_of(snapshot, rewind.source_id) == group
        ]
        for source, records in waiting:
            job = ingest_fragment(source.id)
            spec = busy.get(job)
            is_rewound = any(rewind.source_id == source.id for rewind in pending)
            if spec is not None and not is_rewound and spec == ingest_spec(snapshot, source):
                continue  # The operation does not change the reader, so the reader continues.
            found.add(job)
            if job not in busy:
                aim = tuple(record.epoch for record in records)
                act = partial(make_points, self._context, source, records, self._stopping.is_set, self._wake)
                self._begin(source.id, aim, act)
        for rewind in pending:
            jobs = rewind_jobs(snapshot, rewind)
            owed.update(jobs)
            if any(source.id == rewind.source_id for source, _ in waiting):
                # The REWIND itself first gets a rewind point, so that it can be undone. Sinks must not run during that
                # time, because a sink already has a new generation, and would send all rows again if it started without
                # the copy of its checkpoint.
                found.update(job for job in jobs if job.startswith("sink-"))
                continue
            found.update(jobs)
            if not any(job in busy for job in jobs):
                self._carry_out(snapshot, rewind, jobs)
        self._works = {id_: work for id_, work in self._works.items() if work.is_working or work.retry_at}
        # If a source was moved to another group while its tables are being replaced, no epoch counts as applied before
        # this work ends.
        moved = {id_ for id_, work in self._works.items() if work.is_working and group_of(snapshot, id_) != group}
        owed.update(map(ingest_fragment, moved))
        self.owed = frozenset(owed)
        self._pruning.run_if_due(snapshot, {*self._works, *(source.id for source, _ in waiting)})
        return frozenset(found)

    @property
    def is_working(self) -> bool:
        """True while a rewind point is made or a REWIND is carried out. During this time, no other owner may start the
        jobs that wait for this work, even if they were moved to its group."""
        return any(work.is_working for work in self._works.values())

    def stop(self) -> None:
        """Ends the waits for rewind points, and waits until no work is in progress."""
        self._stopping.set()
        self._pruning.stop()
        wait([work.future for work in self._works.values() if work.future is not None])

    def _points(self, snapshot: Snapshot) -> tuple[tuple[SourceRecord, tuple[OperationRecord, ...]], ...]:
        """The sources with operations that need a point. Recomputed only after a change of the catalog or of the
        recorded job facts."""
        facts = self._context.metastore.jobs
        stamp = (snapshot, *facts.rewind_stamp())
        if len(stamp) == len(self._stamp) and all(a is b for a, b in zip(stamp, self._stamp, strict=True)):
            return self._found
        found = []
        for job, run in facts.last_runs().items():
            source = snapshot.get(int(job.removeprefix("ingest-"))) if job.startswith("ingest-") else None
            if not isinstance(source, SourceRecord) or source.resource_group != self._context.group:
                continue
            if newest_change(snapshot, source) > run.epoch:
                records = wanted_points(self._context, snapshot, source)
                found += [(source, records)] if records else []
        self._stamp, self._found = stamp, tuple(found)
        return self._found

    def _begin(self, source_id: int, aim: tuple[int, ...], act: Callable[[], None]) -> None:
        work = self._works.get(source_id)
        if work is not None and (work.is_working or (work.aim == aim and time.monotonic() < work.retry_at)):
            return
        if not self._pruning.reserve(source_id):
            return  # The next pass tries again, as soon as the old points of the source are removed.
        work = self._works[source_id] = _Work(aim=aim)
        work.future = run_in_background(partial(self._try, work, act), f"rewind-{source_id}")

    def _try(self, work: _Work, act: Callable[[], None]) -> None:
        work.retry_at, work.problem = time.monotonic() + _RETRY_SECONDS, "it failed unexpectedly"
        try:
            with delta_errors():
                act()
        except (SqlError, CannotRewindError, FencedError, DeltaError, OSError) as error:
            work.problem = cause_line(str(error)) or type(error).__name__
            if not self._context.explains(error):
                logger.warning("rewind: %s", work.problem)
        else:
            work.retry_at, work.problem = 0.0, None
        finally:
            self._wake()

    def _carry_out(self, snapshot: Snapshot, rewind: RewindRecord, jobs: tuple[str, ...]) -> None:
        aim = (rewind.epoch,)
        before = self._works.get(rewind.source_id)
        problem = before.problem if before is not None and before.aim == aim else None
        if problem is not None:
            self._tell(rewind, jobs, problem)

        def act() -> None:
            log_event("rewind", epoch=rewind.epoch, source=rewind.name, operation=rewind.operation)
            carry_out(self._context, self._context.metastore.snapshot(), rewind)
            log_event("rewound", epoch=rewind.epoch, source=rewind.name, operation=rewind.operation)

        self._begin(rewind.source_id, aim, act)

    def _tell(self, rewind: RewindRecord, jobs: tuple[str, ...], problem: str) -> None:
        """Records why a REWIND cannot be carried out, as the stall reason of the jobs that wait for this REWIND."""
        reason = f"REWIND TO OPERATION {rewind.operation}: {problem}"
        statuses = self._context.metastore.jobs.job_statuses()
        fresh = [
            JobStatus(job=job, object_id=job_object(job), state="STALLED", reason=reason, updated_ms=now_ms())
            for job in jobs
            if (known := statuses.get(job)) is None or known.reason != reason
        ]
        if fresh:
            self._context.metastore.jobs.write_job_status(fresh)
