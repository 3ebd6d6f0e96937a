"""Carries out a REWIND: restores tables and checkpoints, and adjusts the positions in the checkpoints.

All jobs that the REWIND affects must be stopped. Each step checks whether it has been done already. Therefore, after a
crash, the next owner can run all steps again. Some steps would succeed in the store even after another process has
become the owner. Before each of these steps, the code checks that this process still holds the lease. Without this
check, a suspended owner could resume and make changes after the next owner has carried out the REWIND.

Delta's RESTORE reverts a table with a new commit. To prevent readers of the table from processing the restored rows
again, the copies of their checkpoints are advanced to the version after that commit. The commit records a new run and
the number of the table's last remaining batch. Therefore, new batches cannot be mistaken for earlier batches.
"""

from __future__ import annotations

import json
import os
import uuid
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from rw_sql.checkpoints.checkpoint import changes_of, read_checkpoint
from rw_sql.checkpoints.files import CheckpointFiles
from rw_sql.checkpoints.positions import DELTA, move_delta
from rw_sql.metastore.records import MaterializedViewRecord, SinkRecord, SourceRecord
from rw_sql.model.job_ids import ingest_fragment, rebuild_job, sink_job, view_job
from rw_sql.runtime.delta.delta_log import commits, has_new_data, job_commit, restored_version
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.delta.rejected_rows import carry_over
from rw_sql.runtime.positions.notes import note_positions
from rw_sql.runtime.positions.pins import copies_of
from rw_sql.runtime.positions.progress import REWOUND, rewind_mark
from rw_sql.runtime.rewind.points import copy_checkpoint, files_in
from rw_sql.runtime.support.faults import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import PointDependent, RewindPoint
    from rw_sql.metastore.records import RewindRecord
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.support.warehouse import Warehouse

MARK = REWOUND

_TRY = "-rewind-"
"""A process first prepares a copy of a checkpoint in a separate folder, and then replaces the checkpoint with this
copy. The path of this folder consists of the checkpoint's path, this text and a random suffix."""


class CannotRewindError(Exception):
    """Raised if a REWIND cannot be carried out: its rewind point, a table or needed rows no longer exist, or this
    process has lost the lease."""


def rewind_jobs(snapshot: Snapshot, rewind: RewindRecord) -> tuple[str, ...]:
    """The jobs that must be stopped while a REWIND is carried out."""
    jobs = [ingest_fragment(rewind.source_id)]
    for record in snapshot.dependents_of(rewind.source_id):
        if isinstance(record, MaterializedViewRecord):
            jobs.append(view_job(record.id))
        elif isinstance(record, SinkRecord):
            jobs.append(sink_job(record.id))
    ids = {record.id for record in snapshot.dependents_of(rewind.source_id)}
    jobs += [rebuild_job(found) for found in snapshot.all("rebuild") if found.view_id in ids]
    return tuple(jobs)


def carry_out(context: Context, snapshot: Snapshot, rewind: RewindRecord) -> None:
    """Carries out a REWIND, or its remaining steps, and records that the REWIND is done. Raises CannotRewindError."""
    source = snapshot.get(rewind.source_id)
    points = context.metastore.jobs.rewind_points(rewind.source_id)
    point = next((found for found in points if found.operation == rewind.operation and found.has_data), None)
    if not isinstance(source, SourceRecord) or point is None:
        raise CannotRewindError(f"there is no rewind point for operation {rewind.operation} any more")
    back: dict[str, int] = {}
    fault("rewind.before_log")
    log = context.log_path(source)
    job = ingest_fragment(source.id)
    at = _restore(context, job, log, point.log_version, rewind.epoch, generation=1, done=-1)
    _note(back, log, at)
    fault("rewind.after_log")
    for dependent in point.dependents:
        record = snapshot.get(dependent.id)
        if isinstance(record, MaterializedViewRecord) and record.generation == dependent.generation:
            table = context.warehouse.data(record.id, record.generation)
            at = _restore(
                context,
                view_job(record.id),
                table,
                dependent.version,
                rewind.epoch,
                generation=record.generation,
                done=dependent.batch,
            )
            _note(back, table, at)
            fault("rewind.after_table")
            checkpoint = context.warehouse.view_checkpoint(record.id, record.generation)
        elif isinstance(record, SinkRecord):
            checkpoint = context.warehouse.sink_checkpoint(record.id, record.generation)
            _carry_rejected(context, record, dependent)
        else:
            continue
        _put_checkpoint(context, snapshot, point, dependent, checkpoint, back, rewind.epoch)
        fault("rewind.after_checkpoint")
    note_positions(context, source, run=_run(context, source), epoch=rewind.epoch)
    fault("rewind.before_note")
    context.metastore.jobs.note_rewound(rewind.epoch, source.id)
    fault("rewind.after_note")


