"""Reads young tables. A table is young if it has at most :data:`MOST_COMMITS` commits, and all of these commits only
added rows.

The rows and files of a young table can be determined from its commits alone.

For a query's first batch, and for each read of a version, Spark computes the state of a Delta table. Computing this
state takes two to four Spark jobs regardless of the table's size. These jobs take most of the time of a small batch.
For a young table, reading the commits yields the same information faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.runtime.delta.delta_log import latest_version, read_actions
from rw_sql.runtime.delta.table_settings import CHANGE_FEED

if TYPE_CHECKING:
    from rw_sql.runtime.support.warehouse import Warehouse

MOST_COMMITS = 20
"""The maximum number of commits of a young table. Reading more commits takes longer than Spark's jobs."""

MOST_BYTES = 64 * 2**20
"""The maximum size of a young table in bytes.

The rows of a young table may be read from its change feed. The feed delivers all rows of a commit in one batch,
regardless of their size.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class YoungTable:
    """A table whose commits, from its creation, were read. ``newest`` is its newest version.

    ``feed_begin`` is the first version from which the change feed contains all of the table's rows; None if there is
    no such version.
    """

    newest: int
    feed_begin: int | None

    @staticmethod
    def of(warehouse: Warehouse, table: str) -> YoungTable | None:
        """Returns the table if it is young; otherwise None. All commits of a young table still exist and only add rows,
        and the table's schema has not changed since the table's creation. A table in an object store never counts as
        young."""
        if not warehouse.files_at(table).is_local:  # In an object store, each commit would require a separate request.
            return None
        newest = latest_version(warehouse, table)
        if not 0 <= newest < MOST_COMMITS:
            return None
        schema: str | None = None
        has_feed, has_rows, size = False, False, 0
        feed_begin: int | None = None
        for version in range(newest + 1):
            try:
                actions = read_actions(warehouse, table, version)
            except FileNotFoundError:
                return None
            metadata = _metadata(actions)
            if metadata is not None:
                if schema not in (None, metadata["schemaString"]):
                    return None
                schema = metadata["schemaString"]
                had_feed, has_feed = has_feed, (metadata.get("configuration") or {}).get(CHANGE_FEED) == "true"
                if has_feed and not had_feed:
                    feed_begin = None if has_rows else version
            for action in actions:
                if "remove" in action or "cdc" in action:
                    return None
                if "add" in action:
                    has_rows = True
                    size += int(action["add"]["size"])
        if schema is None or size > MOST_BYTES:
            return None
        return YoungTable(newest=newest, feed_begin=feed_begin if has_feed else None)


def _metadata(actions: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((action["metaData"] for action in actions if action.get("metaData") is not None), None)
