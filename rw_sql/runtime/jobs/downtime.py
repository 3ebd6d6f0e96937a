"""Periods in which no process ran the jobs of a warehouse. These periods do not count as waiting for a reader.

After a week without jobs, the readers are a week behind, but this does not mean that they are stuck. Two kinds of
periods are recorded: the time before an owner takes the lease, and gaps between an owner's heartbeats (because the
machine slept or its clock was changed).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore.facts import Lease
    from rw_sql.runtime.support.warehouse import Warehouse

LEAST_MS = 60_000
"""The minimum length of a gap in milliseconds.

Shorter gaps are ignored, because heartbeats are late on a busy machine.
"""

MOST = 500
"""The number of periods kept, newest first."""

Stretch = tuple[int, int]


def note_downtime(warehouse: Warehouse, last: Lease | None, at_ms: int) -> None:
    """Records that no process ran the jobs from a lease's last heartbeat until ``at_ms``, if that is long enough."""
    if last is None or at_ms - last.heartbeat_ms < LEAST_MS:
        return
    known = downtime(warehouse)
    known.append((last.heartbeat_ms, at_ms))
    warehouse.write_text(_file(warehouse), json.dumps(sorted(known)[-MOST:]))


def downtime(warehouse: Warehouse) -> list[Stretch]:
    """The recorded periods in which no process ran the jobs; they may overlap."""
    try:
        return [(int(start), int(end)) for start, end in json.loads(warehouse.read_text(_file(warehouse)))]
    except FileNotFoundError:
        return []


def waited_ms(since_ms: int, now_ms: int, stretches: Iterable[Stretch]) -> int:
    """The time from one moment to another, without these periods, in milliseconds.

    A period that ends in the future is ignored, because the clock must have been set back since.
    """
    waited, at = 0, since_ms
    for start, end in sorted(stretch for stretch in stretches if stretch[1] <= now_ms):
        waited += max(0, start - at)
        at = max(at, end)
    return waited + max(0, now_ms - at)


def _file(warehouse: Warehouse) -> str:
    return f"{warehouse.uri}/checkpoints/downtime.json"
