"""Defines the port for facts about jobs. The owner of a job reports these facts, or they are derived from the job's
tables."""

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
    """The process that runs, or last ran, the jobs of a resource group. ``state`` is RUNNING, LATE (the heartbeat is
    overdue), SUSPENDED (stopped by a signal) or NONE (the process has ended). ``hint`` is the command that a user
    should run in this state; None if no command is needed."""

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
    """The port for the states of the jobs."""

    def owners(self) -> Mapping[str, Owner]:
        """Maps each resource group that has or had an owner to its latest owner."""
        ...

    def serve_command(self, group: str) -> str:
        """Returns the command that starts a process for the jobs of a resource group of this warehouse."""
        ...

    def statuses(self) -> Mapping[str, JobStatus]:
        """Maps the id of each job to the status that the job's owner reported last."""
        ...

    def backfills(self) -> Mapping[str, BackfillProgress]:
        """Maps the id of a view's job to the progress of its unfinished backfill."""
        ...

    def being_backfilled(self) -> frozenset[str]:
        """Returns the ids of the jobs of views whose backfill is not complete. Unlike the result of :meth:`backfills`,
        this result appears only in notices. An inspector that has no warehouse may therefore return an empty set."""
        ...

    def lags(self) -> Mapping[str, int | None]:
        """Maps the id of each job to the number of records that the job has not processed yet; None if this number is
        unknown."""
        ...

    def metrics(self) -> tuple[Sample, ...]:
        """Returns the current values of all metrics that the metrics server provides."""
        ...
