"""Runs the reader of a change data capture source. The module determines the reader's start position and upstream
tables, and makes the log's rows of each batch."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from rw_sql.connectors.changes import CaptureError, ChangeConnector, TableProgress
from rw_sql.connectors.registry import connector
from rw_sql.metastore.facts import BackfillProgress
from rw_sql.metastore.records import FORGOTTEN, UNDO, TableRecord
from rw_sql.model.definitions import field_of, table_definition
from rw_sql.model.job_ids import ingest_fragment, view_job
from rw_sql.model.offset_ranges import reads_of
from rw_sql.runtime.decoding.cdc_rows import BEGIN_OF_SNAPSHOT, END_OF_SNAPSHOT
from rw_sql.runtime.decoding.decoder import BATCH, BUCKET, OFFSET, RUN, SINCE, SPLIT
from rw_sql.runtime.ingest.change_feed import MOST_ROWS, ChangeFeed
from rw_sql.runtime.ingest.noted_progress import stored_progress, written_progress
from rw_sql.runtime.ingest.table_snapshots import begins_anew, progress_of, unchanged_values
from rw_sql.runtime.ingest.unread_columns import UnreadColumns, lacking
from rw_sql.runtime.jobs.groups import groups_of_jobs, unapplied
from rw_sql.runtime.jobs.made_upstream import made_upstream, note_made
from rw_sql.runtime.positions.flush_position import requested_position
from rw_sql.runtime.positions.logged_ranges import read_ranges
from rw_sql.runtime.support.event_log import log_event
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.faults import fault
from rw_sql.runtime.support.processes import now_ms
from rw_sql.syntax.lexing.identifiers import quoted, sql_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.changes import SchemaChange, Taken
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.model.job_specs import IngestSpec
    from rw_sql.model.options import PlannedOptions
    from rw_sql.model.source_readers import CdcTableSpec
    from rw_sql.plan.ports.positions import Positions
    from rw_sql.runtime.jobs.context import Context

logger = logging.getLogger(__name__)

READING = "reading the table"
"""The name that SHOW JOBS shows for the phase in which a snapshot is read."""

ADD_COLUMNS = "add_columns"
"""The name in ``Context.made`` of the function that adds columns to the tables that read an upstream table. The
function's arguments are the source's id, the upstream table, the upstream table's columns before the change, and the
names and types of its new columns. The function returns True if it has added columns."""

_COLUMNS_SECONDS, _LOOK_SECONDS = 20.0, 0.1
_REPORT_SECONDS = 1.0
_LAST = 2**62
"""An index that is higher than the index of any other row with the same offset."""

_INDEX, _UNCHANGED = "_rw_index", "_rw_unchanged"


@dataclass(slots=True)
class Capture:
    """The reader of one run of a change data capture source.

    ``tables`` maps each upstream table to the name of its snapshot and the snapshot's progress as of the last commit.
    ``made`` is the position from which the run reads. ``least_bucket`` is the first hour of the log that all tables
    read (:func:`_least_bucket`). If the clock shows an earlier hour when rows are written, these rows get the hour
    ``least_bucket``.
    """

    context: Context
    source: SourceRecord
    split: str
    specs: Mapping[str, CdcTableSpec]
    feed: ChangeFeed
    tables: dict[str, tuple[str, TableProgress]]
    made: SplitState
    columns: Mapping[str, frozenset[str]]
    adds_columns: bool
    _written: dict[str, tuple[str, TableProgress]]
    least_bucket: int = 0
    unbegun: frozenset[str] = frozenset()
    """The upstream tables whose snapshot begins with the next commit."""
    unread: UnreadColumns = field(default_factory=UnreadColumns)
    notice: str | None = None
    """The notice about the running source, for SHOW JOBS."""
    started_ms: int = field(default_factory=now_ms)
    _reported: dict[str, tuple[float, TableProgress]] = field(default_factory=dict)

    @staticmethod
    def open(
        context: Context,
        snapshot: Snapshot,
        kind: ChangeConnector,
        source: SourceRecord,
        spec: IngestSpec,
        options: Mapping[str, str],
        positions: Positions,
        most_rows: int,
    ) -> Capture:
        """Opens the reader. If nothing has been read yet, first creates the missing objects upstream (slot and
        publication). Raises StalledError if the reader cannot start."""
        (split,) = spec.splits
        state = positions.states[split]
        stored = stored_progress(context.warehouse, source)
        is_new = is_new_upstream(context, snapshot, source, positions)
        tables = {table.upstream: progress_of(table, stored) for table in spec.tables}
        _await_columns(context, snapshot, spec, stored)
        reader = kind.change_reader(options)
        try:
            with _stalling(source):
                made = begin_upstream(
                    context, kind, source, options, state, tuple(tables), is_new=is_new, planned=spec.options
                )
                lives = () if is_new else read_ranges(context.warehouse, source).lives.get(split, ())
                reads = reads_of(lives, made.cluster, made.incarnation)
                reached = None if reads is None else reads.reached
                reader.open(made, {table: progress for table, (_, progress) in tables.items()}, reached=reached)
            feed = ChangeFeed(
                reader=reader,
                position=made.offset,
                progress={table: progress for table, (_, progress) in tables.items()},
                most_rows=min(most_rows, MOST_ROWS),
                is_new=is_new or made.offset != state.offset or stored != tables,
                wanted=partial(requested_position, context.warehouse, source),
            )
            specs = {table.upstream: table for table in spec.tables}
            columns = {table.upstream: frozenset(table.columns) for table in spec.tables}
            adds = options.get("auto.schema.change", "false").strip().lower() == "true"
            least = _least_bucket(snapshot, spec)
            unbegun = frozenset(each.upstream for each in spec.tables if begins_anew(each, stored))
            capture = Capture(context, source, split, specs, feed, tables, made, columns, adds, stored, least, unbegun)
            capture.unread = UnreadColumns.of(context.warehouse, source)
            capture._note_columns(tables)
            capture._limit_snapshots()
        except BaseException:
            # An error of the warehouse's store, too, must not leave the connections open: the slot would stay in use.
            reader.close()
            raise
        return capture

    def rows(self, taken: tuple[Taken, ...], *, run: int, batch: int, since: int, bucket: int) -> pa.Table:
        """The rows that a batch adds to the log. ``taken`` are the batch's results of :meth:`ChangeReader.take`."""
        records = pa.concat_tables([each.records for each in taken]) if taken else None
        if records is None:
            raise ValueError("a batch contains records that were already taken")
        columns = {
            "table_name": records["table"],
            "op": records["op"],
            "key": records["key"],
            "row": records["row"],
            "timestamp": records["timestamp"],
            OFFSET: records[OFFSET],
            _INDEX: records[_INDEX],
            _UNCHANGED: unchanged_values(records, self.progress_after(taken)),
        }
        rows = pa.table(columns)
        marks = self._marks(taken[-1])
        if marks:
            # The begin marker is before all rows of the snapshot. The end marker may also be after some later changes,
            # whose keys then count as seen by the snapshot too.
            first = [mark for mark in marks if mark["op"] == BEGIN_OF_SNAPSHOT]
            last = [mark for mark in marks if mark["op"] == END_OF_SNAPSHOT]
            given = [pa.Table.from_pylist(each, schema=rows.schema) for each in (first, last)]
            rows = pa.concat_tables([given[0], rows, given[1]])
        count = rows.num_rows
        constants = {SPLIT: (self.split, pa.string()), RUN: (run, pa.int64()), BATCH: (batch, pa.int64())}
        constants |= {SINCE: (since, pa.int64()), BUCKET: (max(bucket, self.least_bucket), pa.int32())}
        for name, (value, kind) in constants.items():
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, kind), count))
        return rows

    def marks(self, taken: tuple[Taken, ...]) -> int:
        """The number of marker rows among the rows that a batch adds to the log. Marker rows show where a repeated
        snapshot begins or ends; they do not come from the reader."""
        return len(self._marks(taken[-1]))

    def require_known(self, taken: tuple[Taken, ...]) -> None:
        """Logs the reader's notices, and handles changes of the upstream tables' columns.

        Raises StalledError if upstream columns that a table reads were dropped or changed their type. Also raises
        StalledError after new upstream columns were added to the tables that read the upstream table, because the run
        must then restart.
        """
        for notice in dict.fromkeys(notice for each in taken for notice in each.notices):
            log_event("capture_notice", source=self.source.name, notice=notice)
            logger.warning("source %s: %s", self.source.name, notice)
        changes = [change for each in taken for change in each.changes]
        for change in changes:
            read = self.columns.get(change.table, frozenset())
            gone = [name for name in change.dropped if name in read]
            other = [name for name in change.retyped if name in read]
            if gone or other:
                raise StalledError(self._changed_columns(change, gone, other), is_final=True)
            tables = self._tables(change.table)
            known = frozenset(self.tables[change.table][1].columns) if change.table in self.tables else frozenset()
            missing = lacking(tables, known, change.added)
            added = {name: kind for name, kind in change.added.items() if missing[name]}
            if not added:
                self.unread.note(change, ())
                continue
            without = [record.name for record in tables if any(record in missing[name] for name in added)]
            log_event("columns_added", source=self.source.name, table=change.table, columns=sorted(added))
            listed = ", ".join(f"{name} {kind}" for name, kind in added.items())
            add = self.context.made.get(ADD_COLUMNS)
            if self.adds_columns and add is not None and add(self.source.id, change.table, known, added):
                raise StalledError(f"COLUMNS were added to {change.table}: {listed}")
            self.unread.note(change, added)
            logger.warning(
                "source %s: table %s has new columns upstream: %s: ALTER TABLE %s ADD COLUMN … adds one",
                self.source.name, change.table, listed, ", ".join(map(sql_name, without)),
            )  # fmt: skip
        if changes:
            self._note_columns(self.progress_after(taken))

    def _note_columns(self, progress: Mapping[str, tuple[str, TableProgress]]) -> None:
        """Sets the notice about upstream columns that tables lack."""
        found = (
            self.unread.notice(table, self._tables(table), progress[table][1].columns)
            for table in self.unread.columns
            if table in progress
        )
        self.notice = "; ".join(each for each in found if each) or None

    def _tables(self, table: str) -> list[TableRecord]:
        """The tables that read an upstream table."""
        spec, snapshot = self.specs.get(table), self.context.metastore.snapshot()
        found = [snapshot.get(id_) for id_ in spec.tables] if spec is not None else []
        return [record for record in found if isinstance(record, TableRecord)]

    def _changed_columns(self, change: SchemaChange, gone: list[str], other: list[str]) -> str:
        what = [f'column "{name}" no longer exists' for name in gone]
        what += [f'column "{name}" is {change.retyped[name]} now, but was {change.old.get(name)}' for name in other]
        if set(self.specs[change.table].key_columns) & {*gone, *other}:
            typed = (
                f"drop the table and create it again: CREATE TABLE … (*) FROM {sql_name(self.source.name)} "
                f"TABLE '{change.table}'"
            )
        else:
            drops, adds = [], []
            for record in self._tables(change.table):
                for column in table_definition(record.definition).columns:
                    field = field_of(column)
                    if column.generated is not None or field not in (*gone, *other):
                        continue
                    drops.append(f"ALTER TABLE {sql_name(record.name)} DROP COLUMN {quoted(column.name)}")
                    if field in other:
                        renamed = "" if field == column.name else f" FROM {quoted(field)}"
                        adds.append(f"ALTER TABLE {sql_name(record.name)} ADD COLUMN {quoted(column.name)} …{renamed}")
            typed = "; ".join([*drops, *adds])
        return f"COLUMNS of {change.table} have changed upstream: {', '.join(what)}: {typed}"

    def _marks(self, taken: Taken) -> list[dict[str, object]]:
        """The marker rows for the repeated snapshots that begin or end with the batch. ``taken`` is the last result of
        :meth:`ChangeReader.take` in the batch."""
        found: list[dict[str, object]] = []
        for table, spec in self.specs.items():
            _, before = self.tables[table]
            is_repeated = spec.repeats if before.is_repeated is None else before.is_repeated
            if not is_repeated or not spec.has_snapshot:
                continue
            if table in self.unbegun:
                found.append({"table_name": table, "op": BEGIN_OF_SNAPSHOT, OFFSET: taken.position, _INDEX: -1})
            after = taken.progress.get(table, before)
            if after.is_done and not before.is_done:
                found.append({"table_name": table, "op": END_OF_SNAPSHOT, OFFSET: taken.position, _INDEX: _LAST})
        return found

    def progress_after(self, taken: tuple[Taken, ...]) -> dict[str, tuple[str, TableProgress]]:
        """The progress of all snapshots after a batch."""
        last = taken[-1].progress
        return {table: (snapshot, last.get(table, progress)) for table, (snapshot, progress) in self.tables.items()}

    def stored_with(self, progress: Mapping[str, tuple[str, TableProgress]], *, is_due: bool) -> dict[str, list[str]]:
        """The progress to store in a commit. If the progress of any upstream table has changed since it was last
        stored, or if ``is_due`` is true, the result is the progress of all upstream tables. Otherwise, the result is
        empty."""
        return written_progress(progress) if is_due or progress != self._written else {}

    def _report(self, progress: Mapping[str, tuple[str, TableProgress]]) -> None:
        """Reports the progress of the snapshots, for SHOW JOBS and WAIT."""
        now = time.monotonic()
        for table, (_, made) in progress.items():
            before = self._reported.get(table)
            is_ended = made.is_done and (before is None or before[1] != made)
            is_due = before is None or (before[1] != made and now - before[0] > _REPORT_SECONDS)
            if not (is_ended or is_due):
                continue
            self._reported[table] = (now, made)
            # rw_sql 0.1.0 also reported the snapshot for the tables that need no snapshot. Only a report of the end
            # replaces such a report.
            for id_ in (read.table for read in self.specs[table].reads if read.has_snapshot or made.is_done):
                self.context.metastore.jobs.write_backfill(
                    BackfillProgress(
                        job=view_job(id_),
                        object_id=id_,
                        generation=1,
                        phase=READING,
                        done=made.rows_done,
                        total=max(made.rows_estimated or 0, made.rows_done),
                        started_ms=self.started_ms,
                        updated_ms=now_ms(),
                        is_over=made.is_done,
                    )
                )

    def _limit_snapshots(self) -> None:
        """Sets the rate limit of the snapshots. One thread reads all upstream tables. Therefore, the lowest limit of
        the unfinished snapshots applies to all of them."""
        unfinished = (self.specs[table] for table, (_, made) in self.tables.items() if not made.is_done)
        rates = [spec.rate for spec in unfinished if spec.rate is not None]
        self.feed.reader.set_rate_limit(min(rates, default=None))

    def committed(self, taken: tuple[Taken, ...], progress: dict[str, tuple[str, TableProgress]]) -> None:
        """Reports a committed batch to the reader. The server may then discard its log up to the end of that batch."""
        self._report(progress)
        has_ended = any(made.is_done and not self.tables[table][1].is_done for table, (_, made) in progress.items())
        self.tables = progress
        if has_ended:
            self._limit_snapshots()
        self._written = progress
        self.unbegun = frozenset()
        fault("ingest.before_acknowledge")
        self.feed.reader.acknowledge(taken[-1].position)
        fault("ingest.after_acknowledge")


