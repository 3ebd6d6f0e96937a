"""Finds inconsistencies in a warehouse, and files that killed processes have left behind.

The module reads the catalog, the jobs' tables and the folders of the warehouse without Spark, and contacts the servers
of captured databases. A stalled job is not a finding, because its status already shows the remedy.

While this module reads, jobs may run and statements may be committed. Therefore, if a process stores fact A before fact
B, this module reads B before A, and never finds B without A. Before the module reports that a log, table or checkpoint
is missing or too old, it reads the catalog again, and drops the finding if the object no longer exists.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rw_sql.errors import SqlError
from rw_sql.metastore.records import MaterializedViewRecord, SinkRecord, TableRecord
from rw_sql.model.job_specs import desired_jobs
from rw_sql.model.refresh_states import refresh_of
from rw_sql.model.resource_groups import jobs_by_group
from rw_sql.plan.statements.checkpoint.checkpoint_outcomes import NOT_KNOWN, changes_checkpoint
from rw_sql.runtime.control.outcomes import APPLIED
from rw_sql.runtime.control.quiesce import QUIESCED, is_in_force
from rw_sql.runtime.delta.delta_log import last_batch, latest_version
from rw_sql.runtime.delta.lost_logs import log_remedy, noted_version
from rw_sql.runtime.jobs.groups import least_applied, owned_groups, possibly_owned_groups
from rw_sql.runtime.jobs.lease import (
    is_of_copy,
    is_orphaned,
    resume_command,
    serve_command,
    suspended_pid,
    takeover_command,
)
from rw_sql.runtime.jobs.silent_owners import silence_of
from rw_sql.runtime.positions.progress import is_just_rewound, newest_planned
from rw_sql.runtime.refresh.lost_tables import find_lost_table
from rw_sql.runtime.status.findings import (
    CATALOG,
    CHECKPOINT,
    FOLDER,
    JOB,
    LOCK,
    OPERATION,
    OWNER,
    WAREHOUSE,
    Finding,
    named,
)
from rw_sql.runtime.status.upstream_findings import of_upstreams
from rw_sql.runtime.status.words import duration
from rw_sql.runtime.support.failures import cause_line
from rw_sql.runtime.support.processes import now_ms, this_machine
from rw_sql.runtime.support.write_obstacles import Obstacle, obstacle_of, refusal
from rw_sql.runtime.upkeep.dropped_objects import sweep
from rw_sql.syntax import parse
from rw_sql.syntax.lexing.identifiers import literal, sql_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import JobStatus, Lease, QuiesceLock
    from rw_sql.metastore.records import ObjectRecord, OperationRecord
    from rw_sql.runtime.jobs.context import Context

_OPERATIONS = 1000
"""The number of unsafe operations whose outcomes are checked. The latest operations are checked."""

_OUTCOME_SECONDS = 60.0
"""The age in seconds after which an unsafe operation without an outcome is a finding, because its process has probably
ended."""

_LOOK_SECONDS = 0.5
_REPAIR = "rw-sql doctor --repair"
_BY_OWNER = "the owner removes it after its next statement"


def examine(context: Context) -> tuple[Finding, ...]:
    """All findings of a warehouse, the most serious kinds first."""
    snapshot = context.metastore.snapshot()
    return (
        *_of_writes(context),
        *(found for lease in context.metastore.jobs.leases().values() for found in _of_owner(context, lease)),
        *_of_groups(context, snapshot),
        *_of_catalog(snapshot),
        *_of_logs(context, snapshot),
        *_of_tables(context, snapshot),
        *_of_refreshes(context, snapshot),
        *_of_jobs(context),
        *of_upstreams(context, snapshot),
        *_of_locks(context),
        *_of_operations(context),
        *_of_folders(context),
    )


def repair(context: Context) -> tuple[Finding, ...]:
    """Repairs the repairable findings, and returns the remaining findings. Removes stored locks and files that no
    process uses any more, and records missing outcomes of operations.

    Does not remove anything that a job or statement may still use.

    Removes folders only while no process runs jobs. A process that runs jobs removes unused folders itself after the
    next statement that it applies.
    """
    applied = least_applied(context)
    locks = _left_locks(context)
    if locks:
        context.metastore.jobs.release_locks(tuple(locks))
    for operation in _without_outcome(context):
        if changes_checkpoint(operation):
            context.metastore.record_outcome(operation.epoch, NOT_KNOWN)
        elif operation.epoch <= applied:
            context.metastore.record_outcome(operation.epoch, APPLIED)
    if not _is_still_owned(context):
        sweep(context, context.metastore.snapshot().epoch)
    return examine(context)


def _is_still_owned(context: Context) -> bool:
    """True if a process runs jobs. If the last heartbeat of an owner on another machine is old, the function waits up
    to LEASE_SECONDS for a new heartbeat, because the clocks of the two machines may differ."""
    while not (owned := owned_groups(context)) and possibly_owned_groups(context):
        time.sleep(_LOOK_SECONDS)
    return bool(owned)


def _of_groups(context: Context, snapshot: Snapshot) -> Iterator[Finding]:
    """Returns a finding for each resource group that has jobs, but no process that runs them. Returns no findings if no
    process runs jobs of any group."""
    owned = owned_groups(context)
    counts = jobs_by_group(snapshot)
    for group in sorted(counts.keys() - owned) if owned else ():
        yield Finding(
            about=OWNER,
            subject=f"resource group {group}",
            problem=f"it has jobs ({counts[group]}), and no process runs them",
            remedy=serve_command(context.warehouse.uri, group),
        )


def _of_writes(context: Context) -> Iterator[Finding]:
    """If it is known why the owners cannot write to the warehouse, returns one finding with the reason. Otherwise,
    returns a finding for each owner that runs but no longer writes heartbeats.

    The check changes nothing in the warehouse. For an object store, the check uses the access keys of the process that
    runs ``rw-sql doctor``. These access keys may differ from the owner's.
    """
    at = now_ms()
    for lease in context.metastore.jobs.leases().values():
        ago = duration((at - lease.heartbeat_ms) / 1000)
        late = f"the last heartbeat of process {lease.python_pid} is {ago} old"
        if lease.is_released or suspended_pid(lease) is not None or _is_copied(context, lease):
            continue
        is_alive = context.has_owner(lease)
        silence = silence_of(context, lease, at)
        obstacle = silence.obstacle if silence is not None else None
        if silence is not None and obstacle is None and not context.warehouse.is_local:
            obstacle = _refusal(context)
        if obstacle is not None:
            start = serve_command(context.warehouse.uri, lease.group)
            then = "the jobs then continue without a restart" if is_alive else f"then {start}"
            yield Finding(
                about=WAREHOUSE,
                subject=context.warehouse.uri,
                problem=f"{obstacle.problem}; {late}",
                remedy=f"{obstacle.remedy}; {then}",
            )
            return  # The other owners have the same obstacle.
        if silence is not None and is_alive and not is_orphaned(lease, is_local=context.warehouse.is_local, now_ms=at):
            ends = takeover_command(lease, context.warehouse.uri)
            yield Finding(
                about=OWNER,
                subject=lease.owner,
                problem=f"process {lease.python_pid} runs the jobs, and its last heartbeat is {ago} old",
                remedy=f"its log contains the reason; if it hangs, {ends} ends it",
            )


def _refusal(context: Context) -> Obstacle | None:
    """Returns the reason why the object store refuses writes of this process; None if the store accepts writes."""
    error = refusal(context.warehouse)
    if error is None:
        return None
    known = obstacle_of(error, context.warehouse.uri)
    problem = f"the store refuses a write of this command: {cause_line(str(error))}"
    return Obstacle(problem=problem, remedy="correct the store or its keys") if known is None else known


def _of_owner(context: Context, lease: Lease) -> Iterator[Finding]:
    if _is_copied(context, lease):
        yield Finding(
            about=OWNER,
            subject=lease.owner,
            problem=f"process {lease.python_pid} runs the jobs of the warehouse from which this one was copied, and "
            "the copied lease names it as the owner",
            remedy=f"{takeover_command(lease, context.warehouse.uri)} releases the lease of the copy, and ends no "
            "process",
        )
    elif (pid := suspended_pid(lease)) is not None:
        yield Finding(
            about=OWNER,
            subject=lease.owner,
            problem=f"process {pid}, which runs the jobs, is suspended",
            remedy=f"{resume_command(lease)} resumes it; {takeover_command(lease, context.warehouse.uri)} ends it",
        )
    elif is_orphaned(lease, is_local=context.warehouse.is_local, now_ms=now_ms()):
        yield Finding(
            about=OWNER,
            subject=lease.owner,
            problem=f"its Python process has ended, and its JVM {lease.jvm_pid} still has the warehouse open",
            remedy=f"kill {lease.jvm_pid}",
        )


def _is_copied(context: Context, lease: Lease) -> bool:
    """True if this warehouse is a copy of another warehouse, and the owner in the copied lease is a process that runs
    the jobs of that other warehouse."""
    return context.has_owner(lease) and lease.host == this_machine() and is_of_copy(lease, context.warehouse)


def _of_catalog(snapshot: Snapshot) -> Iterator[Finding]:
    """Returns findings about definitions that do not parse, and about references to objects that do not exist."""
    for record in _objects(snapshot):
        definition = getattr(record, "definition", "")
        if definition:
            try:
                parse(definition)
            except SqlError as error:
                yield Finding(
                    about=CATALOG,
                    subject=named(record),
                    problem=f"its definition does not parse: {error.message}",
                    remedy="open the warehouse with the version of rw_sql that wrote it, or restore the catalog",
                )
        needed = (*getattr(record, "inputs", ()), *getattr(record, "uses", ()))
        missing = sorted(id_ for id_ in set(needed) if snapshot.get(id_) is None)
        if missing:
            yield Finding(
                about=CATALOG,
                subject=named(record),
                problem=f"it needs {', '.join(f'object {id_}' for id_ in missing)}, which the catalog does not have",
                remedy="restore the catalog, or drop the object",
            )


def _of_logs(context: Context, snapshot: Snapshot) -> Iterator[Finding]:
    """Returns findings about sources whose log is lost, or ends before the version that the source's positions need."""
    for record in snapshot.all("source"):
        path = context.log_path(record)
        # A job commits to its log, and then stores the position.
        noted = noted_version(context.metastore, record)
        newest = latest_version(context.warehouse, path)
        if newest < noted and context.metastore.snapshot().get(record.id) is not None:
            yield Finding(
                about=FOLDER,
                subject=named(record),
                problem=f"its positions refer to version {noted} of its log, but the log {path} "
                + (f"ends at version {newest}" if newest >= 0 else "no longer exists"),
                remedy=log_remedy(snapshot, record),
            )


