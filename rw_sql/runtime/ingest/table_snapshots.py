"""Determines, for each upstream table, whether the table's stored snapshot continues or another snapshot begins.

All tables that read an upstream table share the snapshot of the upstream table. The name of a snapshot lists the tables
that share the snapshot. Another snapshot begins only if the stored snapshot does not serve all of these tables, for
example because a table needs rows that the stored snapshot did not read.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.changes import KEY_ORDER, SNAPSHOT, TableProgress
from rw_sql.model.definitions import KEPT_TIME
from rw_sql.model.source_readers import TableRead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from rw_sql.model.source_readers import CdcTableSpec

_PART = re.compile(r"([0-9]+)\.([0-9]+)(?:\.([0-9]+))?(-?)")


def begins_anew(table: CdcTableSpec, stored: Mapping[str, tuple[str, TableProgress]]) -> bool:
    """True if another snapshot of an upstream table begins, because no snapshot is stored, or because the stored
    snapshot does not serve all tables that read the upstream table. ``stored`` maps each upstream table to the name and
    the progress of its snapshot."""
    known = stored.get(table.upstream)
    if known is None or not continues(known[0], table.reads) or uncovered(known[0], table.reads):
        return True
    return _is_unbound(known[1], table.reads)


def progress_of(table: CdcTableSpec, stored: Mapping[str, tuple[str, TableProgress]]) -> tuple[str, TableProgress]:
    """Returns the name of an upstream table's snapshot for the next run of the reader, and the progress with which this
    run begins. ``stored`` has the same meaning as in :func:`begins_anew`."""
    known = stored.get(table.upstream)
    has_live_tables = any(not read.has_snapshot for read in table.reads)
    if known is not None and not begins_anew(table, stored):
        progress = replace(known[1], has_live_tables=has_live_tables, live_from=table.live_from)
        if not table.has_snapshot:
            progress = replace(progress, next_key=None, again=(), is_done=True)
        return table.snapshot, progress
    fresh = TableProgress(
        table=table.upstream,
        key_columns=table.key_columns,
        is_done=not table.has_snapshot,
        chunk_rows=table.chunk_rows,
        is_repeated=table.repeats,
        has_live_tables=has_live_tables,
        live_from=table.live_from,
    )
    if known is None or not continues(known[0], table.reads):
        # The known columns are not kept, because another table may have replaced the upstream table since then.
        is_repeated = table.repeats or (known is not None and _have_rows(known[0], table.reads))
        return table.snapshot, replace(fresh, is_repeated=is_repeated)
    if _is_unbound(known[1], table.reads):
        # The tables may have rows from changes that the log contained before this snapshot.
        return table.snapshot, replace(fresh, is_repeated=table.has_snapshot)
    # The known columns show whether yet another column is added or dropped upstream before the snapshot begins. If a
    # table got columns, only the names count: the table may have got a column again because the column's type changed.
    name, progress = known
    missing = uncovered(name, table.reads)
    has_new_columns = any(read.columns for read in missing)
    # A repeated snapshot that is not complete has not removed the rows that no longer exist upstream.
    is_owed = not progress.is_done and (table.repeats if progress.is_repeated is None else progress.is_repeated)
    kept = _parsed(progress.kept_for if progress.kept_for and _is_unread(progress) else name)
    return table.snapshot, replace(
        fresh,
        columns=dict.fromkeys(progress.columns, "") if has_new_columns else progress.columns,
        traits={name: each for name, each in progress.traits.items() if name != KEY_ORDER},
        continues=progress.identity or progress.continues,
        kept_for=",".join(str(read) for read in table.reads if _was_read(read, kept, table.reads)),
        # If changes were skipped before a repeated snapshot, the snapshot reads the new values but not the times of
        # these changes.
        keeps_times=progress.keeps_times or not is_owed,
        is_repeated=is_owed or any(read.is_repeated for read in missing if read.has_snapshot),
    )


def uncovered(name: str, reads: Sequence[TableRead]) -> tuple[TableRead, ...]:
    """Returns those items of ``reads`` whose tables need rows that the snapshot ``name`` did not read, or whose tables
    got columns after the start of this snapshot."""
    known = _parsed(name)
    return tuple(read for read in reads if not _is_covered(read, known, reads))


def continues(name: str, reads: Sequence[TableRead]) -> bool:
    """True if one of the tables in ``reads`` has been kept up to date since the snapshot ``name`` began. For such a
    table, the reader must not omit any change to the upstream table."""
    known = _parsed(name)
    return any(_was_read(read, known, reads) for read in reads)


def unchanged_values(records: pa.Table, tables: Mapping[str, tuple[str, TableProgress]]) -> pa.ChunkedArray:
    """Returns the column ``unchanged`` of :attr:`Taken.records <rw_sql.connectors.changes.Taken.records>`, in which
    KEPT_TIME marks some rows of snapshots. For these rows, the tables keep the times that they have stored. ``tables``
    has the same meaning as in :func:`begins_anew`.

    A snapshot does not contain the times of changes. However, a table that has been kept up to date since an earlier
    snapshot contains the time of each row's last change.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    unchanged = records["unchanged"]
    kept = [table for table, (_, progress) in tables.items() if progress.kept_for and progress.keeps_times]
    if not kept:
        return unchanged
    is_read_again = pc.and_(pc.equal(records["op"], SNAPSHOT), pc.is_in(records["table"], pa.array(kept)))
    return pc.if_else(is_read_again, pa.scalar([KEPT_TIME], unchanged.type), unchanged)