def rows_by_table(rows: pa.Table) -> dict[str, int]:
    """Maps each upstream table to the number of its rows in a batch, including marker rows."""
    return {each["values"].as_py(): each["counts"].as_py() for each in rows["table_name"].value_counts()}


def _least_bucket(snapshot: Snapshot, spec: IngestSpec) -> int:
    """The first hour of the log that all tables of the source read. A table reads no rows from the hours before its
    creation.

    If the clock shows an earlier hour, new rows nevertheless get this first hour, because a table ignores rows of
    earlier hours. The clock may have been set back since the table was created, or may differ from the clock of the
    session that created the table.
    """
    found = (snapshot.get(id_) for table in spec.tables for id_ in table.tables)
    return max((each.live_from.hour for each in found if isinstance(each, TableRecord) and each.live_from), default=0)


def is_new_upstream(context: Context, snapshot: Snapshot, source: SourceRecord, positions: Positions) -> bool:
    """True if nothing has been read since the source was created, or since a statement set the source's position in
    order to read the upstream tables again.

    In these two cases, the reader may create a slot that begins after the source's position. In any other case, a new
    slot would silently skip changes.
    """
    kind = connector(source.connector)
    for split, row in snapshot.states(ingest_fragment(source.id)).items():
        state = positions.states.get(split)
        if state is None or row.state == FORGOTTEN or state.offset != kind.decode_state(split, row.state).offset:
            return False
        is_unread = split not in positions.read_splits and not stored_progress(context.warehouse, source)
        if not is_unread and (source.snapshot != row.epoch or _is_restored(context, row.epoch)):
            return False
    return True


