"""Rewind points. The owner makes a rewind point after an unsafe operation on a source and before the source continues.

A point can be made as long as no run of the source's reader has started at the operation's epoch or later. Until then,
the log contains only rows from before the operation. The owner makes the point when every dependent of the source has
processed all rows of the log. At that moment, the version of each dependent's table matches the copy of the dependent's
checkpoint.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from rw_sql.connectors.registry import connector
from rw_sql.metastore.codec import before_from_json
from rw_sql.metastore.facts import PointDependent, RewindPoint
from rw_sql.metastore.records import MaterializedViewRecord, SinkRecord, SourceRecord, StoredState
from rw_sql.model.job_ids import ingest_fragment, sink_job, view_job
from rw_sql.model.pauses import direct_inputs
from rw_sql.model.source_readers import newest_change
from rw_sql.model.view_inputs import fed_by
from rw_sql.plan.result.prediction import prediction_from_json
from rw_sql.runtime.delta.delta_log import commits, has_new_data, job_commit, latest_version, takes_data
from rw_sql.runtime.jobs.statuses import run_mark
from rw_sql.runtime.jobs.unfinished import unfinished_backfills
from rw_sql.runtime.positions.log_shares import SHARES
from rw_sql.runtime.positions.pins import FOLDER
from rw_sql.runtime.positions.progress import committed_versions, newest_planned
from rw_sql.runtime.positions.shared import read_positions_before
from rw_sql.runtime.rewind.pruning import kept_points, prune_points
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.support.stall_timeout import StallTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import OperationRecord
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.support.warehouse import Warehouse

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.05
_COPIES = 3
_STATE_FILE = re.compile(r"\.?(\d+)(?:_[^.]*)?\.(?:delta|snapshot|changelog|zip)(?:\.crc)?")
"""Matches the names of the files of Spark's and RocksDB's state stores. These names begin with the version of the
state."""

Reader = MaterializedViewRecord | SinkRecord


class NotYet(Exception):  # noqa: N818 - callers wait, so it is not an error
    """Raised if a rewind point cannot be made now. If ``is_final`` is true, the point cannot be made later either."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_final = is_final


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """The state of a view or sink. The fields are the last committed batch, the version of the table that contains this
    batch, and the checkpoint.

    ``reads`` has one pair for each input: the input, and the first unread version of the input's table.
    """

    record: Reader
    checkpoint: str
    version: int
    batch: int
    reads: tuple[tuple[int, int], ...] = ()

    @property
    def folder(self) -> str:
        """The name of the folder with the copy of the checkpoint."""
        return view_job(self.record.id) if isinstance(self.record, MaterializedViewRecord) else sink_job(self.record.id)


def wanted_points(context: Context, snapshot: Snapshot, source: SourceRecord) -> tuple[OperationRecord, ...]:
    """The unsafe operations on a source for which a point can be made now, oldest first.

    The result contains only operations after which no run of the source's reader has started, and for which neither a
    point nor the reason for a missing point is stored. The result contains no operation after an unfinished REWIND.
    """
    facts = context.metastore.jobs
    last = facts.last_runs().get(ingest_fragment(source.id))
    # If nothing was ever read, there are no rows to revert.
    if last is None or last.epoch >= newest_change(snapshot, source):
        return ()
    known = facts.rewind_operations(source.id)
    found = context.metastore.unsafe_since(last.epoch + 1)
    wanted = [
        record
        for record in reversed(found)
        if record.epoch not in known and ingest_fragment(source.id) in prediction_from_json(record.prediction)
    ]
    # An operation after an unfinished REWIND depends on the REWIND, so its point is made later.
    done = facts.rewound()
    pending = [r.epoch for r in snapshot.all("rewind") if r.source_id == source.id and r.epoch not in done]
    return tuple(record for record in wanted if all(record.epoch <= epoch for epoch in pending))


