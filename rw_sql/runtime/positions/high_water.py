"""Determines up to which versions a view or sink must read its inputs, and whether it has read them. This module works
in any process."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.metastore.records import MaterializedViewRecord, SinkRecord, SourceRecord, TableRecord
from rw_sql.model.definitions import table_definition
from rw_sql.model.view_inputs import fed_by
from rw_sql.runtime.delta.delta_log import commits, has_new_data, rows_of_table, table_id, takes_data
from rw_sql.runtime.jobs.rate_limit import pace_of
from rw_sql.runtime.jobs.table_paths import require_table, table_path, users_table
from rw_sql.runtime.positions.progress import (
    committed_versions,
    has_state,
    newest_completed,
    newest_planned,
    owes_windows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.jobs.context import Context


_MOST_OTHERS = 200
"""The search for the last commit with rows of a certain table of a captured database ends after more than this number
of commits with rows of other tables. The table's job must then read all of these commits."""

_OWING = re.compile(r"\bEMIT\s+ON\s+WINDOW\s+CLOSE\b|\b(?:LEFT|RIGHT|FULL)\b", re.IGNORECASE)
"""Matches the definition of a view or sink that may append rows when the watermark moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWater:
    """``versions`` maps the Delta table id of each input of a view or sink to the newest version that has rows for the
    view or sink. All versions were determined at about the same time.

    The view or sink may read some inputs through their change feeds. ``feeds`` maps the Delta table ids of these inputs
    to their paths. A source that is not shared has no log and is left out.
    """

    versions: dict[str, int]
    feeds: Mapping[str, str]
    may_owe_windows: bool = False
    """True if the view or sink may append rows when the watermark moves, such as the row of a closed window; see
    :func:`appends_windows`."""
    is_direct: bool = False
    """True if an input is a source that is not shared. ``versions`` does not contain the positions of a source that is
    not shared."""
    interval_seconds: float = 0.0
    """If an input is a source that is not shared, the minimum time in seconds between two batches of the query;
    otherwise 0."""
    _planned: list[int] = field(default_factory=list, init=False, compare=False, repr=False)
    """Empty at first. If ``is_direct`` is true, :meth:`are_reached` adds one item after all ``versions`` were read: the
    last batch that was planned at this time."""

    @staticmethod
    def of(context: Context, snapshot: Snapshot, reader: MaterializedViewRecord | SinkRecord) -> HighWater:
        """The newest versions of all inputs now.

        Raises SqlError UPSTREAM_UNREACHABLE for a table of the user that cannot be read.
        """
        versions: dict[str, int] = {}
        fed, feeds, is_direct, interval_ms = fed_by(snapshot, reader), {}, False, 0
        for input_id in reader.inputs:
            record = snapshot.get(input_id)
            if isinstance(record, SourceRecord) and not record.is_shared:
                is_direct, interval_ms = True, max(interval_ms, pace_of(dict(record.options)).interval_ms)
                continue
            table = table_path(context.warehouse, snapshot, input_id)
            with users_table(record):
                last = last_data_version(context, table, is_feed=input_id in fed, upstream=captured_table(reader))
                if last < 0:
                    require_table(context.warehouse, record)
                known = table_id(context.warehouse, table) if last >= 0 else ""
            if last >= 0:
                versions[known] = last
                if input_id in fed:
                    feeds[known] = table
        return HighWater(
            versions=versions,
            feeds=feeds,
            may_owe_windows=appends_windows(reader),
            is_direct=is_direct,
            interval_seconds=interval_ms / 1000,
        )

    def are_reached(self, context: Context, checkpoint: str) -> bool:
        """True if the view or sink with the checkpoint ``checkpoint`` has committed all versions in ``versions``, and
        has written the windows that close because of the rows of these versions."""
        if not self._are_read(context, checkpoint):
            return False
        warehouse = context.warehouse
        if not self.may_owe_windows or not has_state(warehouse, checkpoint):
            return True
        # FLUSH has waited for the positions of direct readers. The batch that is planned now, or an earlier batch, has
        # therefore read these positions. The view's table shows them before Spark completes the batch.
        if self.is_direct and not self._planned:
            self._planned.append(newest_planned(warehouse, checkpoint))
        if self.is_direct and newest_completed(warehouse, checkpoint) < self._planned[0]:
            return False
        # The batch after the one that reads the rows writes the windows.
        if not owes_windows(warehouse, checkpoint, interval_seconds=self.interval_seconds):
            return True
        # While records keep arriving, each batch owes windows that the next batch writes.
        if self.is_direct and newest_completed(warehouse, checkpoint) <= self._planned[0]:
            return False
        return self._are_read(context, checkpoint, before=1)

    def _are_read(self, context: Context, checkpoint: str, *, before: int = 0) -> bool:
        reached = committed_versions(context.warehouse, checkpoint, feeds=self.feeds, before=before)
        return all(reached.get(table, -1) > version for table, version in self.versions.items())


def appends_windows(reader: MaterializedViewRecord | SinkRecord) -> bool:
    """True if a view or sink may append rows when the watermark moves: rows of windows that have closed, or rows that
    an outer join has not matched. An inner join does not count: it keeps state too, but it appends nothing when the
    watermark moves. FLUSH must not wait for a further batch of an inner join, because Spark may plan none."""
    if isinstance(reader, SinkRecord):
        is_appending = bool(reader.query) and not reader.replaces
    else:
        is_appending = not isinstance(reader, TableRecord) and not reader.keys
    return is_appending and _OWING.search(reader.definition) is not None


def captured_table(reader: MaterializedViewRecord | SinkRecord) -> str | None:
    """If ``reader`` is a table of a captured database, the upstream table whose rows it reads from its source's log;
    otherwise None."""
    if not isinstance(reader, TableRecord) or reader.live_from is None:
        return None
    captured = table_definition(reader.definition).cdc_table
    return None if captured is None else captured.table


def last_data_version(context: Context, table: str, *, is_feed: bool = False, upstream: str | None = None) -> int:
    """The newest version that adds rows; -1 if no version adds rows. If ``is_feed`` is true, versions that only remove
    rows count too.

    If ``upstream`` is given, the result is the newest version that adds rows of this upstream table to the log. But if
    many later commits add rows of other tables, the result is the newest version that adds any rows.

    If no existing commit counts, returns the version before the oldest existing commit, because commits that were
    cleaned up may have added rows. A reader that has read up to that version has read all rows.
    """
    oldest = 0
    others: list[int] = []
    for version, actions in commits(context.warehouse, table):
        oldest = version
        if not has_new_data(actions) and not (is_feed and takes_data(actions)):
            continue
        if upstream is None or rows_of_table(actions, upstream) != 0:
            return version
        others.append(version)
        if len(others) > _MOST_OTHERS:
            return others[0]
    return oldest - 1
