"""Determines whether a sink retries a batch by itself if the target has accepted a part of the batch, but refuses
another part."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.model.job_specs import SinkSpec
    from rw_sql.runtime.jobs.context import Context

_MOST_EQUAL = 3
"""The number of equal failures of a batch after which a ``jdbc`` sink does not retry the batch by itself."""

_MADE = "part_failures"
"""The name in ``Context.made`` of a dictionary that maps each sink's job to the batch, the reason and the number of its
equal failures."""


def is_last_attempt(context: Context, spec: SinkSpec, batch: int, reason: str) -> bool:
    """Counts the failure of a batch of which a part was written. Returns True if the sink must not retry the batch by
    itself.

    Each retry writes the same part again. This repeats the records in a topic, and adds files to a Delta or Iceberg
    table, so other sinks than ``jdbc`` do not retry. A table of PostgreSQL stays the same, apart from the effects of
    triggers. A ``jdbc`` sink therefore retries a few times, because the problem may pass: for example a failover, or a
    missing row of another table.
    """
    if spec.connector != "jdbc":
        return True
    failures: dict[str, tuple[int, str, int]] = context.made.setdefault(_MADE, {})
    known_batch, known_reason, number = failures.pop(spec.job, (batch, reason, 0))
    number = number + 1 if (known_batch, known_reason) == (batch, reason) else 1
    if number < _MOST_EQUAL:
        failures[spec.job] = (batch, reason, number)
    return number >= _MOST_EQUAL