def make_points(
    context: Context,
    source: SourceRecord,
    records: Sequence[OperationRecord],
    is_over: Callable[[], bool],
    on_noted: Callable[[], object],
) -> None:
    """Makes a point for each of the operations ``records``, or records why there is no point. The points share the
    copies of the checkpoints, because no rows were added to the log between these operations.

    The source's reader must be stopped. The function calls ``on_noted`` after it has stored the points; from then on,
    the reader may continue. Afterwards, the function deletes surplus points. The wait for the source's dependents is
    limited to ``rewind_point_timeout``, because the source is stopped during the wait. While the dependents make
    progress, the limit is ten times as long. If ``is_over`` returns true during the wait, the function returns without
    recording anything.
    """
    snapshot = context.metastore.snapshot()
    limit = StallTimeout(milliseconds(snapshot, "rewind_point_timeout") / 1000)
    while True:
        snapshot = context.metastore.snapshot()
        try:
            made = _make(context, snapshot, source, records)
        except NotYet as error:
            if is_over():
                return
            limit.note({}, {"its readers": _reached(context, snapshot, source)})
            if not error.is_final and not limit.is_over:
                time.sleep(_LOOK_SECONDS)
                continue
            made = tuple(_point(source, record, reason=error.reason) for record in records)
        fault("rewind_point.before_note")
        context.metastore.jobs.write_rewind_points(made)
        fault("rewind_point.after_note")
        on_noted()
        prune_points(context, context.metastore.snapshot(), source.id)
        return


def _reached(context: Context, snapshot: Snapshot, source: SourceRecord) -> tuple[object, ...]:
    """The progress of a source's dependents, direct and indirect."""
    statuses, warehouse = context.metastore.jobs.job_statuses(), context.warehouse
    found: list[object] = []
    for reader in snapshot.dependents_of(source.id):
        if isinstance(reader, SinkRecord):
            checkpoint, job = warehouse.sink_checkpoint(reader.id, reader.generation), sink_job(reader.id)
        elif isinstance(reader, MaterializedViewRecord):
            checkpoint, job = warehouse.view_checkpoint(reader.id, reader.generation), view_job(reader.id)
        else:
            continue
        found += [newest_planned(warehouse, checkpoint), committed_versions(warehouse, checkpoint)]
        found.append(run_mark(statuses.get(job)))
    return tuple(found)


def milliseconds(snapshot: Snapshot, name: str) -> int:
    """The value in milliseconds of the system parameter ``name``, which is a duration."""
    from rw_sql.model.parameters import SYSTEM_PARAMETERS

    return int((snapshot.parameter(name) or SYSTEM_PARAMETERS[name].default).removesuffix("ms"))


def _point(source: SourceRecord, record: OperationRecord, *, reason: str) -> RewindPoint:
    return RewindPoint(source_id=source.id, operation=record.epoch, made_ms=now_ms(), reason=reason)


def _make(
    context: Context, snapshot: Snapshot, source: SourceRecord, records: Sequence[OperationRecord]
) -> tuple[RewindPoint, ...]:
    if kept_points(snapshot) == 0:
        raise NotYet("rewind points are disabled: ALTER SYSTEM SET rewind_points = 5", is_final=True)
    log_version = latest_version(context.warehouse, context.log_path(source))
    stands = stands_of(context, snapshot, source, log_version)
    dependents = tuple(
        PointDependent(
            id=stand.record.id,
            generation=stand.record.generation,
            version=stand.version,
            batch=stand.batch,
            reads=stand.reads,
        )
        for stand in stands
    )
    folder = _same(context, source, log_version, dependents)
    if folder is None:
        # A suspended owner that resumes must not touch the copies that the next owner has made.
        folder = f"rewind-{source.id}/{records[0].epoch}-{uuid.uuid4().hex[:8]}"
        fault("rewind_point.before_copy")
        _copy_all(context, folder, stands)
        fault("rewind_point.after_copy")
    return tuple(
        RewindPoint(
            source_id=source.id,
            operation=record.epoch,
            made_ms=now_ms(),
            folder=folder,
            log_version=log_version,
            states=_states(context, snapshot, source, record),
            dependents=dependents,
        )
        for record in records
    )


def _same(
    context: Context, source: SourceRecord, log_version: int, dependents: tuple[PointDependent, ...]
) -> str | None:
    """Returns the folder with the copies of an earlier point if neither the log nor the dependents have changed since
    that point; otherwise None."""
    for point in context.metastore.jobs.rewind_points(source.id):
        if point.reason is None and (point.log_version, point.dependents) == (log_version, dependents):
            return point.folder
    return None


