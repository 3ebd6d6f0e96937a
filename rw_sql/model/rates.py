"""Defines the properties for a source's rate limit and batch interval. A source whose rate limit is 0 reads nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.metastore.records import SourceRecord

RATE_LIMIT = "source_rate_limit"
"""The property with the maximum number of records per second that a source reads from all its splits together."""

BARRIER_INTERVAL = "barrier_interval_ms"
"""The property with the minimum time between two batches of a source, in milliseconds."""

THROTTLED = "THROTTLED"
"""The state of a source that is not paused but whose rate limit is 0."""


def rate_limit(options: Mapping[str, str]) -> int | None:
    """The maximum number of records per second that a source with the given options reads; None if there is no
    limit."""
    given = options.get(RATE_LIMIT)
    return None if given is None else int(given)


def is_throttled(source: SourceRecord) -> bool:
    """True if a source reads nothing because its rate limit is 0."""
    return rate_limit(dict(source.options)) == 0


def throttled_reason(source: SourceRecord) -> str:
    """The reason that statements show for a source whose rate limit is 0. The reason contains the statement that
    removes the limit."""
    return f"{RATE_LIMIT} is 0: ALTER SOURCE {sql_name(source.name)} SET {RATE_LIMIT} = DEFAULT"
