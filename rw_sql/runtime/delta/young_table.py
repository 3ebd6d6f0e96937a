"""Tables with few commits, all of which only added rows: their rows and files are known from these commits.

For a query's first batch, and for each read of a version, Spark computes the state of a Delta table: two to four jobs,
whatever the size of the table, and most of the time of a small batch. The commits of a young table say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.runtime.delta.delta_log import latest_version, read_actions
from rw_sql.runtime.delta.job_output import CHANGE_FEED

if TYPE_CHECKING:
    from rw_sql.runtime.support.warehouse import Warehouse

MOST_COMMITS = 20
"""A table with more commits is not young: reading them takes longer than the jobs."""

MOST_BYTES = 64 * 2**20
"""A table with more bytes is not young. A change feed gives a commit's rows in one batch, whatever their size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class YoungTable:
    """The commits of a table, from its creation.

    ``feed_begin`` is the version from which its change feed has all of its rows; None if there is no such version.
    """

    newest: int
    feed_begin: int | None

    @staticmethod
    def of(warehouse: Warehouse, table: str) -> YoungTable | None:
        """The table, if it is young: every commit exists and only adds rows, and the schema is that of its creation."""
        if not warehouse.is_local:  # Each commit would be a request, one after the other.
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