def _have_rows(name: str, reads: Sequence[TableRead]) -> bool:
    """True if a table in ``reads`` that needs the existing rows may have rows of the snapshot ``name``."""
    known = _parsed(name)
    newest = _only(known)
    return any(
        read.has_snapshot
        and (any(each.table == read.table for each in known) or (newest is not None and read.table < newest.table))
        for read in reads
    )


def _is_unbound(progress: TableProgress, reads: Sequence[TableRead]) -> bool:
    """True if the snapshot has read no row, and no table still has rows of an earlier snapshot. If an earlier upstream
    table had the same name, the reader then need not read the log's changes to that earlier table."""
    return bool(progress.kept_for) and _is_unread(progress) and not continues(progress.kept_for, reads)


def _is_unread(progress: TableProgress) -> bool:
    return not progress.is_done and progress.next_key is None and not progress.rows_done


def _parsed(name: str) -> tuple[TableRead, ...]:
    parts = (_PART.fullmatch(part) for part in name.split(","))
    return tuple(
        TableRead(table=int(part[1]), reset=int(part[2]), columns=int(part[3] or 0), has_snapshot=not part[4])
        for part in parts
        if part is not None
    )


def _is_covered(read: TableRead, known: Sequence[TableRead], reads: Sequence[TableRead]) -> bool:
    same = next((each for each in known if each.table == read.table), None)
    if same is not None:
        needs_rows = read.has_snapshot and not same.has_snapshot
        return not needs_rows and same.reset == read.reset and same.columns >= read.columns
    newest = _only(known)
    if newest is None or not _was_read(read, known, reads):
        return not read.has_snapshot
    there = next((each for each in reads if each.table == newest.table), newest)
    return read.last_id <= (max(there.last_id, newest.table) if newest.columns else newest.table)


def _was_read(read: TableRead, known: Sequence[TableRead], reads: Sequence[TableRead]) -> bool:
    same = next((each for each in known if each.table == read.table), None)
    if same is not None:
        return same.reset == read.reset
    newest = _only(known)
    if newest is None or read.table > newest.table:
        return False
    there = next((each for each in reads if each.table == newest.table), None)
    return read.reset in (0, newest.reset) if there is None else there.reset == newest.reset


def _only(known: Sequence[TableRead]) -> TableRead | None:
    """The only table in a snapshot's name; None if the name has several tables. In rw_sql 0.1.0, the name of a snapshot
    of several tables contains only the newest table."""
    return known[0] if len(known) == 1 else None
