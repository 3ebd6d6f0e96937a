"""Implements the metastore, which commits statements and reads the catalog.

A statement is committed by appending its row to the log ``operations`` with compare-and-set. ``objects``,
``fragment_splits`` and ``source_state`` are projections of the log. Each append to a projection also records, as a
Delta app transaction, the epoch up to which the projection is complete. Therefore, any process can extend a projection,
and no part of a projection is written twice. Readers apply only the operations after the recorded epoch.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Lock, RLock
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError, TableNotFoundError

from rw_sql.errors import FILE_UNREADABLE, SqlError
from rw_sql.metastore.catalog import Catalog, load_catalog
from rw_sql.metastore.codec import changes_from_json
from rw_sql.metastore.commit_arrival import SETTLING_SECONDS, has_arrived, is_in_log
from rw_sql.metastore.commit_log import Looks
from rw_sql.metastore.commits import Committed, ConcurrentCommit, user_name
from rw_sql.metastore.debounced_task import DebouncedTask
from rw_sql.metastore.failed_writes import FailedWrites
from rw_sql.metastore.job_store import JobStore
from rw_sql.metastore.location import catalog_folder
from rw_sql.metastore.log_rows import operation_record, operation_row, operation_rows, outcome_row
from rw_sql.metastore.migrations import migrate, require_format
from rw_sql.metastore.projections import fold_rows, projection_rows, snapshot_from
from rw_sql.metastore.records import OperationRecord
from rw_sql.metastore.snapshot import PROJECTIONS, Snapshot, before_image, effect_of, fold, projection_of
from rw_sql.metastore.table import CommitConflict, StoredTable, join
from rw_sql.object_stores import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from rw_sql.metastore.records import Operation
    from rw_sql.metastore.snapshot import Effect, Projection

_EPOCH, _PROJECTED = "epoch", "projected"
_RECENT = 64
_COLLECTING_SECONDS, _PROJECTING_SECONDS = 1.0, 0.2
_FOLDED_COLUMNS = ["epoch", "entry", "actor", "changes"]


def _no_faults(_: str) -> None:
    return None


class Metastore:
    """The metastore of one warehouse. Any number of processes and threads may use it concurrently."""

    def __init__(self, directory: str, catalog: Catalog) -> None:
        self.directory = directory
        self.failed_writes = FailedWrites()
        self.looks = Looks()
        """In an object store, limits how often this process looks for the commits of other processes."""
        self.jobs = JobStore(directory, self.failed_writes, self.looks)
        """Facts about the running jobs: lease, runs, statuses, positions."""
        self.faults: Callable[[str], None] = _no_faults
        """Called between the steps of a commit with the name of a fault point. Tests use it to stop the process."""
        self._catalog = catalog
        self._lock = RLock()
        opened = partial(StoredTable, failed_writes=self.failed_writes, looks=self.looks)
        self._operations = opened(join(directory, "operations"))
        self._projections: dict[Projection, StoredTable] = {
            name: opened(join(directory, name), upkeep_offset=10 * at) for at, name in enumerate(PROJECTIONS, 1)
        }
        # _recent has the effects that a projection may still lack. _forgotten has, for each projection, the last epoch
        # whose effect was removed from _recent.
        self._recent: deque[Effect] = deque()
        self._forgotten: dict[Projection, int] = {}
        self._seen = (-1, Snapshot())
        # The last operations that were committed through this object, by epoch. The value is None for a safe operation.
        self._made: dict[int, OperationRecord | None] = {}
        self._told: set[Event] = set()
        self._outcomes = DebouncedTask(self._record_pending, "outcome", seconds=_COLLECTING_SECONDS)
        self._pending: deque[dict[str, Any]] = deque()
        self._projecting_later = DebouncedTask(self._project_or_warn, "projection", seconds=_PROJECTING_SECONDS)
        self._projecting = Lock()
        # Upkeep of the log runs in parallel with new commits, as upkeep by another process does.
        self._turns = DebouncedTask(self._upkeep_or_warn, "upkeep")
        self._upkeeping = Lock()
        self._load()

    @classmethod
    def open(
        cls, warehouse: str, *, catalog: Catalog | None = None, only_reads: bool = False, accepts_older: bool = False
    ) -> Metastore:
        """Opens the metastore of a warehouse, given as path or URI. Creates or migrates the metastore first if
        necessary.

        Completes projections that a crashed process left incomplete. For a URI, environment variables set the options
        of the object store. If ``only_reads`` is true, writes nothing, and raises SqlError NOT_SUPPORTED if the
        warehouse must be migrated first. If ``accepts_older`` is true too, opens such a warehouse without a migration.
        Raises SqlError METASTORE_IS_NEWER if a newer rw_sql wrote the warehouse, and INVALID_PARAMETER if Delta cannot
        use the path.
        """
        catalog = catalog or load_catalog()
        directory = catalog_folder(warehouse)
        if only_reads:
            require_format(directory, catalog, accepts_older=accepts_older)
            return cls(directory, catalog)
        migrate(directory, catalog)
        metastore = cls(directory, catalog)
        metastore.project()
        return metastore

    @classmethod
    def peek(cls, warehouse: str) -> Snapshot:
        """The current catalog of a warehouse. Writes nothing: does not create, migrate or complete anything.

        Raises SqlError FILE_UNREADABLE if there is no readable warehouse. Also raises the errors of :meth:`open`.
        """
        try:
            return cls.open(warehouse, only_reads=True, accepts_older=True).snapshot()
        except TableNotFoundError as error:
            raise SqlError(
                FILE_UNREADABLE,
                f"there is no warehouse at {warehouse}",
                hint="name one with --warehouse PATH or RW_SQL_WAREHOUSE; rw-sql shell creates one",
            ) from error
        except (DeltaError, OSError, KeyError, pa.ArrowInvalid) as error:
            raise SqlError(
                FILE_UNREADABLE,
                f"cannot read a catalog in the warehouse {warehouse!r}: {one_line(error)}",
                hint="give the folder or URI that rw-sql run gets as --warehouse",
            ) from error

    def view_definitions(self) -> tuple[tuple[str, str], ...]:
        """The views of ``rw_catalog``, as pairs (name, SELECT in Spark's SQL)."""
        return self._catalog.view_definitions(self.directory)

    def version(self) -> int:
        """A number that increases with every write to the log, including outcomes and upkeep. On a local path, reading
        the number takes only a few microseconds, so callers can poll it."""
        return self._operations.latest_version()

    def snapshot(self) -> Snapshot:
        """The current catalog. Until another operation is committed, each call returns the identical object."""
        version, snapshot = self._seen
        newest = self._operations.latest_version()
        if newest <= version:
            return snapshot
        with self._lock:
            return self._catch_up(newest)

    def commit(
        self, operation: Operation, *, based_on: Snapshot, on_append: Callable[[], object] = lambda: None
    ) -> Committed:
        """Atomically commits an operation as the next epoch. The operation was planned on the snapshot ``based_on``.

        The method calls ``on_append`` directly after the commit; ``on_append`` must not block. Another thread updates
        the projections after a fraction of a second, or earlier if a caller waits for the update. One update can
        therefore contain several operations. Raises ConcurrentCommit if another operation was committed after
        ``based_on``, and ValueError if the changes do not fit the snapshot. Writes of outcomes and upkeep do not cause
        ConcurrentCommit.
        """
        with self._lock:
            epoch = based_on.epoch + 1
            actor = operation.actor or user_name()
            effect = effect_of(based_on, epoch, actor, operation.changes)
            row = operation_row(operation, epoch, actor, before_image(based_on, effect))
            if self._seen[1].epoch < epoch - 1:
                self._catch_up()
            self.faults("metastore.before_append")
            with self._unread_if_interrupted():
                before = self._append([row], based_on.epoch)
                self.faults("metastore.after_append")
                self._remember(effect)
                snapshot = fold(based_on, effect)
                self._seen = (before + 1, snapshot)
            self._made = {at: made for at, made in self._made.items() if at > epoch - _RECENT}
            self._made[epoch] = operation_record(row, None) if operation.is_unsafe else None
            on_append()
            for event in tuple(self._told):
                event.set()
        # The tasks are scheduled without the lock. If no thread can be started, both tasks run here, and another thread
        # that is updating a projection may need the lock.
        self._projecting_later.schedule()
        if self._operations.is_upkeep_due(before):
            self._turns.schedule()
        return Committed(epoch=epoch, snapshot=snapshot)

    @contextmanager
    def telling(self, event: Event) -> Iterator[None]:
        """A context manager. Inside it, each commit through this object sets ``event``. A caller that waits for
        ``event`` must also poll, because commits of other processes do not set ``event``."""
        self._told.add(event)
        try:
            yield
        finally:
            self._told.discard(event)

    def project(self) -> None:
        """Completes the projections up to the last operation. Any process can call this method at any time."""
        with self._projecting:
            snapshot = self.snapshot()
            for projection in PROJECTIONS:
                self._project(projection, snapshot)
                self.faults(f"metastore.after_{projection}")
            with self._lock:
                while self._recent and self._recent[0].epoch <= snapshot.epoch:
                    self._forget(self._recent.popleft())

    def record_outcome(self, epoch: int, outcome: str, duration_ms: int | None = None) -> None:
        """Records the outcome of an operation, in place of any earlier outcome. Does not advance the epoch."""
        self._record([outcome_row(epoch, outcome, duration_ms)])

    def _record(self, rows: list[dict[str, Any]]) -> None:
        before = self._append(rows, None)
        with self._lock:
            if self._seen[0] == before:
                self._seen = (before + 1, self._seen[1])
        if self._operations.is_upkeep_due(before):
            self._turns.schedule()

    def record_outcome_later(self, epoch: int, outcome: str, duration_ms: int | None = None) -> None:
        """Records an outcome on another thread, which collects outcomes for about a second and then writes them in one
        commit. The method :meth:`operations` of this object first writes the collected outcomes, so its result contains
        them.
        """
        self._pending.append(outcome_row(epoch, outcome, duration_ms))
        self._outcomes.schedule()

    def flush(self, *, with_upkeep: bool = False) -> None:
        """Does what :meth:`flush_projections` does, and blocks until all pending outcomes are written. If
        ``with_upkeep`` is true, also blocks until running upkeep of the log is done."""
        self.flush_projections()
        self._outcomes.flush()
        if with_upkeep:
            # Writing an outcome may start upkeep, so this method waits for upkeep afterwards.
            self._turns.flush()

    def flush_projections(self) -> None:
        """Blocks until the projections contain all operations that this store has committed, and no thread is storing a
        job's status. The call usually takes at most a hundredth of a second."""
        self._projecting_later.flush()
        with self.jobs.saying:
            pass

    def _record_pending(self) -> None:
        """Writes the pending outcomes."""
        rows: list[dict[str, Any]] = []
        while self._pending:
            with suppress(IndexError):  # Another thread writes the outcome.
                rows.append(self._pending.popleft())
        if not rows:
            return
        try:
            self._record(rows)
        except (DeltaError, OSError) as error:
            told = ", ".join(f"{row['epoch']} ({row['outcome']})" for row in rows)
            self.failed_writes.warn(f"the outcomes of these operations could not be stored: {told}", error)

    def has_made(self, after: int, upto: int) -> bool:
        """True if this object committed every epoch in ``(after, upto]``. False if another object committed one of
        these epochs, or if this object no longer remembers the commit of one of them."""
        return all(epoch in self._made for epoch in range(after + 1, upto + 1))

    def unsafe_since(self, epoch: int) -> tuple[OperationRecord, ...]:
        """The unsafe operations at or after an epoch, latest first. The result may lack stored outcomes."""
        made = self._made
        wanted = range(self.snapshot().epoch, epoch - 1, -1)
        if any(at not in made for at in wanted):
            return self.operations(is_unsafe=True, since=epoch)
        return tuple(record for record in map(made.get, wanted) if record is not None)

    def operation(self, epoch: int) -> OperationRecord | None:
        """The operation with the given epoch; None if there is no such operation."""
        return next(iter(self._operation_records(lambda light: pc.equal(light["epoch"], epoch), None)), None)

    def operations(
        self,
        is_unsafe: bool | None = None,
        object_name: str | None = None,
        limit: int | None = None,
        since: int | None = None,
        kinds: Collection[str] | None = None,
    ) -> tuple[OperationRecord, ...]:
        """Operations with their outcomes, latest first. Each argument that is not None restricts the result: to unsafe
        or safe operations (``is_unsafe``), to operations that affect the object ``object_name``, to the ``limit``
        latest operations, to epochs from ``since``, or to operations of the given ``kinds``.
        """

        def wanted(light: pa.Table) -> Any:
            mask = pa.array([True] * light.num_rows, pa.bool_())
            if is_unsafe is not None:
                mask = pc.and_(mask, pc.equal(light["is_unsafe"], is_unsafe))
            if object_name is not None:
                names = light["objects"].to_pylist()
                mask = pc.and_(mask, pa.array([object_name in (of_row or ()) for of_row in names], pa.bool_()))
            return mask if kinds is None else pc.and_(mask, pc.is_in(light["kind"], pa.array([*kinds], pa.string())))

        return self._operation_records(wanted, limit, since)

    def _operation_records(
        self, wanted: Callable[[pa.Table], Any], limit: int | None, since: int | None = None
    ) -> tuple[OperationRecord, ...]:
        self._outcomes.flush()
        with self._lock:
            table = self._operations
            table.refresh()
            above = None if since is None else ("epoch", since - 1)
            columns = ["epoch", "entry", "kind", "at_ms", "is_unsafe", "objects", "outcome", "duration_ms"]
            light = table.read(columns, above=above)
            if since is not None:
                light = light.filter(pc.greater_equal(light["epoch"], since))
            is_operation = pc.equal(light["entry"], "operation")
            chosen = light.filter(pc.and_(is_operation, wanted(light))).sort_by([("epoch", "descending")])
            epochs = chosen["epoch"].to_pylist()[:limit]
            if not epochs:
                return ()
            rows = table.read(above=("epoch", epochs[-1] - 1), among=("epoch", epochs))
        rows = rows.filter(pc.equal(rows["entry"], "operation"))
        outcomes = light.filter(pc.and_(pc.invert(is_operation), pc.is_in(light["epoch"], pa.array(epochs))))
        newest = {row["epoch"]: row for row in outcomes.sort_by("at_ms").to_pylist()}
        records = [operation_record(row, newest.get(row["epoch"])) for row in rows.to_pylist()]
        return tuple(sorted(records, key=lambda record: -record.epoch))

    def _append(self, entries: list[dict[str, Any]], based_on: int | None) -> int:
        """Appends rows to the log and returns the version before the append.

        If the epoch ``based_on`` is given, raises ConcurrentCommit unless ``based_on`` is still the last epoch.
        """
        table = self._operations
        rows = pa.Table.from_pylist(entries, table.schema)
        transaction = None if based_on is None else (_EPOCH, based_on + 1)
        tried: int | None = None
        while True:
            # Takes the table's lock, because in an object store, a poll by another thread advances the handle too.
            with table.lock:
                try:
                    before = table.latest_version(is_exact=True)
                    if based_on is not None and (newest := table.transaction(_EPOCH, before)) != based_on:
                        # Before the first try, the log cannot contain the row.
                        if tried is None or newest < based_on or not is_in_log(table, entries[0], before):
                            raise ConcurrentCommit(newest, based_on)
                        # The next refresh reads the operations of other processes that follow this row.
                        return before - 1 if newest == based_on + 1 else self._seen[0] - 1
                    table.advance(before)
                except (DeltaError, OSError) as error:
                    # A try that was refused may be in the log: the client may have repeated a write that succeeded.
                    if based_on is None or tried is None:
                        raise
                    if has_arrived(table, entries[0], error, SETTLING_SECONDS):
                        return tried
                    continue
                if table.version > before:
                    continue  # Further commits have arrived.
                tried = before
                try:
                    table.append(rows, transaction=transaction)
                except CommitConflict:
                    continue
                except (DeltaError, OSError) as error:
                    if not has_arrived(table, entries[0], error, 0.0 if based_on is None else SETTLING_SECONDS):
                        raise
                return before

    def _load(self) -> None:
        """Reads the whole catalog.

        Reads the projections before the log, so the log contains every operation that the projections contain.
        """
        tables: dict[Projection, pa.Table] = {}
        projected: dict[Projection, int] = {}
        for name, projection in self._projections.items():
            with projection.lock:
                projection.refresh()
                tables[name] = projection.read()
                projected[name] = projection.transaction(_PROJECTED)
        oldest = min(projected.values())
        with self._operations.lock:
            self._operations.refresh()
            rows = self._operations.read(_FOLDED_COLUMNS, above=("epoch", oldest))
            version, epoch = self._operations.version, self._operations.transaction(_EPOCH)
            self._operations.mark_read()
        effects: list[Effect] = []
        with self._unread_if_interrupted():
            snapshot = snapshot_from(tables, oldest)
            for at, actor, text in operation_rows(rows, oldest):
                # Skips changes that a projection already contains, because a repeated drop would not find its object.
                missing = [change for change in changes_from_json(text) if at > projected[projection_of(change)]]
                effects.append(effect_of(snapshot, at, actor, missing))
                snapshot = fold(snapshot, effects[-1])
            if snapshot.epoch != epoch:
                raise OSError(
                    f"{self._operations.uri} contains operations up to epoch {snapshot.epoch}, but its newest commit "
                    f"has epoch {epoch}"
                )
            self._recent = deque(effects)
            self._forgotten.clear()
            self._seen = (version, snapshot)

    def _catch_up(self, newest: int | None = None) -> Snapshot:
        version, snapshot = self._seen
        with self._unread_if_interrupted():
            new = self._operations.read_new(_FOLDED_COLUMNS, above=(_EPOCH, snapshot.epoch), newest=newest)
            effects: list[Effect] = []
            for at, actor, text in operation_rows(new.rows, snapshot.epoch):
                if at != snapshot.epoch + 1:
                    raise OSError(f"{self._operations.uri} lacks operation {snapshot.epoch + 1}")
                effects.append(effect_of(snapshot, at, actor, changes_from_json(text)))
                snapshot = fold(snapshot, effects[-1])
            for effect in effects:
                self._remember(effect)
            self._seen = (max(version, new.version), snapshot)
        return snapshot

    @contextmanager
    def _unread_if_interrupted(self) -> Iterator[None]:
        """A context manager. If its body fails or is interrupted, the rows that the body has read are read again."""
        try:
            yield
        except ConcurrentCommit:  # Nothing was read or written.
            raise
        except BaseException:
            self._operations.mark_unread()
            raise

    def _remember(self, effect: Effect) -> None:
        if self._recent and effect.epoch <= self._recent[-1].epoch:
            return  # An interrupted call already added this effect.
        self._recent.append(effect)
        if len(self._recent) > _RECENT:
            self._forget(self._recent.popleft())

    def _forget(self, effect: Effect) -> None:
        self._forgotten |= {projection: effect.epoch for projection in PROJECTIONS if effect.touches(projection)}

    def _project(self, projection: Projection, snapshot: Snapshot) -> None:
        table = self._projections[projection]
        with table.lock:
            while (touched := snapshot.touched.get(projection, 0)) > table.known_transaction(_PROJECTED):
                before = table.latest_version(is_exact=True)
                done = table.transaction(_PROJECTED, before)
                if done >= touched:
                    break  # Another process has completed the projection.
                table.advance(before)
                if table.version > before:
                    continue  # Further commits have arrived.
                with self._lock:
                    if done < self._forgotten.get(projection, 0):
                        self._load()
                        snapshot = self._seen[1]
                        continue
                    recent = list(self._recent)
                # Later operations may have been committed in the meantime, so the append contains only the effects up
                # to the snapshot's epoch.
                wanted = [effect for effect in recent if done < effect.epoch <= snapshot.epoch]
                effects = [effect for effect in wanted if effect.touches(projection)]
                if not effects:
                    break
                try:
                    table.append(
                        projection_rows(projection, effects, table.schema), transaction=(_PROJECTED, snapshot.epoch)
                    )
                except CommitConflict:
                    continue
                if table.is_upkeep_due(before):
                    # Holds the table's lock, because folding replaces all rows. Without the lock, folding would fail as
                    # long as other commits keep arriving.
                    table.upkeep(lambda rows: fold_rows(projection, rows))

    def _project_or_warn(self) -> None:
        try:
            self.project()
        except (DeltaError, OSError) as error:
            # The operation is committed in any case; the next commit or open completes the projections.
            self.failed_writes.warn(f"the projections of {self.directory} are not complete", error)

    def _upkeep_or_warn(self) -> None:
        with self._upkeeping:
            try:
                self._upkeep()
            except (DeltaError, OSError) as error:
                self.failed_writes.warn(f"upkeep of {self.directory}", error)

    def _upkeep(self) -> None:
        """Runs upkeep of the table ``operations``.

        Also advances the recorded epochs of projections without new changes. Opening then reads fewer operations.
        """
        # Upkeep uses a separate handle, so that commits do not wait for upkeep.
        StoredTable(self._operations.uri, failed_writes=self.failed_writes).upkeep()
        snapshot = self._seen[1]
        for name, table in self._projections.items():
            with table.lock:
                table.refresh()
                if snapshot.touched.get(name, 0) <= table.transaction(_PROJECTED) < snapshot.epoch:
                    with suppress(CommitConflict):
                        table.append(table.schema.empty_table(), transaction=(_PROJECTED, snapshot.epoch))