def _is_restored(context: Context, epoch: int) -> bool:
    """True if the statement with this epoch restored an earlier position of a source. Tables without a snapshot need
    the changes after this position, so the slot must still contain these changes."""
    operation = context.metastore.operation(epoch)
    return operation is not None and operation.kind == UNDO


def _await_columns(
    context: Context, snapshot: Snapshot, spec: IngestSpec, stored: Mapping[str, tuple[str, TableProgress]]
) -> None:
    """If a column was added to tables, waits until the jobs of these tables that still run without the column have
    ended. A job without the column would store new rows without the column.

    Raises StalledError if a job without the column still runs after 20 seconds, in this process or in the process of
    another resource group.
    """
    changed = {
        view_job(id_)
        for table in spec.tables
        for id_ in table.tables
        if table.upstream in stored and begins_anew(table, stored)
    }
    if not changed:
        return
    deadline = time.monotonic() + _COLUMNS_SECONDS
    is_done = context.applied.wait(
        snapshot.epoch, _COLUMNS_SECONDS, jobs=changed, is_over=lambda: not context.owning.is_set()
    )
    others = groups_of_jobs(changed, snapshot) - {context.group}
    while others and others & unapplied(context, snapshot.epoch, without=context.group).keys():
        if time.monotonic() > deadline or not context.owning.is_set():
            is_done = False
            break
        time.sleep(_LOOK_SECONDS)
    if not is_done and context.owning.is_set():
        tables = sorted(table.upstream for table in spec.tables if changed & set(map(view_job, table.tables)))
        raise StalledError(f"WAITS for the tables of {', '.join(tables)}, which still run without their new columns")


