"""When nobody ran the jobs of a warehouse: how long a reader has been waited for does not count that.

A warehouse that was left for a week and is started again finds its readers a week behind, and they are about to read.
What an owner finds when it takes the lease, and a gap between two of its own heartbeats (the machine slept, or its
clock was set), is written down as a stretch of time.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore.facts import Lease
    from rw_sql.runtime.support.warehouse import Warehouse

LEAST_MS = 60_000
"""A shorter gap is none: heartbeats come late on a busy machine."""

MOST = 500
"""So many stretches are remembered, the newest ones."""

Stretch = tuple[int, int]


def note_downtime(warehouse: Warehouse, last: Lease | None, at_ms: int) -> None:
    """Writes down that nobody ran the jobs from a lease's last heartbeat until ``at_ms``, where that is long enough."""
    if last is None or at_ms - last.heartbeat_ms < LEAST_MS:
        return
    known = downtime(warehouse)
    known.append((last.heartbeat_ms, at_ms))
    warehouse.write_text(_file(warehouse), json.dumps(sorted(known)[-MOST:]))


def downtime(warehouse: Warehouse) -> list[Stretch]:
    """The stretches in which nobody ran the jobs, as far as they are remembered; they may overlap."""
    try:
        return [(int(start), int(end)) for start, end in json.loads(warehouse.read_text(_file(warehouse)))]
    except FileNotFoundError:
        return []


def waited_ms(since_ms: int, now_ms: int, stretches: Iterable[Stretch]) -> int:
    """How long it is from one moment to the other, without what lies in these stretches.

    One that ends later than now is none: the clock was ahead, and has been set back since.
    """
    waited, at = 0, since_ms
    for start, end in sorted(stretch for stretch in stretches if stretch[1] <= now_ms):
        waited += max(0, start - at)
        at = max(at, end)
    return waited + max(0, now_ms - at)


def _file(warehouse: Warehouse) -> str:
    return f"{warehouse.uri}/checkpoints/downtime.json"
