"""Reads the present status of a warehouse. Any process can do so, because the status comes from the warehouse's tables
and from the upstreams, not from the process that runs the jobs."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import wait
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import DeltaError

from rw_sql.errors import SqlError
from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.model.lineage import find_in_lineage, lineage_of
from rw_sql.plan.result.graph import Graph
from rw_sql.plan.statements.show.lineage import lineage_graph
from rw_sql.plan.statements.show.objects import lower_show_objects
from rw_sql.plan.statements.show.unsafe_operations import lower_show_unsafe_operations
from rw_sql.runtime.control.inspector import WarehouseInspector
from rw_sql.runtime.jobs.groups import groups_in_use, least_applied
from rw_sql.runtime.jobs.lease import resume_command, suspended_pid
from rw_sql.runtime.jobs.silent_owners import silence_of
from rw_sql.runtime.jobs.statuses import RETRYING
from rw_sql.runtime.observe.activity import Activity, measure_activity
from rw_sql.runtime.observe.lag import LOOK_SECONDS, Lag, measure_lag
from rw_sql.runtime.support.background import run_in_background
from rw_sql.runtime.support.processes import now_ms
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import ShowObjects, ShowUnsafeOperations
from rw_sql.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import BackfillProgress, JobStatus, Lease
    from rw_sql.plan.ports.jobs import JobPort, Owner, Sample
    from rw_sql.runtime.jobs.context import Context

logger = logging.getLogger(__name__)

OPERATIONS_SHOWN = 50
"""The maximum number of unsafe operations in the status. The latest operations are shown."""
RUNS, LATE, SUSPENDED, ENDED = "RUNNING", "LATE", "SUSPENDED", "NONE"
_LATE_MS = 15_000
_MEASURE_SECONDS = 5.0
_FIRST_SECONDS = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerStatus:
    """The process that runs the jobs of a resource group. ``state`` is RUNNING, LATE (the last heartbeat is overdue),
    SUSPENDED (the process ``pid`` is suspended by a signal), or NONE (no process runs the jobs). ``problem`` is the
    reason why the process cannot write to the warehouse; None if no reason is known. ``resume`` is the command that
    resumes a suspended process; None in other states."""

    state: str
    resource_group: str = DEFAULT_GROUP
    name: str | None = None
    host: str | None = None
    pid: int | None = None
    since_ms: int | None = None
    heartbeat_ms: int | None = None
    applied_epoch: int | None = None
    problem: str | None = None
    resume: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """One job in the status. ``statements`` are the statements that the job's reason suggests to run. Times are in
    milliseconds since 1970."""

    job: str
    kind: str
    object: str
    state: str
    reason: str
    statements: tuple[str, ...]
    last_error: str | None
    lag_records: int | None
    lag_seconds: float | None
    rows_per_second: float | None
    last_batch_ms: int | None
    run: int | None
    restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationLine:
    """One unsafe operation: the statement, its prediction, and the statement that undoes it."""

    operation: int
    at_ms: int
    actor: str
    kind: str
    statement: str
    objects: str
    reason: str | None
    outcome: str | None
    preview: str
    undo: str | None
    rewind: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """Lags and rates, and the time at which they were measured. Before the first measurement, the lags and rates are
    empty and the time is None."""

    at_ms: int | None = None
    lags: Mapping[str, Lag] = field(default_factory=dict)
    activity: Mapping[str, Activity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseStatus:
    """The status of a warehouse. ``measured_ms`` is the time at which lags and rates were measured; None if they were
    not measured yet.

    ``owners`` are the owners of all resource groups that have jobs or an owner, sorted by group. ``owner`` is the owner
    of the group of the process that reads the status. If that group is not among ``owners``, ``owner`` is the first
    element of ``owners`` whose process runs or, if no process runs, the first element.
    """

    warehouse: str
    version: str
    at_ms: int
    measured_ms: int | None
    epoch: int
    owner: OwnerStatus
    owners: tuple[OwnerStatus, ...]
    jobs: tuple[JobLine, ...]
    operations: tuple[OperationLine, ...]
    lineage: Graph

    @property
    def stalled(self) -> tuple[JobLine, ...]:
        """The jobs in the state STALLED: they cannot continue until a retry succeeds or an operator acts."""
        return tuple(job for job in self.jobs if job.state == "STALLED")

    def to_json(self) -> dict[str, Any]:
        """The status as plain data. Times are in ISO 8601, in UTC."""
        return {
            "warehouse": self.warehouse,
            "version": self.version,
            "at": iso(self.at_ms),
            "measured_at": iso(self.measured_ms),
            "epoch": self.epoch,
            "owner": _timed(asdict(self.owner)),
            "owners": [_timed(asdict(owner)) for owner in self.owners],
            "jobs": [_timed(asdict(job)) for job in self.jobs],
            "unsafe_operations": [_timed(asdict(operation)) for operation in self.operations],
            "lineage": self.lineage.to_json(),
        }


def iso(at_ms: int | None) -> str | None:
    """A time as ISO 8601 in UTC, to the millisecond."""
    if at_ms is None:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _timed(row: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{key[:-3]}_at" if key.endswith("_ms") and key != "at_ms" else "at" if key == "at_ms" else key: (
            iso(value) if key.endswith("_ms") else value
        )
        for key, value in row.items()
    }


def measure(
    context: Context, snapshot: Snapshot, *, seconds: float = LOOK_SECONDS, table_seconds: float | None = None
) -> Measures:
    """Measures lags and rates. All upstreams together have ``seconds`` to report their ends, and then another
    ``seconds`` to report the age of unread records. Commits of tables are read for at most ``table_seconds``, or for at
    most ``seconds`` if ``table_seconds`` is None."""
    at = now_ms()
    lags = measure_lag(context, snapshot, seconds=seconds, table_seconds=table_seconds)
    return Measures(at_ms=at, lags=lags, activity=measure_activity(context, snapshot, at))


class _StatusInspector(WarehouseInspector):
    """An inspector that reads the states of the jobs only once. The list of jobs and the lineage therefore show the
    same states.

    Lags are not measured again: they are the lags in ``measures``.
    """

    def __init__(self, context: Context, snapshot: Snapshot, measures: Measures) -> None:
        super().__init__(context, snapshot)
        self._jobs = _MeasuredJobs(super().jobs, measures)

    @property
    def jobs(self) -> JobPort:
        return self._jobs


class _MeasuredJobs:
    def __init__(self, jobs: JobPort, measures: Measures) -> None:
        self._jobs = jobs
        self._statuses = jobs.statuses()
        self._backfills = jobs.backfills()
        self._lags = {job: lag.records for job, lag in measures.lags.items()}

    def statuses(self) -> Mapping[str, JobStatus]:
        return self._statuses

    def serve_command(self, group: str) -> str:
        return self._jobs.serve_command(group)

    def owners(self) -> Mapping[str, Owner]:
        return self._jobs.owners()

    def backfills(self) -> Mapping[str, BackfillProgress]:
        return self._backfills

    def being_backfilled(self) -> frozenset[str]:
        return frozenset(self.backfills())

    def lags(self) -> Mapping[str, int | None]:
        return self._lags

    def metrics(self) -> tuple[Sample, ...]:
        return self._jobs.metrics()


def read_status(context: Context, measures: Measures) -> WarehouseStatus:
    """The status, with the rows of SHOW JOBS and SHOW UNSAFE OPERATIONS, and with the lags and rates in
    ``measures``."""
    snapshot = context.metastore.snapshot()
    at = now_ms()
    inspector = _StatusInspector(context, snapshot, measures)
    shown = lower_show_objects(ShowObjects(kind="JOBS"), snapshot, inspector)
    lineage = lineage_graph(snapshot, inspector, lineage_of(snapshot))
    owners = _owners(context, snapshot, at)
    return WarehouseStatus(
        warehouse=context.warehouse.uri,
        version=__version__,
        at_ms=at,
        measured_ms=measures.at_ms,
        epoch=snapshot.epoch,
        owner=_main_owner(context, owners),
        owners=owners,
        jobs=tuple(_job(row, measures) for row in (shown.table.rows if shown.table is not None else ())),
        operations=_operations(context, snapshot),
        lineage=lineage,
    )


def read_lineage(context: Context, snapshot: Snapshot, of: str | None = None) -> Graph | None:
    """The lineage of all objects or of one object, with current states and lags; None if that object does not exist."""
    id_ = None
    if of is not None:
        record = find_in_lineage(snapshot, of)
        if record is None:
            return None
        id_ = record.id
    return lineage_graph(snapshot, WarehouseInspector(context, snapshot), lineage_of(snapshot, id_))


def _owners(context: Context, snapshot: Snapshot, at_ms: int) -> tuple[OwnerStatus, ...]:
    leases = context.metastore.jobs.leases()
    return tuple(_owner(context, group, leases.get(group), at_ms) for group in groups_in_use(context, snapshot))


def _main_owner(context: Context, owners: tuple[OwnerStatus, ...]) -> OwnerStatus:
    """The owner of this process's group. A process that runs no jobs belongs to the default group. If this group has
    neither jobs nor an owner, the result is the first owner whose process runs or, if no process runs, the first
    owner."""
    own = [owner for owner in owners if owner.resource_group == context.group]
    running = [owner for owner in owners if owner.state != ENDED]
    return (own or running or list(owners))[0]


def _owner(context: Context, group: str, lease: Lease | None, at_ms: int) -> OwnerStatus:
    if lease is None:
        return OwnerStatus(state=ENDED, resource_group=group)
    state = LATE if lease.heartbeat_ms + _LATE_MS < at_ms else RUNS
    if not context.has_owner(lease):
        state = ENDED
    elif (suspended := suspended_pid(lease)) is not None:
        state = SUSPENDED
    silence = silence_of(context, lease, at_ms) if state in (RUNS, LATE) else None
    return OwnerStatus(
        state=state,
        resource_group=group,
        name=lease.owner,
        host=lease.host,
        pid=suspended if state == SUSPENDED else lease.python_pid,
        since_ms=lease.taken_at_ms,
        heartbeat_ms=lease.heartbeat_ms,
        applied_epoch=lease.applied_epoch,
        problem=None if silence is None or silence.obstacle is None else str(silence.obstacle),
        resume=resume_command(lease) if state == SUSPENDED else None,
    )


def _job(row: tuple[Any, ...], measures: Measures) -> JobLine:
    job, kind, name, state, reason, last_error, _, run, restarts = row
    lag = measures.lags.get(job)
    activity = measures.activity.get(job)
    return JobLine(
        job=job,
        kind=kind,
        object=name,
        state=state,
        reason=reason or "",
        statements=statements_in(reason or ""),
        last_error=last_error,
        lag_records=None if lag is None else lag.records,
        lag_seconds=None if lag is None or measures.at_ms is None else lag.seconds(measures.at_ms),
        rows_per_second=None if activity is None else activity.rows_per_second,
        last_batch_ms=None if activity is None else activity.last_ms,
        run=run,
        restarts=restarts,
    )


def statements_in(reason: str) -> tuple[str, ...]:
    """The statements that follow a colon at the end of a job's reason; empty if the reason ends without statements."""
    reason = reason.removesuffix(RETRYING)
    at = reason.find(": ")
    while at >= 0:
        parts = tuple(part.strip() for part in reason[at + 2 :].split("; "))
        if all(_is_statement(part) for part in parts):
            return parts
        at = reason.find(": ", at + 1)
    return ()