def _states(context: Context, snapshot: Snapshot, source: SourceRecord, record: OperationRecord) -> dict[str, str]:
    """Maps each split to its position, encoded as JSON, just before an operation took effect."""
    fragment = ingest_fragment(source.id)
    before = before_from_json(record.before).states.get(fragment, {})
    told = prediction_from_json(record.prediction)[fragment]
    stood = []
    for split, state in told.stood.items():
        row = before.get(split) or snapshot.states(fragment).get(split)
        epoch = row.epoch if row is not None and row.epoch < record.epoch else 0
        stood.append(
            StoredState(fragment=fragment, split=split, state=state, epoch=epoch, log_version=told.log_version)
        )
    kind = connector(source.connector)
    reached = read_positions_before(context.warehouse, source, record.epoch, stood)
    return {split: kind.encode_state(state) for split, state in reached.items()}


def stands_of(context: Context, snapshot: Snapshot, source: SourceRecord, log_version: int) -> tuple[Stand, ...]:
    """The state of every dependent of a source. Each dependent must have processed all rows of its inputs: of the log,
    and of other dependents' tables.

    Raises NotYet if a dependent has unread rows, or if a dependent has read rows of another dependent's table that are
    newer than the recorded state of that dependent.
    """
    readers = [r for r in snapshot.dependents_of(source.id) if isinstance(r, MaterializedViewRecord | SinkRecord)]
    unfinished = unfinished_backfills(context.metastore, snapshot)
    for reader in readers:
        if view_job(reader.id) in unfinished:
            # The view's checkpoint refers to its staging table, which is deleted when the view is live.
            raise NotYet(f"{reader.kind.replace('_', ' ')} {reader.name} had not completed its backfill")
    stands: dict[int, Stand] = {}
    versions = {source.id: log_version}
    for reader in readers:
        stands[reader.id] = stand = _reads(context, snapshot, _stand(context, reader))
        versions[reader.id] = stand.version
    for reader in readers:
        _require_arrived(context, snapshot, stands[reader.id], versions)
    return tuple(stands.values())


def _stand(context: Context, reader: Reader) -> Stand:
    warehouse = context.warehouse
    is_view = isinstance(reader, MaterializedViewRecord)
    checkpoint = (warehouse.view_checkpoint if is_view else warehouse.sink_checkpoint)(reader.id, reader.generation)
    committed = max((int(n) for n in warehouse.list_names(f"{checkpoint}/commits") if n.isdecimal()), default=-1)
    # The version is read after the checkpoint, so that the checkpoint's committed batch is in the table.
    version = version_of_batch(context, warehouse.data(reader.id, reader.generation), committed)
    return Stand(record=reader, checkpoint=checkpoint, version=version, batch=committed)


def version_of_batch(context: Context, table: str, batch: int) -> int:
    """The newest version of a job's table that contains no batch after ``batch``; -1 if there is no such version."""
    version = -1
    for at, actions in commits(context.warehouse, table):
        version = max(version, at)
        found = job_commit(actions)
        if found is None:
            continue
        if (found.batch if found.batch >= 0 else found.done) <= batch:
            return version
        # A fence contains the number of the last batch before it, so its version may be the result. The version of a
        # commit of upkeep that follows a later batch cannot be the result, because the table then has the rows of that
        # batch too.
        version = -1
    return version


def _require_arrived(context: Context, snapshot: Snapshot, stand: Stand, versions: dict[int, int]) -> None:
    reader = stand.record
    told = f"{reader.kind.replace('_', ' ')} {reader.name}"
    is_paused = isinstance(reader, SinkRecord) and reader.is_paused
    status = context.metastore.jobs.job_statuses().get(stand.folder)
    is_final = is_paused or (status is not None and status.state == "STALLED")
    starts = reader.starts if isinstance(reader, SinkRecord) else ()
    if isinstance(reader, MaterializedViewRecord) and direct_inputs(snapshot, reader):
        raise NotYet(f"{told} reads a source that is not shared", is_final=True)
    if stand.version < 0 or (stand.batch < 0 and starts):
        raise NotYet(f"{told} had not started to read", is_final=is_final)
    for id_, at in stand.reads:
        if id_ not in versions:
            continue
        if at > versions[id_] + 1:
            raise NotYet(f"{told} and its inputs did not stop together", is_final=is_final)
        table = context.warehouse.data(id_, getattr(snapshot.get(id_), "generation", 1))
        if at <= _last_data(context, table, versions[id_], is_feed=id_ in fed_by(snapshot, reader)):
            why = "was paused" if is_paused else "was stalled" if is_final else "took too long to read"
            raise NotYet(f"{told} {why} and lacks rows of its inputs", is_final=is_final)


