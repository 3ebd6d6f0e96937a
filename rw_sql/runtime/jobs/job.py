"""Defines the interface of one run of a job, from the claim of the run number to the stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rw_sql.model.job_specs import JobSpec
    from rw_sql.runtime.support.failures import Failure


class Job(Protocol):
    """One run of a job."""

    @property
    def spec(self) -> JobSpec:
        """The spec with which the run was started."""
        ...

    @property
    def run(self) -> int:
        """The number of the run."""
        ...

    @property
    def is_unproven(self) -> bool:
        """True while a batch is in progress and no batch of the run has succeeded yet."""
        ...

    def failure(self) -> Failure | None:
        """The reason why the run ended without being stopped; None while it runs."""
        ...

    def stop(self) -> None:
        """Stops the run. Afterwards, no part of the run is active in this process."""
        ...
