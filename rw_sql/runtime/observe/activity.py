"""Computes the write rate of the jobs from the latest commits of their tables. Any process can read these commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.model.job_ids import ingest_fragment, view_job
from rw_sql.runtime.observe.commit_numbers import commit_cache

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.observe.commit_numbers import CommitCache

WINDOW_MS = 60_000
"""The length, in milliseconds, of the period before a measurement. The rows per second are computed from the commits in
this period."""
_MOST_COMMITS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The time of a job's last batch (None if no batch was found), and the number of rows per second that the job has
    added, replaced or removed during the last minute. If a job has made more than about 30 commits in this minute, the
    number is computed from the latest of these commits and from the shorter period that they cover."""

    last_ms: int | None = None
    rows_per_second: float = 0.0


def measure_activity(context: Context, snapshot: Snapshot, at_ms: int) -> dict[str, Activity]:
    """The activity of each job that writes a table of the warehouse: the jobs of shared sources, tables and views."""
    warehouse = context.warehouse
    shared = [source for source in snapshot.all("source") if source.is_shared]
    tables = {ingest_fragment(source.id): warehouse.data(source.id, source.generation) for source in shared}
    tables |= {view_job(view.id): warehouse.data(view.id, view.generation) for view in snapshot.kept}
    cache = commit_cache(context)
    return {job: _activity(cache, table, at_ms) for job, table in tables.items()}


def _activity(cache: CommitCache, table: str, at_ms: int) -> Activity:
    last: int | None = None
    rows, since = 0, at_ms - WINDOW_MS
    for number, (_, numbers) in enumerate(cache.commits(table)):
        committed = numbers.at_ms
        if not numbers.is_batch or committed is None:
            if number >= _MOST_COMMITS:
                break
            continue
        last = committed if last is None else last
        if committed < since:
            break
        if number >= _MOST_COMMITS:
            # The commits that were read may cover less than the period, because a busy job makes many commits.
            since = committed
            break
        rows += numbers.committed
    span = max(1, at_ms - since) / 1000
    return Activity(last_ms=last, rows_per_second=rows / span)