def _of_tables(context: Context, snapshot: Snapshot) -> Iterator[Finding]:
    """Returns findings about checkpoints whose table no longer exists, and about checkpoints that end before the last
    batch in their table."""
    warehouse = context.warehouse
    for record in _objects(snapshot):
        if not isinstance(record, MaterializedViewRecord | SinkRecord):
            continue
        table = warehouse.data(record.id, record.generation)
        is_sink = isinstance(record, SinkRecord)
        checkpoint = (warehouse.sink_checkpoint if is_sink else warehouse.view_checkpoint)(record.id, record.generation)
        # A job makes its table, then plans a batch in its checkpoint, and then commits the batch to the table.
        done = last_batch(warehouse, table, record.generation)
        planned = newest_planned(warehouse, checkpoint)
        again = f"REBUILD MATERIALIZED VIEW {sql_name(record.name)}"
        if isinstance(record, SinkRecord | TableRecord):
            again = f"DROP {record.kind.upper()} {sql_name(record.name)} and create it again"
        if planned >= 0 and not warehouse.exists(f"{table}/_delta_log"):
            is_new = is_sink and is_just_rewound(warehouse, checkpoint, planned)
            if not is_new and _is_current(context, record):
                yield Finding(
                    about=CHECKPOINT,
                    subject=named(record),
                    problem=f"its checkpoint has batch {planned}, but its table {table} no longer exists",
                    remedy=f"restore the table, or {again}",
                )
        elif done > planned and record.inputs and _is_current(context, record):
            ends = f"ends at batch {planned}" if planned >= 0 else "is empty"
            yield Finding(
                about=CHECKPOINT,
                subject=named(record),
                problem=f"its table has batch {done}, but its checkpoint {ends}",
                remedy=f"restore the checkpoint, or {again}",
            )