def _is_statement(text: str) -> bool:
    if not text[:1].isupper() or " " not in text:
        return False
    try:
        parse_statement(text)
    except SqlError:
        return False
    return True


def _operations(context: Context, snapshot: Snapshot) -> tuple[OperationLine, ...]:
    """The latest unsafe operations.

    The operations are cached. They are read again only after a statement was committed, or after the owners have
    applied a later epoch.
    """
    stamp = (context.metastore.version(), least_applied(context))
    known: tuple[object, tuple[OperationLine, ...]] | None = context.made.get("status_operations")
    if known is not None and known[0] == stamp:
        return known[1]
    plan = lower_show_unsafe_operations(ShowUnsafeOperations(), snapshot, WarehouseInspector(context, snapshot))
    rows = plan.table.rows if plan.table is not None else ()
    found = tuple(_operation(row) for row in rows[:OPERATIONS_SHOWN])
    context.made["status_operations"] = (stamp, found)
    return found


def _operation(row: tuple[Any, ...]) -> OperationLine:
    operation, at, actor, kind, statement, objects, reason, outcome, _, plan, undo, rewind = row
    return OperationLine(
        operation=operation,
        at_ms=int(at.timestamp() * 1000),
        actor=actor,
        kind=kind,
        statement=statement,
        objects=objects,
        reason=reason,
        outcome=outcome,
        preview=plan,
        undo=undo,
        rewind=rewind,
    )


