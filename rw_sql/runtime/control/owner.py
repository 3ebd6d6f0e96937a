"""The owner, which is the process that runs the jobs of a warehouse's resource group. It takes and renews the lease,
and runs the loop that makes the jobs match the catalog."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import wait
from functools import partial
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError

from rw_sql.errors import SqlError
from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.model.rebuilds import rollback_window_ms
from rw_sql.runtime.control.added_columns import add_columns
from rw_sql.runtime.control.discovery import SplitDiscovery
from rw_sql.runtime.control.outcomes import APPLIED as APPLIED
from rw_sql.runtime.control.outcomes import NOT_YET_APPLIED as NOT_YET_APPLIED
from rw_sql.runtime.control.outcomes import is_left_open
from rw_sql.runtime.control.quiesce import quiesced_jobs
from rw_sql.runtime.control.reconciler import Reconciler
from rw_sql.runtime.ingest.capture import ADD_COLUMNS
from rw_sql.runtime.jobs.downtime import note_downtime
from rw_sql.runtime.jobs.groups import holding, unapplied
from rw_sql.runtime.jobs.lease import (
    HEARTBEAT_SECONDS,
    STORE_HEARTBEAT_SECONDS,
    LeaseWatch,
    is_orphaned,
    leave_behind,
    renewed,
    try_take,
)
from rw_sql.runtime.jobs.statuses import as_taken_over
from rw_sql.runtime.jobs.store_watch import HEARTBEAT, LOOP
from rw_sql.runtime.refresh.job import HELD_BACK
from rw_sql.runtime.support.background import run_in_background
from rw_sql.runtime.support.failure_log import FailureLog
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.upkeep.dropped_objects import sweep
from rw_sql.runtime.views.swap import swap_rebuilt

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from concurrent.futures import Future

    from rw_sql.metastore.facts import Lease
    from rw_sql.model.job_specs import JobSpec
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.support.failures import StalledError

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.2
"""The interval in seconds at which the owner checks the catalog for new epochs. A process that waits for the lease
checks at the same interval whether the lease is free."""

_STORE_LOOK_SECONDS = 1.0
"""The interval in seconds that replaces ``LOOK_SECONDS`` for a warehouse in an object store. There, each check of a
table is a request."""

_OUTCOME_SECONDS, _MOST_OUTCOME_SECONDS = 2.0, 10.0
_LOOK_BACK = 50
"""The number of epochs whose operations a new owner checks for missing outcomes, because the previous owner may not
have recorded them."""

_TELL_SECONDS = 1.0
"""The maximum delay in seconds between two events: the owner applies a statement of its own process, and the owner
writes the applied epoch to the lease.

