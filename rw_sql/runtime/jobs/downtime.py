"""Records periods in which no process ran the jobs of a resource group. For the group's readers, these periods do not
count as waiting time.

For example, after a week without jobs, the readers are a week behind, but they are not stuck. Two kinds of periods are
recorded: the time between the last heartbeat of one owner and the start of the next owner, and long gaps between two
heartbeats of the same owner. Such a gap occurs if the machine sleeps or its clock is changed.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.runtime.jobs.lease import is_owned

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore.facts import Lease
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.support.warehouse import Warehouse

LEAST_MS = 60_000
"""The minimum length in milliseconds of a period that is recorded.

Shorter periods are ignored, because heartbeats may be late on a busy machine.
"""

MOST = 500
"""The maximum number of recorded periods per resource group. If there are more, the oldest periods are dropped."""

Stretch = tuple[int, int]

_FILE_NAME = re.compile(r"downtime(?:-(.+))?\.json")


def note_downtime(warehouse: Warehouse, last: Lease | None, at_ms: int) -> None:
    """Records that no process ran the jobs of a lease's group from the last heartbeat until ``at_ms``, if this period
    is at least ``LEAST_MS`` long. ``last`` is the lease with this heartbeat; if it is None, nothing is recorded."""
    if last is None or at_ms - last.heartbeat_ms < LEAST_MS:
        return
    # If an earlier attempt to take the lease failed, that attempt has already recorded this period with an earlier end.
    known = [each for each in downtime(warehouse, last.group, until_ms=at_ms) if each[0] != last.heartbeat_ms]
    known.append((last.heartbeat_ms, at_ms))
    warehouse.write_text(_file(warehouse, last.group), json.dumps(sorted(known)[-MOST:]), is_durable=True)


def downtime(warehouse: Warehouse, group: str = DEFAULT_GROUP, *, until_ms: int = 0) -> list[Stretch]:
    """The recorded periods in which no process ran the jobs of a group. The periods may overlap.

    If the record cannot be read, the result is one period from 1970 until ``until_ms``. No time before ``until_ms``
    then counts as waiting time.
    """
    try:
        known = warehouse.read_json(_file(warehouse, group))
    except FileNotFoundError:
        return []
    return [(0, until_ms)] if known is None else [(int(start), int(end)) for start, end in known]


def downtime_of_all_groups(warehouse: Warehouse, *, until_ms: int) -> list[Stretch]:
    """The recorded periods of all groups together. In each of these periods, at least one group had no process that ran
    the group's jobs. ``until_ms`` has the same meaning as in :func:`downtime`."""
    found: list[Stretch] = []
    for name in warehouse.list_names(f"{warehouse.uri}/checkpoints"):
        of_group = _FILE_NAME.fullmatch(name)
        if of_group is not None:
            found += downtime(warehouse, of_group[1] or DEFAULT_GROUP, until_ms=until_ms)
    return found


def downtime_until(context: Context, group: str, now_ms: int) -> list[Stretch]:
    """The recorded periods of a group, and the period that is in progress now, if there is one.

    A period is in progress if the group's last heartbeat is late, for example because the machine has slept. For a
    group other than the group of this process, a period is also in progress if the group has no owner. The next
    heartbeat or the next owner will record this period, but upkeep needs it before then. If a group other than the
    group of this process never had an owner, the result is one period that ends now.
    """
    found = downtime(context.warehouse, group, until_ms=now_ms)
    lease = context.metastore.jobs.lease(group)
    if group == context.group:
        if lease is not None and now_ms - lease.heartbeat_ms >= LEAST_MS:
            found.append((lease.heartbeat_ms, now_ms))
        return found
    if lease is None:
        return [(0, now_ms)]
    if not is_owned(lease, now_ms=now_ms) or now_ms - lease.heartbeat_ms >= LEAST_MS:
        found.append((lease.heartbeat_ms, now_ms))
    return found


def waited_ms(since_ms: int, now_ms: int, stretches: Iterable[Stretch]) -> int:
    """The time from ``since_ms`` to ``now_ms`` in milliseconds, without the time that lies in the periods
    ``stretches``.

    A period that ends in the future is ignored, because the clock must have been set back after the period was
    recorded.
    """
    waited, at = 0, since_ms
    for start, end in sorted(stretch for stretch in stretches if stretch[1] <= now_ms):
        waited += max(0, start - at)
        at = max(at, end)
    return waited + max(0, now_ms - at)


def _file(warehouse: Warehouse, group: str) -> str:
    # Each group has a separate file, because each owner writes only its own file.
    name = "downtime" if group == DEFAULT_GROUP else f"downtime-{group}"
    return f"{warehouse.uri}/checkpoints/{name}.json"