def begin_upstream(
    context: Context,
    kind: ChangeConnector,
    source: SourceRecord,
    options: Mapping[str, str],
    state: SplitState,
    tables: tuple[str, ...],
    *,
    is_new: bool,
    planned: PlannedOptions = (),
) -> SplitState:
    """Creates the slot and the publication if they are missing and nothing has been read (``is_new``). Adds the
    upstream tables ``tables`` to the publication.

    ``planned`` are the effective options of the reader, with references in place of the values of secrets.

    Returns the position from which to read. This position can be after the stored position only if nothing has been
    read and a run of this source has created the slot or the publication.
    """
    slot = kind.slot_details(options)
    if is_new and slot is not None and slot.status == "lost":
        # The old slot cannot be read any more but still occupies the name, so it is dropped. The new slot begins at the
        # position at which the tables are read again.
        notices = kind.release(options, slot=True, publication=False)
        slot = kind.slot_details(options) if notices else None
    if slot is None:
        if not is_new:
            return state  # The reader then reports the missing object. A new slot would silently skip changes.
        note_made(context.warehouse, source, planned, slot=True)
        fault("ingest.before_slot")
    # An existing publication comes either from an earlier attempt that failed later, or from another client. The
    # source's mark on the server shows which of the two has created the publication.
    is_own = kind.owns_publication(options)
    known = made_upstream(context.warehouse, source)
    if is_own is None:
        note_made(context.warehouse, source, planned, publication=True, is_marked=True)
    else:
        is_others = known.get("is_marked") and not is_own
        note_made(context.warehouse, source, planned, **({"publication": False} if is_others else {}))
    may_be_younger = is_new and bool(known.get("publication"))
    prepared = kind.prepare(options, tables, awaits_publication=may_be_younger)
    if is_own is None and not prepared.made_publication:
        note_made(context.warehouse, source, planned, publication=False)
    fault("ingest.after_slot")
    made = made_upstream(context.warehouse, source)
    if is_new and made.get("slot") and prepared.state.offset > state.offset:
        return replace(state, offset=prepared.state.offset)
    if is_new and made.get("publication") and not made.get("slot"):
        return replace(state, offset=max(state.offset, prepared.end))
    return state


class _stalling:  # noqa: N801 - reads as a word of the statement
    """A context manager that converts the connector's errors to StalledError (:func:`stalled`)."""

    def __init__(self, source: SourceRecord) -> None:
        self._source = source

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, CaptureError):
            raise stalled(self._source, error) from error


def stalled(source: SourceRecord, error: CaptureError) -> StalledError:
    """Converts an error of the connector, with its hint, to a StalledError."""
    hint = f": {error.hint.replace('SOURCE_NAME', sql_name(source.name))}" if error.hint else ""
    if error.is_temporary:
        return StalledError(f"UNREACHABLE {error.message}{hint}")
    # Someone may solve the problem upstream, without a statement in this warehouse. The job is therefore retried, at
    # the longest interval.
    return StalledError(f"{error.message}{hint}", is_lasting=True)
