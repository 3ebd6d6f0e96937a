"""How fast a source is read: its rate and its pace, and that a rate of 0 reads nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.identifiers import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.metastore.records import SourceRecord

RATE_LIMIT = "source_rate_limit"
"""Records per second over all splits."""

BARRIER_INTERVAL = "barrier_interval_ms"
"""The least time between two batches."""

THROTTLED = "THROTTLED"
"""The state of a source that nothing holds and whose rate is 0."""


def rate_limit(options: Mapping[str, str]) -> int | None:
    """Records per second that a source may read; None where there is no limit."""
    given = options.get(RATE_LIMIT)
    return None if given is None else int(given)


def is_throttled(source: SourceRecord) -> bool:
    """Whether a source reads nothing because its rate is 0."""
    return rate_limit(dict(source.options)) == 0


def throttled_reason(source: SourceRecord) -> str:
    """Why nothing is read, with the statement that changes it."""
    return f"{RATE_LIMIT} is 0: ALTER SOURCE {quoted(source.name)} SET {RATE_LIMIT} = DEFAULT"
