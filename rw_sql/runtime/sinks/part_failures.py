"""Determines whether a sink automatically retries a batch if the target has accepted a part of the batch but refuses
another part."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.model.job_specs import SinkSpec
    from rw_sql.runtime.jobs.context import Context

_MOST_EQUAL = 3
"""After this number of failures of the same batch for the same reason, a ``jdbc`` sink does not retry the batch
automatically."""

_MADE = "part_failures"
"""The key of a dictionary in ``Context.made``. The dictionary maps the job of each sink to the batch that failed, the
reason, and the number of failures of this batch for this reason."""


def is_last_attempt(context: Context, spec: SinkSpec, batch: int, reason: str) -> bool:
    """Counts a failure of a batch after a part of the batch was written. Returns True if the sink must not retry the
    batch automatically.

    Each retry writes this part again. In a topic, a retry would repeat records, and in a Delta or Iceberg table, it
    would add files again. Therefore, sinks other than ``jdbc`` do not retry. In a PostgreSQL table, writing this part
    again changes nothing, apart from the effects of triggers. A ``jdbc`` sink therefore retries a few times, because
    the problem may be temporary, such as a failover or a missing row of another table.
    """
    if spec.connector != "jdbc":
        return True
    failures: dict[str, tuple[int, str, int]] = context.made.setdefault(_MADE, {})
    known_batch, known_reason, number = failures.pop(spec.job, (batch, reason, 0))
    number = number + 1 if (known_batch, known_reason) == (batch, reason) else 1
    if number < _MOST_EQUAL:
        failures[spec.job] = (batch, reason, number)
    return number >= _MOST_EQUAL