def _reads(context: Context, snapshot: Snapshot, stand: Stand) -> Stand:
    """Fills in ``reads``, which contains the first unread version of each input's table."""
    reader = stand.record
    fed = fed_by(snapshot, reader)
    reads = []
    for id_ in reader.inputs:
        table = context.warehouse.data(id_, getattr(snapshot.get(id_), "generation", 1))
        try:
            table_id = str(DeltaTable(table).metadata().id)
            feeds = {table_id: table} if id_ in fed else {}
            reached = committed_versions(context.warehouse, stand.checkpoint, feeds=feeds)
            reads.append((id_, reached.get(table_id, 0)))
        except TableNotFoundError as error:
            raise NotYet(f"{reader.name} had nothing to read from yet") from error
    return replace(stand, reads=tuple(reads))


def _last_data(context: Context, table: str, newest: int, *, is_feed: bool) -> int:
    """The newest version up to ``newest`` that adds rows; -1 if there is no such version. For a change feed, versions
    that only remove rows count too."""
    for version, actions in commits(context.warehouse, table):
        if version <= newest and (has_new_data(actions) or (is_feed and takes_data(actions))):
            return version
    return -1


def _copy_all(context: Context, folder: str, stands: Iterable[Stand]) -> None:
    root = f"{context.warehouse.uri}/{FOLDER}/{folder}"
    context.warehouse.remove(root)
    for stand in stands:
        for attempt in range(1, _COPIES + 1):
            context.warehouse.remove(f"{root}/{stand.folder}")
            try:
                copy_checkpoint(context, stand.checkpoint, f"{root}/{stand.folder}", stand.batch)
            except FileNotFoundError as error:
                # Spark may delete files of old batches during the copy. The next listing lacks these files.
                if attempt == _COPIES:
                    raise NotYet(f"the checkpoint of {stand.record.name} could not be copied: {error}") from error
            else:
                break


def copy_checkpoint(context: Context, origin: str, target: str, batch: int) -> tuple[str, ...]:
    """Copies a checkpoint in its state after the batch ``batch``. The copy omits batches that were planned later.
    Returns the names of the copied files.

    If several batches read the shares of one commit or snapshot, the given batch must be the last of these batches,
    because the folder with the shares is not copied. On a local path, the copy consists of hard links, which is safe
    because the files are replaced but never modified. Raises FileNotFoundError if a file is deleted during the copy.
    """
    warehouse = context.warehouse
    files = warehouse.files
    needed = {name: path for name, path in files_in(warehouse, origin).items() if not name.startswith(f"{SHARES}/")}
    found = {name: path for name, path in needed.items() if not _is_later(name, batch)}
    for name, path in found.items():
        to = f"{target}/{name}"
        warehouse.make_folders(to.rpartition("/")[0])
        if warehouse.is_local:
            _link(path, str(files._strip_protocol(to)))
        else:
            files.cp_file(path, to)
    return tuple(found)


def files_in(warehouse: Warehouse, folder: str) -> dict[str, str]:
    """Maps the relative path of each file in a folder or its subfolders to the file's full path; empty if the folder
    does not exist."""
    files = warehouse.files
    base = str(files._strip_protocol(folder)).rstrip("/")
    found = (str(path) for path in files.find(folder)) if warehouse.exists(folder) else ()
    named = {path[len(base) + 1 :]: path for path in found}
    return {name: path for name, path in named.items() if name and not name.endswith("/")}


def _link(path: str, to: str) -> None:
    try:
        os.link(path, to)
    except FileNotFoundError:
        raise
    except OSError:  # The file system has no hard links.
        shutil.copy2(path, to)


def _is_later(name: str, batch: int) -> bool:
    """True if a file of a checkpoint belongs to a batch after ``batch``.

    The version of the state after a batch is the batch's number plus one. If the copy included a snapshot of a later
    version, Spark would load this snapshot instead of computing the state by re-reading the batches.
    """
    folder, _, file = name.partition("/")
    if folder == "state":
        version = _STATE_FILE.fullmatch(file.rpartition("/")[2])
        return version is not None and int(version[1]) > batch + 1
    number = file.removeprefix(".").removesuffix(".crc")
    return folder in ("offsets", "commits") and (not number.isdecimal() or int(number) > batch)