Because of this delay, one update of the lease is sufficient for several statements in quick succession.
"""

_MOST_PASS_SECONDS = 2.0
"""The maximum delay in seconds between a failed pass over the jobs and the next pass."""

_SWEEP_SECONDS, _SWEEP_AGAIN_SECONDS = 60.0, 2.0


class Owner:
    """Takes the lease when it is free. Afterwards, makes the running jobs match the catalog until :meth:`stop` is
    called or the lease is lost. After a loss, waits for the lease again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lease: Lease | None = None
        self._watch = LeaseWatch()
        self._lease_lock = threading.Lock()
        self._reconciler: Reconciler | None = None
        self._losing: Future[None] | None = None
        """The background task that stops the jobs after the last loss of the lease; None if the lease was never
        lost."""
        self._stopping = threading.Event()
        self._has_given_up = threading.Event()
        self._told_epoch = -1
        self._untold_since: float | None = None
        self._incomplete_since = 0.0
        self._incomplete_after: int | None = None
        self._has_warned = False
        self._failures = FailureLog()
        self._next_pass = 0.0
        self._pass_delay = LOOK_SECONDS
        self._next_sweep = 0.0
        self._is_sweep_owed = False
        self._ended = threading.Event()
        self._why_ended = ""
        self._discovery = SplitDiscovery(context, self._stall)
        self._thread = threading.Thread(target=self._run, name="rw_sql-owner", daemon=True)
        self._heart = threading.Thread(target=self._beat, name="rw_sql-heartbeat", daemon=True)

    def start(self) -> None:
        """Takes the lease if it is free. Starts the thread that runs the jobs, or first waits for the lease."""
        try:
            self._try_take()
            self._thread.start()
            self._heart.start()
        except BaseException:  # also catches Ctrl-C, which may arrive after the commit that took the lease
            self._stopping.set()
            if self._thread.is_alive():
                self._thread.join()
            else:
                self._give_up()
            raise

    @property
    def is_owner(self) -> bool:
        """True if this process currently runs the jobs."""
        return self._lease is not None

    @property
    def why_ended(self) -> str | None:
        """The reason why this owner has ended and will never run the jobs again; None if it runs the jobs or still
        waits for the lease."""
        return self._why_ended if self._ended.is_set() else None

    def wake(self) -> None:
        """Ends the wait between two passes of the loop, because a statement was committed."""
        reconciler = self._reconciler
        if reconciler is not None:
            reconciler.wake()

    def wait_applied(self, epoch: int, seconds: float, jobs: Collection[str] | None = None) -> bool:
        """Waits until the jobs of this owner match ``epoch``. ``jobs`` are the jobs to wait for; None means all jobs.

        Returns False after ``seconds``, or if the lease is lost.
        """
        return self._context.applied.wait(epoch, seconds, jobs=jobs, is_over=lambda: not self.is_owner)

    def discover_now(self, source_id: int) -> None:
        """Schedules an immediate check of a source for new splits, if this process runs the jobs."""
        self._discovery.schedule(source_id)
        self.wake()

    def _stall(self, spec: JobSpec, error: StalledError) -> None:
        reconciler = self._reconciler
        if reconciler is not None:
            reconciler.stall(spec, error)

    def _add_columns(self, source_id: int, table: str, known: Collection[str], added: Mapping[str, str]) -> bool:
        has_added = add_columns(self._context, source_id, table, known, added)
        self.wake()
        return has_added

    def stop(self) -> None:
        """Stops the jobs, records their positions, and releases the lease."""
        self._stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join()
        self._heart.join()

    def _try_take(self) -> None:
        """Takes the lease if it is free. Does nothing while jobs are still being stopped after the last loss of the
        lease."""
        if self._losing is not None and not self._losing.done():
            return
        runtime = self._context.metastore.jobs
        jvm_pid = self._context.sessions.jvm_pid
        is_local = self._context.warehouse.is_local
        group = self._context.group
        lease = try_take(
            runtime,
            self._context.owner,
            jvm_pid,
            is_local=is_local,
            watch=self._watch,
            group=group,
            on_free=self._note_downtime,
        )
        if lease is None:
            self._warn_of_orphan()
        else:
            fault("owner.after_lease")
            logger.info("this process runs the jobs of %s", self._of())
            # The first pass must see everything that other processes committed while this process did not run the jobs.
            self._context.metastore.looks.forget()
            # From here on, this process has the lease, even if a later step fails: no other process takes the lease
            # while this process runs.
            self._reconciler = Reconciler(self._context)
            self._context.made[ADD_COLUMNS] = self._add_columns
            self._context.made[HELD_BACK] = self._is_held_back
            self._lease = lease
            self._context.owning.set()
            self._context.metastore.failed_writes.is_explained = self._context.explains
            try:
                self._context.metastore.project()
                self._disown_statuses()
            except (DeltaError, OSError) as error:
                self._warn("the catalog's projections are not complete; the next commit completes them: %s", error)

    def _disown_statuses(self) -> None:
        """Replaces the statuses that a killed owner has left. The jobs then count as starting or stopped.

        If the old statuses remained, FLUSH would skip jobs that were STALLED before the takeover.
        """
        metastore = self._context.metastore
        stale = as_taken_over(
            metastore.jobs.job_statuses().values(), metastore.snapshot(), now_ms(), self._context.group
        )
        if stale:
            metastore.jobs.write_job_status(stale)

    def _note_downtime(self, last: Lease | None) -> None:
        """Records the downtime, which is the period since the last heartbeat of the last owner. Must be called before
        this process takes the lease, because taking the lease overwrites that last heartbeat."""
        try:
            note_downtime(self._context.warehouse, last, now_ms())
        except OSError as error:
            self._warn("the time without an owner could not be recorded: %s", error)

    def _warn_of_orphan(self) -> None:
        """If a killed owner's JVM still runs, logs a warning that the jobs start only after this JVM has ended. Logs
        the warning only once."""
        if self._has_warned:
            return
        lease = self._context.metastore.jobs.lease(self._context.group)
        is_local = self._context.warehouse.is_local
        if lease is not None and is_orphaned(lease, is_local=is_local, now_ms=now_ms()):
            self._has_warned = True
            logger.warning(
                "process %d, the JVM of a killed owner of %s, still runs: the jobs start when it has ended",
                lease.jvm_pid,
                self._of(),
            )

    def _warn(self, text: str, error: Exception) -> None:
        """Logs a failure, unless its cause is that nothing can be written to the warehouse. This cause is logged
        elsewhere, and only once."""
        if not self._context.explains(error):
            logger.warning(text, error)

    def _of(self) -> str:
        uri, group = self._context.warehouse.uri, self._context.group
        return uri if group == DEFAULT_GROUP else f"resource group {group} of {uri}"

    def _run(self) -> None:
        # The lease is released regardless of how the loop ends, because an inactive owner would block all other
        # processes that wait for the lease.
        self._why_ended = "the loop that runs the jobs failed unexpectedly"
        try:
            with self._context.metastore.looks.at_most_every(_STORE_LOOK_SECONDS):
                while not self._stopping.is_set():
                    if not self._context.sessions.is_alive():
                        self._why_ended = "Spark has ended"
                        logger.error("Spark has ended: this process runs no jobs of %s", self._context.warehouse.uri)
                        return
                    self._pass()
            self._why_ended = "it was stopped"
        finally:
            self._stopping.set()
            self._give_up()
            self._ended.set()

    def _pass(self) -> None:
        if time.monotonic() >= self._next_pass and self._pass_once():
            return
        self._stopping.wait(LOOK_SECONDS)

    def _pass_once(self) -> bool:
        """Takes the lease if it is free. If this process has the lease, makes one pass over the jobs. Returns True if
        it has made a pass without an error.

        While nothing can be written to the warehouse, this method makes no pass, because no job could start.
        """
        store, warehouse = self._context.store, self._context.warehouse
        is_done = False
        try:
            if not store.may_write(LOOP, warehouse):
                return False
            if self._lease is None:
                self._try_take()
            if self._lease is not None:
                self._turn()
                is_done = True
        except (OSError, DeltaError) as error:
            store.failed(error, warehouse)
            self._delay_pass()
        except (SqlError, Py4JError) as error:
            if not self._context.explains(error) and self._failures.failed():
                logger.warning("the jobs cannot be brought in line with the catalog; trying again: %s", error)
            self._delay_pass()
        else:
            store.succeeded(LOOP, warehouse)
            self._failures.ended()
            self._pass_delay = LOOK_SECONDS
        return is_done

    def _delay_pass(self) -> None:
        self._next_pass = time.monotonic() + self._pass_delay
        self._pass_delay = min(2 * self._pass_delay, _MOST_PASS_SECONDS)

    def _turn(self) -> None:
        reconciler = self._reconciler
        if reconciler is None:
            return
        reconciler.reconcile()
        if self._reconciler is not reconciler:
            self._context.applied.forget()
            return
        self._tell_applied(reconciler.applied_epoch)
        self._tell_let_go(reconciler.let_go_epoch)
        self._discovery.look(reconciler.take_changed(), reconciler.wants_discovery())
        if not self._is_held_back() and swap_rebuilt(self._context):
            return
        is_owed = self._is_sweep_owed or rollback_window_ms(self._context.metastore.snapshot()) is not None
        if time.monotonic() >= self._next_sweep and is_owed:
            self._sweep(self._told_epoch)
        is_idle = not reconciler.wait_changed(LOOK_SECONDS)
        # Outcomes are completed late, because no caller waits for them, and because later statements may add more
        # outcomes.
        if time.monotonic() - self._incomplete_since > (_OUTCOME_SECONDS if is_idle else _MOST_OUTCOME_SECONDS):
            self._complete_outcomes()

    def _is_held_back(self) -> bool:
        """True while the quiesce locks of a statement keep readers stopped until its commit.

        A commit by the owner would end these locks. The statement would then have to be planned and confirmed again.
        """
        return bool(quiesced_jobs(self._context, self._context.metastore.snapshot()))

    def _tell_applied(self, epoch: int, *, at_once: bool = False) -> None:
        """Writes the applied epoch to the lease: at once if ``at_once`` is True or another process may be waiting for
        this epoch, and otherwise after at most ``_TELL_SECONDS``."""
        if epoch <= self._told_epoch:
            return
        now = time.monotonic()
        if not at_once and not self._is_asked_after(epoch):
            self._untold_since = self._untold_since or now
            if now - self._untold_since < _TELL_SECONDS:
                return
        self._untold_since = None
        fault("owner.before_applied")
        before = self._lease.applied_epoch if self._lease is not None else epoch
        if not self._renew(epoch):
            return
        if self._incomplete_after in (None, self._told_epoch):
            self._incomplete_since = time.monotonic()
        self._told_epoch = epoch
        fault("owner.after_applied")
        # The last owner may have been killed between applying an epoch and recording its outcome.
        first = max(0, before - _LOOK_BACK) if self._incomplete_after is None else self._incomplete_after
        self._incomplete_after = min(first, before)
        self._sweep(epoch)

    def _tell_let_go(self, epoch: int) -> None:
        """Writes ``let_go_epoch`` to the lease at once, because the owners of other groups may wait for it before they
        start jobs that were moved out of this group. If there are no other groups, the next heartbeat writes
        ``let_go_epoch``."""
        lease = self._lease
        if lease is not None and lease.let_go < epoch and len(self._context.metastore.jobs.leases()) > 1:
            self._renew(-1)

    def _sweep(self, epoch: int) -> None:
        self._next_sweep = time.monotonic() + _SWEEP_SECONDS
        try:
            if holding(self._context, epoch):
                self._next_sweep, self._is_sweep_owed = time.monotonic() + _SWEEP_AGAIN_SECONDS, True
                return  # the owner of another group may still write to dropped objects
            self._is_sweep_owed = False
            self._is_sweep_owed = not sweep(self._context, epoch)
        except (SqlError, OSError, DeltaError) as error:
            # The sweep after the next statement removes the rest.
            self._warn("dropped objects could not be removed yet: %s", error)

    def _is_asked_after(self, epoch: int) -> bool:
        """True if another process may be waiting until the lease contains ``epoch``. This is the case if another
        process has committed one of the epochs that the lease does not contain yet. It is also the case if one of these
        epochs has set a pause, because the next statement of another process may depend on the pause.
        """
        metastore = self._context.metastore
        if not metastore.has_made(self._told_epoch, epoch):
            return True
        snapshot = metastore.snapshot()
        return any(snapshot.object_epoch(pause.id) > self._told_epoch for pause in snapshot.all("pause"))

    def _complete_outcomes(self) -> None:
        """Records the outcome of each applied statement that has no final outcome yet. Such a statement did not wait,
        or its process ended before it recorded an outcome."""
        metastore, before, epoch = self._context.metastore, self._incomplete_after, self._told_epoch
        if others := unapplied(self._context, epoch, without=self._context.group):
            epoch = min(lease.applied_epoch for lease in others.values())
        if before is None or epoch <= before:
            return
        try:
            for record in metastore.operations(since=before + 1):
                if record.epoch <= epoch and is_left_open(record):
                    metastore.record_outcome(record.epoch, APPLIED, record.duration_ms)
        except (SqlError, OSError, DeltaError) as error:
            self._incomplete_since = time.monotonic()
            self._warn("the outcomes of statements could not be recorded yet: %s", error)
        else:
            self._incomplete_after = epoch

    def _renew(self, epoch: int) -> bool:
        """Renews the lease. If ``epoch`` is greater than the lease's applied epoch, also updates the applied epoch.
        Returns False if another process holds the lease; the jobs are then stopped in the background."""
        with self._lease_lock:
            if self._lease is None:
                return False
            let_go = self._reconciler.let_go_epoch if self._reconciler is not None else -1
            lease = renewed(self._lease, max(epoch, self._lease.applied_epoch), let_go)
            if self._context.metastore.jobs.renew_lease(lease):
                last, self._lease = self._lease, lease
                note_downtime(self._context.warehouse, last, lease.heartbeat_ms)
                return True
            reconciler, self._reconciler, self._lease = self._reconciler, None, None
            self._context.owning.clear()
            self._context.metastore.failed_writes.forget()
            if reconciler is not None:
                # The heartbeat's thread must not wait until the jobs have stopped, because this process may take the
                # lease again, which needs heartbeats too.
                self._losing = run_in_background(partial(self._stop_lost, reconciler), "jobs-stop")
        logger.warning("another process took over the jobs of %s", self._context.warehouse.uri)
        self._context.applied.forget()
        return False

    def _stop_lost(self, reconciler: Reconciler) -> None:
        """Stops the jobs after the lease was lost."""
        try:
            reconciler.stop_all()
        finally:
            self._context.applied.forget()

    def _beat(self) -> None:
        # Renews the lease until the jobs have stopped, which may take longer than a lease lasts.
        store, warehouse = self._context.store, self._context.warehouse
        seconds = HEARTBEAT_SECONDS if warehouse.is_local else STORE_HEARTBEAT_SECONDS
        while not self._has_given_up.wait(seconds):
            try:
                if not store.may_write(HEARTBEAT, warehouse):
                    continue
                self._renew(-1)
            except Exception as error:  # noqa: BLE001 - without this thread, another process takes the lease
                store.failed(error, warehouse)
            else:
                store.succeeded(HEARTBEAT, warehouse)

    def _give_up(self) -> None:
        """Stops the jobs. Releases the lease after no job can commit any more."""
        reconciler, have_stopped = self._reconciler, False
        try:
            if reconciler is not None:
                reconciler.stop_all()
            if self._losing is not None:
                wait([self._losing])
            have_stopped = True
            self._report_stopped(reconciler)
            with self._lease_lock:
                lease, self._lease = self._lease, None
                if lease is not None:
                    self._context.metastore.jobs.release_lease(lease)
        except (SqlError, OSError, DeltaError) as error:
            self._warn("the lease could not be released: %s", error)
        finally:
            self._lease = None
            # From now on, a lease that could not be released, or that this owner does not know, counts as free.
            if have_stopped:
                leave_behind(self._context.owner)
            self._has_given_up.set()
            self._context.owning.clear()
            self._context.metastore.failed_writes.forget()
            self._context.applied.forget()

    def _report_stopped(self, reconciler: Reconciler | None) -> None:
        """Stores the last statuses, positions and outcomes, if this process still has the lease."""
        try:
            if reconciler is not None and self._renew(-1):
                reconciler.report_stopped()
                self._tell_applied(reconciler.applied_epoch, at_once=True)
                self._complete_outcomes()
        except (SqlError, OSError, DeltaError) as error:
            self._warn("the last statuses of the jobs could not be stored: %s", error)