def _of_refreshes(context: Context, snapshot: Snapshot) -> Iterator[Finding]:
    """Returns findings about refreshable tables whose table is lost, or whose merge has lost its staging table. A
    refreshable table has no checkpoint that would refer to these tables."""
    for record in snapshot.all("refresh"):
        table = snapshot.get(record.table_id)
        if not isinstance(table, TableRecord):
            continue
        lost = find_lost_table(context.warehouse, record, table.generation)
        present = refresh_of(context.metastore.snapshot(), record.table_id) if lost is not None else None
        # A newer state of the refresh may need other tables.
        if lost is not None and present == record and _is_current(context, table):
            yield Finding(about=FOLDER, subject=named(table), problem=f"it {lost.problem}", remedy=lost.remedy)


def _is_current(context: Context, record: MaterializedViewRecord | SinkRecord) -> bool:
    """True if the catalog still has a view or sink with the same generation. The tables and checkpoints of other
    generations may be missing, because a sweep deletes them."""
    present = context.metastore.snapshot().get(record.id)
    return isinstance(present, MaterializedViewRecord | SinkRecord) and present.generation == record.generation


def _of_jobs(context: Context) -> Iterator[Finding]:
    """Returns findings about stored statuses of jobs whose object was dropped, and about jobs that the catalog requires
    and an owner reports as stopped."""
    before = _owners(context)
    statuses = context.metastore.jobs.job_statuses()
    snapshot = context.metastore.snapshot()
    yield from _of_dropped_jobs(statuses, snapshot, has_owner=bool(before))
    # The check leaves out each group whose owner has not applied the latest statements yet. It also leaves out each
    # group whose owner has changed during the check, because an owner that begins or ends reports all jobs as stopped.
    after = _owners(context)
    applied = {
        group
        for group, lease in before.items()
        if lease.applied_epoch >= snapshot.epoch and group in after and after[group].owner == lease.owner
    }
    for job, spec in sorted(desired_jobs(snapshot).items()) if applied else ():
        status = statuses.get(job)
        if status is None or status.state != "STOPPED" or (status.reason or "").startswith(QUIESCED):
            continue  # A reader that a block or a REWIND has stopped continues when that statement ends.
        if spec.group in applied:
            yield Finding(
                about=JOB,
                subject=job,
                problem="the catalog requires it to run, but the owner reports it as stopped",
                remedy=f"restart the process that runs the jobs; {getattr(spec, 'name', job)} continues where it was",
            )


