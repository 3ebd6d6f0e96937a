"""Defines the port for facts about the jobs. The owner of a job has reported these facts, or the facts are derived from
the job's tables."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that runs the jobs of a resource group. ``state`` is RUNNING, LATE (no heartbeat for a while),
    SUSPENDED (stopped by a signal) or NONE (ended). ``hint`` is the command that a user should run in this state."""

    state: str
    name: str
    host: str
    pid: int
    version: str | None
    since_ms: int
    heartbeat_ms: int
    applied_epoch: int
    hint: str | None = None


class JobPort(Protocol):
    """The state of the jobs."""

    def owners(self) -> Mapping[str, Owner]:
        """The last owner of each resource group that ever had an owner."""
        ...

    def serve_command(self, group: str) -> str:
        """The command that starts a process for a resource group of this warehouse."""
        ...

    def statuses(self) -> Mapping[str, JobStatus]:
        """The status that the owner last reported for each job."""
        ...

    def backfills(self) -> Mapping[str, BackfillProgress]:
        """Maps the id of a view's job to the progress of its unfinished backfill."""
        ...

    def being_backfilled(self) -> frozenset[str]:
        """The ids of the jobs of views whose backfill is not complete. The result is used only for notices, unlike the
        result of :meth:`backfills`. Therefore, a check without a warehouse may assume that no view is being
        backfilled."""
        ...

    def lags(self) -> Mapping[str, int | None]:
        """Returns, for each job, the number of records that the job has not processed yet; None if the number is
        unknown."""
        ...

    def metrics(self) -> tuple[Sample, ...]:
        """Every metric that the metrics server provides."""
        ...
