"""The process that runs a warehouse's jobs: its lease, its heartbeat, its loop, its discovery."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError

from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError
from rw_sql.metastore import ConcurrentCommit
from rw_sql.metastore.records import Operation, SourceRecord
from rw_sql.plan.desired import IngestSpec, ingest_spec
from rw_sql.plan.lower_source import take_up_new_topics
from rw_sql.runtime.background import run_in_background
from rw_sql.runtime.faults import fault
from rw_sql.runtime.ingest import require_readable
from rw_sql.runtime.job import StalledError
from rw_sql.runtime.lease import HEARTBEAT_SECONDS, renewed, try_take
from rw_sql.runtime.reconciler import Reconciler
from rw_sql.runtime.sweep import sweep
from rw_sql.runtime.world import World

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rw_sql.metastore.records import Lease
    from rw_sql.runtime.context import Context

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.2
"""How often the owner looks for a new epoch, and a session that does not own whether the owner is gone."""

DISCOVERY_SECONDS = 10.0
"""How often a running source's upstream is looked at for new, lost or re-created splits."""


class Owner:
    """Takes the lease when it is free, then keeps the jobs as the catalog wants them, until :meth:`stop`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lease: Lease | None = None
        self._lease_lock = threading.Lock()
        self._reconciler: Reconciler | None = None
        self._stopping = threading.Event()
        self._applied = threading.Condition()
        self._applied_epoch = -1
        self._discoveries: dict[int, Future[None]] = {}
        self._next_discovery: dict[int, float] = {}
        self._thread = threading.Thread(target=self._run, name="rw_sql-owner", daemon=True)
        self._heart = threading.Thread(target=self._beat, name="rw_sql-heartbeat", daemon=True)

    def start(self) -> None:
        """Starts trying for the lease; takes it at once where nobody holds it."""
        self._try_take()
        self._thread.start()
        self._heart.start()

    @property
    def is_owner(self) -> bool:
        """Whether this process runs the jobs now."""
        return self._lease is not None

    def wake(self) -> None:
        """Tells the loop that something was committed."""
        reconciler = self._reconciler
        if reconciler is not None:
            reconciler.wake()

    def wait_applied(self, epoch: int, seconds: float) -> bool:
        """Waits until this owner has applied an epoch; False where it did not in time or lost the lease."""
        with self._applied:
            return self._applied.wait_for(lambda: self._applied_epoch >= epoch or not self.is_owner, seconds) and (
                self._applied_epoch >= epoch
            )

    def stop(self) -> None:
        """Stops the jobs, notes where they stood, and releases the lease."""
        self._stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join()
        self._heart.join()

    def _try_take(self) -> None:
        runtime = self._context.metastore.runtime
        jvm_pid = self._context.sessions.jvm_pid
        lease = try_take(runtime, self._context.owner, jvm_pid, is_local=self._context.warehouse.is_local)
        if lease is not None:
            fault("owner.after_lease")
            logger.info("this process runs the jobs of %s", self._context.warehouse.uri)
            # From here on the lease is ours, whatever fails: nobody else takes it while this process lives.
            self._reconciler = Reconciler(self._context)
            self._lease = lease
            try:
                self._context.metastore.project()
            except (DeltaError, OSError) as error:
                logger.warning("the catalog's projections are not complete; the next commit completes them: %s", error)

    def _run(self) -> None:
        # However the loop ends, the lease goes back: an owner that does nothing would keep everybody else from it.
        try:
            while not self._stopping.is_set():
                if not self._context.sessions.is_alive():
                    logger.error("Spark has ended: this process runs no jobs of %s", self._context.warehouse.uri)
                    return
                self._pass()
        finally:
            self._stopping.set()
            self._give_up()

    def _pass(self) -> None:
        try:
            if self._lease is None:
                self._try_take()
            if self._lease is not None:
                self._turn()
                return
        except (SqlError, OSError, DeltaError, Py4JError) as error:
            logger.warning("the catalog or the JVM cannot be reached: %s", error)
        self._stopping.wait(LOOK_SECONDS)

    def _turn(self) -> None:
        reconciler = self._reconciler
        if reconciler is None:
            return
        reconciler.reconcile()
        self._tell_applied(reconciler.applied_epoch)
        self._discover(reconciler)
        reconciler.wait_changed(LOOK_SECONDS)

    def _tell_applied(self, epoch: int) -> None:
        if epoch <= self._applied_epoch:
            return
        fault("owner.before_applied")
        if not self._renew(epoch):
            return
        fault("owner.after_applied")
        sweep(self._context, epoch)
        with self._applied:
            self._applied_epoch = epoch
            self._applied.notify_all()

    def _renew(self, epoch: int) -> bool:
        """A heartbeat, with the epoch applied so far where that is newer; False where the lease is another's."""
        with self._lease_lock:
            if self._lease is None:
                return False
            lease = renewed(self._lease, max(epoch, self._lease.applied_epoch))
            if self._context.metastore.runtime.renew_lease(lease):
                self._lease = lease
                return True
            reconciler, self._reconciler, self._lease = self._reconciler, None, None
        logger.warning("another process took over the jobs of %s", self._context.warehouse.uri)
        if reconciler is not None:
            reconciler.stop_all(is_owner=False)
        with self._applied:
            self._applied.notify_all()
        return False

    def _beat(self) -> None:
        while not self._stopping.wait(HEARTBEAT_SECONDS):
            try:
                self._renew(-1)
            except (SqlError, OSError, DeltaError) as error:
                logger.warning("the heartbeat could not be written: %s", error)

    def _give_up(self) -> None:
        """Stops the jobs and then, when nothing of them commits any more, releases the lease."""
        reconciler = self._reconciler
        try:
            if reconciler is not None:
                reconciler.stop_all(is_owner=True)
            with self._lease_lock:
                if self._lease is not None:
                    self._context.metastore.runtime.release_lease(self._lease)
        except (SqlError, OSError, DeltaError) as error:
            logger.warning("the lease could not be released; it ends with this process: %s", error)
        finally:
            with self._applied:
                self._lease = None
                self._applied.notify_all()

    def _discover(self, reconciler: Reconciler) -> None:
        now = time.monotonic()
        for source_id in reconciler.wants_discovery():
            work = self._discoveries.get(source_id)
            if (work is not None and not work.done()) or now < self._next_discovery.get(source_id, 0.0):
                continue
            is_known = source_id in self._next_discovery
            self._next_discovery[source_id] = now + DISCOVERY_SECONDS
            if is_known or not self._has_splits(source_id):
                self._discoveries[source_id] = run_in_background(
                    partial(self._discover_one, source_id), f"discovery-{source_id}"
                )

    def _has_splits(self, source_id: int) -> bool:
        snapshot = self._context.metastore.snapshot()
        source = snapshot.get(source_id)
        spec = ingest_spec(snapshot, source) if isinstance(source, SourceRecord) else None
        return isinstance(spec, IngestSpec) and bool(spec.splits)

    def _discover_one(self, source_id: int) -> None:
        """Takes up new splits, and stalls a reader whose upstream is no longer the one it knows."""
        metastore = self._context.metastore
        snapshot = metastore.snapshot()
        source = snapshot.get(source_id)
        spec = ingest_spec(snapshot, source) if isinstance(source, SourceRecord) else None
        if not isinstance(source, SourceRecord) or spec is None:
            return
        world = World(self._context, snapshot)
        stands = world.positions(source_id)
        upstream = connector(source.connector).look(self._context.options_of(source, snapshot))
        if upstream.is_reachable and spec.splits:
            try:
                require_readable(source.name, spec.splits, stands.states, upstream)
            except StalledError as error:
                if self._reconciler is not None:
                    self._reconciler.stall(spec, error)
                return
        changes, notes = world.run(take_up_new_topics(snapshot, source))
        if not changes:
            return
        operation = Operation(
            kind="DISCOVER SPLITS",
            statement=f"-- discovered for source {source.name}: {'; '.join(notes)}",
            objects=(source.name,),
            changes=changes,
            actor=self._context.owner,
        )
        fault("owner.before_discovery")
        try:
            metastore.commit(operation, based_on=snapshot)
        except ConcurrentCommit:
            self._next_discovery[source_id] = 0.0