def _owners(context: Context) -> dict[str, Lease]:
    """Returns the lease of each group that has an owner."""
    owned = owned_groups(context)
    return {group: lease for group, lease in context.metastore.jobs.leases().items() if group in owned}


def _of_dropped_jobs(statuses: Mapping[str, JobStatus], snapshot: Snapshot, *, has_owner: bool) -> Iterator[Finding]:
    gone = sorted(job for job, status in statuses.items() if snapshot.get(status.object_id) is None)
    if gone:
        yield Finding(
            about=JOB,
            subject=", ".join(gone),
            problem="a status is still stored, although the object was dropped",
            remedy=_BY_OWNER if has_owner else _REPAIR,
            is_repairable=not has_owner,
        )


def _of_locks(context: Context) -> Iterator[Finding]:
    for source_id in sorted({lock.source_id for lock in _left_locks(context)}):
        record = context.metastore.snapshot().get(source_id)
        yield Finding(
            about=LOCK,
            subject=f"source {source_id}" if record is None else named(record),
            problem="a lock of a statement that has ended is still stored; it has no effect",
            remedy=_REPAIR,
            is_repairable=True,
        )


def _left_locks(context: Context) -> list[QuiesceLock]:
    """Returns the locks of statements that have ended. The locks must be read before the catalog. In the reverse order,
    a lock that was taken at a later epoch would wrongly count as a lock of an ended statement."""
    locks = context.metastore.jobs.quiesce_locks()
    snapshot = context.metastore.snapshot()
    return [lock for lock in locks if not is_in_force(lock, snapshot)]


def _of_operations(context: Context) -> Iterator[Finding]:
    applied, has_owner = least_applied(context), bool(owned_groups(context))
    for operation in _without_outcome(context):
        is_applied, remedy = operation.epoch <= applied, _REPAIR
        if changes_checkpoint(operation):
            shown = "; ".join(f"SHOW CHECKPOINT {literal(path)}" for path in operation.objects)
            remedy = f"{shown} shows whether the change is complete; {_REPAIR} then records that this is not known"
        elif not is_applied and has_owner:
            remedy = "wait until the jobs have adopted the operation; SHOW JOBS shows their states"
        elif not is_applied:
            remedy = "start the process that runs the jobs, which then applies the operation"
        yield Finding(
            about=OPERATION,
            subject=f"operation {operation.epoch}",
            problem="it is committed but has no recorded outcome, because its process has ended or still waits "
            f"({operation.statement})",
            remedy=remedy,
            is_repairable=is_applied or changes_checkpoint(operation),
        )


def _without_outcome(context: Context) -> list[OperationRecord]:
    before = now_ms() - int(_OUTCOME_SECONDS * 1000)
    found = context.metastore.operations(is_unsafe=True, limit=_OPERATIONS)
    return [operation for operation in found if operation.outcome is None and operation.at_ms < before]


def _of_folders(context: Context) -> Iterator[Finding]:
    """Returns findings about folders whose object is not in the catalog."""
    warehouse = context.warehouse
    has_owner = bool(owned_groups(context))
    for folder in ("data", "checkpoints"):
        names = sorted(warehouse.list_names(f"{warehouse.uri}/{folder}"))
        snapshot = context.metastore.snapshot()
        for name in names:
            id_ = name.rpartition("-")[2]
            if not id_.isdecimal():
                continue
            if int(id_) >= snapshot.next_id:
                yield Finding(
                    about=FOLDER,
                    subject=f"{folder}/{name}",
                    problem=f"the catalog has not assigned id {id_} to an object yet: the folder belongs to "
                    "another warehouse",
                    remedy="inspect it, and move it elsewhere before an object gets this id",
                )
            elif snapshot.get(int(id_)) is None:
                yield Finding(
                    about=FOLDER,
                    subject=f"{folder}/{name}",
                    problem="its object was dropped",
                    remedy=_BY_OWNER if has_owner else _REPAIR,
                    is_repairable=not has_owner,
                )


def _objects(snapshot: Snapshot) -> Iterator[ObjectRecord]:
    for kind in ("connection", "secret", "source", "table", "materialized_view", "sink"):
        yield from snapshot.all(kind)
