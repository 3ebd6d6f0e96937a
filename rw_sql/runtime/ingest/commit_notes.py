"""Saves the metadata of a source log's commits before these commits are cleaned up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.registry import captures_changes
from rw_sql.runtime.ingest.noted_progress import note_progress
from rw_sql.runtime.positions.commit_history import note_stretches
from rw_sql.runtime.positions.logged_ranges import note_cleaned_ranges
from rw_sql.runtime.positions.notes import note_positions

if TYPE_CHECKING:
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.runtime.jobs.context import Context


def note_commits(context: Context, source: SourceRecord, version: int, *, run: int, epoch: int) -> None:
    """Saves the metadata of a source log's commits up to ``version``. Must be called before these commits are cleaned
    up."""
    note_positions(context, source, run=run, epoch=epoch)
    note_cleaned_ranges(context.warehouse, source, version)
    note_stretches(context.warehouse, context.metastore.snapshot(), source, version)
    if captures_changes(source.connector):
        note_progress(context.warehouse, source, version)