class Observer:
    """Reads the status for a page that is requested repeatedly.

    Each request reads the states from the catalog. Lags and rates require requests to every upstream and table, so a
    background thread measures them. The thread measures only while the page is requested, and at most once every few
    seconds.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._measures = Measures()
        self._measuring: Future[None] | None = None
        self._lock = threading.Lock()

    def status(self) -> WarehouseStatus:
        """The current status, with the latest measured lags and rates. Until the first measurement is complete, each
        call waits at most _FIRST_SECONDS for this measurement."""
        measuring = self._measure_soon()
        if self._measures.at_ms is None and measuring is not None:
            wait([measuring], _FIRST_SECONDS)
        return read_status(self.context, self._measures)

    def measured(self) -> None:
        """Waits for the end of the measurement that is running, if any."""
        measuring = self._measuring
        if measuring is not None:
            wait([measuring])

    def _measure_soon(self) -> Future[None] | None:
        with self._lock:
            at = self._measures.at_ms
            is_old = at is None or now_ms() - at > _MEASURE_SECONDS * 1000
            if is_old and (self._measuring is None or self._measuring.done()):
                self._measuring = run_in_background(self._measure, "status")
            return self._measuring

    def _measure(self) -> None:
        try:
            self._measures = measure(self.context, self.context.metastore.snapshot())
        except (SqlError, OSError, DeltaError) as error:
            # The error is only logged: the page keeps the last figures and shows their age.
            logger.warning("lags and rates could not be measured: %s", error)
