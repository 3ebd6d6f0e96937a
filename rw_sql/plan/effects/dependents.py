"""Computes the effect of a move on a source's dependents: they may process rows a second time or drop late rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import captures_changes
from rw_sql.metastore.records import IF_NOT_NULL, IGNORE, MaterializedViewRecord, SinkRecord
from rw_sql.model.job_ids import view_job
from rw_sql.plan.effects.capture_moves import changes_between
from rw_sql.plan.effects.verdicts import OTHER_CLUSTER_SPLIT, RECREATED_SPLIT, UNTOLD_SPLIT
from rw_sql.plan.result.allow import FORGOTTEN_SPLIT
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord, TableRecord
    from rw_sql.model.options import PlannedOptions
    from rw_sql.model.source_readers import Reader
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.result.plan import SplitPreview


def effects_on_dependents(
    snapshot: Snapshot,
    inspector: Inspector,
    reader: Reader,
    splits: Iterable[SplitPreview],
    options: PlannedOptions | None = None,
) -> tuple[str, ...]:
    """Returns notices about three effects of a move: dependents process rows a second time, views drop late rows
    because of a watermark, and backfills need records of splits that the source leaves.

    ``options`` are the options of the source after the move; None if the move does not change them.
    """
    dependents = reader.dependents(snapshot)
    views = [view for view in dependents if isinstance(view, MaterializedViewRecord)]
    rows = list(splits)
    notices: list[str] = []
    table = snapshot.table_of(reader.source.id)
    if captures_changes(reader.source.connector):
        notices += changes_between(snapshot, inspector, reader, rows, options)
    elif table is not None and table.primary_key:
        # The table's dependents do not read the records. They read the row changes of the table.
        if any(row.duplicates for row in rows):
            notices.append(_taken_again(table))
    elif any(row.duplicates for row in rows):
        appending = [view.name for view in views if not view.keys]
        counting = [view.name for view in views if view.keys]
        if appending:
            notices.append(f"repeated rows will be duplicated in {', '.join(appending)}")
        if counting:
            notices.append(f"rows that are read again will be counted twice in {', '.join(counting)}")
        sinks = [sink.name for sink in dependents if _adds(sink)]
        if sinks:
            notices.append(f"rows that are read again will be sent again by {', '.join(sinks)}")
    notices += unfinished_backfills(snapshot, inspector, reader, rows)
    if any(_may_be_late(row) for row in rows) and views:
        marks = inspector.positions.watermarks(tuple(view.id for view in views))
        notices += [
            f"LATE: rows before {_moment(marks[view.id])} will be dropped by {view.name}"
            for view in views
            if view.id in marks
        ]
    return tuple(notices)


def unfinished_backfills(
    snapshot: Snapshot, inspector: Inspector, reader: Reader, splits: Iterable[SplitPreview]
) -> tuple[str, ...]:
    """Returns notices about views whose backfill is not complete and needs records of splits that the source leaves."""
    views = [view for view in reader.dependents(snapshot) if isinstance(view, MaterializedViewRecord)]
    if not views or not any(_is_left(row) for row in splits):
        return ()
    backfills = inspector.jobs.being_backfilled()
    return tuple(
        f"the backfill of {view.name} is not complete and needs records that the source leaves behind: if the "
        "new upstream does not have them, the view stalls until UNDO OPERATION or REBUILD MATERIALIZED VIEW "
        f"{sql_name(view.name)}"
        for view in views
        if view_job(view.id) in backfills
    )


def _taken_again(table: TableRecord) -> str:
    """The text that describes the effect of repeated rows on a table with a primary key."""
    if table.conflict == IGNORE:
        return f"rows that are read again are ignored if table {table.name} already has their keys"
    newer = ", unless their version is older" if table.version_columns else ""
    what = "the values of" if table.conflict == IF_NOT_NULL else ""
    words = f"{what} rows that are read again overwrite the rows with the same keys in table {table.name}".strip()
    return words + newer


def _adds(record: ObjectRecord) -> bool:
    """True if a dependent is a sink of type ``append-only``."""
    return isinstance(record, SinkRecord) and record.type == "append-only"


def _is_left(row: SplitPreview) -> bool:
    """True if the source reads the split before the move, but not after it. Also True if the split's name may refer to
    a different split after the move."""
    is_gone = row.new is None and row.verdict != FORGOTTEN_SPLIT
    return row.old is not None and (is_gone or row.verdict in (OTHER_CLUSTER_SPLIT, RECREATED_SPLIT, UNTOLD_SPLIT))


def _may_be_late(row: SplitPreview) -> bool:
    """True if, after the move, the split may deliver rows that are older than the newest row that was read before the
    move."""
    is_back = row.old is not None and row.new is not None and row.new < row.old
    return (
        is_back or row.duplicates > 0 or row.verdict.startswith("UNKNOWN") or (row.old is None and row.new is not None)
    )


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
