"""Enables the change feed of a Delta table, and finds the version at which the feed begins (Delta protocol, "Add CDC
File")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import DeltaTable

from rw_sql.runtime.delta.delta_log import commits, has_commit
from rw_sql.runtime.delta.table_settings import CHANGE_FEED

if TYPE_CHECKING:
    from rw_sql.runtime.delta.job_output import JobOutput
    from rw_sql.runtime.support.warehouse import Warehouse


def feed_begin(warehouse: Warehouse, table: str, after: int) -> int:
    """Returns the first version to read from a table's change feed. This is ``after`` or, if a later commit enabled the
    change feed, the version of that commit.

    A commit that only repeats the setting, such as a commit that adds a column, does not count as enabling the change
    feed. If the commit of the version ``after`` was cleaned up, the settings of that version are unknown, and the
    result is ``after``.
    """
    began: int | None = None
    for version, actions in commits(warehouse, table, down_to=after + 1):
        told = [action["metaData"].get("configuration") or {} for action in actions if "metaData" in action]
        if told and told[-1].get(CHANGE_FEED) != "true":
            break
        began = version if told else began
    else:
        if began is None or not has_commit(warehouse, table, after):
            return after
        if DeltaTable(table, version=after).metadata().configuration.get(CHANGE_FEED) == "true":
            return after
    return after if began is None else began


def begin_feed(output: JobOutput) -> None:
    """Enables the change feed of a table for all later commits. This function must be called between two commits of the
    table's job.

    This function uses a separate ``DeltaTable`` object, because the batch in progress may be reading through the
    ``DeltaTable`` object of ``output``. The job looks for newer versions before each commit, so it finds the commit
    that enables the feed.
    """
    table = DeltaTable(output.path)
    if table.metadata().configuration.get(CHANGE_FEED) != "true":
        table.alter.set_table_properties({CHANGE_FEED: "true"})
        output.checksums.write(table)
