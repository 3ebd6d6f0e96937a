"""The settings and columns of the Delta tables that jobs write."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable, Schema

TABLE_SETTINGS = {
    # Only commits before a checkpoint are cleaned up, so this setting limits the number of commits in a listing of a
    # busy log.
    "delta.checkpointInterval": "100",
    # The job deletes old commits itself, because it knows the readers and saves the commits' metadata first.
    "delta.enableExpiredLogCleanup": "false",
    # The time for which the log's checkpoints continue to name a replaced file. The time can be short, because rw_sql
    # stores its own list of the replaced files that still exist.
    "delta.deletedFileRetentionDuration": "interval 1 minutes",
}
"""The settings with which every log and every view's table is created."""

STATISTICS = "delta.dataSkippingStatsColumns"
"""The setting with the names of the columns for which Delta stores statistics. Without this setting, Delta stores
statistics for the first 32 columns."""

CHANGE_FEED = "delta.enableChangeDataFeed"
"""The setting that makes a table keep a change feed."""


def add_columns(table: DeltaTable, schema: Schema) -> bool:
    """Adds columns that the table lacks. The columns are NULL in existing rows. Returns True if the call has made a
    commit."""
    known = {column.name for column in table.schema().fields}
    new = [column for column in schema.fields if column.name not in known]
    if new:
        table.alter.add_columns(new)
    return bool(new)


def add_settings(table: DeltaTable, *, has_change_feed: bool = False, statistics: Sequence[str] = ()) -> bool:
    """Adds or changes the settings in which the table differs from :data:`TABLE_SETTINGS`. Returns True if the call has
    made a commit.

    If ``has_change_feed`` is true, the table's change feed is enabled. ``statistics`` are the columns for which Delta
    stores statistics; if empty, this setting does not change.
    """
    settings = dict(TABLE_SETTINGS)
    if has_change_feed:
        settings[CHANGE_FEED] = "true"
    if statistics:
        settings[STATISTICS] = ",".join(statistics)
    known = table.metadata().configuration
    new = {key: value for key, value in settings.items() if known.get(key) != value}
    if new:
        table.alter.set_table_properties(new)
    return bool(new)
