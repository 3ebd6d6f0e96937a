"""The state of the jobs, as reported by their owner or derived from their tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.metastore.facts import BackfillProgress, JobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value of a metric, with its name and labels."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class JobPort(Protocol):
    """The state of the jobs."""

    def statuses(self) -> Mapping[str, JobStatus]:
        """The status that the owner last reported for each job."""
        ...

    def backfills(self) -> Mapping[str, BackfillProgress]:
        """The progress of each view's backfill, by job. Views without an unfinished backfill are absent."""
        ...

    def lags(self) -> Mapping[str, int | None]:
        """The number of records that each job is behind, None if unknown."""
        ...

    def metrics(self) -> tuple[Sample, ...]:
        """Every metric that the metrics server provides."""
        ...