def _carry_rejected(context: Context, sink: SinkRecord, dependent: PointDependent) -> None:
    """Copies the rejected rows of the batches up to the point to the sink's new generation, because the sink does not
    read the rows of these batches again."""
    warehouse = context.warehouse
    if dependent.generation != sink.generation:
        _require_lease(context)
        old, new = (warehouse.rejected(sink.id, generation) for generation in (dependent.generation, sink.generation))
        carry_over(warehouse, old, new, dependent.batch)


def _note(back: dict[str, int], table: str, version: int) -> None:
    back[str(DeltaTable(table).metadata().id)] = version


def _run(context: Context, source: SourceRecord) -> int:
    last = context.metastore.jobs.last_runs().get(ingest_fragment(source.id))
    return last.run if last is not None else 0


def restored_for(warehouse: Warehouse, table: str, rewind: int, above: int) -> int | None:
    """The version that restored a table for a REWIND; None if the table is not restored yet. Only versions after
    ``above`` count."""
    for version, actions in commits(warehouse, table, down_to=above + 1):
        found = job_commit(actions)
        if found is not None and found.rewind == rewind and restored_version(actions) is not None:
            return version
    return None


def _restore(context: Context, job: str, table: str, version: int, rewind: int, *, generation: int, done: int) -> int:
    """Restores a job's table, unless the table is already restored; returns the version of the restore.

    The run that restores the table has the epoch of the REWIND, even if the catalog is newer. With a newer epoch, the
    operations after the REWIND would get no rewind points, although no run has read anything after the REWIND.
    """
    at = restored_for(context.warehouse, table, rewind, version)
    if at is not None:
        return at
    _require_lease(context)
    run = context.metastore.jobs.claim_run(job, rewind, context.owner)
    # Opening the output commits a fence, which stops earlier runs and ensures that there is a version to restore from.
    output = JobOutput.reopen(context.warehouse, table, job=job, run=run.run, epoch=run.epoch, generation=generation)
    fault("rewind.fenced")
    # Another owner may have restored the table before the fence. After the fence, no other owner can restore the table.
    at = restored_for(context.warehouse, table, rewind, version)
    return at if at is not None else output.restore(version, rewind=rewind, done=done)


def _put_checkpoint(
    context: Context,
    snapshot: Snapshot,
    point: RewindPoint,
    dependent: PointDependent,
    checkpoint: str,
    back: dict[str, int],
    rewind: int,
) -> None:
    """Replaces a dependent's checkpoint with the copy from the rewind point. In the new checkpoint, the positions in
    restored tables are moved to the version after the restore."""
    warehouse = context.warehouse
    _require_lease(context)
    _remove_tries(warehouse, checkpoint)
    if _mark(warehouse, checkpoint) == rewind:
        return
    fresh = f"{checkpoint}{_TRY}{uuid.uuid4().hex[:8]}"
    names: tuple[str, ...] = ()
    try:
        if dependent.batch >= 0:
            names = copy_checkpoint(context, copies_of(context, point, dependent.id), fresh, dependent.batch)
            fault("rewind.checkpoint_copied")
            _move(context, snapshot, dependent, fresh, back)
        fault("rewind.checkpoint_moved")
        _replace(context, checkpoint, fresh, names)
        fault("rewind.checkpoint_replaced")
        _require_lease(context)
        mark = json.dumps({"rewind": rewind, "operation": point.operation, "batch": dependent.batch})
        warehouse.write_text(f"{checkpoint}/{MARK}", mark, is_durable=True)
    except Exception:
        warehouse.remove(fresh)
        _require_lease(context)  # The next owner deletes the copy, so a lost lease may be the cause of the failure.
        raise
    warehouse.remove(fresh)


