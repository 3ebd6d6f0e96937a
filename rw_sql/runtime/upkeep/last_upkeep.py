"""Stores the last upkeep of each table. A job uses this information to determine when the next upkeep is due.

A job that suspends when it is idle has a new run for almost every batch. Therefore, the version and the time of the
last upkeep are kept in the context of the warehouse, which outlives a run. A process that a scheduler starts writes
only a few batches before it ends. Therefore, the version and the time are also kept in a file of the warehouse.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rw_sql.runtime.jobs.context import Context

_KNOWN = "last_upkeep"


@dataclass(slots=True)
class LastUpkeep:
    """The last upkeep of a table. ``version`` is the table's version when the upkeep began, and ``at`` is the time in
    seconds since 1970.

    ``orphans_at`` is the time of the last search for files that killed writers left behind; 0 if there was no such
    search. ``whole_at`` is the time of the last compaction of all small files. Until the first compaction of all small
    files, ``whole_at`` is the time of the first call of :func:`last_upkeep`.
    """

    version: int
    at: float
    orphans_at: float = 0.0
    whole_at: float = 0.0

    def is_due(self, version: int, now: float, *, every_versions: int, every_seconds: float) -> bool:
        """True if the table, whose newest version is ``version``, needs upkeep at the time ``now``. If the clock was
        set back to before the last upkeep, upkeep is due."""
        return version - self.version >= every_versions or not 0 <= now - self.at < every_seconds

    def is_search_due(self, now: float, *, every_seconds: float) -> bool:
        """True if the next upkeep must search for files that killed writers left behind."""
        return not 0 <= now - self.orphans_at < every_seconds

    def is_whole_due(self, now: float, *, every_seconds: float) -> bool:
        """True if the next upkeep must compact all small files, not only the tiny ones."""
        return not 0 <= now - self.whole_at < every_seconds

    def write(self, context: Context, object_id: int, generation: int) -> None:
        """Writes the file that :func:`last_upkeep` reads in a later process. Raises OSError."""
        times = {"at": self.at, "orphans_at": self.orphans_at, "whole_at": self.whole_at}
        body = {"version": self.version, **{f"{key}_ms": int(value * 1000) for key, value in times.items()}}
        path = context.warehouse.last_upkeep(object_id, generation)
        context.warehouse.write_text(path, json.dumps(body, separators=(",", ":")))


def last_upkeep(context: Context, object_id: int, generation: int, *, now: float) -> LastUpkeep:
    """The last upkeep of the table of one generation of an object. All runs of the object's job in this process share
    the returned object.

    For a table that has had no upkeep, the result has version 0 and the time of the first call of this function,
    possibly in an earlier process. ``now`` is in seconds since 1970. Raises OSError.
    """
    known: dict[tuple[int, int], LastUpkeep] = context.made.setdefault(_KNOWN, {})
    found = known.get((object_id, generation))
    if found is None:
        body = _read(context, object_id, generation)
        times = (body.get(key, 0) / 1000 for key in ("at_ms", "orphans_at_ms", "whole_at_ms"))
        found = LastUpkeep(body.get("version", 0), *times)
        if not body:
            found.at = found.whole_at = now
            found.write(context, object_id, generation)
        known[object_id, generation] = found
    return found


def _read(context: Context, object_id: int, generation: int) -> dict[str, Any]:
    try:
        body = context.warehouse.read_json(context.warehouse.last_upkeep(object_id, generation))
    except FileNotFoundError:
        return {}
    return body if isinstance(body, dict) else {}