def _replace(context: Context, checkpoint: str, fresh: str, names: Sequence[str]) -> None:
    """Replaces a checkpoint with the files ``names`` of the folder ``fresh``. If ``names`` is empty, deletes the
    checkpoint.

    Raises CannotRewindError if this process no longer holds the lease.

    An object store cannot rename a folder. In an object store, the files are therefore copied one by one. If a
    suspended owner resumes while the next owner copies, its copies do no harm, because both owners copy the same
    content. But when it deletes the files of the old checkpoint, the suspended owner could also delete files of later
    batches of the next owner. The deletion therefore takes one request per thousand files, and directly follows the
    check of the lease.
    """
    warehouse = context.warehouse
    files = warehouse.files
    _require_lease(context)
    if warehouse.is_local:
        warehouse.remove(checkpoint)
        fault("rewind.checkpoint_removed")
        if names:
            os.rename(files._strip_protocol(fresh), files._strip_protocol(checkpoint))
        return
    for name in names:
        files.cp_file(f"{fresh}/{name}", f"{checkpoint}/{name}")
    old = [path for name, path in files_in(warehouse, checkpoint).items() if name not in names]
    _require_lease(context)
    if old:
        files.rm(old)
    fault("rewind.checkpoint_removed")


def _remove_tries(warehouse: Warehouse, checkpoint: str) -> None:
    """Deletes the folders in which killed processes had prepared a copy of a checkpoint."""
    folder, _, name = checkpoint.rpartition("/")
    for found in warehouse.list_names(folder):
        if found.startswith(f"{name}{_TRY}"):
            warehouse.remove(f"{folder}/{found}")


def _require_lease(context: Context) -> None:
    """Raises CannotRewindError if this process no longer holds the lease."""
    if not context.holds_lease():
        raise CannotRewindError("this process no longer runs the jobs; their next owner carries out the REWIND")


def _mark(warehouse: Warehouse, checkpoint: str) -> int | None:
    """The epoch of the REWIND that has restored a checkpoint; None if there was no such REWIND, or if its mark cannot
    be read.

    If the mark cannot be read, the checkpoint is restored again. Restoring the checkpoint twice does no harm, because
    no job starts before the REWIND is recorded as done.
    """
    mark = rewind_mark(warehouse, checkpoint)
    return None if mark is None else int(mark["rewind"])


def _move(
    context: Context, snapshot: Snapshot, dependent: PointDependent, checkpoint: str, back: dict[str, int]
) -> None:
    beyond = {table: version + 1 for table, version in back.items()}
    for id_, version in dependent.reads:
        table = context.warehouse.data(id_, getattr(snapshot.get(id_), "generation", 1))
        try:
            known = str(DeltaTable(table).metadata().id)
        except TableNotFoundError as error:
            raise CannotRewindError(f"the table of object {id_} no longer exists") from error
        if known in beyond:
            continue
        further = read_on_from(context.warehouse, table, version)
        if further is None:
            raise CannotRewindError(f"rows of object {id_} that object {dependent.id} read have been removed since")
        if further != version:
            beyond[known] = further
    files = CheckpointFiles.at(checkpoint)
    found = read_checkpoint(files)
    moved: dict[str, str | None] = {
        source.name: move_delta(source.text, beyond[source.table])
        for source in found.sources
        if source.kind == DELTA and source.text is not None and source.table in beyond
    }
    for change in changes_of(found, moved):
        files.write(change.name, change.after)


def read_on_from(warehouse: Warehouse, table: str, version: int) -> int | None:
    """The version at which a reader continues in a table that may have been restored in the meantime. ``version`` is
    the first version that the reader has not read.

    The result is None if the restored table lacks rows that the reader has read, or contains rows that the reader has
    not read.
    """
    for at, actions in commits(warehouse, table, down_to=version):
        to = restored_version(actions)
        if to is None:
            continue
        stood = version - 1
        between = range(min(to, stood) + 1, max(to, stood) + 1)
        changed = any(v in between and has_new_data(a) for v, a in commits(warehouse, table, down_to=between.start))
        return None if changed else at + 1
    return version
